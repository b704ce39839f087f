//! What is asked of runs that copy: to pause, to go on, to end; and a server's that leaves.
//!
//! *Promise*: nothing of a source is read while its run is paused, but for what had begun. *Never*: outlives a pause its server: such a run is cut off like others.

use super::Live;
use crate::Protection;
use crate::runs::{Run, RunState};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use stonefold_types::{Error, Kind, PointName, Result};

/// How often it is looked whether copies have ended.
const LEAVE_LOOK: Duration = Duration::from_millis(50);

impl Protection {
    /// Ends a run that copies, at its next step: it makes no point. Returns when it has ended.
    pub async fn cancel_run(&self, name: &PointName) -> Result<Run> {
        let live = self.copies.live.lock().get(name).cloned();
        if let Some(live) = &live {
            live.cancelled.store(true, Ordering::SeqCst);
            live.stop();
            // The sender is the run's own.
            let _ = live.over.subscribe().wait_for(|over| *over).await;
        }
        let run = self.run(name).await?;
        match (run.state, live.is_some()) {
            (RunState::Cancelled, true) => Ok(run),
            (RunState::Running, true) => {
                let what = format!("run '{name}' makes no point, and could not be ended yet");
                Err(Error::new(Kind::Busy, what).remedy("the log says why"))
            }
            _ => Err(copies_nothing(&run)),
        }
    }

    /// Has a run that copies stand still at its next step, or go on. Its source stays as it was opened: where a guest's disks are read as they were at an
    /// instant, what the guest overwrites is copied meanwhile; where they are read ahead, that instant comes when the run goes on.
    pub async fn pause_run(&self, name: &PointName, pauses: bool) -> Result<Run> {
        let live = self.copies.live.lock().get(name).cloned();
        if let Some(live) = &live {
            live.pause(pauses);
        }
        let run = self.run(name).await?;
        match live {
            Some(_) if run.is_under_way() => Ok(run),
            _ => Err(copies_nothing(&run)),
        }
    }

    /// Has all copies end, each at its next step, and waits until what they read is given back: a server that leaves should leave no guest in a backup.
    /// Beyond `patience` it waits for guests that have begun to stand still, which takes two minutes at most.
    pub async fn end_copies(&self, patience: Duration) {
        self.ending.store(true, Ordering::SeqCst);
        futures::join!(
            self.end_replication(patience),
            self.end_own_copies(patience),
            self.end_comparisons(patience),
            self.end_standstills()
        );
    }

    async fn end_own_copies(&self, patience: Duration) {
        let until = self.env.monotonic() + patience;
        loop {
            let live: Vec<Arc<Live>> = self.copies.live.lock().values().cloned().collect();
            if live.is_empty() || self.env.monotonic() > until {
                return;
            }
            live.iter().for_each(|live| live.stop());
            self.env.sleep(LEAVE_LOOK).await;
        }
    }
}

/// What there is to say where a run that does not copy is asked something.
fn copies_nothing(run: &Run) -> Error {
    let name = &run.name;
    if run.is_under_way() {
        let what = format!("run '{name}' copies nothing");
        return Error::new(Kind::Invalid, what).remedy("it ends by itself in a moment");
    }
    if run.state == RunState::Cancelled {
        let what = format!("run '{name}' was cancelled, and has ended already");
        let remedy = format!("'stonefold backup run {}' goes on where it was", name.source);
        return Error::new(Kind::Invalid, what).remedy(remedy);
    }
    let what = format!("run '{name}' has ended already");
    Error::new(Kind::Invalid, what).remedy(format!("'stonefold backup show {name}' shows how"))
}
