//! The actors: each does one thing after another on its own region, and checks what it sees.

use crate::life::LOCKED_FOR;
use crate::story::{Story, Taken};
use crate::weather::Weather;
use crate::world::World;
use parking_lot::Mutex;
use std::sync::Arc;
use stonefold_dice::Dice;
use stonefold_model::Step;
use stonefold_store::{Attachment, Store};
use stonefold_types::{Error, Kind, Name, SnapshotName};

/// What a client works with.
#[derive(Clone)]
pub struct Client {
    /// Its number: of its region, too.
    pub id: usize,
    /// Where it lives.
    pub world: World,
    /// What it writes to.
    pub store: Arc<Store>,
    /// What is told of it.
    pub story: Arc<Mutex<Story>>,
    /// The engine's weather.
    pub weather: Weather,
    /// Whether errors of the medium are to be expected.
    pub stormy: bool,
    /// Whether the life may end right after a flush, when nothing but the flush has made anything durable.
    pub mortal: bool,
}

/// A life that may ends after one flush in this many.
const END_AFTER_FLUSH_ONE_IN: u64 = 16;

/// Why a client stops.
#[derive(Debug)]
pub enum Stop {
    /// The medium failed, as it may in bad weather.
    Weather(Error),
    /// It was told to.
    Enough,
    /// The store did what it must not.
    Wrong(String),
}

pub(crate) type Done = Result<(), Stop>;

fn wrong(what: impl Into<String>) -> Stop {
    Stop::Wrong(what.into())
}

impl Client {
    pub(crate) fn throw<T>(&self, throw: impl FnOnce(&mut Dice) -> T) -> T {
        self.world.with_dice(throw)
    }

    /// Sorts an error: weather, or the store's fault.
    pub(crate) fn sort(&self, doing: &str, error: Error) -> Stop {
        match error.kind() {
            Kind::Io | Kind::NoSpace | Kind::Closed if self.stormy => Stop::Weather(error),
            _ => wrong(format!("client {} {doing}: {error:?}", self.id)),
        }
    }

    /// Does `acts` things.
    pub async fn live(self, acts: u64) -> Done {
        let (disk, base, bytes) = {
            let story = self.story.lock();
            let region = &story.regions[self.id];
            (region.disk.clone(), region.base, region.bytes)
        };
        let disk = Name::new(&disk).expect("disks have names");
        let resizes = self.story.lock().regions[self.id].resizes;
        let attachment = self.attach(disk.as_str())?;
        for _ in 0..acts {
            let bytes = if resizes { self.size() } else { bytes };
            match self.throw(|dice| dice.below(47)) {
                5..=9 if resizes => self.resize(&disk, &attachment).await?,
                0..=15 => self.write(&attachment, base, bytes).await?,
                16..=20 => self.zero(&attachment, base, bytes).await?,
                21..=25 => self.flush(&attachment).await?,
                26..=31 => self.read(&attachment, base, bytes).await?,
                32..=34 => self.snapshot(&disk).await?,
                35 => self.unsnapshot(&disk).await?,
                36 => self.clone_one(&disk).await?,
                37 => self.store.drop_cache(),
                38 => self.diff(&disk).await?,
                39 => self.reclaim().await?,
                41 => self.reclaim_under_a_read(&attachment, base, bytes).await?,
                40 => self.family(&disk).await?,
                44 => self.lock(&disk).await?,
                45 => self.break_a_lock(&disk).await?,
                46 => self.set_clock().await?,
                43 => crate::service::shuffle(&self.world, &self.store, self.stormy).await?,
                _ => self.weather.set_full(self.stormy && self.throw(|dice| dice.one_in(3))),
            }
        }
        self.weather.set_full(false);
        Ok(())
    }

    /// The size that its region has now.
    pub(crate) fn size(&self) -> u64 {
        self.story.lock().regions[self.id].model.now().size
    }

    fn attach(&self, export: &str) -> Result<Attachment, Stop> {
        let export = export.parse().map_err(|e| self.sort("names an export", e))?;
        self.store.attach(&export).map_err(|e| self.sort("attaches", e))
    }

    /// A range in the region, in multiples of 512, mostly small.
    fn range(&self, bytes: u64) -> (u64, u64) {
        self.throw(|dice| {
            let grains = bytes / 512;
            // Now and then at an end of the region, where a neighbour may be writing to the same block.
            let short = 1 + dice.below(grains.min(8));
            let (offset, len) = match dice.below(6) {
                0 => (0, short),
                1 => (grains - short, short),
                other => {
                    let offset = dice.below(grains);
                    let most = if other == 2 { grains } else { 24 };
                    (offset, 1 + dice.below(most.min(grains - offset)))
                }
            };
            (offset * 512, len * 512)
        })
    }

