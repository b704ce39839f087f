//! How fast the pool fills, as far as that has been seen.
//!
//! *Promises*: says nothing before a day has been watched; what has been seen outlives restarts; memory and record are bounded
//! ([`SAMPLES_MAX`] samples, one an hour). *Never*: keeps the pool from being served: a record that cannot be read or
//! written costs the forecast, and is told in the log.
//!
//! The trend is a line through the samples (least squares), so that neither reclaim's sawtooth nor one busy hour decides. Time
//! that the server was down counts: the line goes through it.

use crate::store::Store;
use parking_lot::Mutex;
use stonefold_engine::{Engine, Key};
use stonefold_env::WallNanos;
use stonefold_format::growth::{self, SAMPLES_MAX, Sample};
use stonefold_types::{Kind, Result};

const NANOS_PER_HOUR: u64 = 3_600_000_000_000;
/// A trend is told from this much on, in nanoseconds: a night and a day differ.
const WATCHED_MIN: u64 = 24 * NANOS_PER_HOUR;

/// What was seen, oldest first.
#[derive(Default)]
pub(crate) struct Growth(Mutex<Vec<Sample>>);

/// How the pool fills.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trend {
    /// By how many bytes a day it grows; less than 0 when it shrinks.
    pub bytes_per_day: i64,
}

impl Trend {
    /// In how many days `free_bytes` are used up; `None` when never.
    pub fn days_to_full(&self, free_bytes: u64) -> Option<u64> {
        let rate = u64::try_from(self.bytes_per_day).ok().filter(|rate| *rate > 0)?;
        Some(free_bytes / rate)
    }
}

impl Growth {
    /// What an earlier session has seen.
    pub(crate) async fn open(engine: &dyn Engine) -> Result<Self> {
        let seen = match engine.get(&key()).await {
            Ok((bytes, _)) => growth::decode(&bytes),
            Err(error) if error.kind() == Kind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error.context("reading the pool's growth")),
        };
        let seen = seen.or_else(|error| match error.kind() {
            Kind::Corrupt | Kind::Io => {
                tracing::warn!("how fast the pool grows has to be learnt anew: {error}");
                Ok(Vec::new())
            }
            _ => Err(error),
        });
        Ok(Growth(Mutex::new(seen?)))
    }

    /// The trend; `None` before enough was seen.
    pub(crate) fn trend(&self) -> Option<Trend> {
        trend(&self.0.lock())
    }

    /// The samples with one more, if it is time for one. What lies in the future was seen by a clock that was wrong.
    fn with(&self, now: WallNanos, used_bytes: u64) -> Option<Vec<Sample>> {
        let mut samples = self.0.lock().clone();
        samples.retain(|sample| sample.time <= now);
        if samples.last().is_some_and(|last| now - last.time < NANOS_PER_HOUR) {
            return None;
        }
        samples.push(Sample { time: now, used_bytes });
        let surplus = samples.len().saturating_sub(SAMPLES_MAX);
        samples.drain(..surplus);
        Some(samples)
    }
}

fn key() -> Key {
    Key::new("growth")
}

impl Store {
    /// Takes a sample if an hour has passed since the last.
    pub(crate) async fn watch_growth(&self) {
        if let Err(error) = self.sample_growth().await {
            tracing::debug!("the pool's growth was not noted: {error}");
        }
    }

    async fn sample_growth(&self) -> Result<()> {
        let room = self.engine.room().await?;
        let Some(samples) = self.growth.with(self.env.wall(), room.used_bytes) else { return Ok(()) };
        let bytes = growth::encode(&samples);
        // Kept in memory whatever becomes of the record.
        *self.growth.0.lock() = samples;
        match self.engine.get(&key()).await {
            Ok((_, version)) => self.engine.put_if(&key(), bytes.into(), &version).await.map(drop),
            Err(error) if error.kind() == Kind::NotFound => {
                self.engine.put_new(&key(), bytes.into()).await.map(drop)
            }
            // Nothing in it can be had any more, not even what a swap would have to expect.
            Err(error) if error.kind() == Kind::Corrupt => {
                self.engine.delete(&key()).await?;
                self.engine.put_new(&key(), bytes.into()).await.map(drop)
            }
            Err(error) => Err(error),
        }
    }
}

/// The slope of the line through the samples.
fn trend(samples: &[Sample]) -> Option<Trend> {
    let (first, last) = (samples.first()?, samples.last()?);
    if last.time.saturating_sub(first.time) < WATCHED_MIN {
        return None;
    }
    let day = (24 * NANOS_PER_HOUR) as f64;
    let points = || {
        let all = samples.iter();
        all.map(|s| ((s.time.saturating_sub(first.time)) as f64 / day, s.used_bytes as f64))
    };
    let count = samples.len() as f64;
    let (days, bytes) = points().fold((0.0, 0.0), |sum, point| (sum.0 + point.0, sum.1 + point.1));
    let (mean_day, mean_bytes) = (days / count, bytes / count);
    let (along, spread) = points().fold((0.0, 0.0), |sum, (day, bytes)| {
        (sum.0 + (day - mean_day) * (bytes - mean_bytes), sum.1 + (day - mean_day) * (day - mean_day))
    });
    Some(Trend { bytes_per_day: (along / spread).round() as i64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn seen(hours: u64, used: impl Fn(u64) -> u64) -> Growth {
        let growth = Growth::default();
        for hour in 0..hours {
            let samples = growth.with((500 + hour) * NANOS_PER_HOUR, used(hour)).unwrap();
            *growth.0.lock() = samples;
        }
        growth
    }

    #[test]
    fn nothing_is_told_before_a_day_was_watched() {
        assert_eq!(seen(0, |_| 0).trend(), None);
        assert_eq!(seen(24, |hour| hour * GIB).trend(), None);
        assert_eq!(seen(25, |hour| hour * GIB).trend(), Some(Trend { bytes_per_day: 24 * GIB as i64 }));
    }

    #[test]
    fn the_trend_sees_through_a_sawtooth_and_the_window_is_bounded() {
        // Two gigabytes a day, and reclaim takes off each evening what each day piled up beside them.
        let used = |hour: u64| hour / 24 * 2 * GIB + hour % 24 * GIB;
        let growth = seen(40 * 24, used);
        assert_eq!(growth.0.lock().len(), SAMPLES_MAX);
        let rate = growth.trend().unwrap().bytes_per_day as f64 / GIB as f64;
        assert!((1.9..2.4).contains(&rate), "{rate} GiB a day");
        assert_eq!(Trend { bytes_per_day: 10 }.days_to_full(105), Some(10));
        assert_eq!(seen(48, |hour| 100 * GIB - hour * GIB).trend().unwrap().days_to_full(1), None);
        assert_eq!(seen(48, |_| GIB).trend().unwrap().days_to_full(GIB), None);
    }

    #[test]
    fn one_sample_an_hour_and_none_from_the_future() {
        let growth = seen(30, |hour| hour);
        assert_eq!(growth.with(529 * NANOS_PER_HOUR + 5, 1), None);
        let back = growth.with(510 * NANOS_PER_HOUR + NANOS_PER_HOUR / 2, 1);
        assert_eq!(back, None, "the clock went back to half an hour after a sample");
        assert_eq!(growth.with(530 * NANOS_PER_HOUR, 1).unwrap().len(), 31);
    }
}
