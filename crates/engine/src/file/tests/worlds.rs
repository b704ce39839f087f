//! Random worlds: a pool whose directories change while it is used, and which dies at any step.
//!
//! *Goal*: whatever was acknowledged is there after every death, nothing that was deleted comes back, the journal has every
//! chunk that was appended, and in the end every object lies on as many directories as it shall, and nowhere else.
//! *Method*: one model (maps of what was acknowledged); operations, changes of directories and steps of the moving by dice,
//! several at once; a death is the end of the runtime between any two steps of any task. *Planted*: every bug in
//! [`super::super::planted`] is found.

use super::several::{files, several};
use super::*;
use crate::directories::{Directories, Step};
use std::collections::BTreeMap;
use std::time::Duration;
use stonefold_dice::Dice;
use stonefold_format::chunk::ChunkHeader;

/// Some 30 s on a quiet machine. `STONEFOLD_WORLDS` asks for more.
const SEEDS: u64 = 6;
const LIVES: u32 = 6;

/// What is known to be stored: by whoever has been told so.
#[derive(Default)]
struct Model {
    /// What an object is, or may be where a change was under way at a death: `None` for absent.
    objects: BTreeMap<String, Vec<Option<Vec<u8>>>>,
    /// Chunks of the journal that were appended, and below which it was trimmed.
    chunks: u64,
    trimmed: u64,
    journals: u8,
}

struct World {
    dir: tempfile::TempDir,
    options: Options,
    dice: Dice,
    model: Model,
    /// The pool's id, once it is made.
    pool: Option<[u8; 16]>,
}

fn content(n: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| (n.wrapping_mul(31) as usize + at / 5) as u8).collect()
}

impl World {
    fn new(seed: u64) -> World {
        let mut dice = Dice::new(seed);
        let dir = tempdir();
        let copies = 1 + dice.below(2) as usize;
        let members = copies + dice.below(2) as usize;
        let base = several(dir.path(), members, copies);
        let options =
            Options { journal_file_bytes_max: 64 << 10, handles_max: Some(4), direct: Direct::Never, ..base };
        World { dir, options, dice, model: Model::default(), pool: None }
    }

