//! What of a run the pool did not have yet, said of it when it is known.

use crate::Protection;
use crate::catalog;
use crate::runs::{Run, key};
use std::time::Duration;
use stonefold_types::{Kind, Name, PointName, Result, SnapshotName};

/// Until when the fold has done most of it by itself.
const AFTER: Duration = Duration::from_secs(2);

impl Protection {
    /// Says it of a run that is done, a while later and in a task of its own: whoever waits for the point does not wait for the fold.
    pub(super) fn say_stored_later(&self, run: &Run) {
        let (me, env, name) = (self.me.clone(), self.env.clone(), run.name.clone());
        let of = |disk: &Name| SnapshotName { disk: disk.clone(), snapshot: name.stamp.clone() };
        let snapshots: Vec<_> = run.disks.iter().map(|disk| of(&disk.disk)).collect();
        self.env.spawn("what a run stored", async move {
            env.sleep(AFTER).await;
            let Some(me) = me.upgrade() else { return };
            match me.say_stored(&name, &snapshots).await {
                // A server that leaves has other things to do; nor is there anything to say of a point that is gone.
                Err(error) if !matches!(error.kind(), Kind::Closed | Kind::NotFound) => {
                    tracing::warn!("run '{name}': what of it was stored is not kept: {error}");
                }
                _ => {}
            }
        });
    }

    async fn say_stored(&self, run: &PointName, snapshots: &[SnapshotName]) -> Result<()> {
        let mut stored = 0;
        for snapshot in snapshots {
            let Some(bytes) = self.store.stored_bytes(snapshot).await? else { return Ok(()) };
            stored += bytes;
        }
        let say = |run: &mut Run| {
            if let Some(copied) = &mut run.copied {
                copied.stored_bytes = Some(stored);
            }
            Ok(())
        };
        self.change(catalog::change(&self.store, &key(run), say)).await.map(drop)
    }
}
