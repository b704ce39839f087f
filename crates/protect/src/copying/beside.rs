//! Guests whose disks are read while they use them: how fast they are read is set by what that costs them ([`pace`](crate::pace)).
//!
//! QEMU counts the time of a request from when it comes to it, and does that, and the reads of a backup, in one thread: reads that cost it time and no
//! wait, as of what reads as zeros, delay what it does not see yet. So it is asked something small now and then, which waits in the same way.

use super::Live;
use super::live::SPEED_UNKNOWN;
use crate::hypervisor::{ANSWER_MAX, Virsh};
use crate::pace::{CopyRate, Counted, Pace, Paced, SPEED_BEGINNING, SPEED_MAX};
use crate::qmp::Qmp;
use parking_lot::Mutex as Memory;
use serde_json::json;
use std::convert::Infallible;
use std::num::NonZeroU64;
use std::sync::atomic::Ordering;
use std::time::Duration;
use stonefold_env::Env;
use stonefold_types::Result;

/// What a guest keeps of its speed at least, in percent. With the margin that a pace leaves, its requests take no longer than without, as a mean:
/// where all processors work now and then the rarest of them wait for one long before the mean does.
const FLOOR_PERCENT: u8 = 90;
/// How often the speed is set.
const SET_EVERY: Duration = Duration::from_millis(500);
/// How often a QEMU is asked something small.
const ASK_EVERY: Duration = Duration::from_millis(50);
/// How often it is tried to ask a guest that could not be.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// A guest, by whom it is asked.
pub(crate) enum Guest {
    Qemu(Qmp),
    Libvirt {
        uri: String,
        /// Its UUID.
        domain: String,
    },
}

/// A run that reads its disks.
struct Reader<'a> {
    env: &'a Env,
    guest: &'a Guest,
    live: &'a Live,
    heard: Memory<Heard>,
}

/// How long a QEMU's answers take.
#[derive(Default)]
struct Heard {
    /// Since it was looked at last: in nanoseconds, of so many.
    nanos: u64,
    answers: u64,
    /// The guest's requests until then, and what all of these have waited before they were counted, as long as answers did.
    operations: u64,
    waited: u64,
}

impl Heard {
    /// What requests have waited besides, when so many have been counted.
    fn waited(&mut self, operations: u64) -> u64 {
        let mean = self.nanos.checked_div(self.answers).unwrap_or(0);
        self.waited += operations.saturating_sub(self.operations) * mean;
        (self.nanos, self.answers, self.operations) = (0, 0, operations);
        self.waited
    }
}

impl Guest {
    /// Sets the speed, for as long as this is waited for; what a copy costs besides its reads, as the copy of what is overwritten, is there
    /// from the beginning. Nothing is read before the guest was looked at.
    pub(super) async fn keep_pace(&self, env: &Env, live: &Live) -> Infallible {
        let reader = Reader { env, guest: self, live, heard: Memory::default() };
        loop {
            let error = tokio::select! {
                Err(error) = reader.keep_pace() => error,
                Err(error) = reader.listen() => error,
            };
            // What else it is asked for tells what is wrong with it.
            tracing::warn!("it is not known what a backup costs its guest: {error}");
            // It may have stood still for a look.
            live.pace.stand_still(false);
            live.read_at(live.speed.load(Ordering::Relaxed).min(SPEED_BEGINNING));
            env.sleep(ASK_AGAIN).await;
        }
    }
}

impl Reader<'_> {
    /// Hears how long a QEMU's answers take.
    async fn listen(&self) -> Result<Infallible> {
        let Guest::Qemu(qmp) = self.guest else { return std::future::pending().await };
        loop {
            self.env.sleep(ASK_EVERY).await;
            let asked = self.env.monotonic();
            qmp.execute("query-status", json!({}), ANSWER_MAX).await?;
            let mut heard = self.heard.lock();
            heard.nanos += self.env.monotonic().saturating_sub(asked).as_nanos() as u64;
            heard.answers += 1;
        }
    }

    async fn keep_pace(&self) -> Result<Infallible> {
        loop {
            self.live.speed.store(SPEED_UNKNOWN, Ordering::Relaxed);
            let mut pace = Pace::begin(self.env, self, FLOOR_PERCENT).await?;
            self.live.busy.store(pace.is_busy(), Ordering::Relaxed);
            // While nothing is read, nothing is learnt of what that costs.
            while !self.live.is_paused() {
                self.env.sleep(SET_EVERY).await;
                let CopyRate { speed_bytes, guest_percent } = pace.set(self.env, self).await?;
                self.live.busy.store(pace.is_busy(), Ordering::Relaxed);
                tracing::debug!(speed_bytes, guest_percent, "the pace of a backup");
            }
            let Ok(()) = self.live.until_resumed().await else { return std::future::pending().await };
        }
    }
}

