//! What clients do with snapshots and clones of their disk.

use super::{Client, Done, wrong};
use crate::story::{Story, Taken};
use parking_lot::Mutex;
use stonefold_dice::Dice;
use stonefold_store::Attachment;
use stonefold_types::{Error, Kind, Name, SnapshotName};

impl Client {
    /// Snapshots the client's disk, or all disks at one instant.
    pub(super) async fn snapshot(&self, disk: &Name) -> Done {
        let name = Name::new(&format!("s{:x}", self.throw(Dice::number))).expect("digits make a name");
        let disks = match self.throw(|dice| dice.one_in(3)) {
            true => self
                .store
                .disks()
                .into_iter()
                .map(|d| d.name)
                .filter(|n| n.as_str().starts_with('d'))
                .collect(),
            false => vec![disk.clone()],
        };
        {
            let mut story = self.story.lock();
            for disk in &disks {
                let bounds = story.snapshot_begins(disk.as_str());
                let taken = Taken { acked: false, leaving: false, locked: false, bounds, seen: None };
                story.snapshots.insert(format!("{disk}@{name}"), taken);
            }
        }
        self.store.snapshot(&disks, Some(name.clone())).await.map_err(|e| self.sort("snapshots", e))?;
        for disk in &disks {
            let full = format!("{disk}@{name}");
            self.story.lock().snapshot_ended(&full);
            self.check_snapshot(&full).await?;
        }
        Ok(())
    }

    pub(crate) async fn check_snapshot(&self, name: &str) -> Done {
        let attachment = match self.attach(name) {
            // Another client removed it meanwhile.
            Err(_) if self.story.lock().snapshots.get(name).is_none_or(|taken| taken.leaving) => {
                return Ok(());
            }
            other => other?,
        };
        let contents = match read_regions(&self.story, &attachment, name).await {
            Err(error) if self.stormy && error.kind() == Kind::Io => return Ok(()),
            other => other.map_err(|e| self.sort("reads a snapshot", e))?,
        };
        drop(attachment);
        let mut story = self.story.lock();
        if !story.snapshots.contains_key(name) {
            return Ok(());
        }
        story.check_snapshot(name, &contents).map_err(wrong)
    }

    /// A snapshot of the disk that may be used, chosen by dice.
    pub(super) fn choose_snapshot(&self, disk: &Name) -> Option<String> {
        let story = self.story.lock();
        let usable = |(name, taken): &(&String, &Taken)| {
            name.starts_with(&format!("{disk}@")) && taken.acked && !taken.leaving
        };
        let names: Vec<&String> = story.snapshots.iter().filter(usable).map(|(name, _)| name).collect();
        let count = names.len() as u64;
        (count > 0).then(|| names[self.throw(|dice| dice.below(count)) as usize].clone())
    }

    pub(super) async fn unsnapshot(&self, disk: &Name) -> Done {
        let Some(name) = self.choose_snapshot(disk) else { return Ok(()) };
        self.check_snapshot(&name).await?;
        match self.story.lock().snapshots.get_mut(&name) {
            Some(taken) if !taken.leaving => taken.leaving = true,
            _ => return Ok(()),
        }
        let parsed: SnapshotName = name.parse().expect("it is a snapshot's name");
        match self.store.remove_snapshot(&parsed).await {
            Err(error) if error.kind() == Kind::Locked => {
                if let Some(taken) = self.story.lock().snapshots.get_mut(&name) {
                    taken.leaving = false;
                }
                Ok(())
            }
            Ok(()) => {
                let gone = self.story.lock().snapshots.remove(&name);
                if gone.is_some_and(|taken| taken.locked) {
                    return Err(wrong(format!("{name} was locked, and could be removed")));
                }
                Ok(())
            }
            Err(error) if error.kind() == Kind::Busy => {
                if let Some(taken) = self.story.lock().snapshots.get_mut(&name) {
                    taken.leaving = false;
                }
                Ok(())
            }
            Err(error) => Err(self.sort("removes a snapshot", error)),
        }
    }

