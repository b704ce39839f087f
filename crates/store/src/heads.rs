//! Heads: the small mutable records of disks, changed only by compare-and-swap.
//!
//! *Promises*: what memory holds of a head was stored before; an engine's error is never taken for "nothing happened":
//! what is stored is read back, and while that fails too, nothing more is stored over the doubt.

use crate::disk::{Disk, State};
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
    /// Stores a disk's head as `draft` changes it, then takes it over in memory, with what `adopt` changes beside it.
    /// On failure nothing is changed.
    pub(crate) async fn change_head(
        &self,
        disk: &Arc<Disk>,
        draft: impl FnOnce(&mut Head, &State),
        adopt: impl FnOnce(&mut State),
    ) -> Result<()> {
        let key = disk.key.clone();
        let mut stored = disk.head.lock().await;
        if let Some(attempt) = stored.in_doubt.take() {
            let found = self.engine.get(&key).await;
            match found {
                Ok((bytes, version)) if bytes == attempt || version == stored.version => {
                    stored.version = version
                }
                Ok(_) => return Err(fenced(&disk.name)),
                Err(error) => {
                    stored.in_doubt = Some(attempt);
                    return Err(error.context(format!("reading back the head of disk '{}'", disk.name)));
                }
            }
        }
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
            draft(&mut head, &state);
            let bytes = head.encode();
            (head, bytes)
        };
        match self.engine.put_if(&key, bytes.clone().into(), &stored.version).await {
            Ok(version) => stored.version = version,
            // An error does not say whether it happened: what is stored does.
            Err(error) => match self.engine.get(&key).await {
                Ok((found, version)) if found == bytes => stored.version = version,
                found => {
                    if found.is_err() {
                        stored.in_doubt = Some(bytes);
                    }
                    return Err(error.context(format!("storing the head of disk '{}'", disk.name)));
                }
            },
        }
        let mut state = disk.state.lock();
        state.adopt(&head);
        adopt(&mut state);
        Ok(())
    }
}

fn fenced(disk: &Name) -> Error {
    let what = format!("the head of disk '{disk}' was changed by another gateway");
    Error::new(Kind::Fenced, what).remedy("stop this one: the other owns the disk")
}
