//! The server's machine loses its power at any moment.
//!
//! *Promise* (P1): whatever a flush has answered for is there after a loss of power, and so are snapshots; nothing that was never written is.
//! *Method*: a pool on ext4, on a disk that remembers each write and each flush ([`stonefold_e2e::recorder`]), by nbdfuse and a
//! loop device; writers who flush and snapshot beside folds and reclaim. Then the power is lost at many moments of that life: what no flush of the
//! disk had answered for is there, torn, or lost by dice; ext4 replays its journal, the server its own; every block is looked at, and the pool
//! checked. What the server forgets to sync, files, folders or renames, is found here and nowhere else: a killed process loses nothing of the kernel's.
//!
//! ```sh
//! STONEFOLD_POWER_LOSSES=200 cargo test -p stonefold-e2e --test power_loss -- --nocapture
//! STONEFOLD_POWER_SEED=7 …   the same dice again
//! ```

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use stonefold_dice::Dice;
use stonefold_e2e::gateway::Place;
use stonefold_e2e::mounts::{Fuse, Loop, Mount};
use stonefold_e2e::nbd::Connection;
use stonefold_e2e::recorder::Recorder;
use stonefold_e2e::tools::run;
use stonefold_guest::time::Deadline;
use stonefold_needs::{Need, there_is};

/// Moments at which the power is lost. `STONEFOLD_POWER_LOSSES` asks for more.
const LOSSES: u64 = 12;
/// Of the disk that remembers. It lies in memory.
const DEVICE_BYTES: u64 = 640 << 20;
/// The life that is recorded ends with the first of these.
const WRITTEN_MAX: usize = 400 << 20;
const LIFE: Duration = Duration::from_secs(15);
/// Disks of the pool, each with a writer of its own.
const WRITERS: u64 = 3;
const BLOCK: usize = 4096;
const BLOCKS: u64 = 2048;
/// A snapshot every so many batches; each removes the one before the last.
const BATCHES_A_SNAPSHOT: u64 = 12;
const RECLAIM_PAUSE: Duration = Duration::from_millis(500);
/// Small caches and journals, so that journals go around, folds and cold reads happen.
const SMALL: [&str; 4] = ["--cache", "8M", "--journal", "16M"];

/// A write of a block, by how much had happened to the device when it was begun, and when a flush had answered for it.
struct Written {
    begun: usize,
    durable: Option<usize>,
}

/// A snapshot, by the same measure.
struct Taken {
    name: String,
    /// How often each block had been written.
    held: Vec<u32>,
    taken: usize,
    removal: Option<(usize, usize)>,
}

/// One writer's disk and all that was done to it. A block that was written `n` times holds the `n`th generation.
struct Writer {
    number: u64,
    disk: String,
    blocks: Vec<Vec<Written>>,
    snapshots: Vec<Taken>,
}

#[test]
fn what_was_flushed_is_there_after_a_loss_of_power() {
    if !there_is(Need::Loop, "a loss of power, on a disk that remembers what was flushed") {
        return;
    }
    let losses = std::env::var("STONEFOLD_POWER_LOSSES").ok();
    let losses = losses.map_or(LOSSES, |text| text.parse().expect("STONEFOLD_POWER_LOSSES is a number"));
    let seed = Dice::seed("STONEFOLD_POWER_SEED");
    if let Err(error) = live_and_die(losses, seed) {
        panic!("STONEFOLD_POWER_SEED={seed}: {error:#}");
    }
}

fn live_and_die(losses: u64, seed: u64) -> Result<()> {
    let folder = tempfile::Builder::new().prefix("stonefold-power-").tempdir()?;
    let recorder = Recorder::serve(&folder.path().join("recorder.sock"), DEVICE_BYTES)?;
    let (first, writers) = live(folder.path(), &recorder, seed)?;
    let mut recording = recorder.end()?;
    let mut chance = Dice::new(seed);
    let mut moments: Vec<usize> = (0..losses)
        .map(|loss| {
            let at = chance.between(first as u64, recording.len() as u64) as usize;
            // Every other one just before a flush, when the most is in doubt.
            recording.flush_after(at).filter(|_| loss % 2 == 0).unwrap_or(at)
        })
        .collect();
    moments.sort_unstable();
    let mut in_doubt = 0;
    for at in moments {
        let file = folder.path().join("lost.raw");
        in_doubt += recording.lose_power(at, &mut chance, &file)?;
        look(folder.path(), &file, &writers, at)
            .with_context(|| format!("power lost after {at} of {} events of the disk", recording.len()))?;
    }
    let blocks: usize = writers.iter().flat_map(|writer| &writer.blocks).map(Vec::len).sum();
    let snapshots: usize = writers.iter().map(|writer| writer.snapshots.len()).sum();
    println!(
        "{losses} losses of power in {} events of the disk, {in_doubt} writes in doubt; {blocks} blocks written, {snapshots} snapshots",
        recording.len()
    );
    ensure!(
        blocks > 2000 && snapshots > 5,
        "little happened: {blocks} blocks written, {snapshots} snapshots"
    );
    Ok(())
}

