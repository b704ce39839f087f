//! Heads: the small mutable records of disks, changed only by compare-and-swap.
//!
//! *Promises*: what memory holds of a head was stored before; an engine's error is never taken for "nothing happened":
//! what is stored is read back, and while that fails too, nothing more is stored over the doubt.

use crate::disk::{Disk, State, StoredHead};
use crate::pages::{self, Edit, Next};
use crate::planted;
use crate::store::Store;
use std::sync::Arc;
use stonefold_engine::Key;
use stonefold_format::head::Head;
use stonefold_types::{Error, Kind, Name, Result};

pub(crate) fn head_key(disk: &Name) -> Key {
    Key::new(format!("head/{disk}"))
}

/// Where the head of a removed disk lies until reclaim is done with it.
pub(crate) fn gone_key(id: u64) -> Key {
    Key::new(format!("gone/{id:016x}"))
}

impl Store {
    /// Learns what is stored when an earlier swap left that unclear. What it tried to store is not taken over: it is
    /// about to be overwritten, and what only it refers to is left to reclaim, once it has been.
    pub(crate) async fn settle_doubt(&self, disk: &Disk, stored: &mut StoredHead) -> Result<()> {
        let Some(attempt) = &stored.in_doubt else { return Ok(()) };
        match self.engine.get(&disk.key).await {
            Ok((bytes, version)) if bytes == *attempt => (stored.version, stored.ahead) = (version, true),
            Ok((_, version)) if version == stored.version => {}
            Ok(_) => return Err(fenced(&disk.name)),
            Err(error) => {
                return Err(error.context(format!("reading back the head of disk '{}'", disk.name)));
            }
        }
        stored.in_doubt = None;
        Ok(())
    }

    /// Stores a disk's head as `draft` changes it, then takes it over in memory, with what `adopt` changes beside it.
    /// On failure nothing is changed. Who drops it leaves the head in doubt, for the next swap to settle. Its snapshots stay
    /// as they are.
    pub(crate) async fn change_head(
        &self,
        disk: &Arc<Disk>,
        draft: impl FnOnce(&mut Head, &State),
        adopt: impl FnOnce(&mut State),
    ) -> Result<()> {
        self.swap_head(disk, None, draft, adopt).await
    }

    /// As [`change_head`](Self::change_head), with some of the disk's snapshots changed by the same swap. The caller holds
    /// the fold's lock.
    pub(crate) async fn change_snapshots(
        &self,
        disk: &Arc<Disk>,
        edit: Edit,
        draft: impl FnOnce(&mut Head, &State),
        adopt: impl FnOnce(&mut State),
    ) -> Result<()> {
        debug_assert!(self.folding.try_lock().is_err(), "a list changes under the fold's lock");
        let next = pages::put(self, disk, edit).await?;
        let (fresh, replaced) = (next.fresh.clone(), next.replaced.clone());
        if planted::is("page-freed-early") {
            pages::forget(self, &replaced).await;
        }
        let swapped = self.swap_head(disk, Some(next), draft, adopt).await;
        match &swapped {
            Ok(()) => pages::forget(self, &replaced).await,
            // Unless the head that names them may be stored all the same.
            Err(_) if disk.head.lock().await.in_doubt.is_none() => pages::forget(self, &fresh).await,
            Err(_) => {}
        }
        swapped
    }

    async fn swap_head(
        &self,
        disk: &Arc<Disk>,
        next: Option<Next>,
        draft: impl FnOnce(&mut Head, &State),
        adopt: impl FnOnce(&mut State),
    ) -> Result<()> {
        let key = disk.key.clone();
        let mut stored = disk.head.lock().await;
        self.settle_doubt(disk, &mut stored).await?;
        let (head, bytes) = {
            let state = disk.state.lock();
            if let Some(why) = state.barred.as_ref().filter(|why| why.kind() == Kind::NotFound) {
                return Err(why.clone());
            }
            if state.buried {
                let what = format!("disk '{}' may have been removed", disk.name);
                return Err(Error::new(Kind::Busy, what).remedy("remove it again"));
            }
            let mut head = disk.head(&state);
            if let Some(next) = &next {
                head.directories = next.list.directories();
                head.recent.clone_from(&next.recent);
            }
            draft(&mut head, &state);
            let bytes = head.encode();
            (head, bytes)
        };
        stored.in_doubt = Some(bytes.clone());
        match self.engine.put_if(&key, bytes.clone().into(), &stored.version).await {
            Ok(version) => stored.version = version,
            // An error does not say whether it happened: what is stored does.
            Err(error) => match self.engine.get(&key).await {
                Ok((found, version)) if found == bytes => stored.version = version,
                found => {
                    if found.is_ok() {
                        stored.in_doubt = None;
                    }
                    return Err(error.context(format!("storing the head of disk '{}'", disk.name)));
                }
            },
        }
        (stored.in_doubt, stored.ahead) = (None, false);
        let mut state = disk.state.lock();
        state.adopt(&head);
        if let Some(next) = next {
            state.snapshots.adopt(next);
        }
        adopt(&mut state);
        Ok(())
    }
}

fn fenced(disk: &Name) -> Error {
    let what = format!("the head of disk '{disk}' was changed by another gateway");
    Error::new(Kind::Fenced, what).remedy("stop this one: the other owns the disk")
}
