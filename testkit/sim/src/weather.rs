//! An engine under weather: delays, and failures, by the world's dice.

use crate::rot::{Copies, is_immutable};
use crate::world::World;
use async_trait::async_trait;
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use stonefold_engine::{
    Engine, Journal, JournalId, JournalReader, Key, Listed, MemoryEngine, Repaired, Room, Sound, Version,
};
use stonefold_types::{Error, Kind, Result};

/// How bad it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Forecast {
    /// An operation on objects fails once in this many, before or after it took effect; 0 for never.
    pub failures_one_in: u64,
    /// A journal operation fails once in this many; 0 for never.
    pub journal_failures_one_in: u64,
    /// The longest an operation takes.
    pub delay_max: Duration,
    /// An object rots in one of its two copies once in so many reads; 0 for never.
    pub rot_one_in: u64,
    /// How much longer the second copy takes than the first: so many times the delay.
    pub second_copy_lag: u32,
}

/// One read in this many hangs.
const READ_HANGS_ONE_IN: u64 = 24;
/// One put of a new disk's head in this many hangs.
const HEAD_HANGS_ONE_IN: u64 = 12;
/// So many times as long as other operations are late.
const HANG_DELAYS: u32 = 60;

/// An engine in memory under weather.
#[derive(Clone)]
pub struct Weather {
    world: World,
    inner: MemoryEngine,
    forecast: Forecast,
    copies: Copies,
    /// Segments cannot be put: the place is full.
    full: Arc<AtomicBool>,
    /// Nothing rots for now.
    keeps: Arc<AtomicBool>,
}

impl Weather {
    /// Over `inner`, which counts for so many copies.
    pub fn new(world: World, inner: MemoryEngine, forecast: Forecast, copies: Copies) -> Self {
        Weather { world, inner, forecast, copies, full: Arc::default(), keeps: Arc::default() }
    }

    /// The copies.
    pub fn copies(&self) -> &Copies {
        &self.copies
    }

    /// The second copy's time on top of the first's.
    async fn lag(&self) {
        for _ in 0..self.forecast.second_copy_lag {
            self.delay().await;
        }
    }

    /// Reads from one of the copies, which may have rotted in the moment before.
    async fn read_copy(&self, key: &Key, offset: u64, bytes: Bytes, whole: u64) -> Bytes {
        if !is_immutable(key) {
            return bytes;
        }
        let rots = if self.keeps.load(Ordering::Relaxed) { 0 } else { self.forecast.rot_one_in };
        let copy = self.world.with_dice(|dice| {
            if rots > 0 && self.copies.count() > 1 && dice.one_in(rots) {
                self.copies.rot(key, whole, dice);
            }
            self.copies.choose(dice)
        });
        if copy > 0 {
            self.lag().await;
        }
        self.copies.seen(key, copy, offset, bytes)
    }

    /// How long an object is, in bytes.
    async fn length(&self, key: &Key) -> u64 {
        self.inner.get(key).await.map_or(0, |(bytes, _)| bytes.len() as u64)
    }

    /// Whether things rot as forecast.
    pub fn set_rot(&self, rots: bool) {
        self.keeps.store(!rots, Ordering::Relaxed);
    }

    /// While full, putting a segment fails with `NoSpace`.
    pub fn set_full(&self, full: bool) {
        self.full.store(full, Ordering::Relaxed);
    }

    async fn delay(&self) {
        let max = self.forecast.delay_max.as_nanos() as u64;
        let wait = self.world.with_dice(|dice| if max > 0 && dice.one_in(2) { dice.below(max) } else { 0 });
        if wait > 0 {
            self.world.env().sleep(Duration::from_nanos(wait)).await;
        }
    }

    /// Hangs once in so many times, while much else happens.
    async fn hang(&self, one_in: u64) {
        let hangs = self.world.with_dice(|dice| dice.one_in(one_in));
        for _ in 0..if hangs { HANG_DELAYS } else { 0 } {
            self.delay().await;
        }
    }

    fn strike(&self, one_in: u64, what: &str) -> Result<()> {
        if one_in > 0 && self.world.with_dice(|dice| dice.one_in(one_in)) {
            return Err(Error::new(Kind::Io, format!("the weather struck {what}")));
        }
        Ok(())
    }

    /// An operation that may be late, and fail before it began or after it was done.
    async fn through<T>(&self, what: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
        self.delay().await;
        self.strike(self.forecast.failures_one_in, what)?;
        let done = work.await?;
        self.delay().await;
        self.strike(self.forecast.failures_one_in, what)?;
        Ok(done)
    }
}

