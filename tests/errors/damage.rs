//! Bits that flip in the pool's files.

use super::objects;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::PathBuf;
use stonefold_dice::{Dice, noise};
use stonefold_e2e::gateway::in_a_place;
use stonefold_e2e::nbd::{Connection, Refused};
use stonefold_e2e::rot::{flip, stripes};
use stonefold_e2e::tools::attempt;

const EIO: u32 = 5;
const BLOCK: usize = 4096;

#[test]
fn a_damaged_segment_is_an_error_with_a_name_and_never_other_data() {
    const BYTES: usize = 24 << 20;
    const FLIPS: u64 = 60;
    /// Runs of damaged pages twice as long as parity mends.
    const RUNS: u64 = 3;
    in_a_place(|place| {
        let mut chance = Dice::new(Dice::seed("STONEFOLD_ERRORS_SEED"));
        let gateway = place.start(&[])?;
        place.ok("disk create web --size 32M")?;
        let data = noise(7, BYTES);
        let mut connection = place.connect("web")?;
        for (at, part) in data.chunks(1 << 20).enumerate() {
            connection.write((at as u64) << 20, part)?;
        }
        connection.flush()?;
        drop(connection);
        gateway.stop()?;

        // The largest are the data's; the map's nodes are few.
        let segments: Vec<PathBuf> = objects(place, "segment")?
            .into_iter()
            .filter(|f| fs::metadata(f).is_ok_and(|m| m.len() > 4 << 20))
            .collect();
        ensure!(!segments.is_empty(), "no segment of data");
        // A page of each, and all is as it was.
        for segment in &segments {
            flip(segment, chance.between(8192, fs::metadata(segment)?.len()))?;
        }
        let gateway = place.start(&["--cache", "8M"])?;
        let damaged = read_blocks(&mut place.connect("web")?, &data)?;
        ensure!(damaged.is_empty(), "{} blocks of {} are damaged", damaged.len(), data.len() / BLOCK);
        gateway.stop()?;

        for _ in 0..FLIPS {
            let segment = chance.one_of(&segments);
            flip(segment, chance.between(8192, fs::metadata(segment)?.len() / 16 * 15))?;
        }
        for _ in 0..RUNS {
            let segment = chance.one_of(&segments);
            let bytes = fs::metadata(segment)?.len();
            let run = 2 * stripes(bytes.div_ceil(4096)) * 4096;
            let at = chance.between(1 << 20, bytes / 16 * 15 - run);
            (at..at + run).step_by(4096).try_for_each(|at| flip(segment, at))?;
        }
        let gateway = place.start(&["--cache", "8M"])?;
        let mut connection = place.connect("web")?;
        let damaged = read_blocks(&mut connection, &data)?;
        ensure!(!damaged.is_empty() && damaged.len() < 2000, "{} blocks are damaged", damaged.len());
        println!(
            "{RUNS} long runs of damage made {} of {} blocks unreadable",
            damaged.len(),
            data.len() / BLOCK
        );
        let (block, refused) = &damaged[0];
        for word in
            ["web", "frame", &(block * BLOCK).to_string(), "; ask 'stonefold pool check'", "--salvage"]
        {
            ensure!(refused.message.contains(word), "no {word:?} in {:?}", refused.message);
        }
        ensure!(names_one_of(&refused.message, &segments), "no segment is named in {:?}", refused.message);
        let (status, said) = attempt(
            "qemu-io",
            &["-f", "raw", "-r", "-c", &format!("read {} 4k", block * BLOCK), &place.uri("web")],
        )?;
        ensure!(said.contains("Input/output error"), "{status:?}: {said}");

        // Whoever asks is told, with the segment, in the command's own words as in the server's; a check tells all, and is remembered.
        let state = place.ok("pool status")?;
        ensure!(state.contains("DAMAGED") && state.contains("of 'web' failed"), "{state}");
        let said = place.fails(&format!("disk export web {}", place.text("web.img")), 1)?;
        ensure!(said.contains("of 'web'") && names_one_of(&said, &segments), "{said}");
        ensure!(!place.run("pool check")?.status.success(), "a check finds nothing");
        let state = place.ok("pool status")?;
        ensure!(state.contains("found by the check of") && !state.contains("sound"), "{state}");

        // What is written anew is whole again; the rest goes on.
        connection.write((block * BLOCK) as u64, &data[block * BLOCK..][..BLOCK])?;
        connection.flush()?;
        let again = read_blocks(&mut connection, &data)?;
        ensure!(again.len() == damaged.len() - 1, "{} of {} left", again.len(), damaged.len());
        drop(connection);
        gateway.stop()
    });
}

/// Whether a message names a segment as its file is named.
fn names_one_of(message: &str, segments: &[PathBuf]) -> bool {
    segments.iter().filter_map(|path| path.file_name()?.to_str()).any(|name| message.contains(name))
}

/// Reads block by block: what comes is right; gives the blocks that do not come, with the server's words.
fn read_blocks(connection: &mut Connection, data: &[u8]) -> Result<Vec<(usize, Refused)>> {
    let mut damaged = Vec::new();
    for (block, expected) in data.chunks(BLOCK).enumerate() {
        match connection.read((block * BLOCK) as u64, BLOCK) {
            Ok(bytes) => ensure!(bytes == expected, "block {block} reads as something else"),
            Err(error) => {
                let refused = error.downcast::<Refused>().with_context(|| format!("block {block}"))?;
                ensure!(refused.errno == EIO, "block {block}: {refused}");
                damaged.push((block, refused));
            }
        }
    }
    Ok(damaged)
}