impl Paced for Reader<'_> {
    const LOOK: Duration = Duration::from_secs(1);
    const LOOK_AT_IDLE: Duration = Duration::from_millis(100);
    const SPEED_AT_IDLE: u64 = SPEED_MAX;
    // A server that has just begun with a pool takes its memory and its journal's files meanwhile: at 64 MiB a second each of the guest's
    // hundredth writes took three times as long in the first seconds.
    const SPEED_AT_WORK: u64 = Self::SPEED_MIN;
    /// A terabyte in less than a day. What the guest overwrites is copied for as long as a run takes: slower is not gentler.
    const SPEED_MIN: u64 = 16 << 20;
    const MARGIN: f64 = 0.9;

    async fn counted(&self) -> Result<Counted> {
        match self.guest {
            Guest::Qemu(qmp) => {
                let Counted { operations, nanos } = Counted::by(qmp).await?;
                Ok(Counted { operations, nanos: nanos + self.heard.lock().waited(operations) })
            }
            Guest::Libvirt { uri, domain } => {
                let (operations, nanos) = Virsh { env: self.env, uri }.block_counters(domain).await?;
                Ok(Counted { operations, nanos })
            }
        }
    }

    async fn pause(&self) -> Result<()> {
        self.live.pace.stand_still(true);
        Ok(())
    }

    async fn resume(&self) -> Result<()> {
        self.live.pace.stand_still(false);
        Ok(())
    }

    async fn set_speed(&self, bytes: u64) -> Result<()> {
        self.live.read_at(bytes);
        Ok(())
    }
}

impl Live {
    /// How fast its source is read from now on, in bytes a second.
    fn read_at(&self, bytes: u64) {
        if let Some(bytes) = NonZeroU64::new(bytes) {
            self.pace.set(bytes);
            let before = self.speed.swap(bytes.get(), Ordering::Relaxed);
            // What it begins with is no giving way.
            if before != SPEED_UNKNOWN && bytes.get() < before {
                self.slowest.fetch_min(bytes.get(), Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::{Copied, RunRequest};

    fn notes(live: &Live) -> Vec<String> {
        let mut copied = Copied::default();
        live.tell(&mut copied);
        copied.notes
    }

    /// Goal: that a backup gave way to its guest is told where it did, and with the slowest that it came to; neither beginning slowly nor becoming
    /// faster is that.
    #[test]
    fn giving_way_is_told_where_it_was() {
        let live = Live::new(RunRequest::default(), None, None);
        for speed in [16, 24, 36] {
            live.read_at(speed << 20);
            assert!(
                notes(&live).is_empty(),
                "it began with 16 MiB a second and became faster: {:?}",
                notes(&live)
            );
        }
        for speed in [20, 18, 30] {
            live.read_at(speed << 20);
        }
        assert_eq!(notes(&live), ["it gave way to its guest, down to 18M a second"]);
        // Where it is looked at anew, as after a pause, it begins anew.
        let live = Live::new(RunRequest::default(), None, None);
        live.read_at(SPEED_MAX);
        live.speed.store(SPEED_UNKNOWN, Ordering::Relaxed);
        live.read_at(16 << 20);
        assert!(notes(&live).is_empty(), "{:?}", notes(&live));
    }

    #[test]
    fn requests_wait_as_long_as_answers_took_meanwhile() {
        let mut heard = Heard { operations: 1000, ..Heard::default() };
        assert_eq!(heard.waited(1100), 0, "nothing was heard");
        (heard.nanos, heard.answers) = (6000, 3);
        assert_eq!(heard.waited(1110), 10 * 2000);
        (heard.nanos, heard.answers) = (500, 1);
        assert_eq!(heard.waited(1110), 10 * 2000, "there were no requests");
        (heard.nanos, heard.answers) = (500, 1);
        assert_eq!(heard.waited(1111), 10 * 2000 + 500);
    }
}