    async fn write(&self, attachment: &Attachment, base: u64, bytes: u64) -> Done {
        let (offset, len) = self.range(bytes);
        let (tag, fua, zeros) = self.throw(|dice| {
            // Few tags make many equal blocks, on both disks.
            let tag = if dice.one_in(2) { dice.below(3) << 32 } else { dice.number() };
            (tag, dice.one_in(8), dice.one_in(12))
        });
        let mut data: Vec<u8> = (0..len / 8).flat_map(|i| (tag ^ (i / 64)).to_le_bytes()).collect();
        if zeros {
            data.fill(0);
        }
        self.story.lock().begin(self.id, Step::Write { offset, data: data.clone() });
        let result = attachment.write(base + offset, &data, fua).await;
        self.end_step("writes", result, fua)
    }

    async fn zero(&self, attachment: &Attachment, base: u64, bytes: u64) -> Done {
        // Whole blocks: what is cut off at the edges would be steps of their own.
        let (offset, len) = self.range(bytes);
        let (offset, len) = match self.throw(|dice| dice.one_in(2)) {
            true => ((base + offset).next_multiple_of(4096) - base, len / 4096 * 4096),
            false => (offset, len.min(512)),
        };
        let len = len.min(bytes.saturating_sub(offset)) / 512 * 512;
        if len == 0 {
            return Ok(());
        }
        let len = if len > 512 { len / 4096 * 4096 } else { len };
        if len == 0 {
            return Ok(());
        }
        self.story.lock().begin(self.id, Step::Zero { offset, len });
        let result = attachment.zero(base + offset, len, false).await;
        self.end_step("zeroes", result, false)
    }

    fn end_step(&self, doing: &str, result: Result<(), Error>, durable: bool) -> Done {
        match result {
            Ok(()) => {
                let mut story = self.story.lock();
                let durable = durable || story.regions[self.id].ack;
                story.acknowledge(self.id, durable);
                Ok(())
            }
            // Refused for want of room: it must have changed nothing.
            Err(error) if error.kind() == Kind::NoSpace && self.stormy => {
                self.story.lock().refuse(self.id);
                Ok(())
            }
            Err(error) => Err(self.sort(doing, error)),
        }
    }

    async fn flush(&self, attachment: &Attachment) -> Done {
        let covered = self.story.lock().flush_begins();
        let _ = attachment.flush().await.map_err(|e| self.sort("flushes", e))?;
        self.story.lock().flush_ended(&covered);
        let ends = self.mortal && self.throw(|dice| dice.one_in(END_AFTER_FLUSH_ONE_IN));
        if ends { Err(Stop::Enough) } else { Ok(()) }
    }

    async fn read(&self, attachment: &Attachment, base: u64, bytes: u64) -> Done {
        let (offset, len) = self.range(bytes);
        let expected = self.story.lock().regions[self.id].model.now().read(offset, len as usize);
        let mut buf = vec![0xee; len as usize];
        let cached = attachment.read_cached(base + offset, &mut buf);
        if let Some(done) = cached {
            done.map_err(|e| self.sort("reads from memory", e))?;
            if buf != expected {
                return Err(wrong(format!(
                    "client {} reads from memory what it did not write at {offset}",
                    self.id
                )));
            }
        }
        let read = attachment.read(base + offset, &mut buf).await;
        match read {
            Err(error) if self.stormy && error.kind() == Kind::Io => Ok(()),
            Err(error) => Err(self.sort("reads", error)),
            Ok(()) if buf == expected => Ok(()),
            Ok(()) => Err(wrong(format!("client {} reads what it did not write at {offset}+{len}", self.id))),
        }
    }

