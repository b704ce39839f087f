//! Whether a world is what its model says.

use super::super::several::files;
use super::*;
use std::collections::BTreeSet;
use stonefold_format::chunk::{CHUNK_HEADER, ChunkHeader};

impl World {
    /// Everything is what the model says, however the last life ended.
    pub(super) async fn check(&mut self, engine: &FileEngine) -> Lived {
        // What only a directory that is away has is given up.
        if let Some((name, seen)) = self.seen.lock().take().filter(|_| self.away.is_none()) {
            self.model.know(&name, Some(seen));
        }
        let mut listed = BTreeSet::new();
        for prefix in ["head/", "segment/"] {
            let page = self.ok("a listing", engine.list(prefix, None, 1000)).await?;
            listed.extend(page.iter().map(|one| one.key.to_string()));
        }
        let names: Vec<String> = self.model.objects.keys().cloned().collect();
        if let Some(stranger) = listed.iter().find(|name| !names.contains(name)) {
            return Err(End::Broken(format!("{stranger} is listed, and was never put")));
        }
        for name in names {
            let found = self.get(engine, &name).await?.map(|(bytes, _)| bytes);
            if found.is_some() != listed.contains(&name) {
                return Err(End::Broken(format!("{name} is listed wrongly")));
            }
            self.model.show(&name, found).map_err(|why| format!("{why} after a death"))?;
        }
        let ids = self.ok("journals", engine.journal_list()).await?;
        self.model.show_journals(&ids)?;
        for id in ids {
            self.replay(engine, id).await?;
            // Some are kept, and must be there again.
            if self.medium.is_none() || !self.model.journals[&id].stands || self.dice.one_in(2) {
                self.remove_journal(engine, id).await?;
            }
        }
        Ok(())
    }

    /// Reads a journal that nobody writes any more. What was trimmed may come back, and what was not must be there.
    async fn replay(&mut self, engine: &FileEngine, id: JournalId) -> Lived {
        let mut reader = self.ok("a journal", engine.journal_open(id)).await?;
        let (mut first, mut next) = (None, None);
        while let Some(found) = self.ok("a journal's chunk", reader.next()).await? {
            let header = ChunkHeader::verify(&found).map_err(|e| e.to_string())?;
            if next.is_some_and(|next| next != header.seq) {
                return Err(End::Broken(format!("chunks before {} are missing", header.seq)));
            }
            let payload = &found[CHUNK_HEADER..header.len];
            if payload != content(header.seq, payload.len()) {
                return Err(End::Broken(format!("chunk {} is another", header.seq)));
            }
            first.get_or_insert(header.seq);
            next = Some(header.seq + 1);
        }
        Ok(self.model.show_chunks(id, first, next.unwrap_or(0))?)
    }

    /// Every object is on as many directories as it shall, all of them the pool's; the others are empty.
    pub(super) async fn check_places(&mut self, engine: &FileEngine) -> Lived {
        self.check(engine).await?;
        let states = self.ok("directories", engine.states()).await?;
        let dirs: Vec<PathBuf> = states.into_iter().map(|one| one.dir).collect();
        let here = Options { dirs: dirs.clone(), ..self.options.clone() };
        for (name, known) in &self.model.objects {
            let copies = files(&here, &Key::new(name.as_str())).len();
            let wanted = if known[0].is_some() { self.options.copies.unwrap_or(1) } else { 0 };
            if copies != wanted {
                return Err(End::Broken(format!("{name} lies on {copies} directories and not on {wanted}")));
            }
        }
        for n in 1..=5 {
            let dir = self.dir.path().join(format!("d{n}"));
            let left = fs::read_dir(&dir).map(|entries| entries.count()).unwrap_or(0);
            // One that was invited, and never came, may say so.
            if !dirs.contains(&dir) && left > 0 && dir.join("objects").exists() {
                let stored = layout::Layout { root: dir.clone() }.objects();
                if fs::read_dir(stored).is_ok_and(|entries| entries.count() > 0) {
                    return Err(End::Broken(format!("'{}' has left, and is not empty", dir.display())));
                }
            }
        }
        Ok(())
    }
}
