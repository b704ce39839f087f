//! What a machine reads while it boots: kept for its source, and fetched ahead into the cache when a point of that boots the next time.
//!
//! *Promises*: nothing waits for it and nothing fails by it: what cannot be learnt or fetched is read when the machine asks. What is fetched is
//! what was read, in the order in which it was, in pieces of [`CHUNK_BYTES`]; half of the cache at most. *Never*: counts as what a client read; holds a
//! disk that is to go.

use crate::Protection;
use crate::catalog::{self, Entry, Unknown};
use crate::recoveries::Recovery;
use futures::StreamExt;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::sync::{Arc, Weak};
use std::time::Duration;
use stonefold_env::WallNanos;
use stonefold_store::{Capture, Store};
use stonefold_types::{ExportName, Name, Size};
use tokio::sync::{OwnedSemaphorePermit, watch};

/// What is kept counts these: as much as a guest reads ahead itself.
const CHUNK_BYTES: u64 = 64 << 10;
/// Pieces of a disk that are kept, a GiB: what a boot reads beyond is not the boot.
const CHUNKS_MAX: usize = 16 << 10;
/// Runs of pieces that are kept of a disk: some 100 KiB of JSON.
const RUNS_MAX: usize = 8 << 10;
/// Requests of a disk that are remembered while a machine boots, 48 bytes each: ten times those of a Debian's.
const REQUESTS_MAX: usize = 32 << 10;
/// Boots that are learnt at once: what others read meanwhile is not recorded, and takes no memory.
pub(crate) const LEARNT_AT_ONCE: usize = 4;
/// A boot that shows no sign of life is over then.
const BOOT_MAX: Duration = Duration::from_secs(120);
/// Reads at once.
const FETCHES: usize = 8;
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The document of what a source's machine reads while it boots, `boots/SOURCE`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Boot {
    pub(crate) source: Name,
    pub(crate) disks: Vec<BootDisk>,
    /// Trusted time, nanoseconds since 1970.
    pub(crate) learnt: WallNanos,
    #[serde(flatten)]
    pub(crate) unknown: Unknown,
}

/// What is read of a disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BootDisk {
    /// What the machine calls it.
    pub(crate) target: Name,
    /// The first of some pieces of [`CHUNK_BYTES`] that lie behind one another, and how many; in the order in which they were read.
    pub(crate) runs: Vec<(u64, u64)>,
}

/// Disks of which is recorded what is read.
pub(crate) struct Traced {
    source: Name,
    disks: Vec<(Name, Capture)>,
    _place: Option<OwnedSemaphorePermit>,
}

impl Entry for Boot {
    const FAMILY: &'static str = "boots";
    const NOUN: &'static str = "boot of source";
    const LISTED_BY: &'static str = "stonefold source ls";

    fn key(&self) -> String {
        self.source.to_string()
    }
}

impl Protection {
    /// Begins to record what a machine reads, before it is started. A disk that somebody else traces is left out.
    pub(crate) fn trace_boot(&self, recovery: &Recovery) -> Traced {
        let source = recovery.point.source.clone();
        let Ok(place) = self.learning.clone().try_acquire_owned() else {
            return Traced { source, disks: Vec::new(), _place: None };
        };
        let traced = recovery.disks.iter().filter_map(|disk| {
            let capture = self.store.capture(&disk.disk, REQUESTS_MAX).ok()?;
            Some((disk.target.clone(), capture))
        });
        Traced { source, disks: traced.collect(), _place: Some(place) }
    }

