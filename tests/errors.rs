//! Bad input, through the real command line and the real door.
//!
//! *Promise*: each gets an error that says what, on which object, and what to do; exit status 1, or 2 for misuse; the pool
//! stays as it was; a damaged frame is an I/O error that names disk, address and segment, and never other data (P6); a
//! full place refuses writes, goes on reading, and loses nothing that it acknowledged (P1). *Method*: a server of its own
//! for each, on real files; damage by hand in the pool's files. *Past bug*: none yet.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use stonefold_dice::{Dice, noise};
use stonefold_e2e::gateway::{Place, in_a_place};
use stonefold_e2e::mounts::{Loop, Mount, possible};
use stonefold_e2e::nbd::{Connection, Refused, errno};
use stonefold_e2e::tools::{attempt, run};
use stonefold_guest::time::Deadline;
use xxhash_rust::xxh3::xxh3_64;

const EIO: u32 = 5;
const ENOSPC: u32 = 28;
const BLOCK: usize = 4096;

/// An error's words must have all of these, and a remedy.
fn says(error: &str, words: &[&str]) -> Result<()> {
    for word in words.iter().chain(&["what to do"]) {
        ensure!(error.contains(word), "no {word:?} in: {error}");
    }
    Ok(())
}

#[test]
fn what_is_not_there_or_cannot_be_is_refused_by_name() {
    in_a_place(|place| {
        let gateway = place.start(&[])?;
        place.ok("disk create web --size 64M")?;
        place.ok("snapshot create web --name monday")?;
        let before = (place.json("disk ls")?, place.json("snapshot ls")?);
        fs::write(place.path("text.img"), noise(1, 100_000))?;
        fs::write(place.path("torn.qcow2"), b"QFI\xfb\0\0\0\x03 and then nothing")?;
        let (text, torn) = (place.text("text.img"), place.text("torn.qcow2"));
        for (line, status, words) in [
            ("disk show wbe".to_owned(), 1, &["wbe", "does not exist"][..]),
            ("disk resize none 1G".into(), 1, &["none"]),
            ("disk rm none".into(), 1, &["none"]),
            ("disk create web --size 1G".into(), 1, &["web", "exists already"]),
            ("snapshot create web --name monday".into(), 1, &["web@monday", "exists already"]),
            ("snapshot rm web@tuesday".into(), 1, &["web@tuesday"]),
            ("snapshot rm none@monday".into(), 1, &["none"]),
            ("clone web@tuesday new".into(), 1, &["web@tuesday"]),
            ("clone web@monday web".into(), 1, &["web", "exists already"]),
            ("disk rm web".into(), 1, &["web", "snapshot"]),
            ("disk create new --size 0".into(), 1, &["size"]),
            ("disk create new --size 4097".into(), 1, &["4K"]),
            ("disk create new --size 1000T".into(), 1, &["16T"]),
            ("disk resize web 1M".into(), 1, &["--shrink"]),
            (format!("disk import new {text}"), 1, &["text.img", "image"]),
            (format!("disk import new {torn}"), 1, &["torn.qcow2"]),
            ("disk import new /nowhere/x.img".into(), 1, &["/nowhere/x.img"]),
            (format!("disk export none {}", place.text("out.img")), 1, &["none"]),
            ("disk export web /nowhere/out.img".into(), 1, &["/nowhere"]),
        ] {
            let error = place.fails(&line, status).context(line.clone())?;
            says(&error, words).context(line)?;
        }
        for line in [
            "disk create new",
            "disk create new --size 12x",
            "disk create a/b --size 1G",
            "clone web new",
            "nonsense",
        ] {
            let error = place.fails(line, 2).context(line)?;
            ensure!(error.contains("error:"), "{line}: {error}");
        }
        let refused = place.connect("none").err().context("an unknown export was opened")?;
        ensure!(format!("{refused:#}").contains("none"), "{refused:#}");
        ensure!(before == (place.json("disk ls")?, place.json("snapshot ls")?), "something has changed");
        gateway.stop()
    });
}

