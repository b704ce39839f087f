//! Losses that chance seldom meets, each acted out.
//!
//! *Goal*: of every bug in [`planted::BUGS_OF_POWER`] that the [worlds](super::power) take many seeds to find, one short life of a pool
//! shows it in every run; without it the same life ends well.

use super::power::quick_dir;
use super::several::{files, key, payload, several};
use super::*;
use crate::medium::Medium;
use std::future::Future;
use std::sync::Arc;
use stonefold_dice::Dice;

/// What dice decide, they decide in several ways.
const SEEDS: u64 = 12;
const HEAD: &str = "head/web";
const JOURNAL: JournalId = JournalId([7; 16]);

/// A pool of two directories with two copies, on a medium that can lose its power.
pub(super) struct Stage {
    dir: tempfile::TempDir,
    options: Options,
    medium: Arc<Medium>,
    dice: Dice,
    /// Which of the two directories something happens to.
    one: usize,
}

impl Stage {
    fn new(seed: u64) -> Self {
        let dir = quick_dir();
        let options = Options { journal_file_bytes_max: 64 << 10, ..several(dir.path(), 2, 2) };
        let medium = Medium::new(dir.path());
        let mut dice = Dice::new(seed);
        let one = dice.index(2);
        Stage { dir, options, medium, dice, one }
    }

    /// One process, from opening the pool to its death. What it cannot do is told.
    fn live<T, L: Future<Output = Result<T>>>(&self, life: impl FnOnce(FileEngine) -> L) -> Result<T> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Medium::watch(Some(self.medium.clone()));
        let lived = runtime.block_on(async { life(open_after(env(), &self.options).await?).await });
        drop(runtime);
        Medium::watch(None);
        self.medium.wait_until_idle();
        lived
    }

    fn lose_power(&mut self) {
        self.medium.lose();
        self.medium.come_back(&mut self.dice);
    }

    fn hidden(&self) -> PathBuf {
        self.dir.path().join("away")
    }

    /// Takes a directory away; from here on the pool does without what is not there.
    fn hide(&mut self, which: usize) {
        fs::rename(&self.options.dirs[which], self.hidden()).unwrap();
        self.medium.settle_root();
        self.options.degraded = true;
    }

    fn bring_back(&mut self, which: usize) {
        fs::rename(self.hidden(), &self.options.dirs[which]).unwrap();
        self.medium.settle_root();
        self.options.degraded = false;
    }
}

fn chunk(seq: u64) -> Bytes {
    chunk::encode_after(JOURNAL.0, seq, 1, 0, &[seq as u8; 6000]).freeze()
}

/// Whether a journal has these chunks, whatever lies before them.
async fn has_chunks(engine: &FileEngine, from: u64, to: u64) -> Result<bool> {
    let mut reader = engine.journal_open(JOURNAL).await?;
    let mut wanted = from;
    while let Some(found) = reader.next().await? {
        if found == chunk(wanted) {
            wanted += 1;
        }
    }
    Ok(wanted == to)
}

/// A crash left one copy of a document as it was before.
fn the_newer_document_is_told(stage: &mut Stage) -> Result<bool> {
    let head = Key::new(HEAD);
    let before = stage.live(async |engine| {
        let old = engine.put_new(&head, payload(1, 200)).await?;
        let before = fs::read(&files(&stage.options, &head)[0]).unwrap();
        engine.put_if(&head, payload(2, 300), &old).await?;
        Ok(before)
    })?;
    fs::write(&files(&stage.options, &head)[stage.one], before).unwrap();
    stage.live(async |engine| Ok(engine.get(&head).await?.0 == payload(2, 300)))
}

/// While a directory was away one object was deleted, one put, and a document replaced; then it is there again, and the other is not.
fn what_happened_meanwhile_is_known_to_both(stage: &mut Stage) -> Result<bool> {
    let head = Key::new(HEAD);
    let version = stage.live(async |engine| {
        engine.put_new(&key(1), payload(1, 9000)).await?;
        engine.put_new(&head, payload(3, 200)).await
    })?;
    stage.hide(stage.one);
    stage.live(async |engine| {
        engine.delete(&key(1)).await?;
        engine.put_new(&key(2), payload(2, 9000)).await?;
        engine.put_if(&head, payload(4, 300), &version).await
    })?;
    stage.bring_back(stage.one);
    stage.live(async |engine| {
        let listed = engine.list("segment/", None, 10).await?;
        Ok(listed.len())
    })?;
    stage.hide(1 - stage.one);
    stage.live(async |engine| {
        let deleted = engine.get(&key(1)).await.is_err_and(|e| e.kind() == Kind::NotFound);
        let put = engine.get(&key(2)).await?.0 == payload(2, 9000);
        Ok(deleted && put && engine.get(&head).await?.0 == payload(4, 300))
    })
}