    /// Snapshots the client's disk, or all disks at one instant.
    async fn snapshot(&self, disk: &Name) -> Done {
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
    fn choose_snapshot(&self, disk: &Name) -> Option<String> {
        let story = self.story.lock();
        let usable = |(name, taken): &(&String, &Taken)| {
            name.starts_with(&format!("{disk}@")) && taken.acked && !taken.leaving
        };
        let names: Vec<&String> = story.snapshots.iter().filter(usable).map(|(name, _)| name).collect();
        let count = names.len() as u64;
        (count > 0).then(|| names[self.throw(|dice| dice.below(count)) as usize].clone())
    }

    async fn unsnapshot(&self, disk: &Name) -> Done {
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

    /// Locks a snapshot for longer than the world lasts.
    async fn lock(&self, disk: &Name) -> Done {
        let Some(name) = self.choose_snapshot(disk) else { return Ok(()) };
        let time = self.store.time();
        let until = time.trusted.max(time.wall) + LOCKED_FOR.as_nanos() as u64;
        match self.store.lock_snapshot(&name.parse().expect("it is a snapshot's name"), until).await {
            Ok(_) => {
                if let Some(taken) = self.story.lock().snapshots.get_mut(&name) {
                    // Another client may be about to remove it, or to confirm a time that ends the lock.
                    taken.locked = !taken.leaving && self.store.time().trusted < until - 1;
                }
                Ok(())
            }
            // Another client removed it, or has confirmed a time in between.
            Err(error) if matches!(error.kind(), Kind::NotFound | Kind::Invalid) => Ok(()),
            Err(error) => Err(self.sort("locks a snapshot", error)),
        }
    }

    /// A locked snapshot stays, whatever the wall clock says, and so does its disk.
    async fn break_a_lock(&self, disk: &Name) -> Done {
        let locked = {
            let story = self.story.lock();
            let of_disk = |name: &&String| name.starts_with(&format!("{disk}@"));
            let mut locked = story.snapshots.iter().filter(|(_, taken)| taken.locked && !taken.leaving);
            locked.find(|(name, _)| of_disk(name)).map(|(name, _)| name.clone())
        };
        let Some(name) = locked else { return Ok(()) };
        match self.store.remove_snapshot(&name.parse().expect("it is a snapshot's name")).await {
            Err(error) if error.kind() == Kind::Locked => Ok(()),
            other => Err(wrong(format!("{name} is locked, and its removal: {other:?}"))),
        }
    }

    /// The wall clock jumps while the store runs; sometimes it is confirmed, which may end every lock.
    async fn set_clock(&self) -> Done {
        self.world.set_wall_ahead(LOCKED_FOR * 2);
        if self.throw(|dice| dice.below(4)) > 0 {
            return Ok(());
        }
        self.story.lock().snapshots.values_mut().for_each(|taken| taken.locked = false);
        match self.store.confirm_time().await {
            Err(error) if self.stormy && error.kind() == Kind::Io => {}
            other => drop(other.map_err(|e| self.sort("confirms the time", e))?),
        }
        self.story.lock().snapshots.values_mut().for_each(|taken| taken.locked = false);
        Ok(())
    }

    /// Clones a snapshot, checks that the clone is the same, writes to it, checks that nothing else changed.
    async fn clone_one(&self, disk: &Name) -> Done {
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
    async fn family(&self, disk: &Name) -> Done {
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

    /// A read that has found its way must not lose it when what it follows is overwritten and given back.
    async fn reclaim_under_a_read(&self, attachment: &Attachment, base: u64, bytes: u64) -> Done {
        self.flush(attachment).await?;
        match self.store.reclaim().await {
            Err(error) if self.stormy && matches!(error.kind(), Kind::Io | Kind::NoSpace | Kind::Busy) => {}
            other => other.map(|_| ()).map_err(|e| self.sort("reclaims", e))?,
        }
        self.store.drop_cache();
        let mut buf = vec![0; bytes as usize];
        let overwritten = async {
            self.write(attachment, base, bytes).await?;
            self.reclaim().await
        };
        let (read, overwritten) = futures::join!(attachment.read(base, &mut buf), overwritten);
        match read {
            Err(error) if self.stormy && error.kind() == Kind::Io => {}
            other => other.map_err(|e| self.sort("reads while it is overwritten", e))?,
        }
        overwritten
    }

    async fn reclaim(&self) -> Done {
        match self.store.reclaim().await {
            // Busy: a swap that failed left it unclear what is stored, and nothing may be deleted on such ground.
            Err(error) if self.stormy && matches!(error.kind(), Kind::Io | Kind::NoSpace | Kind::Busy) => {
                Ok(())
            }
            other => other.map(|_| ()).map_err(|e| self.sort("reclaims", e)),
        }
    }

    /// What has not changed since a snapshot must read the same there and here.
    async fn diff(&self, disk: &Name) -> Done {
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