/// *Past bug*: `disk rm a nope b` removed a, and told only of nope.
#[test]
fn of_several_none_is_removed_when_one_cannot_be() {
    in_a_place(|place| {
        let gateway = place.start(&[])?;
        for disk in ["a", "b", "c"] {
            place.ok(&format!("disk create {disk} --size 8M"))?;
            place.ok(&format!("snapshot create {disk} --name s"))?;
        }
        let used = place.connect("c")?;
        let before = (place.json("disk ls")?, place.json("snapshot ls")?);
        for (line, word) in [
            ("disk rm a nope b --snapshots", "nope"),
            ("disk rm a b", "--snapshots"),
            ("disk rm a c --snapshots", "in use by 1 client"),
            ("snapshot rm a@s a@nope", "a@nope"),
        ] {
            says(&place.fails(line, 1)?, &[word]).context(line)?;
            ensure!(
                before == (place.json("disk ls")?, place.json("snapshot ls")?),
                "{line} removed something"
            );
        }
        drop(used);
        // Named twice, the second cannot be: what is gone is told all the same.
        let done = place.run("snapshot rm a@s a@s --json")?;
        ensure!(done.status.code() == Some(1) && done.stderr.contains("a@s"), "{}", done.stderr);
        let told: serde_json::Value = serde_json::from_str(&done.stdout)?;
        ensure!(told["removed"] == serde_json::json!(["a@s"]), "{told}");
        let told = place.json("disk rm a b --snapshots")?;
        ensure!(told["removed"] == serde_json::json!(["a", "b"]), "{told}");
        gateway.stop()
    });
}

#[test]
fn a_pool_or_an_address_in_use_is_left_to_who_has_it() {
    in_a_place(|place| {
        let gateway = place.start(&[])?;
        place.ok("disk create web --size 8M")?;
        place.connect("web")?.write(0, b"mine")?;

        let second = Place::new()?.with_pool(place.pool());
        let (error, status) = second.refused(&[])?;
        says(&error, &["in use", &gateway.pid().to_string(), &place.pool().to_string_lossy()])?;
        ensure!(status == 1, "status {status}");

        let taken = format!("unix://{}", place.nbd().display());
        let (error, status) = Place::new()?.refused(&["--nbd", &taken])?;
        says(&error, &["address in use", &taken])?;
        ensure!(status == 1, "status {status}");

        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        let taken = format!("tcp://{}", listener.local_addr()?);
        let (error, status) = Place::new()?.refused(&["--nbd", &taken])?;
        says(&error, &["in use", &taken])?;
        ensure!(status == 1, "status {status}");

        ensure!(place.connect("web")?.read(0, 4)? == b"mine", "the first server was disturbed");
        gateway.stop()
    });
}

#[test]
fn a_pool_of_a_newer_version_is_refused_and_untouched() {
    in_a_place(|place| {
        let gateway = place.start(&[])?;
        place.ok("disk create web --size 8M")?;
        place.connect("web")?.write(5000, b"old")?;
        gateway.stop()?;

        let record = objects(place, "+")?.pop().context("the pool has a record")?;
        let old = fs::read(&record)?;
        fs::write(&record, newer(&old))?;
        let before = tree(place.pool())?;
        let (error, status) = place.refused(&[])?;
        says(&error, &["version", "newer stonefold"])?;
        ensure!(status == 1, "status {status}");
        ensure!(before == tree(place.pool())?, "a refused pool was changed");

        fs::write(&record, old)?;
        let mark = place.pool().join("pool");
        let old = fs::read(&mark)?;
        fs::write(&mark, "stonefold pool, layout 99\n")?;
        let (error, status) = place.refused(&[])?;
        says(&error, &["layout 99", "newer stonefold", &place.pool().to_string_lossy()])?;
        ensure!(status == 1, "status {status}");

        fs::write(&mark, old)?;
        let gateway = place.start(&[])?;
        ensure!(place.connect("web")?.read(5000, 3)? == b"old", "the pool was changed");
        gateway.stop()
    });
}

