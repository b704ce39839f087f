//! What is done in a world.

use super::*;
use crate::Version;

/// Journals that are kept beside the one that is written.
const JOURNALS_KEPT: usize = 2;

impl World {
    /// One thing or another, with the moving beside it.
    pub(super) async fn act(&mut self, engine: &FileEngine, journal: &dyn Journal, id: JournalId) -> Lived {
        let moving = async {
            for _ in 0..4 {
                engine.step().await.ok();
            }
        };
        match self.dice.below(20) {
            // A pool that is without a directory has none changed: that would be a world of its own.
            0 if self.away.is_none() => self.change(engine).await,
            13 => self.trim(journal, id).await,
            1 => {
                // Where syncs cost nothing files are filled, trimmed and used again.
                for _ in 0..if self.medium.is_some() { 1 + self.dice.below(8) } else { 1 } {
                    self.append(journal, id).await?;
                }
                Ok(())
            }
            2 => {
                moving.await;
                Ok(())
            }
            3 if self.model.journals.len() > JOURNALS_KEPT => {
                let old = *self.model.journals.keys().next().expect("there are some");
                self.remove_journal(engine, old).await
            }
            _ => {
                let (done, ()) = futures::future::join(self.put_or_delete(engine), moving).await;
                done
            }
        }
    }

    async fn append(&mut self, journal: &dyn Journal, id: JournalId) -> Lived {
        let chunks = self.model.journals[&id].clone();
        let len = if self.dice.one_in(8) { 70_000 } else { 6000 };
        let seq = chunks.appended;
        let chunk = chunk::encode_after(id.0, seq, 1, chunks.synced, &content(seq, len)).freeze();
        let beside = self.dice.one_in(3);
        let append = journal.append(chunk);
        let appended = match beside {
            // This sync answers for what was appended before, and may see half of what is.
            true => {
                let (appended, synced) = futures::future::join(append, journal.sync()).await;
                self.ok("a sync", async { synced }).await?;
                self.model.journals.entry(id).or_default().synced = seq;
                appended
            }
            false => append.await,
        };
        self.ok("a chunk", async { appended }).await?;
        self.model.journals.entry(id).or_default().appended = seq + 1;
        if self.dice.one_in(2) {
            self.ok("a sync", journal.sync()).await?;
            self.model.journals.entry(id).or_default().synced = seq + 1;
        }
        Ok(())
    }

    /// Whoever trims has what lay there elsewhere, durably: so it was durable here.
    async fn trim(&mut self, journal: &dyn Journal, id: JournalId) -> Lived {
        let chunks = self.model.journals.entry(id).or_default();
        chunks.trimmed = chunks.synced;
        let below = chunks.trimmed;
        self.ok("a trim", journal.trim(below)).await
    }

    pub(super) async fn remove_journal(&mut self, engine: &FileEngine, id: JournalId) -> Lived {
        self.model.journals.entry(id).or_default().stands = false;
        self.ok("removing a journal", engine.journal_remove(id)).await?;
        self.model.journals.remove(&id);
        Ok(())
    }

    async fn put_or_delete(&mut self, engine: &FileEngine) -> Lived {
        let name = match self.dice.below(2) {
            0 => format!("head/{}", self.dice.below(6)),
            _ => format!("segment/{:04}", self.dice.below(30)),
        };
        let key = Key::new(name.as_str());
        let len = if name.starts_with("head") { 300 } else { self.segment_bytes() };
        let new = content(self.dice.below(1 << 20), len);
        let deletes = self.dice.below(4) == 0;
        let found = self.get(engine, &name).await?;
        self.model.show(&name, found.as_ref().map(|(bytes, _)| bytes.clone()))?;
        let new = match &found {
            Some(_) if deletes => None,
            Some(_) if !name.starts_with("head") => return Ok(()),
            _ => Some(new),
        };
        self.model.doubt(&name, new.clone());
        let version = found.map(|(_, version)| version);
        let put = async {
            match (new.clone(), version) {
                (None, _) => engine.delete(&key).await,
                (Some(new), Some(version)) => engine.put_if(&key, new.into(), &version).await.map(drop),
                (Some(new), None) => engine.put_new(&key, new.into()).await.map(drop),
            }
        };
        let (done, ()) = futures::future::join(put, self.watch(engine, &name, new.as_deref())).await;
        self.ok(&name, async { done }).await?;
        *self.seen.lock() = None;
        self.model.know(&name, new);
        Ok(())
    }

    fn segment_bytes(&mut self) -> usize {
        // Around the page cache where that works, and beyond a document; where much is copied, few are long.
        let longer = self.medium.is_none() || self.dice.one_in(12);
        if longer { (1 << 20) + 5000 } else { 70_000 }
    }

    /// What an object is, whole.
    pub(super) async fn get(&self, engine: &FileEngine, name: &str) -> Lived<Option<(Vec<u8>, Version)>> {
        match self.answer(engine.get(&Key::new(name))).await? {
            Ok((bytes, version)) => Ok(Some((bytes.to_vec(), version))),
            Err(error) if error.kind() == Kind::NotFound => Ok(None),
            Err(error) => Err(End::Broken(format!("{name}: {error}"))),
        }
    }

    /// Reads an object while it is put, and remembers when it was seen: then it is durable.
    async fn watch(&self, engine: &FileEngine, name: &str, new: Option<&[u8]>) {
        let (Some(new), Some(_)) = (new, &self.medium) else { return };
        let key = Key::new(name);
        for _ in 0..4 {
            let read = self.answer(engine.get_range(&key, 0, usize::MAX)).await;
            if matches!(read, Ok(Ok(bytes)) if bytes == new) {
                *self.seen.lock() = Some((name.to_owned(), new.to_vec()));
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    /// A command; what makes no sense just now is refused.
    async fn change(&mut self, engine: &FileEngine) -> Lived {
        let states = self.ok("directories", engine.states()).await?;
        let all: Vec<PathBuf> = states.into_iter().map(|one| one.dir).collect();
        let old = &all[self.dice.index(all.len())];
        let new = self.dir.path().join(format!("d{}", 1 + self.dice.below(5)));
        if !new.exists() {
            fs::create_dir(&new).unwrap();
            self.medium.iter().for_each(|medium| medium.settle_root());
        }
        self.whole = false;
        let done = match self.dice.below(5) {
            0 | 1 if all.len() < 4 => self.answer(engine.add(&new)).await?,
            2 => self.answer(engine.replace(old, &new)).await?,
            3 => self.answer(engine.cancel()).await?,
            _ => self.answer(engine.drain(old)).await?,
        };
        let expected = [Kind::Busy, Kind::Invalid, Kind::AlreadyExists, Kind::NotFound];
        match done {
            Err(error) if !expected.contains(&error.kind()) => Err(End::Broken(error.to_string())),
            _ => Ok(()),
        }?;
        for dir in self.ok("directories", engine.states()).await?.into_iter().map(|one| one.dir) {
            if !self.options.dirs.contains(&dir) {
                self.options.dirs.push(dir);
            }
        }
        Ok(())
    }
}
