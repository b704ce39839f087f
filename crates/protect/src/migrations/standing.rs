//! What is durable of a move's last minute, before it begins: that the server has the guest stand still, and that the machine may be going over.
//!
//! *Promise*: a guest that a move has had stand still goes on, whatever becomes of the move or of the server: whoever finds that said has it go on, and
//! tries until it does or is gone. *Never*: has one go on that somebody else has stand still. *Never*: the disks here are taken for the newest where a machine
//! may have gone over and ended before anybody saw it.

use super::files::Files;
use super::jobs::Jobs;
use super::{Migration, MigrationState, host_of};
use crate::hypervisor::Host;
use crate::{Protection, catalog};
use std::sync::Arc;
use std::time::Duration;
use stonefold_types::{Error, Kind, Name, Result};

/// How often a guest that could not be had go on is tried again.
const WAKE_EVERY: Duration = Duration::from_secs(5);

impl Protection {
    /// Says that the machine is about to go over, with its guest standing still for it or not.
    pub(super) async fn say_goes_over(&self, name: &Name, stands: bool) -> Result<()> {
        let say = |migration: &mut Migration| {
            (migration.stands, migration.goes_over) = (stands, true);
            Ok(())
        };
        catalog::change::<Migration>(&self.store, name.as_str(), say).await.map(drop)
    }

    /// Has a guest go on that an earlier server had stand still, and says so.
    pub(super) async fn have_go_on(&self, name: &Name, jobs: &Jobs) -> Result<()> {
        jobs.go_on().await?;
        self.say_wakes(name).await
    }

    async fn say_wakes(&self, name: &Name) -> Result<()> {
        let say = |migration: &mut Migration| {
            migration.stands = false;
            Ok(())
        };
        catalog::change::<Migration>(&self.store, name.as_str(), say).await.map(drop)
    }

    /// After a way over, whatever became of it: says that its guest goes on, where it is seen to.
    pub(super) async fn seen_awake(&self, name: &Name, jobs: &Jobs) {
        match jobs.runs().await {
            Ok(true) => {
                if let Err(error) = self.say_wakes(name).await {
                    tracing::warn!("that the guest of '{name}' goes on is not kept: {error}");
                }
            }
            Ok(false) => tracing::warn!("the guest of '{name}' stands still after its move"),
            Err(error) => tracing::warn!("whether the guest of '{name}' goes on is not known: {error}"),
        }
    }

    /// Of moves that have ended: guests that still stand, as far as is known, are tried to be had go on, beside everything else.
    pub(super) fn wake_later(self: &Arc<Self>, name: Name) {
        let own = self.clone();
        let woken = async move {
            loop {
                match own.wake_moved(&name).await {
                    Ok(()) => return,
                    Err(error) if matches!(error.kind(), Kind::Closed | Kind::NotFound) => return,
                    Err(error) => tracing::warn!("the guest of '{name}' stands still: {error}"),
                }
                own.env.sleep(WAKE_EVERY).await;
            }
        };
        self.env.spawn("guest of a move", woken);
    }

    async fn wake_moved(&self, name: &Name) -> Result<()> {
        let migration: Migration = catalog::get(&self.store, name.as_str()).await?;
        // Whoever looks after one that is under way does it.
        if !migration.stands || migration.is_under_way() {
            return Ok(());
        }
        let recovery = self.recovery(name).await?;
        let host = host_of(&recovery)?;
        let woken = async {
            let files = Files::of(&self.env, &self.store, &migration, true);
            let jobs = Jobs::find(&self.env, &host, &migration, files).await?;
            self.have_go_on(name, &jobs).await
        };
        match woken.await {
            // It is gone, and nobody stands.
            Err(_) if matches!(host.is_running(&self.env).await, Ok(false)) => self.say_wakes(name).await,
            woken => woken,
        }
    }

    /// Finds the jobs of a move; what it means where there are none to be found.
    pub(super) async fn find_jobs(&self, host: &Host, migration: &Migration, again: bool) -> Result<Jobs> {
        let files = Files::of(&self.env, &self.store, migration, again);
        Jobs::find(&self.env, host, migration, files)
            .await
            .map_err(|error| if migration.goes_over { error.context(may_be_newer(migration)) } else { error })
    }
}

/// Fails where a machine may have gone over to its new disks, and nobody knows.
pub(super) fn check_goes_over(migration: &Migration) -> Result<()> {
    let ended = !migration.is_under_way() && migration.state != MigrationState::Done;
    if !ended || !migration.goes_over {
        return Ok(());
    }
    let remedy = "look which is newer; then end it all the same: --power-off";
    Err(Error::new(Kind::Conflict, may_be_newer(migration)).remedy(remedy))
}

fn may_be_newer(migration: &Migration) -> String {
    let homes: Vec<String> = migration.disks.iter().map(|disk| disk.home.to_string()).collect();
    format!(
        "machine '{}' was going over to its new disks when its server was cut off: {} may be newer than what is here",
        migration.name,
        homes.join(", ")
    )
}