/// The pool's record with a version that is not yet, and every checksum right (`engine/src/file/header.rs`,
/// `format/src/document.rs`).
fn newer(file: &[u8]) -> Vec<u8> {
    let (mut header, mut document) = (file[..4096].to_vec(), file[4096..].to_vec());
    document[18..20].copy_from_slice(&999u16.to_le_bytes());
    let check = xxh3_64(&document[8..]);
    document[..8].copy_from_slice(&check.to_le_bytes());
    header[24..32].copy_from_slice(&xxh3_64(&document).to_le_bytes());
    let check = xxh3_64(&header[8..56]);
    header[..8].copy_from_slice(&check.to_le_bytes());
    [header, document].concat()
}

/// Files of a kind of objects.
fn objects(place: &Place, kind: &str) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for bucket in fs::read_dir(place.pool().join("objects").join(kind))? {
        files.extend(fs::read_dir(bucket?.path())?.flatten().map(|entry| entry.path()));
    }
    files.sort();
    Ok(files)
}

/// Every file below a folder but the lock, with what it holds.
fn tree(folder: &Path) -> Result<BTreeMap<PathBuf, Vec<u8>>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(tree(&path)?);
        } else if !path.ends_with("lock") {
            files.insert(path.clone(), fs::read(&path)?);
        }
    }
    Ok(files)
}