    /// Keeps what was read once the machine is up, which whoever sees that says.
    pub(crate) fn learn_boot(&self, traced: Traced) -> watch::Sender<bool> {
        let (is_up, mut up) = watch::channel(false);
        let (env, me) = (self.env.clone(), self.me.clone());
        self.env.spawn("learn what a boot reads", async move {
            let said = async {
                if up.wait_for(|up| *up).await.is_err() {
                    // Nobody looks for a sign of life.
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! {
                biased;
                () = said => {}
                () = env.sleep(BOOT_MAX) => {}
            }
            learn(&me, traced).await;
        });
        is_up
    }

    /// Begins to fetch what the last boot of the source read; how much that is, where anything is known.
    pub(crate) async fn fetch_ahead(&self, recovery: &Recovery) -> Option<Size> {
        let found = self.readable::<Boot>(recovery.point.source.as_str()).await;
        let boot = found.unwrap_or_else(|error| {
            tracing::warn!("nothing is fetched ahead for '{}': {error}", recovery.name);
            None
        })?;
        let chunks_max = self.store.cache_bytes_max() / 2 / CHUNK_BYTES;
        let mut parts = Vec::new();
        for of in &boot.disks {
            let Some(disk) = recovery.disks.iter().find(|disk| disk.target == of.target) else { continue };
            let chunks = of.runs.iter().flat_map(|(first, count)| *first..first.saturating_add(*count));
            parts.extend(chunks.take(CHUNKS_MAX).map(|chunk| (ExportName::Disk(disk.disk.clone()), chunk)));
        }
        parts.truncate(chunks_max as usize);
        let bytes = parts.len() as u64 * CHUNK_BYTES;
        // One that was started before, and is fetched for still.
        self.stop_fetching(&recovery.name).await;
        let (name, me) = (recovery.name.clone(), self.me.upgrade()?);
        let (stop, stopped) = watch::channel(false);
        self.fetching.lock().insert(name.clone(), stop);
        self.env.spawn("fetch what a boot reads", async move {
            fetch(me.store.clone(), parts, stopped).await;
            me.fetching.lock().remove(&name);
        });
        (bytes > 0).then_some(Size(bytes))
    }

    /// Fetches nothing more for a recovery, whose disks may be about to go.
    pub(crate) async fn stop_fetching(&self, recovery: &Name) {
        let is_at_it = || self.fetching.lock().get(recovery).map(|stop| stop.send_replace(true)).is_some();
        while is_at_it() {
            self.env.sleep(LOOK_EVERY).await;
        }
    }
}

async fn learn(protection: &Weak<Protection>, traced: Traced) {
    let Some(here) = protection.upgrade() else { return };
    let of = |(target, capture): &(Name, Capture)| {
        let runs = runs_of(&capture.take_reads());
        (!runs.is_empty()).then(|| BootDisk { target: target.clone(), runs })
    };
    let disks: Vec<BootDisk> = traced.disks.iter().filter_map(of).collect();
    let source = traced.source.clone();
    // Others may trace them now.
    drop(traced);
    if disks.is_empty() {
        return;
    }
    let boot = Boot { source, disks, learnt: here.store.time().trusted, unknown: Unknown::new() };
    if let Err(error) = catalog::put(&here.store, &boot).await {
        tracing::warn!("what source '{}' reads while it boots is not kept: {error}", boot.source);
    }
}

async fn fetch(store: Arc<Store>, parts: Vec<(ExportName, u64)>, mut stopped: watch::Receiver<bool>) {
    let fetched = |(export, chunk): (ExportName, u64)| {
        let store = store.clone();
        async move {
            // Held for one piece only, and what cannot be read is told to whoever needs it.
            let Ok(disk) = store.attach(&export) else { return };
            let offset = chunk.saturating_mul(CHUNK_BYTES).min(disk.size_bytes());
            let bytes = CHUNK_BYTES.min(disk.size_bytes() - offset);
            drop(disk.prefetch(offset, bytes).await);
        }
    };
    tokio::select! {
        biased;
        // Whoever could say so has gone, or has said so.
        _ = stopped.wait_for(|stop| *stop) => {}
        () = futures::stream::iter(parts).for_each_concurrent(FETCHES, fetched) => {}
    }
}

/// The pieces that ranges touch, each once, in the order in which they come.
fn runs_of(reads: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut seen = HashSet::new();
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for (offset, bytes) in reads.iter().filter(|(_, bytes)| *bytes > 0) {
        let last = offset.saturating_add(bytes - 1) / CHUNK_BYTES;
        for chunk in offset / CHUNK_BYTES..=last {
            if seen.len() == CHUNKS_MAX {
                return runs;
            }
            if !seen.insert(chunk) {
                continue;
            }
            match runs.last_mut() {
                Some((first, count)) if *first + *count == chunk => *count += 1,
                _ => runs.push((chunk, 1)),
            }
            if runs.len() > RUNS_MAX {
                runs.truncate(RUNS_MAX);
                return runs;
            }
        }
    }
    runs
}

#[cfg(test)]
mod tests;