/// A pool's whole life on the device; gives from when on there were disks.
fn live(folder: &Path, recorder: &Recorder, seed: u64) -> Result<(usize, Vec<Writer>)> {
    let fuse = Fuse::of(recorder.uri(), &folder.join("fuse"))?;
    let device = Loop::over(&fuse.file())?;
    run("mkfs.ext4", &["-q", "-F", &device.device])?;
    let mount = Mount::of(&device.device, &folder.join("mount"), "errors=remount-ro")?;
    let place = Place::new()?.with_pool(&mount.folder.join("pool"));
    let gateway = place.start(&SMALL)?;
    for number in 0..WRITERS {
        place.ok(&format!("disk create disk{number} --size {}", BLOCKS * BLOCK as u64))?;
    }
    let first = recorder.position();
    let stop = AtomicBool::new(false);
    let writers = std::thread::scope(|scope| {
        let start = |number| {
            let (place, stop) = (&place, &stop);
            let work = move || write(place, recorder, number, Dice::new(seed ^ (number + 1) << 32), stop);
            std::thread::Builder::new().name(format!("writer-{number}")).spawn_scoped(scope, work)
        };
        let writers: Vec<_> = (0..WRITERS).map(start).collect::<Result<_, _>>()?;
        let reclaim = || reclaim(&place, &stop);
        let reclaimer = std::thread::Builder::new().name("reclaimer".into()).spawn_scoped(scope, reclaim)?;
        let life = Deadline::after(LIFE);
        while !life.passed() && recorder.written_bytes() < WRITTEN_MAX && !reclaimer.is_finished() {
            std::thread::sleep(Duration::from_millis(20));
        }
        stop.store(true, SeqCst);
        let reclaimed = reclaimer.join().expect("it does not panic");
        let writers: Result<Vec<Writer>> =
            writers.into_iter().map(|writer| writer.join().expect("no writer panics")).collect();
        reclaimed.and(writers)
    })?;
    // The server stays until the end: what an orderly stop syncs would hide what was not.
    gateway.kill();
    mount.unmount()?;
    drop(device);
    fuse.unmount()?;
    Ok((first, writers))
}

/// Space is given back all the while.
fn reclaim(place: &Place, stop: &AtomicBool) -> Result<()> {
    while !stop.load(SeqCst) {
        place.ok("pool reclaim")?;
        std::thread::sleep(RECLAIM_PAUSE);
    }
    Ok(())
}

fn write(
    place: &Place,
    recorder: &Recorder,
    number: u64,
    mut chance: Dice,
    stop: &AtomicBool,
) -> Result<Writer> {
    let disk = format!("disk{number}");
    let mut connection = place.connect(&disk)?;
    let blocks = (0..BLOCKS).map(|_| Vec::new()).collect();
    let mut writer = Writer { number, disk, blocks, snapshots: Vec::new() };
    let mut batches = 0;
    while !stop.load(SeqCst) {
        writer.batch(&mut connection, recorder, &mut chance).map_err(|error| place.explain(error))?;
        batches += 1;
        if batches % BATCHES_A_SNAPSHOT == 0 {
            writer.snapshot(place, recorder)?;
        }
    }
    Ok(writer)
}

impl Writer {
    /// Some writes and a flush.
    fn batch(&mut self, connection: &mut Connection, recorder: &Recorder, chance: &mut Dice) -> Result<()> {
        let begun = recorder.position();
        let mut touched = Vec::new();
        for _ in 0..chance.between(1, 24) {
            let count = if chance.one_in(6) { chance.between(2, 32) } else { 1 };
            let start = chance.below(BLOCKS - count);
            let mut bytes = Vec::new();
            for block in start..start + count {
                let history = &mut self.blocks[block as usize];
                history.push(Written { begun, durable: None });
                bytes.extend(contents(self.number, block, history.len() as u32));
                touched.push((block as usize, history.len() - 1));
            }
            connection.write(start * BLOCK as u64, &bytes)?;
        }
        connection.flush()?;
        let durable = recorder.position();
        for (block, place) in touched {
            self.blocks[block][place].durable = Some(durable);
        }
        Ok(())
    }