#[test]
fn a_damaged_segment_is_an_error_with_a_name_and_never_other_data() {
    const BYTES: usize = 24 << 20;
    const FLIPS: u64 = 60;
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
        for _ in 0..FLIPS {
            let file = fs::OpenOptions::new().read(true).write(true).open(chance.one_of(&segments))?;
            let at = chance.between(8192, file.metadata()?.len() / 16 * 15);
            let mut byte = [0];
            file.read_exact_at(&mut byte, at)?;
            file.write_all_at(&[byte[0] ^ 1 << chance.below(8)], at)?;
        }

        let gateway = place.start(&["--cache", "8M"])?;
        let mut connection = place.connect("web")?;
        let damaged = read_blocks(&mut connection, &data)?;
        ensure!(!damaged.is_empty() && damaged.len() < 2000, "{} blocks are damaged", damaged.len());
        println!("{FLIPS} flipped bits made {} of {} blocks unreadable", damaged.len(), data.len() / BLOCK);
        let (block, refused) = &damaged[0];
        for word in ["web", "frame", &(block * BLOCK).to_string()] {
            ensure!(refused.message.contains(word), "no {word:?} in {:?}", refused.message);
        }
        ensure!(names_one_of(&refused.message, &segments), "no segment is named in {:?}", refused.message);
        let (status, said) = attempt(
            "qemu-io",
            &["-f", "raw", "-r", "-c", &format!("read {} 4k", block * BLOCK), &place.uri("web")],
        )?;
        ensure!(said.contains("Input/output error"), "{status:?}: {said}");

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

/// A small file system of its own for the pool, with a ballast file to fill and free it.
struct Small {
    mount: Mount,
    _device: Loop,
}

impl Small {
    fn new(place: &Place) -> Result<Self> {
        let image = place.path("small.img");
        fs::File::create(&image)?.set_len(192 << 20)?;
        run("mkfs.ext4", &["-q", "-F", "-m", "0", &image.to_string_lossy()])?;
        let device = Loop::over(&image)?;
        let mount = Mount::of(&device.device, &place.path("small"), "noatime")?;
        run("fallocate", &["-l", "64M", &mount.folder.join("ballast").to_string_lossy()])?;
        Ok(Small { mount, _device: device })
    }
}

#[test]
fn a_full_place_refuses_writes_and_loses_nothing_and_goes_on_with_room() {
    if !possible("a pool on a small file system that is filled") {
        return;
    }
    in_a_place(|place| {
        let small = Small::new(place)?;
        let outer = place;
        let place = &Place::new()?.with_pool(&small.mount.folder.join("pool"));
        let journal = ["--journal", "16M", "--cache", "16M"];
        let gateway = place.start(&journal).map_err(|e| outer.explain(e))?;
        place.ok("disk create web --size 1G")?;

        let mut written = 0;
        let mut connection = place.connect("web")?;
        let refused = fill(&mut connection, &mut written)?;
        println!("after {written} blocks of 64K: {refused}");
        ensure!(refused.errno == ENOSPC, "{refused}");
        ensure!(written > 200, "{written} blocks of 64K fit into 128 MiB");
        holds(&mut connection, written).context("reads go on while it is full")?;

        gateway.kill();
        let gateway = place.start(&journal).context("starting on a full place")?;
        let mut connection = place.connect("web")?;
        holds(&mut connection, written).context("after a kill on a full place")?;

        fs::remove_file(small.mount.folder.join("ballast"))?;
        go_on(place, &mut written)?;
        let mut connection = place.connect("web")?;
        holds(&mut connection, written).context("with room again")?;
        gateway.stop()?;
        let gateway = place.start(&journal)?;
        holds(&mut place.connect("web")?, written).context("after a restart")?;
        gateway.stop()
    });
}

/// *Method*: another program takes the last byte of the file system while the server writes, so that what the server
/// has reserved is not there.
#[test]
fn a_place_that_others_fill_loses_nothing() {
    if !possible("a pool on a small file system that others fill") {
        return;
    }
    in_a_place(|outer| {
        let small = Small::new(outer)?;
        let place = &Place::new()?.with_pool(&small.mount.folder.join("pool"));
        let journal = ["--journal", "16M", "--cache", "16M"];
        let mut gateway = place.start(&journal)?;
        place.ok("disk create web --size 1G")?;
        let mut connection = place.connect("web")?;
        let mut written = 0;
        while written < 64 {
            connection.write(written * PIECE, &noise(written, PIECE as usize))?;
            written += 1;
        }
        let ballast = small.mount.folder.join("more");
        let mut file = fs::File::create(&ballast)?;
        while std::io::Write::write_all(&mut file, &[1; 1 << 16]).is_ok() {}
        drop(file);
        let refused = fill(&mut connection, &mut written)?;
        println!("after {written} blocks of 64K: {refused}");
        ensure!(refused.errno == ENOSPC, "{refused}");
        holds(&mut connection, written).context("reads go on while it is full")?;
        drop(connection);
        ensure!(gateway.is_running(), "the server has ended\n{}", place.last_words());
        gateway.kill();

        fs::remove_file(ballast)?;
        fs::remove_file(small.mount.folder.join("ballast"))?;
        let gateway = place.start(&journal)?;
        holds(&mut place.connect("web")?, written).context("after a kill, with room again")?;
        go_on(place, &mut written)?;
        holds(&mut place.connect("web")?, written).context("with room again")?;
        gateway.stop()
    });
}

const PIECE: u64 = 64 << 10;

/// Writes pieces until one is refused.
fn fill(connection: &mut Connection, written: &mut u64) -> Result<Refused> {
    for piece in *written..(1 << 30) / PIECE {
        match connection.write(piece * PIECE, &noise(piece, PIECE as usize)) {
            Ok(()) => *written = piece + 1,
            Err(error) => return error.downcast::<Refused>(),
        }
        if piece % 64 == 63 {
            match connection.flush() {
                Ok(()) => {}
                Err(error) => return error.downcast::<Refused>(),
            }
        }
    }
    bail!("a gigabyte fits into a file system of 192 MiB")
}

fn holds(connection: &mut Connection, written: u64) -> Result<()> {
    for piece in 0..written {
        let bytes = connection.read(piece * PIECE, PIECE as usize)?;
        ensure!(
            bytes == noise(piece, PIECE as usize),
            "piece {piece} of {written} is not what was acknowledged"
        );
    }
    Ok(())
}

/// Writes again now that there is room: at once, or within the time that the fold takes to try again.
fn go_on(place: &Place, written: &mut u64) -> Result<()> {
    let deadline = Deadline::after(Duration::from_secs(20));
    let goal = *written + 64;
    while *written < goal {
        let mut connection = place.connect("web")?;
        let done = connection
            .write(*written * PIECE, &noise(*written, PIECE as usize))
            .and_then(|()| connection.flush());
        match done {
            Ok(()) => *written += 1,
            Err(error) if errno(&error) == Some(ENOSPC) && !deadline.passed() => {
                std::thread::sleep(Duration::from_millis(200));
            }
            Err(error) => return Err(place.explain(error.context("writing with room again"))),
        }
    }
    Ok(())
}
