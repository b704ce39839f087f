//! All heads at an opening: those that can be read, and what becomes of those that cannot.
//!
//! A head that cannot be read, because it is damaged or the medium fails, costs its own disk ([`crate::unreadable`]). A disk whose head lies both under `head/` and `gone/` was
//! being removed when a crash came; which of the two counts is decided here.

use crate::disk::Disk;
use crate::heads::{gone_key, head_key};
use crate::pages;
use crate::unreadable::{self, Damage, Unreadable};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use stonefold_engine::{Engine, Key};
use stonefold_format::head::Head;
use stonefold_types::{Error, Kind, Name, Result};

/// Heads read at one time.
const HEADS_ABREAST: usize = 32;
/// Keys asked for at one time.
const LIST_LIMIT: usize = 1000;

/// What heads there are.
pub(crate) struct Heads {
    pub(crate) disks: BTreeMap<Name, Arc<Disk>>,
    /// Of disks that were removed and that reclaim is not done with.
    pub(crate) gone: Vec<Arc<Disk>>,
    pub(crate) damage: Damage,
}

/// A head, or why it cannot be read.
type Loaded = (Key, std::result::Result<Arc<Disk>, Error>);

/// Reads all heads. Fails when they cannot be listed, when a page fails with an I/O error, and when one is of a later version.
pub(crate) async fn load_heads(engine: &dyn Engine) -> Result<Heads> {
    let mut heads = Heads { disks: BTreeMap::new(), gone: Vec::new(), damage: Damage::default() };
    let mut lost = unreadable::load_lost(engine).await?;
    let (mut damaged_gone, mut failed_gone) = (HashSet::new(), HashMap::new());
    for (key, loaded) in load_below(engine, "gone/").await? {
        match loaded {
            Ok(disk) => heads.gone.push(disk),
            Err(error) if error.kind() == Kind::Io => {
                let why = error.context(format!("'{key}', which tells of a removed disk, cannot be read"));
                failed_gone
                    .insert(key, why.remedy("look at the medium and the kernel's log, and start again"));
            }
            Err(error) => {
                tracing::error!("what a removed disk held is counted anew: '{key}' cannot be read: {error}");
                damaged_gone.insert(key.clone());
                lost.push(key);
            }
        }
    }
    let mut unreadable = Vec::new();
    for (key, loaded) in load_below(engine, "head/").await? {
        let disk = match loaded {
            Ok(disk) => disk,
            Err(error) => {
                unreadable.push(Unreadable::new(head_name(&key)?, &error));
                continue;
            }
        };
        let removed = gone_key(disk.id);
        if let Some(why) = failed_gone.get(&removed) {
            // It may have been removed: what is written to it now would go with it once that can be read.
            unreadable.push(Unreadable::new(disk.name.clone(), why));
        } else if heads.gone.iter().any(|other| other.id == disk.id) {
            // Its removal was broken off between the two.
            engine.delete(&disk.key).await?;
        } else {
            if damaged_gone.contains(&removed) {
                // So nobody was told that it was removed, and the head that can be read is the one to keep.
                engine.delete(&removed).await?;
                lost.retain(|key| *key != removed);
            }
            heads.disks.insert(disk.name.clone(), disk);
        }
    }
    heads.damage = Damage::new(unreadable, failed_gone.into_values().collect(), lost);
    Ok(heads)
}

/// The disk's name by its head's key.
fn head_name(key: &Key) -> Result<Name> {
    Name::new(key.as_str().strip_prefix("head/").unwrap_or_default())
        .map_err(|e| e.context(format!("object '{key}' is no disk's head")))
}

async fn load_below(engine: &dyn Engine, prefix: &str) -> Result<Vec<Loaded>> {
    let mut heads = Vec::new();
    let mut after: Option<Key> = None;
    loop {
        let keys = engine.list(prefix, after.as_ref(), LIST_LIMIT).await?;
        let Some(last) = keys.last() else { return Ok(heads) };
        after = Some(last.key.clone());
        for group in keys.chunks(HEADS_ABREAST) {
            let loads = group.iter().map(|listed| load_head(engine, &listed.key));
            heads.extend(futures::future::try_join_all(loads).await?);
        }
    }
}

/// Fails when the head is of a later version: that is no damage; and when the engine does with a page.
async fn load_head(engine: &dyn Engine, key: &Key) -> Result<Loaded> {
    let read = match engine.get(key).await {
        Ok((bytes, version)) => read_head(key, &bytes).map(|head| (head, version)),
        Err(error) => Err(error),
    };
    let (head, version) = match read {
        Ok(found) => found,
        Err(error) if matches!(error.kind(), Kind::Corrupt | Kind::Io) => {
            return Ok((key.clone(), Err(error)));
        }
        Err(error) => return Err(error.context(format!("reading '{key}'"))),
    };
    let snapshots = pages::load(engine, &head).await?;
    // A disk is removed only when all its snapshots are, and its head may say so of none that is in a page.
    let is_gone = key.as_str().starts_with("gone/");
    let snapshots = if is_gone { snapshots.of_gone() } else { snapshots };
    Ok((key.clone(), Ok(Disk::from_head(key.clone(), head, version, snapshots))))
}

/// A head where it belongs: one that went to another's place is as bad as a damaged one.
fn read_head(key: &Key, bytes: &[u8]) -> Result<Head> {
    let head = Head::decode(bytes)?;
    if *key == head_key(&head.name) || *key == gone_key(head.id) {
        return Ok(head);
    }
    Err(Error::new(Kind::Corrupt, format!("it is that of disk '{}'", head.name)))
}