/// What was put is in both directories when that is told.
fn either_copy_will_do(stage: &mut Stage) -> Result<bool> {
    stage.live(async |engine| engine.put_new(&key(1), payload(1, 9000)).await)?;
    stage.lose_power();
    stage.hide(stage.one);
    stage.live(async |engine| Ok(engine.get(&key(1)).await?.0 == payload(1, 9000)))
}

/// The same of a journal that was synced.
fn either_journal_will_do(stage: &mut Stage) -> Result<bool> {
    stage.live(async |engine| {
        let journal = engine.journal_create(JOURNAL).await?;
        for seq in 0..20 {
            journal.append(chunk(seq)).await?;
        }
        journal.sync().await
    })?;
    stage.lose_power();
    stage.hide(stage.one);
    stage.live(async |engine| has_chunks(&engine, 0, 20).await)
}

fn what_was_deleted_stays_so(stage: &mut Stage) -> Result<bool> {
    stage.live(async |engine| {
        engine.put_new(&key(1), payload(1, 9000)).await?;
        engine.delete(&key(1)).await
    })?;
    stage.lose_power();
    stage.live(async |engine| Ok(engine.get(&key(1)).await.is_err_and(|e| e.kind() == Kind::NotFound)))
}

/// A process gave a name and died before it was durable; the next one showed it.
fn what_was_shown_stays(stage: &mut Stage) -> Result<bool> {
    let bug = planted::planted();
    planted::plant(Some("name-not-synced"));
    let put = stage.live(async |engine| engine.put_new(&key(1), payload(1, 9000)).await);
    planted::plant(bug);
    put?;
    stage.live(async |engine| engine.get(&key(1)).await)?;
    stage.lose_power();
    stage.live(async |engine| Ok(engine.get(&key(1)).await?.0 == payload(1, 9000)))
}

/// The same of what a journal's file holds.
fn what_was_replayed_stays(stage: &mut Stage) -> Result<bool> {
    let bug = planted::planted();
    planted::plant(Some("journal-not-synced"));
    let written = stage.live(async |engine| {
        let journal = engine.journal_create(JOURNAL).await?;
        journal.append(chunk(0)).await?;
        journal.sync().await
    });
    planted::plant(bug);
    written?;
    if !stage.live(async |engine| has_chunks(&engine, 0, 1).await)? {
        return Ok(false);
    }
    stage.lose_power();
    stage.live(async |engine| has_chunks(&engine, 0, 1).await)
}

/// A life, and whether it ended well.
pub(super) type Life = fn(&mut Stage) -> Result<bool>;

pub(super) const LIVES: [(&str, Life); 8] = [
    ("stale-copy-wins", the_newer_document_is_told),
    ("stale-roster-wins", what_happened_meanwhile_is_known_to_both),
    ("not-filled-again", what_happened_meanwhile_is_known_to_both),
    ("one-copy-will-do", either_copy_will_do),
    ("one-journal-will-do", either_journal_will_do),
    ("deletion-not-synced", what_was_deleted_stays_so),
    ("found-not-synced", what_was_shown_stays),
    ("replay-not-synced", what_was_replayed_stays),
];

fn ends_well(life: Life, seed: u64, bug: Option<&'static str>) -> Result<bool> {
    planted::plant(bug);
    let lived = life(&mut Stage::new(seed));
    planted::plant(None);
    lived
}

#[test]
fn each_bug_of_power_is_shown_by_a_life_of_its_own() {
    for (bug, life) in LIVES {
        for seed in 0..SEEDS {
            let lived = ends_well(life, seed, None);
            assert!(matches!(lived, Ok(true)), "without {bug}, seed {seed}: {lived:?}");
        }
        let well = |seed| matches!(ends_well(life, seed, Some(bug)), Ok(true));
        assert!(!(0..SEEDS).all(well), "{bug} is not found");
    }
}
