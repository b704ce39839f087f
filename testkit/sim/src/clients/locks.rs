//! Snapshots that are locked, and a wall clock that cannot be trusted.

use super::{Client, Done, wrong};
use crate::life::LOCKED_FOR;
use stonefold_types::{Kind, Name};

impl Client {
    /// Locks a snapshot for longer than the world lasts.
    pub(super) async fn lock(&self, disk: &Name) -> Done {
        let Some(name) = self.choose_snapshot(disk) else { return Ok(()) };
        let time = self.store.time();
        let until = time.trusted.max(time.wall) + LOCKED_FOR.as_nanos() as u64;
        match self.store.lock_snapshot(&name.parse().expect("it is a snapshot's name"), until).await {
            Ok(_) => {
                if let Some(taken) = self.story.lock().snapshots.get_mut(&name) {
                    // Another client may be about to remove it, or to confirm a time that ends the lock.
                    taken.locked = !taken.leaving && self.store.time().trusted < until - 1;
                }
                Ok(())
            }
            // Another client removed it, or has confirmed a time in between.
            Err(error) if matches!(error.kind(), Kind::NotFound | Kind::Invalid) => Ok(()),
            Err(error) => Err(self.sort("locks a snapshot", error)),
        }
    }

    /// A locked snapshot stays, whatever the wall clock says, and so does its disk.
    pub(super) async fn break_a_lock(&self, disk: &Name) -> Done {
        let locked = {
            let story = self.story.lock();
            let of_disk = |name: &&String| name.starts_with(&format!("{disk}@"));
            let mut locked = story.snapshots.iter().filter(|(_, taken)| taken.locked && !taken.leaving);
            locked.find(|(name, _)| of_disk(name)).map(|(name, _)| name.clone())
        };
        let Some(name) = locked else { return Ok(()) };
        match self.store.remove_snapshot(&name.parse().expect("it is a snapshot's name")).await {
            Err(error) if error.kind() == Kind::Locked => Ok(()),
            other => Err(wrong(format!("{name} is locked, and its removal: {other:?}"))),
        }
    }

    /// The wall clock jumps while the store runs; sometimes it is confirmed, which may end every lock.
    pub(super) async fn set_clock(&self) -> Done {
        self.world.set_wall_ahead(LOCKED_FOR * 2);
        if self.throw(|dice| dice.below(4)) > 0 {
            return Ok(());
        }
        self.story.lock().snapshots.values_mut().for_each(|taken| taken.locked = false);
        match self.store.confirm_time().await {
            Err(error) if self.stormy && error.kind() == Kind::Io => {}
            other => drop(other.map_err(|e| self.sort("confirms the time", e))?),
        }
        self.story.lock().snapshots.values_mut().for_each(|taken| taken.locked = false);
        Ok(())
    }
}
