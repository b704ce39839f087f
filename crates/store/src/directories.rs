//! The directories of the pool, changed while it is served: the commands, and the task that does what they begin.
//!
//! The engine knows how ([`stonefold_engine::Directories`]); here it is decided when. Bringing objects elsewhere is work of
//! the pool's own, step by step, under the figures of the class `reclaim` and with a debt of its own ([`crate::qos`]): so
//! clients go before it, and it goes on however busy they are.

use crate::qos::Background;
use crate::store::Store;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use stonefold_engine::{Directories, Step};
use stonefold_types::{Error, Kind, Result};

/// What the work is called where long work is told of.
pub(crate) const WORK: &str = "directories";
/// When nothing is under way: a command wakes the task, so this only has to come at all.
const IDLE: Duration = Duration::from_secs(60);
/// When journals are to be trimmed first: a round of the fold, which is asked for, takes about as long.
const WAIT_FOR_JOURNALS: Duration = Duration::from_secs(1);
/// When it cannot go on, or a step has failed.
const WAIT: Duration = Duration::from_secs(10);

impl Store {
    fn places(&self) -> Result<&dyn Directories> {
        self.check_open()?;
        self.engine.directories().ok_or_else(|| {
            let what =
                format!("the pool has no directories that come and go: it is {}", self.engine.describe());
            Error::new(Kind::Unsupported, what).remedy("only pools of files have")
        })
    }

    /// Begins to use an empty directory, or one that has left; see [`stonefold_engine::Directories::add`].
    pub async fn add_directory(&self, dir: &Path) -> Result<()> {
        self.places()?.add(dir).await.inspect(|()| self.moving_wake.notify_one())
    }

    /// Begins to bring everything elsewhere that lies in a directory; see [`stonefold_engine::Directories::drain`].
    pub async fn drain_directory(&self, dir: &Path) -> Result<()> {
        self.places()?.drain(dir).await.inspect(|()| self.moving_wake.notify_one())
    }

    /// Begins to use a directory in the place of another; see [`stonefold_engine::Directories::replace`].
    pub async fn replace_directory(&self, old: &Path, new: &Path) -> Result<()> {
        self.places()?.replace(old, new).await.inspect(|()| self.moving_wake.notify_one())
    }

    /// Takes the change of directories under way back; see [`stonefold_engine::Directories::cancel`].
    pub async fn cancel_directories(&self) -> Result<()> {
        self.places()?.cancel().await.inspect(|()| self.moving_wake.notify_one())
    }

    /// Does what the commands begin, and what an earlier process has left to do, until the store is closed.
    pub(crate) async fn move_objects(self: Arc<Self>) {
        while self.engine.directories().is_some() {
            let pause = {
                let _one = self.moving.lock().await;
                if self.check_open().is_err() {
                    return;
                }
                self.move_step().await
            };
            match pause {
                Pause::Paid(bytes) => self.qos.pace(Background::Moving, bytes, || 0).await,
                Pause::For(time) => {
                    let woken = self.moving_wake.notified();
                    futures::future::select(Box::pin(woken), self.env.sleep(time)).await;
                }
            }
        }
    }

    async fn move_step(&self) -> Pause {
        let Some(places) = self.engine.directories() else { return Pause::For(IDLE) };
        match places.step().await {
            Ok(Step::Idle) => Pause::For(IDLE),
            Ok(Step::Went { bytes }) => Pause::Paid(bytes),
            Ok(Step::Waits { for_journals: true }) => {
                self.fold_soon();
                Pause::For(WAIT_FOR_JOURNALS)
            }
            Ok(Step::Waits { for_journals: false }) => Pause::For(WAIT),
            Err(error) => {
                tracing::warn!(
                    "moving data between directories failed and will be tried again; nothing is lost: {error}"
                );
                Pause::For(WAIT)
            }
        }
    }
}

/// Until the next step.
enum Pause {
    /// As long as QoS lets it wait that has handled so many bytes.
    Paid(u64),
    /// So long, or until a command.
    For(Duration),
}