    /// Of what is all flushed; and the one before the last is removed.
    fn snapshot(&mut self, place: &Place, recorder: &Recorder) -> Result<()> {
        let name = format!("s{}", self.snapshots.len());
        place.ok(&format!("snapshot create {} --name {name}", self.disk))?;
        let held = self.blocks.iter().map(|history| history.len() as u32).collect();
        self.snapshots.push(Taken { name, held, taken: recorder.position(), removal: None });
        let Some(older) = self.snapshots.len().checked_sub(3) else { return Ok(()) };
        let begun = recorder.position();
        place.ok(&format!("snapshot rm {}@{}", self.disk, self.snapshots[older].name))?;
        self.snapshots[older].removal = Some((begun, recorder.position()));
        Ok(())
    }

    /// Generations that a block may have when the power was lost after so many events.
    fn allowed(&self, block: usize, at: usize) -> (u32, u32) {
        let history = &self.blocks[block];
        let durable =
            history.iter().rposition(|written| written.durable.is_some_and(|durable| durable <= at));
        let begun = history.iter().take_while(|written| written.begun <= at).count();
        (durable.map_or(0, |place| place as u32 + 1), begun as u32)
    }
}

/// What a block holds that was written for the `generation`th time: the generation, then what compresses to the half.
fn contents(writer: u64, block: u64, generation: u32) -> Vec<u8> {
    if generation == 0 {
        return vec![0; BLOCK];
    }
    let mut bytes = vec![generation as u8; BLOCK];
    let mut chance = Dice::new(writer << 56 | block << 32 | u64::from(generation));
    chance.fill(&mut bytes[..BLOCK / 2]);
    bytes[..4].copy_from_slice(&generation.to_le_bytes());
    bytes
}

/// The machine is started again: everything is looked at.
fn look(folder: &Path, file: &Path, writers: &[Writer], at: usize) -> Result<()> {
    let device = Loop::over(file)?;
    let mount = Mount::of(&device.device, &folder.join("again"), "errors=remount-ro")?;
    let place = Place::new()?.with_pool(&mount.folder.join("pool"));
    let gateway = place.start(&SMALL)?;
    for writer in writers {
        look_at_disk(&place, writer, at)?;
        look_at_snapshots(&place, writer, at)?;
    }
    place.ok("pool check")?;
    // And it goes on.
    let mut connection = place.connect(&writers[0].disk)?;
    connection.write(0, &contents(0, 0, u32::MAX))?;
    connection.flush()?;
    drop(connection);
    place.ok("pool reclaim")?;
    place.ok("pool check")?;
    gateway.stop()?;
    mount.unmount()
}

fn look_at_disk(place: &Place, writer: &Writer, at: usize) -> Result<()> {
    let mut connection = place.connect(&writer.disk)?;
    let seen = connection.read_all(0, BLOCKS * BLOCK as u64)?;
    for (block, bytes) in seen.chunks(BLOCK).enumerate() {
        let (from, to) = writer.allowed(block, at);
        let fits =
            (from..=to).rev().any(|generation| contents(writer.number, block as u64, generation) == bytes);
        let told = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        ensure!(
            fits,
            "{} holds at block {block} what begins like generation {told}; written and flushed was {from}, written {to}\n{}",
            writer.disk,
            place.last_words()
        );
    }
    Ok(())
}

fn look_at_snapshots(place: &Place, writer: &Writer, at: usize) -> Result<()> {
    let listed = place.json(&format!("snapshot ls {}", writer.disk))?;
    let listed: Vec<&str> = listed
        .as_array()
        .context("a list")?
        .iter()
        .filter_map(|snapshot| snapshot["name"].as_str())
        .collect();
    for snapshot in &writer.snapshots {
        let name = format!("{}@{}", writer.disk, snapshot.name);
        let is_there = listed.contains(&snapshot.name.as_str());
        let (leaving, left) = snapshot.removal.unwrap_or((usize::MAX, usize::MAX));
        ensure!(is_there || snapshot.taken > at || leaving <= at, "{name} is gone; there are {listed:?}");
        ensure!(!is_there || left > at, "{name} was removed and is back");
        if is_there && snapshot.taken <= at {
            let seen = place.connect(&name)?.read_all(0, BLOCKS * BLOCK as u64)?;
            let blocks = seen.chunks(BLOCK).zip(&snapshot.held).enumerate();
            for (block, (bytes, generation)) in blocks {
                let held = contents(writer.number, block as u64, *generation);
                ensure!(held == bytes, "{name} does not hold at block {block} generation {generation}");
            }
        }
    }
    Ok(())
}