    /// Clones a snapshot, checks that the clone is the same, writes to it, checks that nothing else changed.
    pub(super) async fn clone_one(&self, disk: &Name) -> Done {
        let Some(name) = self.choose_snapshot(disk) else { return Ok(()) };
        let clone = Name::new(&format!("c{:x}", self.throw(Dice::number))).expect("digits make a name");
        let parsed: SnapshotName = name.parse().expect("it is a snapshot's name");
        match self.store.clone_snapshot(&parsed, &clone).await {
            Ok(_) => {}
            Err(error) if error.kind() == Kind::NotFound => return Ok(()),
            Err(error) if self.stormy && matches!(error.kind(), Kind::Io | Kind::NoSpace) => return Ok(()),
            Err(error) => return Err(self.sort("clones", error)),
        }
        let attachment = self.attach(clone.as_str())?;
        let contents = match read_regions(&self.story, &attachment, &name).await {
            Err(error) if self.stormy && error.kind() == Kind::Io => return Ok(()),
            other => other.map_err(|e| self.sort("reads a clone", e))?,
        };
        if self.story.lock().snapshots.contains_key(&name) {
            self.story
                .lock()
                .check_snapshot(&name, &contents)
                .map_err(|e| wrong(format!("a clone of {e}")))?;
        }
        let (base, bytes) = {
            let story = self.story.lock();
            (story.regions[self.id].base, story.regions[self.id].bytes)
        };
        // The clone is as large as the snapshot.
        let bytes = bytes.min(attachment.size_bytes() - base).min(9000);
        let written = attachment.write(base, &vec![0xcc; bytes as usize], false).await;
        if let Err(error) = written {
            return if error.kind() == Kind::NoSpace && self.stormy {
                Ok(())
            } else {
                Err(self.sort("writes a clone", error))
            };
        }
        drop(attachment);
        self.check_snapshot(&name).await?;
        match self.store.remove_disk(&clone).await {
            Err(error) if self.stormy && error.kind() == Kind::Io => Ok(()),
            other => other.map_err(|e| self.sort("removes a clone", e)),
        }
    }

    /// A clone with snapshots and a clone of its own, set back, and taken apart from either end.
    pub(super) async fn family(&self, disk: &Name) -> Done {
        let Some(snapshot) = self.choose_snapshot(disk) else { return Ok(()) };
        match crate::family::play(self, &snapshot).await {
            Err(error) if error.kind() == Kind::NotFound => Ok(()),
            Err(error) if self.stormy && matches!(error.kind(), Kind::Io | Kind::NoSpace | Kind::Busy) => {
                Ok(())
            }
            Err(error) => Err(self.sort("plays with a family", error)),
            Ok(played) => {
                played.map_err(wrong)?;
                self.check_snapshot(&snapshot).await
            }
        }
    }

    /// What has not changed since a snapshot must read the same there and here.
    pub(super) async fn diff(&self, disk: &Name) -> Done {
        let Some(name) = self.choose_snapshot(disk) else { return Ok(()) };
        let parsed: SnapshotName = name.parse().expect("it is a snapshot's name");
        let changed = match self.store.diff(&parsed, None).await {
            Ok(changed) => changed,
            Err(error) if error.kind() == Kind::NotFound => return Ok(()),
            Err(error) if self.stormy && matches!(error.kind(), Kind::Io | Kind::NoSpace) => return Ok(()),
            Err(error) => return Err(self.sort("compares", error)),
        };
        // The own region stands still while this client is here; the blocks at its ends are shared.
        let story = self.story.lock();
        let region = &story.regions[self.id];
        let Some(taken) = story.snapshots.get(&name) else { return Ok(()) };
        let Some(seen) = &taken.seen else { return Ok(()) };
        let Some(at) = taken.bounds.iter().position(|(region, _, _)| *region == self.id) else {
            return Ok(());
        };
        let end = region.base + region.model.now().size;
        let inner = region.base.next_multiple_of(4096)..end / 4096 * 4096;
        for block in inner.step_by(4096) {
            let told = changed.iter().any(|(offset, len)| (*offset..offset + len).contains(&block));
            let offset = block - region.base;
            if !told && seen[at].read(offset, 4096) != region.model.now().read(offset, 4096) {
                return Err(wrong(format!("a change at {block} since {name} was not told")));
            }
        }
        Ok(())
    }
}

/// Reads the regions of a snapshot's disk through an attachment of the snapshot or of a clone of it.
pub async fn read_regions(
    story: &Mutex<Story>,
    attachment: &Attachment,
    snapshot: &str,
) -> Result<Vec<Vec<u8>>, Error> {
    let places: Vec<(u64, u64)> = {
        let story = story.lock();
        let Some(taken) = story.snapshots.get(snapshot) else { return Ok(Vec::new()) };
        taken.bounds.iter().map(|(at, _, _)| (story.regions[*at].base, story.regions[*at].bytes)).collect()
    };
    let mut contents = Vec::new();
    for (base, bytes) in places {
        let mut buf = vec![0xee; bytes.min(attachment.size_bytes() - base) as usize];
        attachment.read(base, &mut buf).await?;
        contents.push(buf);
    }
    Ok(contents)
}
