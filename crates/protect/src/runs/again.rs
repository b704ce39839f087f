//! Runs that ended with their servers, and are made again: those that a policy wants by its [rounds](crate::rounds), those that somebody asked for
//! by the next server's start.
//!
//! *Promises*: whoever wants a run while one is made again is not refused but waits, and then has its turn: what was read before somebody asked is
//! not what there is by then. One in which servers end again and again is left alone. *Order*: what a server that was killed has left of guests is
//! taken out; then what it had cut off is made again; then policies have their turn.

use super::{Run, RunRequest};
use crate::{Protection, catalog};
use std::sync::Arc;
use stonefold_types::{Kind, Name, Result};
use tokio::sync::watch;

/// How many runs in a row may end with their servers until that is left alone.
pub(crate) const CUT_OFF_MAX: u32 = 3;

impl Run {
    /// What is said of it when its server has stopped while it copied.
    pub(crate) fn cut_off_note(&self) -> &'static str {
        match (&self.slot, self.asked) {
            (Some(_), _) => {
                "the server stopped in its midst; its policy has it made again, unless three in a row ended so"
            }
            (None, Some(_)) => {
                "the server stopped in its midst; the next one makes it again, unless three in a row ended so"
            }
            (None, None) => "the server stopped in its midst; run it again: only what differs is copied",
        }
    }
}

impl Protection {
    /// Begins to make the runs again that somebody had asked an earlier server for, each beside everything else.
    pub async fn go_on_copying(self: Arc<Self>) {
        self.settle().await;
        if let Err(error) = self.begin_again().await {
            tracing::warn!("not all runs that were cut off are made again: {error}");
        }
    }

    async fn begin_again(self: &Arc<Self>) -> Result<()> {
        self.give_back_left().await?;
        for source in self.sources().await? {
            if let Some(asked) = self.cut_off(&source.name).await? {
                self.make_again(source.name, asked);
            }
        }
        Ok(())
    }

    fn make_again(self: &Arc<Self>, source: Name, asked: RunRequest) {
        let (ends, ended) = watch::channel(());
        self.again.lock().insert(source.clone(), ended);
        let own = self.clone();
        let again = async move {
            match own.make_run(&source, asked, None).await {
                Err(error) if error.kind() != Kind::Closed => {
                    tracing::warn!("source '{source}': no point of what was cut off: {error}");
                }
                _ => {}
            }
            own.again.lock().remove(&source);
            drop(ends);
        };
        self.env.spawn("run made again", again);
    }

    /// What the newest run of a source was asked for, where that ended with its server, but not again and again.
    async fn cut_off(&self, source: &Name) -> Result<Option<RunRequest>> {
        let (mut asked, mut times) = (None, 0);
        for key in catalog::keys::<Run>(&self.store, Some(source.as_str())).await?.iter().rev() {
            let Some(run) = self.readable::<Run>(key).await?.filter(|run| run.cut_off) else { break };
            if run.asked.is_none() {
                break;
            }
            asked = asked.or(run.asked);
            times += 1;
        }
        Ok(asked.filter(|_| times < CUT_OFF_MAX))
    }

    /// Until no run of a source is being made again.
    pub(crate) async fn wait_for_made_again(&self, source: &Name) {
        let again = self.again.lock().get(source).cloned();
        if let Some(mut ended) = again {
            while ended.changed().await.is_ok() {}
        }
    }
}