#[async_trait]
impl Engine for Weather {
    fn describe(&self) -> String {
        "memory under weather".into()
    }

    fn healed(&self) -> u64 {
        self.copies.healed()
    }

    async fn put_new(&self, key: &Key, bytes: Bytes) -> Result<Version> {
        if self.full.load(Ordering::Relaxed) && key.as_str().starts_with("segment/") {
            self.delay().await;
            return Err(Error::new(Kind::NoSpace, format!("no room for '{key}'")));
        }
        if key.as_str().starts_with("head/") {
            self.hang(HEAD_HANGS_ONE_IN).await;
        }
        // What is in the way stays as it is, so what has rotted of it does, too: no name is given twice but to a leftover, and that
        // one is deleted before.
        let put = async {
            let version = self.inner.put_new(key, bytes).await?;
            if self.copies.count() > 1 {
                self.lag().await;
            }
            Ok(version)
        };
        self.through("put_new", put).await
    }

    async fn put_if(&self, key: &Key, bytes: Bytes, expected: &Version) -> Result<Version> {
        self.through("put_if", self.inner.put_if(key, bytes, expected)).await
    }

    async fn get(&self, key: &Key) -> Result<(Bytes, Version)> {
        let get = async {
            let (bytes, version) = self.inner.get(key).await?;
            let whole = bytes.len() as u64;
            Ok((self.read_copy(key, 0, bytes, whole).await, version))
        };
        self.through("get", get).await
    }

    async fn get_range(&self, key: &Key, offset: u64, len: usize) -> Result<Bytes> {
        self.hang(READ_HANGS_ONE_IN).await;
        let get = async {
            let bytes = self.inner.get_range(key, offset, len).await?;
            let whole = if self.forecast.rot_one_in > 0 { self.length(key).await } else { 0 };
            Ok(self.read_copy(key, offset, bytes, whole).await)
        };
        self.through("get_range", get).await
    }

    async fn repair(
        &self,
        key: &Key,
        offset: u64,
        len: usize,
        sound: &Sound<'_>,
    ) -> Result<Option<Repaired>> {
        let repair = async {
            let bytes = self.inner.get_range(key, offset, len).await?;
            self.lag().await;
            Ok(self.copies.repair(key, offset, &bytes, sound))
        };
        self.through("repair", repair).await
    }

    async fn delete(&self, key: &Key) -> Result<()> {
        let delete = async {
            self.inner.delete(key).await?;
            self.copies.forget(key);
            Ok(())
        };
        self.through("delete", delete).await
    }

    async fn list(&self, prefix: &str, after: Option<&Key>, limit: usize) -> Result<Vec<Listed>> {
        self.through("list", self.inner.list(prefix, after, limit)).await
    }

    async fn room(&self) -> Result<Room> {
        self.inner.room().await
    }

    async fn journal_create(&self, id: JournalId) -> Result<Arc<dyn Journal>> {
        let inner = self.through("journal_create", self.inner.journal_create(id)).await?;
        Ok(Arc::new(WeatherJournal { weather: self.clone(), inner }))
    }

    async fn journal_list(&self) -> Result<Vec<JournalId>> {
        self.inner.journal_list().await
    }

    async fn journal_open(&self, id: JournalId) -> Result<Box<dyn JournalReader>> {
        self.through("journal_open", self.inner.journal_open(id)).await
    }

    async fn journal_remove(&self, id: JournalId) -> Result<()> {
        self.through("journal_remove", self.inner.journal_remove(id)).await
    }
}

struct WeatherJournal {
    weather: Weather,
    inner: Arc<dyn Journal>,
}

impl WeatherJournal {
    async fn through(&self, what: &str, work: impl Future<Output = Result<()>>) -> Result<()> {
        self.weather.delay().await;
        self.weather.strike(self.weather.forecast.journal_failures_one_in, what)?;
        work.await?;
        self.weather.delay().await;
        self.weather.strike(self.weather.forecast.journal_failures_one_in, what)
    }
}

#[async_trait]
impl Journal for WeatherJournal {
    async fn append(&self, chunk: Bytes) -> Result<()> {
        self.through("a journal append", self.inner.append(chunk)).await
    }

    async fn sync(&self) -> Result<()> {
        self.through("a journal sync", self.inner.sync()).await
    }

    async fn trim(&self, below: u64) -> Result<()> {
        self.inner.trim(below).await
    }
}
