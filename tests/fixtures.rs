//! A whole pool as version 1 left it, opened by today's server.
//!
//! Goal: old pools open for ever (P9): every disk, snapshot and clone of a pool that an older version wrote, and left by a crash, is there
//! byte for byte, can be written, checked and reclaimed, and opens again. *Method*: `fixtures/pool-N.tar.gz` holds the pool's directory,
//! `fixtures/pool-N-copies.tar.gz` the two of one with two copies; what must be found in it is told by the same steps that once made it, played on arrays. `STONEFOLD_UPDATE=1` makes one that is
//! missing; one of a released version stays as it is for good.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use stonefold_dice::Dice;
use stonefold_e2e::gateway::{Gateway, Place};
use stonefold_e2e::tools::run;

/// The version whose pools today's server makes.
const NEWEST: u32 = 1;
const KIB: usize = 1024;

/// What the directories of a kept pool are.
struct Shape {
    /// Behind the version in the archive's name.
    suffix: &'static str,
    folders: &'static [&'static str],
}

const SHAPES: [Shape; 2] =
    [Shape { suffix: "", folders: &["pool"] }, Shape { suffix: "-copies", folders: &["one", "two"] }];

impl Shape {
    fn archive(&self, version: u32) -> PathBuf {
        let name = format!("fixtures/pool-{version}{}.tar.gz", self.suffix);
        Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
    }

    fn place(&self) -> Result<Place> {
        let place = Place::new()?;
        let [one, two] = self.folders else { return Ok(place) };
        let url = format!("{}?also={}&copies=2", place.text(one), place.text(two));
        Ok(place.with_pool(Path::new(&url)))
    }

    /// What tar is told so that it takes, or gives, what is in the folders: one alone lies at the archive's root.
    fn tar(&self, place: &Place, action: &str, version: u32, more: &[&str]) -> Result<()> {
        let (at, what) = match self.folders {
            [_] => (place.text("pool"), vec!["."]),
            several => (place.text("."), several.to_vec()),
        };
        let archive = self.archive(version).to_string_lossy().into_owned();
        let names: &[&str] = if action == "-czf" { &what } else { &[] };
        run("tar", &[&["-C", &at], more, &[action, &archive], names].concat()).map(drop)
    }
}

/// What was done to the pool.
enum Step {
    /// A line for the command line.
    Run(&'static str),
    /// A disk of so many MiB, in a domain.
    Create(&'static str, usize, &'static str),
    /// Bytes written: disk, offset and length in KiB, and the seed they come of.
    Write(&'static str, usize, usize, u64),
    /// Zeros, as a trim.
    Zero(&'static str, usize, usize),
    Snapshot(&'static str, &'static str),
    Clone(&'static str, &'static str),
    /// To so many MiB.
    Grow(&'static str, usize),
    /// The server stops as it should, having folded everything, and is started again.
    Restart,
}

use Step::{Clone, Create, Grow, Restart, Run, Snapshot, Write, Zero};

/// Sealed, Zstandard and plain domains; folded and unfolded snapshots; clones; a lock; a removed disk; and at the end much that only the
/// journal has.
const STEPS: &[Step] = &[
    Run("domain create bank --encrypt"),
    Run("domain create archive --compression zstd:9"),
    Create("web", 8, "default"),
    Write("web", 0, 512, 1),
    Write("web", 1024, 64, 1),
    Snapshot("web", "monday"),
    Write("web", 100, 40, 2),
    Zero("web", 256, 64),
    Snapshot("web", "tuesday"),
    Run("snapshot lock web@tuesday --until 2090-01-01"),
    Create("ledger", 4, "bank"),
    Write("ledger", 0, 256, 3),
    Run("domain rotate bank"),
    Create("cold", 4, "archive"),
    Write("cold", 32, 256, 4),
    Create("lost", 4, "default"),
    Write("lost", 0, 64, 5),
    Clone("web@monday", "copy"),
    Restart,
    Write("copy", 8, 16, 6),
    Write("ledger", 128, 64, 7),
    Snapshot("ledger", "closing"),
    Run("disk rm lost"),
    Run("snapshot create copy --name kept"),
    Restart,
    Write("web", 0, 33, 8),
    Write("web", 2047, 3, 9),
    Zero("web", 1024, 32),
    Snapshot("web", "wednesday"),
    Write("web", 512, 64, 10),
    Grow("web", 12),
    Write("ledger", 300, 21, 11),
];

/// What an export must hold, by its name.
type Contents = BTreeMap<String, Vec<u8>>;

/// Most of it compresses, so that little has to be kept, and parts repeat under every seed, so that disks share blocks.
fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len + 4 * KIB);
    for block in 0..len.div_ceil(4 * KIB) as u64 {
        let mut dice = Dice::new(if block % 3 == 0 { block } else { seed * 1000 + block });
        bytes.extend((0..64).flat_map(|_| dice.number().to_le_bytes()));
        bytes.resize((block as usize + 1) * 4 * KIB, block as u8);
    }
    bytes.truncate(len);
    bytes
}

fn expected() -> Contents {
    let mut all = Contents::new();
    for step in STEPS {
        match step {
            Create(disk, mib, _) => drop(all.insert((*disk).into(), vec![0; mib * KIB * KIB])),
            Write(disk, at, len, seed) => {
                at_of(&mut all, disk, *at, *len).copy_from_slice(&bytes(*seed, len * KIB));
            }
            Zero(disk, at, len) => at_of(&mut all, disk, *at, *len).fill(0),
            Snapshot(disk, name) => drop(all.insert(format!("{disk}@{name}"), all[*disk].clone())),
            Clone(snapshot, disk) => drop(all.insert((*disk).into(), all[*snapshot].clone())),
            Grow(disk, mib) => all.get_mut(*disk).expect("it was made").resize(mib * KIB * KIB, 0),
            Run("disk rm lost") => drop(all.remove("lost")),
            Run("snapshot create copy --name kept") => {
                drop(all.insert("copy@kept".into(), all["copy"].clone()))
            }
            Run(_) | Restart => {}
        }
    }
    all
}

fn at_of<'a>(all: &'a mut Contents, disk: &str, at: usize, len: usize) -> &'a mut [u8] {
    &mut all.get_mut(disk).expect("it was made")[at * KIB..(at + len) * KIB]
}