    /// The pool's life until a death, which may come before it is open.
    fn live(&mut self, last: bool) -> std::result::Result<(), String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        // Most die young; some live until a change is done.
        let longest = if self.dice.one_in(2) { 6000 } else { 800 };
        let steps = if last { u64::MAX } else { 20 + self.dice.below(longest) };
        let life = self.life(last);
        let mut life = std::pin::pin!(life);
        let mut polled = 0;
        let ended = runtime.block_on(std::future::poll_fn(|context| {
            polled += 1;
            if polled > steps {
                return std::task::Poll::Ready(None);
            }
            life.as_mut().poll(context).map(Some)
        }));
        // Tasks end where they are; what a thread is about for them it finishes.
        runtime.shutdown_background();
        ended.unwrap_or(Ok(()))
    }

    async fn open(&self) -> std::result::Result<FileEngine, String> {
        loop {
            match open(&self.options).await {
                // A thread of the life before is still at it.
                Err(error) if error.kind() == Kind::Busy => env().sleep(Duration::from_millis(2)).await,
                other => return other.map_err(|error| format!("it does not open: {error}")),
            }
        }
    }

    async fn life(&mut self, last: bool) -> std::result::Result<(), String> {
        self.try_an_old_url().await?;
        let engine = self.open().await?;
        let pool = engine.members.view().roster.pool;
        if *self.pool.get_or_insert(pool) != pool {
            return Err("another pool is opened".into());
        }
        self.check(&engine).await?;
        self.model.journals += 1;
        (self.model.chunks, self.model.trimmed) = (0, 0);
        let id = JournalId([self.model.journals; 16]);
        let journal = engine.journal_create(id).await.map_err(|e| e.to_string())?;
        let rounds = if last { 40 } else { 400 };
        for _ in 0..rounds {
            self.act(&engine, &*journal, id).await?;
        }
        if !last {
            return Ok(());
        }
        journal.sync().await.map_err(|e| e.to_string())?;
        drop(journal);
        self.model.chunks = 0;
        engine.journal_remove(id).await.map_err(|e| e.to_string())?;
        for _ in 0..20_000 {
            match engine.step().await.map_err(|e| e.to_string())? {
                Step::Idle => return self.check_places(&engine).await,
                Step::Waits { .. } => return Err(format!("it waits for ever: {:?}", engine.moving())),
                Step::Went { .. } => {}
            }
        }
        Err("the change never ends".into())
    }

    /// A URL from before: it names some directories that belong to the pool, or did. It opens the pool or nothing, and never makes another.
    async fn try_an_old_url(&mut self) -> std::result::Result<(), String> {
        let Some(pool) = self.pool else { return Ok(()) };
        let first = self.dice.index(self.options.dirs.len());
        let dirs: Vec<PathBuf> = self
            .options
            .dirs
            .iter()
            .cycle()
            .skip(first)
            .take(self.options.copies.unwrap_or(1))
            .cloned()
            .collect();
        match open(&Options { dirs: dirs.clone(), ..self.options.clone() }).await {
            Ok(engine) if engine.members.view().roster.pool != pool => {
                Err(format!("another pool is made in {dirs:?}"))
            }
            _ => Ok(()),
        }
    }

    /// One thing or another, with the moving beside it.
    async fn act(
        &mut self,
        engine: &FileEngine,
        journal: &dyn Journal,
        id: JournalId,
    ) -> std::result::Result<(), String> {
        let moving = async {
            for _ in 0..4 {
                engine.step().await.ok();
            }
        };
        match self.dice.below(20) {
            0 => self.change(engine).await,
            13 => {
                self.model.trimmed = self.model.chunks;
                journal.trim(self.model.trimmed).await.map_err(|e| e.to_string())
            }
            1 => {
                let seq = self.model.chunks;
                let chunk = chunk::encode(id.0, seq, 1, &content(seq, 6000)).freeze();
                journal.append(chunk).await.map_err(|e| e.to_string())?;
                self.model.chunks += 1;
                journal.sync().await.map_err(|e| e.to_string())
            }
            2 => {
                moving.await;
                Ok(())
            }
            _ => {
                let (done, ()) = futures::future::join(self.put_or_delete(engine), moving).await;
                done
            }
        }
    }

    async fn put_or_delete(&mut self, engine: &FileEngine) -> std::result::Result<(), String> {
        let name = match self.dice.below(2) {
            0 => format!("head/{}", self.dice.below(6)),
            _ => format!("segment/{:04}", self.dice.below(30)),
        };
        let key = Key::new(name.as_str());
        let len = if name.starts_with("seg") { (1 << 20) + 5000 } else { 300 };
        let new = content(self.dice.below(1 << 20), len);
        let deletes = self.dice.below(4) == 0;
        let found = match engine.get(&key).await {
            Ok((bytes, version)) => Some((bytes.to_vec(), version)),
            Err(error) if error.kind() == Kind::NotFound => None,
            Err(error) => return Err(format!("{name}: {error}")),
        };
        let known = self.model.objects.entry(name.clone()).or_insert_with(|| vec![None]);
        let now = found.as_ref().map(|(bytes, _)| bytes.clone());
        if !known.contains(&now) {
            return Err(format!("{name} is not what was stored"));
        }
        let (after, done) = match found {
            Some(_) if deletes => {
                *known = vec![now, None];
                (None, engine.delete(&key).await.map(drop))
            }
            Some((_, version)) if name.starts_with("head") => {
                *known = vec![now, Some(new.clone())];
                (Some(new.clone()), engine.put_if(&key, new.into(), &version).await.map(drop))
            }
            Some(_) => return Ok(()),
            None => {
                *known = vec![None, Some(new.clone())];
                (Some(new.clone()), engine.put_new(&key, new.into()).await.map(drop))
            }
        };
        done.map_err(|error| format!("{name}: {error}"))?;
        self.model.objects.insert(name, vec![after]);
        Ok(())
    }

    /// A command; what makes no sense just now is refused.
    async fn change(&mut self, engine: &FileEngine) -> std::result::Result<(), String> {
        let all: Vec<PathBuf> =
            engine.states().await.map_err(|e| e.to_string())?.into_iter().map(|one| one.dir).collect();
        let old = &all[self.dice.index(all.len())];
        let new = self.dir.path().join(format!("d{}", 1 + self.dice.below(5)));
        if !new.exists() {
            fs::create_dir(&new).unwrap();
        }
        let done = match self.dice.below(5) {
            0 | 1 if all.len() < 4 => engine.add(&new).await,
            2 => engine.replace(old, &new).await,
            3 => engine.cancel().await,
            _ => engine.drain(old).await,
        };
        let expected = [Kind::Busy, Kind::Invalid, Kind::AlreadyExists, Kind::NotFound];
        match done {
            Err(error) if !expected.contains(&error.kind()) => Err(error.to_string()),
            _ => Ok(()),
        }?;
        for dir in engine.states().await.map_err(|e| e.to_string())?.into_iter().map(|one| one.dir) {
            if !self.options.dirs.contains(&dir) {
                self.options.dirs.push(dir);
            }
        }
        Ok(())
    }

    /// Everything is what the model says, however the last life ended.
    async fn check(&mut self, engine: &FileEngine) -> std::result::Result<(), String> {
        let mut listed: Vec<String> = Vec::new();
        for prefix in ["head/", "segment/"] {
            let page = engine.list(prefix, None, 1000).await.map_err(|e| e.to_string())?;
            listed.extend(page.iter().map(|one| one.key.to_string()));
        }
        for (name, known) in &mut self.model.objects {
            let found = match engine.get(&Key::new(name.as_str())).await {
                Ok((bytes, _)) => Some(bytes.to_vec()),
                Err(error) if error.kind() == Kind::NotFound => None,
                Err(error) => return Err(format!("{name}: {error}")),
            };
            if !known.contains(&found) {
                let is = if found.is_some() { "something else" } else { "gone" };
                return Err(format!("{name} is {is} after a death"));
            }
            if found.is_some() != listed.contains(name) {
                return Err(format!("{name} is listed wrongly"));
            }
            // What was shown stays.
            *known = vec![found];
        }
        let ids = engine.journal_list().await.map_err(|e| e.to_string())?;
        let wanted = JournalId([self.model.journals; 16]);
        if self.model.chunks > 0 && !ids.contains(&wanted) {
            return Err("the journal is gone".into());
        }
        for id in ids {
            let mut reader = engine.journal_open(id).await.map_err(|e| e.to_string())?;
            // What was trimmed may come back, and what was not must be there.
            let mut next = None;
            while let Some(found) = reader.next().await.map_err(|e| e.to_string())? {
                let header = ChunkHeader::verify(&found).map_err(|e| e.to_string())?;
                if next.is_some_and(|next| next != header.seq)
                    || id == wanted && header.seq > self.model.trimmed && next.is_none()
                {
                    return Err(format!("chunks before {} are missing", header.seq));
                }
                next = Some(header.seq + 1);
            }
            let end = next.unwrap_or(self.model.trimmed);
            if id == wanted && end < self.model.chunks {
                return Err(format!("the journal ends at {end}, {} were appended", self.model.chunks));
            }
            drop(reader);
            if id == wanted {
                self.model.chunks = 0;
            }
            engine.journal_remove(id).await.map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    /// Every object is on as many directories as it shall, all of them the pool's; the others are empty.
    async fn check_places(&mut self, engine: &FileEngine) -> std::result::Result<(), String> {
        self.check(engine).await?;
        let dirs: Vec<PathBuf> =
            engine.states().await.map_err(|e| e.to_string())?.into_iter().map(|one| one.dir).collect();
        let here = Options { dirs: dirs.clone(), ..self.options.clone() };
        for (name, known) in &self.model.objects {
            let copies = files(&here, &Key::new(name.as_str())).len();
            let wanted = if known[0].is_some() { self.options.copies.unwrap_or(1) } else { 0 };
            if copies != wanted {
                return Err(format!("{name} lies on {copies} directories and not on {wanted}"));
            }
        }
        for n in 1..=5 {
            let dir = self.dir.path().join(format!("d{n}"));
            let left = fs::read_dir(&dir).map(|entries| entries.count()).unwrap_or(0);
            // One that was invited, and never came, may say so.
            if !dirs.contains(&dir) && left > 0 && dir.join("objects").exists() {
                let stored = layout::Layout { root: dir.clone() }.objects();
                if fs::read_dir(stored).is_ok_and(|entries| entries.count() > 0) {
                    return Err(format!("'{}' has left, and is not empty", dir.display()));
                }
            }
        }
        Ok(())
    }
}

/// Lives and deaths by one seed.
fn run(seed: u64, bug: Option<&'static str>) -> std::result::Result<(), String> {
    planted::plant(bug);
    let mut world = World::new(seed);
    let lived = (0..=LIVES).try_for_each(|life| world.live(life == LIVES));
    planted::plant(None);
    lived.map_err(|why| format!("seed {seed}: {why}"))
}

#[test]
fn nothing_is_lost_in_any_world() {
    let seeds = std::env::var("STONEFOLD_WORLDS").ok().and_then(|text| text.parse().ok()).unwrap_or(SEEDS);
    let from = std::env::var("STONEFOLD_WORLDS_FROM").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    for seed in from..from + seeds {
        if let Err(why) = run(seed, None) {
            panic!(
                "{why}; again: STONEFOLD_WORLDS_FROM={seed} STONEFOLD_WORLDS=1 cargo test -p stonefold-engine worlds"
            );
        }
    }
}

#[test]
fn every_planted_bug_is_found() {
    for (bug, what) in planted::BUGS {
        let found = (1..=100).find_map(|seed| {
            let seen = std::panic::catch_unwind(|| run(seed, Some(bug)));
            planted::plant(None);
            seen.unwrap_or_else(|_| Err(format!("seed {seed}: an assertion"))).err()
        });
        println!("{bug}: {}", found.as_deref().unwrap_or("not found"));
        assert!(found.is_some(), "{bug}: {what}");
    }
}
