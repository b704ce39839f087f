//! Heads that cannot be read: what is known of their disks, and what must wait for them.
//!
//! *Promises*: such a disk keeps its name, is refused to everybody with the reason, and loses nothing: the pool gives nothing
//! back and keeps each journal that may hold writes to it, until its head can be read again at a later opening, or somebody
//! gives the disk up. *Never*: guesses what a head said; takes an I/O error, which may pass, for the end of anything.
//!
//! Nobody knows what an unreadable head refers to: blocks that no batch of reclaim has counted yet, a snapshot that it is a
//! clone of, ledgers, pages. So while there is one, reclaim goes on counting, which keeps heads short and lets deduplication lean on
//! what it counts, and condemns, settles and deletes nothing.
//!
//! When a disk is given up, what it referred to stays counted although nothing will ever free it, and what clones of it
//! share may not be counted at all. So an object `lost/…` says, before the head goes, that everything is to be counted anew
//! ([`crate::recount`]) before anything is given back. A removed disk's head under `gone/` says so itself when it is damaged:
//! nobody is going to miss the disk. When the medium failed to read it, it is waited for like any other.

use crate::heads::head_key;
use crate::store::Store;
use parking_lot::Mutex;
use stonefold_engine::{Engine, Key};
use stonefold_env::Env;
use stonefold_format::head::Head;
use stonefold_types::{Error, Kind, Name, Result};

/// Where it is noted that a disk was given up.
const LOST: &str = "lost/";
/// Keys asked for at one time.
const LIST_LIMIT: usize = 1000;

/// A disk whose head cannot be read.
#[derive(Clone)]
pub(crate) struct Unreadable {
    pub(crate) name: Name,
    /// Names the disk, says why, and what to do.
    pub(crate) why: Error,
}

impl Unreadable {
    pub(crate) fn new(name: Name, why: &Error) -> Self {
        let passes = why.kind() == Kind::Io;
        let first = match passes {
            true => "look at the medium and the kernel's log, and start again: nothing is lost meanwhile"
                .to_owned(),
            false => format!("restore object '{}' from another copy and start again", head_key(&name)),
        };
        let why = why.clone().context(format!("the head of disk '{name}' cannot be read"));
        let why =
            why.remedy(format!("{first}; or give the disk up with 'stonefold disk rm {name} --damaged'"));
        Unreadable { name, why: why.with_kind(if passes { Kind::Io } else { Kind::Corrupt }) }
    }
}

/// All that reclaim waits for.
#[derive(Default)]
pub(crate) struct Damage {
    /// By name.
    disks: Mutex<Vec<Unreadable>>,
    /// Why heads of removed disks cannot be read.
    gone: Vec<Error>,
    /// Objects that say that everything is to be counted anew. They go when that is done.
    lost: Mutex<Vec<Key>>,
}

impl Damage {
    pub(crate) fn new(disks: Vec<Unreadable>, gone: Vec<Error>, lost: Vec<Key>) -> Self {
        for why in disks.iter().map(|disk| &disk.why).chain(&gone) {
            tracing::error!("{why}; until then nothing is given back, and all other disks are served");
        }
        Damage { disks: Mutex::new(disks), gone, lost: Mutex::new(lost) }
    }

    /// Disks that are refused.
    pub(crate) fn disks(&self) -> Vec<Unreadable> {
        self.disks.lock().clone()
    }

    /// Whether some disk's head cannot be read, and is waited for.
    pub(crate) fn hides_a_disk(&self) -> bool {
        !self.gone.is_empty() || !self.disks.lock().is_empty()
    }

    /// Why each of these cannot be read.
    pub(crate) fn reasons(&self) -> Vec<Error> {
        self.disks.lock().iter().map(|disk| &disk.why).chain(&self.gone).cloned().collect()
    }

    /// Whether what the accounts count may not be all that is referred to.
    pub(crate) fn is_any(&self) -> bool {
        self.hides_a_disk() || !self.lost.lock().is_empty()
    }

    /// Why nothing can be told exactly, or given back, for now.
    pub(crate) fn why(&self) -> Option<Error> {
        self.reasons().into_iter().next()
    }

    /// Why a disk of this name is refused.
    pub(crate) fn of(&self, name: &Name) -> Option<Error> {
        self.disks.lock().iter().find(|disk| disk.name == *name).map(|disk| disk.why.clone())
    }

    /// What says that everything is to be counted anew.
    pub(crate) fn lost(&self) -> Vec<Key> {
        self.lost.lock().clone()
    }

    /// There is such an object.
    pub(crate) fn note_lost(&self, key: Key) {
        self.lost.lock().push(key);
    }

    /// Everything was counted, and these are deleted.
    pub(crate) fn forget_lost(&self, gone: &[Key]) {
        self.lost.lock().retain(|key| !gone.contains(key));
    }
}

/// A new key for what says that everything is to be counted anew.
pub(crate) fn lost_key(env: &Env) -> Key {
    Key::new(format!("{LOST}{:016x}", u64::from_le_bytes(env.random())))
}

/// What says that everything is to be counted anew.
pub(crate) async fn load_lost(engine: &dyn Engine) -> Result<Vec<Key>> {
    let mut lost = Vec::new();
    loop {
        let listed = engine.list(LOST, lost.last(), LIST_LIMIT).await?;
        if listed.is_empty() {
            return Ok(lost);
        }
        lost.extend(listed.into_iter().map(|one| one.key));
    }
}

impl Store {
    /// Gives up a disk whose head cannot be read: its name is free again, and its space comes back when all others have been
    /// counted anew. Fails with `Invalid` for a disk that can be read, and when its head was restored meanwhile.
    pub async fn give_up_disk(&self, name: &Name) -> Result<()> {
        self.check_open()?;
        // Nobody takes the name meanwhile, and of two calls one finds the disk.
        let _no_disk_comes = self.qos.changing.lock().await;
        let Some(why) = self.damage.of(name) else {
            self.find(name)?;
            let what = format!("disk '{name}' is not damaged");
            return Err(Error::new(Kind::Invalid, what).remedy("remove it as any other"));
        };
        let key = head_key(name);
        match self.engine.get(&key).await {
            Ok((bytes, _)) if Head::decode(&bytes).is_ok() => {
                let what = format!("the head of disk '{name}' can be read again");
                return Err(Error::new(Kind::Invalid, what).remedy("start the server again to serve it"));
            }
            Ok(_) => {}
            // Whoever asks for it knows better than we whether an I/O error will pass.
            Err(error) if matches!(error.kind(), Kind::Corrupt | Kind::NotFound | Kind::Io) => {}
            Err(error) => return Err(error.context(format!("looking at the head of disk '{name}'"))),
        }
        let lost = lost_key(&self.env);
        // In this order: from the first put on it is known that what is counted is not all there is.
        let said = why.to_string().into_bytes().into();
        self.engine.put_new(&lost, said).await.map_err(|e| e.context(format!("giving up disk '{name}'")))?;
        self.damage.note_lost(lost);
        self.engine.delete(&key).await.map_err(|e| e.context(format!("giving up disk '{name}'")))?;
        self.damage.disks.lock().retain(|disk| disk.name != *name);
        tracing::warn!(
            "disk '{name}' was given up, as told; its space comes back once all others are counted anew"
        );
        // A journal that was kept for it may go.
        self.fold_soon();
        self.hurry_reclaim();
        Ok(())
    }
}
