//! Domains: the scopes within which data is deduplicated, and which share a policy and a key.
//!
//! *Promises*: blocks of different domains never meet; what a disk of a sealed domain holds is on the medium only sealed, in
//! segments and in journals; a wrong master key changes nothing; a change of the keys is one swap of the object `domains`.
//! *Never*: writes or logs a key that is not wrapped. *Owns*: that object, and the keys in memory. Whose master key it is, and where it comes
//! from, is the server's business.
//!
//! Of a sealed domain these are not sealed, and tell who can read the pool where data lies and how much, but nothing of it: heads
//! (names, sizes), maps, indexes of segments, accounts. So reclaim, check and the removal of disks need no key, and a shredded
//! domain's space comes back like any other. Decision 0012 weighs that.

mod changes;
mod keyring;
mod removal;
mod unlock;

pub(crate) use keyring::{DEFAULT, JournalSeed, Keyring, RecordKey};

use crate::documents;
use parking_lot::Mutex;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use stonefold_engine::{Engine, Key, Version};
use stonefold_env::{Env, WallNanos};
use stonefold_format::domains::{Domains as Document, Master};
use stonefold_format::export::ExportedKey;
use stonefold_format::seal::{Secret, WrappingKey};
use stonefold_types::{Compression, Error, Kind, Name, Result};
use zeroize::Zeroizing;

/// Rounds for a new passphrase: a third of a second here, for every guess; what OWASP asks of PBKDF2-HMAC-SHA256 (2023).
const PASSPHRASE_ITERATIONS: u32 = 600_000;

const KEY_REMEDY: &str =
    "start it with the pool's --key-file, --passphrase-file or --key-command, or with --recovery-key";

/// What the keys of a pool's domains are wrapped with. Never shown.
#[derive(Clone)]
pub enum MasterKey {
    /// A key: from a file, or from a command that asks a key service.
    Key(Secret),
    /// What people remember.
    Passphrase(Arc<Zeroizing<Vec<u8>>>),
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MasterKey::Key(_) => "Key(…)",
            MasterKey::Passphrase(_) => "Passphrase(…)",
        })
    }
}

/// The keys that a store is opened with; it may have none.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    /// Opens the keys of all sealed domains.
    pub master: Option<MasterKey>,
    /// Exported before: open their domains without the master key; with it, these are wrapped under it anew.
    pub recovery: Vec<ExportedKey>,
}

/// What new disks of a domain get where nothing else is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DomainPolicy {
    /// How they are compressed.
    pub compression: Compression,
    /// Whether they are deduplicated.
    pub dedupe: bool,
}

impl Default for DomainPolicy {
    fn default() -> Self {
        DomainPolicy { compression: Compression::default(), dedupe: true }
    }
}

/// Whether a domain's data is sealed and can be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DomainState {
    /// It is not sealed.
    Plain,
    /// It is sealed, and its keys are here.
    Open,
    /// It is sealed, and they are not.
    Locked,
    /// Its keys are gone for good.
    Shredded,
}

/// What is known of a domain.
#[derive(Clone, Debug)]
pub struct DomainInfo {
    /// Unique in the pool.
    pub name: Name,
    /// Nanoseconds since 1970; 0 of the predefined one.
    pub created: WallNanos,
    /// What new disks get.
    pub policy: DomainPolicy,
    /// See there.
    pub state: DomainState,
    /// The newest version of its key, and when it was made.
    pub key: Option<(u32, WallNanos)>,
    /// Disks made in it.
    pub disks: usize,
}

/// See the module.
pub(crate) struct Domains {
    env: Env,
    engine: Arc<dyn Engine>,
    pub(crate) pool: [u8; 16],
    pub(crate) keyring: Arc<Keyring>,
    /// As it was last stored.
    document: Mutex<Arc<Document>>,
    /// What swaps tried to store of which nobody knows whether it was.
    in_doubt: Mutex<Vec<Document>>,
    /// Held over a change and its adoption.
    changing: tokio::sync::Mutex<()>,
    master: Mutex<Option<MasterKey>>,
}

fn key() -> Key {
    Key::new("domains")
}

impl Domains {
    async fn stored(engine: &dyn Engine) -> Result<(Document, Option<Version>)> {
        let stored = documents::stored(engine, &key()).await.map_err(|e| e.context("reading the domains"))?;
        Ok(match stored {
            Some((bytes, version)) => (Document::decode(&bytes)?, Some(version)),
            None => (Document::default(), None),
        })
    }

    async fn store(engine: &dyn Engine, document: &Document, version: Option<&Version>) -> Result<()> {
        let put = documents::swap(engine, &key(), document.encode().into(), version).await;
        match put.map_err(|e| e.context("storing the domains"))? {
            Some(_) => Ok(()),
            // One server has the pool and makes one change at a time: what says the same is its own.
            None => match Self::stored(engine).await {
                Ok((found, _)) if found == *document => Ok(()),
                _ => Err(Error::new(Kind::Conflict, "storing the domains: another change came first")
                    .remedy("try again")),
            },
        }
    }
}

/// What a master key wraps with, given how the pool's keys are wrapped; where none is wrapped yet, how they will be.
async fn wrapping(env: &Env, pool: [u8; 16], from: &MasterKey, how: &mut Master) -> Result<WrappingKey> {
    let mismatch = |is: &str, given: &str| {
        let what = format!("the keys of this pool are wrapped with {is}, and {given} was given");
        Error::new(Kind::WrongKey, what)
            .remedy("start it with what they were wrapped with; nothing was changed")
    };
    let secret = match (from, *how) {
        (MasterKey::Key(_), Master::Passphrase { .. }) => return Err(mismatch("a passphrase", "a key")),
        (MasterKey::Passphrase(_), Master::Key) => return Err(mismatch("a key", "a passphrase")),
        (MasterKey::Key(secret), _) => {
            *how = Master::Key;
            secret.clone()
        }
        (MasterKey::Passphrase(passphrase), _) => {
            let (salt, iterations) = match *how {
                Master::Passphrase { salt, iterations } => (salt, iterations),
                _ => (env.random(), PASSPHRASE_ITERATIONS),
            };
            *how = Master::Passphrase { salt, iterations };
            let rounds = NonZeroU32::new(iterations).unwrap_or(NonZeroU32::MIN);
            let passphrase = passphrase.clone();
            env.offload(move || Secret::of_passphrase(&passphrase, &salt, rounds)).await
        }
    };
    Ok(WrappingKey::new(&secret, pool))
}
