//! What is kept of a run.

use crate::catalog::{Entry, Unknown};
use crate::machines::MachineDisk;
use crate::points::Consistency;
use crate::{Database, Hardware};
use serde::{Deserialize, Serialize};
use stonefold_env::WallNanos;
use stonefold_types::{Name, PointName};

/// The document of a run, `runs/SOURCE/TIME`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Its name, which is that of its point.
    pub name: PointName,
    /// The machine that is backed up; the source's name where it is none of ours.
    pub machine: Name,
    /// Its disks.
    pub disks: Vec<MachineDisk>,
    /// What goes into the point; absent once that is put.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<Hardware>,
    /// Likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) database: Option<Database>,
    /// What it has copied; nothing where it is of a machine of ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copied: Option<Copied>,
    /// How far it is.
    pub state: RunState,
    /// It copies, and stands still until it is resumed; known only while it does.
    #[serde(skip)]
    pub paused: bool,
    /// Trusted time, nanoseconds since 1970.
    pub begun: WallNanos,
    /// When it ended, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<WallNanos>,
    /// Why it failed, or what there is to know of how it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// What it was begun for; nothing where somebody asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<Slot>,
    /// It copied, and ended with its server: what it was begun for is to be made yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut_off: bool,
    /// What somebody asked for, of one that copies; nothing where a policy did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) asked: Option<RunRequest>,
    /// Until when its point is to be locked, were it of the instant in which the run began: trusted time, nanoseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock_until: Option<WallNanos>,
    /// What its point says that another pool has seen: of one that is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) received: Option<Received>,
    #[serde(flatten)]
    pub(crate) unknown: Unknown,
}

/// How a source is to be backed up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRequest {
    /// Everything is read that is to be copied.
    pub full: bool,
    /// What the guest is to find on the point. With [`Consistency::App`] it stands still meanwhile; where it cannot be had to there is no point,
    /// and one over which it was not seen to stand still to the end says so.
    pub consistency: Consistency,
}

/// What a run has copied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copied {
    /// Whether it was told to read everything.
    #[serde(default)]
    pub full: bool,
    /// Whether all was copied, and durable: only then is there anything to make a point of.
    #[serde(default)]
    pub complete: bool,
    /// Bytes of the source that were read.
    pub read_bytes: u64,
    /// Of these, what came over the wire: the rest was told to be holes.
    pub sent_bytes: u64,
    /// Bytes written to the disk, because they differed.
    pub written_bytes: u64,
    /// Of these, what the pool did not have yet, in bytes as they are stored, compressed; absent where it is not known, as in the first seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored_bytes: Option<u64>,
    /// The instant that its point is of, by trusted time, nanoseconds since 1970, where that is not its beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<WallNanos>,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
    /// What there is to know of it, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    #[serde(flatten)]
    pub(crate) unknown: Unknown,
}

/// What is known of a point where it was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Received {
    /// When, by that pool's trusted time, nanoseconds since 1970.
    pub(crate) taken: WallNanos,
    /// What its disks are like.
    pub(crate) consistency: Consistency,
    #[serde(flatten)]
    pub(crate) unknown: Unknown,
}

/// What a run was begun for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slot {
    /// The policy.
    pub policy: Name,
    /// The slot of its schedule: trusted time, nanoseconds since 1970.
    pub at: WallNanos,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunState {
    /// Under way.
    Running,
    /// Its point is there.
    Done,
    /// It made no point.
    Failed,
    /// Neither did it, because somebody ended it.
    Cancelled,
}

impl Entry for Run {
    const FAMILY: &'static str = "runs";
    const NOUN: &'static str = "run";
    const LISTED_BY: &'static str = "stonefold backup ls";

    fn key(&self) -> String {
        key(&self.name)
    }
}

/// The key of a run, or of a point.
pub(crate) fn key(name: &PointName) -> String {
    format!("{}/{}", name.source, name.stamp)
}

impl Run {
    pub(crate) fn is_under_way(&self) -> bool {
        self.state == RunState::Running
    }

    /// Until when its point is to be locked, which is of the instant `taken`: a disk may have been read for hours before its cut. What was sent
    /// is locked as it is where it comes from.
    pub(crate) fn lock_of_point(&self, taken: WallNanos) -> Option<WallNanos> {
        let later = if self.received.is_some() { 0 } else { taken.saturating_sub(self.begun) };
        self.lock_until.map(|until| until.saturating_add(later))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog;
    use serde_json::json;

    /// Goal: as long as was told, from the instant of the point on; no shorter by what it took until then.
    #[test]
    fn a_lock_runs_from_the_instant_of_the_point() {
        let mut run = json!({
            "version": 1, "name": "web@20261123T184005Z", "machine": "web", "disks": [], "state": "running",
            "begun": 1000, "lock_until": 1600,
        });
        let of = |run: &serde_json::Value, taken| {
            catalog::read::<Run>(&run.to_string()).unwrap().lock_of_point(taken)
        };
        assert_eq!((of(&run, 1000), of(&run, 1900), of(&run, 900)), (Some(1600), Some(2500), Some(1600)));
        run["received"] = json!({ "taken": 500, "consistency": "crash" });
        assert_eq!(of(&run, 1900), Some(1600), "it was said there");
        run["lock_until"] = json!(null);
        assert_eq!(of(&run, 1900), None);
    }
}
