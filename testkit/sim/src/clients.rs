//! The actors: each does one thing after another on its own region, and checks what it sees.

mod locks;
mod snapshots;

pub use snapshots::read_regions;

use crate::story::Story;
use crate::weather::Weather;
use crate::world::World;
use parking_lot::Mutex;
use std::sync::Arc;
use stonefold_dice::Dice;
use stonefold_model::Step;
use stonefold_store::{Attachment, Store};
use stonefold_types::{Error, Kind, Name};

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
        // Of whole blocks the two are one.
        let is_trim = (base + offset) % 4096 == 0 && len % 8192 == 0;
        let result = match is_trim {
            true => attachment.trim(base + offset, len, false).await,
            false => attachment.zero(base + offset, len, false).await,
        };
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

    /// A read that has found its way must not lose it when what it follows is overwritten and given back.
    async fn reclaim_under_a_read(&self, attachment: &Attachment, base: u64, bytes: u64) -> Done {
        self.flush(attachment).await?;
        match crate::life::reclaim(&self.store).await {
            Err(error) if self.stormy && matches!(error.kind(), Kind::Io | Kind::NoSpace | Kind::Busy) => {}
            other => other.map_err(|e| self.sort("reclaims", e))?,
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
        match crate::life::reclaim(&self.store).await {
            // Busy: a swap that failed left it unclear what is stored, and nothing may be deleted on such ground.
            Err(error) if self.stormy && matches!(error.kind(), Kind::Io | Kind::NoSpace | Kind::Busy) => {
                Ok(())
            }
            other => other.map_err(|e| self.sort("reclaims", e)),
        }
    }
}