fn start(place: &Place) -> Result<Gateway> {
    let key = place.path("master.key");
    std::fs::write(&key, "5a".repeat(32))?;
    place.start(&["--key-file", &key.to_string_lossy(), "--journal", "16M", "--cache", "64M"])
}

/// Makes the pool that is kept, with today's server.
fn make(shape: &Shape, version: u32) -> Result<()> {
    let place = shape.place()?;
    let mut gateway = start(&place)?;
    for step in STEPS {
        match step {
            Restart => {
                gateway.stop()?;
                gateway = start(&place)?;
            }
            step => play(&place, step)?,
        }
    }
    gateway.kill();
    // What a server makes anew when it is not there is left out; it is nearly all of the size.
    shape.tar(&place, "-czf", version, &["--exclude=*/spares/*", "--exclude=*/lock"])
}

fn play(place: &Place, step: &Step) -> Result<()> {
    let line = match step {
        Run(line) => (*line).to_owned(),
        Create(disk, mib, domain) => format!("disk create {disk} --size {mib}M --domain {domain}"),
        Snapshot(disk, name) => format!("snapshot create {disk} --name {name}"),
        Clone(snapshot, disk) => format!("clone {snapshot} {disk}"),
        Grow(disk, mib) => format!("disk resize {disk} {mib}M"),
        Write(disk, at, len, seed) => {
            let mut export = place.connect(disk)?;
            export.write((at * KIB) as u64, &bytes(*seed, len * KIB))?;
            return export.flush();
        }
        Zero(disk, at, len) => {
            let command = format!("discard {} {}", at * KIB, len * KIB);
            run("qemu-io", &["-f", "raw", "-c", &command, "-c", "flush", &place.uri(disk)])?;
            return Ok(());
        }
        Restart => return Ok(()),
    };
    place.ok(&line).map(drop)
}

fn verify(place: &Place, all: &Contents) -> Result<()> {
    for (export, content) in all {
        let mut connection = place.connect(export)?;
        let found = connection.read_all(0, content.len() as u64).with_context(|| export.clone())?;
        let first = (0..content.len()).find(|at| found[*at] != content[*at]);
        ensure!(first.is_none(), "'{export}' differs from byte {first:?} on");
    }
    Ok(())
}

/// Opens a kept pool, and goes on with it: it is no museum.
fn open_again(shape: &Shape, version: u32) -> Result<()> {
    let mut all = expected();
    let place = shape.place()?;
    for folder in shape.folders {
        std::fs::create_dir_all(place.path(folder))?;
    }
    shape.tar(&place, "-xzf", version, &[])?;
    let gateway = start(&place)?;
    let exports = place.json("disk ls")?.as_array().context("a list")?.len();
    ensure!(exports == all.keys().filter(|name| !name.contains('@')).count(), "{exports} disks");
    verify(&place, &all)?;
    let locked = place.fails("snapshot rm web@tuesday", 1)?;
    ensure!(locked.contains("2090"), "the lock: {locked}");

    all.get_mut("web").context("it is there")?[4 * KIB..8 * KIB].fill(0x5a);
    let mut web = place.connect("web")?;
    web.write(4 * KIB as u64, &[0x5a; 4 * KIB])?;
    web.flush()?;
    place.ok("pool reclaim")?;
    place.ok("pool check")?;
    gateway.stop()?;
    let gateway = start(&place)?;
    verify(&place, &all)?;
    place.ok("pool check")?;
    gateway.stop()
}

#[test]
fn a_pool_of_every_version_opens_and_is_whole() {
    for shape in &SHAPES {
        for version in 1..=NEWEST {
            let update = std::env::var_os("STONEFOLD_UPDATE").is_some() && version == NEWEST;
            if update && !shape.archive(version).exists() {
                make(shape, version).expect("a pool to keep");
            }
            if let Err(error) = open_again(shape, version) {
                panic!("pool {version}{}: {error:#}", shape.suffix);
            }
        }
    }
}
