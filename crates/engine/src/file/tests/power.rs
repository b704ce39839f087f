//! The power goes at any moment.
//!
//! *Goal*: what was acknowledged, and what was shown, survives a loss of power, on one directory and on several, also when one of
//! them is away in the life behind it; what was deleted stays so. A killed process loses nothing of the kernel's, so what is not
//! synced is found here and nowhere else but in the slow `tests/power_loss.rs`, which plays the whole server on one directory.
//! *Method*: the [worlds](super::worlds) on a [medium](crate::medium) that knows what was synced. The power goes before any sync, by
//! dice; what was not durable is then lost, kept or torn, in no order, each directory for itself; and the next life must find what the
//! model says. Some lives end by a death of the process alone: what it left unsynced is shown by the next one, and must
//! be durable by then. *Planted*: bugs in [`planted::BUGS_OF_POWER`]; for those that worlds seldom meet see [`directed`](super::directed).

use super::model::Verdict;
use super::several::several;
use super::worlds::{World, asked, find, on_all_processors};
use super::*;
use crate::medium::{Counted, Medium};
use stonefold_dice::Dice;

/// Some 30 s on two quiet processors. `STONEFOLD_POWER_WORLDS` asks for more.
const SEEDS: u64 = 4;
const LIVES: u32 = 12;
/// Seeds in which a planted bug is looked for.
const SEEDS_OF_BUGS: u64 = 60;
/// Syncs that a life lives to see: in the short ones the pool is hardly open.
const SYNCS: [u64; 3] = [40, 300, 1500];

/// Where nothing is slow: what is durable is known without a disk.
pub(super) fn quick_dir() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempdir())
}

fn world(seed: u64) -> World {
    let mut dice = Dice::new(seed);
    let dir = quick_dir();
    let copies = 1 + dice.index(2);
    let members = copies + dice.index(2);
    // Folders above the directories are made with them.
    let at = if dice.one_in(3) { dir.path().join("srv/pools") } else { dir.path().to_path_buf() };
    let direct = if dice.one_in(2) { Direct::Auto } else { Direct::Never };
    let options = Options { direct, ..several(&at, members, copies) };
    let rings = dice.one_in(2);
    World::of(dir, dice, options).with_medium(rings)
}

impl World {
    /// A directory comes back, or is away, if the others can do without it.
    fn send_away(&mut self, last: bool) {
        let hidden = self.dir.path().join("away");
        if let Some(away) = self.away.take() {
            fs::rename(&hidden, away).unwrap();
        } else if self.whole && self.options.copies == Some(2) && !last && self.dice.one_in(3) {
            let dir = self.dice.one_of(&self.options.dirs).clone();
            if dir.exists() && dir.parent() == Some(self.dir.path()) {
                fs::rename(&dir, &hidden).unwrap();
                self.away = Some(dir);
                self.whole = false;
            }
        }
        self.medium.iter().for_each(|medium| medium.settle_root());
    }

    /// A life, and its end: the power goes, or only the process dies.
    fn live_and_lose(&mut self, last: bool) -> Verdict {
        let medium = self.medium.clone().expect("this world has one");
        self.send_away(last);
        let loss = match self.dice.below(8) {
            0 | 1 => None,
            2 => Some((self.dice.below(30), Counted::FoldersIn("journals"))),
            _ => {
                let syncs = *self.dice.one_of(&SYNCS);
                Some((self.dice.below(syncs), Counted::All))
            }
        };
        medium.lose_after(loss.filter(|_| !last));
        self.live(last)?;
        if last || !medium.is_lost() && self.dice.one_in(2) {
            return Ok(());
        }
        medium.lose();
        medium.come_back(&mut self.dice);
        self.model.lose_power();
        Ok(())
    }
}

/// Lives and losses by one seed.
fn run(seed: u64, bug: Option<&'static str>) -> Verdict {
    planted::plant(bug);
    let mut world = world(seed);
    let lived = (0..=LIVES).try_for_each(|life| {
        world.live_and_lose(life == LIVES).map_err(|why| format!("seed {seed}, life {life}: {why}"))
    });
    planted::plant(None);
    lived
}

#[test]
fn nothing_is_lost_with_the_power() {
    let from = asked("STONEFOLD_POWER_WORLDS_FROM", 1);
    on_all_processors(from..from + asked("STONEFOLD_POWER_WORLDS", SEEDS), |seed| {
        if let Err(why) = run(seed, None) {
            panic!(
                "{why}; again: STONEFOLD_POWER_WORLDS_FROM={seed} STONEFOLD_POWER_WORLDS=1 cargo test -p stonefold-engine power"
            );
        }
    });
}

/// Planted bugs that the first few worlds find. The others have [lives](super::directed::LIVES) of their own.
const FOUND_SOON: [&str; 9] = [
    "object-not-synced",
    "name-not-synced",
    "bucket-not-synced",
    "way-not-synced",
    "journal-not-synced",
    "journal-file-not-synced",
    "journal-folder-not-synced",
    "journal-removal-not-synced",
    "roster-not-synced",
];

#[test]
fn planted_bugs_of_power_are_found() {
    let missed: Vec<_> =
        FOUND_SOON.into_iter().filter(|bug| find(bug, SEEDS_OF_BUGS, run).is_none()).collect();
    assert!(missed.is_empty(), "{missed:?}");
}

#[test]
fn every_bug_of_power_is_looked_for() {
    let directed = super::directed::LIVES.map(|(bug, _)| bug);
    for (bug, what) in planted::BUGS_OF_POWER {
        assert!(FOUND_SOON.contains(bug) || directed.contains(bug), "nobody looks for {bug}: {what}");
    }
}

/// Whether a pool whose directory was made with folders above it is there after a loss of power.
fn is_there_when_made_deep(seed: u64) -> bool {
    let dir = quick_dir();
    let medium = Medium::new(dir.path());
    let options = Options::new(dir.path().join("srv/storage/pool"));
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let key = Key::new("head/x");
    Medium::watch(Some(medium.clone()));
    runtime().block_on(async {
        let engine = open(&options).await.unwrap();
        engine.put_new(&key, Bytes::from_static(b"kept")).await.unwrap();
    });
    Medium::watch(None);
    medium.lose();
    medium.come_back(&mut Dice::new(seed));
    let again = Options { create: false, ..options };
    runtime().block_on(async {
        match open(&again).await {
            Ok(engine) => engine.get(&key).await.unwrap().0[..] == *b"kept",
            Err(_) => false,
        }
    })
}

/// Past bug: of the folders on the way to a new pool only the last was synced, and the whole pool was gone with the name of another.
#[test]
fn the_way_to_a_new_pool_is_durable() {
    assert!((0..20).all(is_there_when_made_deep));
    planted::plant(Some("way-not-synced"));
    let lost = (0..20).filter(|seed| !is_there_when_made_deep(*seed)).count();
    planted::plant(None);
    assert!(lost > 0, "it is seen");
}
