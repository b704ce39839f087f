//! What each domain's data is fingerprinted, sealed and opened with, as far as its keys are there.
//!
//! *Owns*: the data keys of every domain that is open, in memory only. Errors say what whoever runs the server can do.

use super::{DomainState, KEY_REMEDY};
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::sync::Arc;
use stonefold_format::fingerprint::FingerprintKey;
use stonefold_format::seal::{DataKey, SealKey, Secret};
use stonefold_format::segment::Scope;
use stonefold_types::{Error, Kind, Name, Result};
use zeroize::Zeroizing;

/// The predefined domain, plain for good.
pub(crate) const DEFAULT: u16 = 0;

/// What seals a domain's records in journals.
pub(crate) struct RecordKey {
    pub(crate) domain: u16,
    /// Of the domain's key.
    pub(crate) version: u32,
    data: Secret,
    /// The key in the journal that was asked for last.
    last: Mutex<Option<([u8; 16], Arc<SealKey>)>>,
}

impl RecordKey {
    /// The key in a journal of this session.
    pub(crate) fn of_journal(&self, journal: &JournalSeed) -> Arc<SealKey> {
        let mut last = self.last.lock();
        match &*last {
            Some((incarnation, key)) if *incarnation == journal.incarnation => key.clone(),
            _ => {
                let key = SealKey::of_journal(&self.data, &journal.seed, &journal.incarnation);
                let key = Arc::new(key);
                *last = Some((journal.incarnation, key.clone()));
                key
            }
        }
    }
}

/// What identifies a journal's keys among all others.
#[derive(Clone, Copy)]
pub(crate) struct JournalSeed {
    pub(crate) seed: [u8; 32],
    pub(crate) incarnation: [u8; 16],
}

/// See the module.
pub(crate) struct Keyring {
    pool: [u8; 16],
    domains: RwLock<HashMap<u16, Entry>>,
}

struct Entry {
    name: Name,
    state: State,
}

/// Whether a domain's data can be read and written.
#[derive(Clone)]
pub(crate) enum State {
    /// It is not sealed.
    Plain,
    /// All its keys are here, in ascending order.
    Open(Vec<DataKey>, Arc<RecordKey>),
    /// They are not, and why.
    Locked(Error),
    /// It is about to be shredded: what is there is folded, and nobody gets at it.
    Closing(Vec<DataKey>),
    /// Its keys are gone for good.
    Shredded,
}

impl Keyring {
    pub(super) fn new(pool: [u8; 16]) -> Self {
        Keyring { pool, domains: RwLock::default() }
    }

    /// The state of a domain whose keys are these, in ascending order.
    pub(super) fn opened(domain: u16, keys: Vec<DataKey>) -> State {
        let DataKey { version, secret } = keys.last().expect("a sealed domain has a key");
        let record = RecordKey { domain, version: *version, data: secret.clone(), last: Mutex::default() };
        let record = Arc::new(record);
        State::Open(keys, record)
    }

    pub(super) fn set(&self, domain: u16, name: &Name, state: State) {
        self.domains.write().insert(domain, Entry { name: name.clone(), state });
    }

    pub(super) fn remove(&self, domain: u16) {
        self.domains.write().remove(&domain);
    }

    pub(super) fn state(&self, domain: u16) -> Option<State> {
        self.domains.read().get(&domain).map(|entry| entry.state.clone())
    }

    /// A domain's name.
    pub(crate) fn name(&self, domain: u16) -> Name {
        let domains = self.domains.read();
        let name = domains.get(&domain).map(|entry| entry.name.clone());
        name.unwrap_or_else(|| format!("number-{domain}").parse().expect("letters and digits make a name"))
    }

    /// Fails unless what disks of the domain hold can be read and written.
    pub(crate) fn check(&self, domain: u16) -> Result<()> {
        self.with(domain, |_, _| Ok(()))
    }

    /// A domain's state as people are told it; nobody gets at one that is about to be shredded.
    pub(crate) fn public_state(&self, domain: u16) -> DomainState {
        match self.domains.read().get(&domain).map(|entry| &entry.state) {
            Some(State::Plain) => DomainState::Plain,
            Some(State::Open(..)) => DomainState::Open,
            Some(State::Shredded) => DomainState::Shredded,
            Some(State::Locked(_) | State::Closing(_)) | None => DomainState::Locked,
        }
    }

    /// Whether any domain is sealed, its keys at hand or not.
    pub(crate) fn has_sealed(&self) -> bool {
        self.domains.read().values().any(|entry| !matches!(entry.state, State::Plain))
    }

    /// Whether the keys are gone for good.
    pub(crate) fn is_shredded(&self, domain: u16) -> bool {
        matches!(self.domains.read().get(&domain), Some(Entry { state: State::Shredded, .. }))
    }

    /// What new segments of the domain are made with.
    pub(crate) fn scope(&self, domain: u16) -> Result<Scope> {
        self.with_any(domain, |_, keys| Ok(Scope { domain, key: keys.last().cloned() }))
    }

    /// The domain's key of a version.
    pub(crate) fn data_key(&self, domain: u16, version: u32) -> Result<Secret> {
        self.with_any(domain, |name, keys| {
            let key = keys.iter().find(|key| key.version == version).map(|key| key.secret.clone());
            let what = || format!("domain '{name}' has no key of version {version}");
            key.ok_or_else(|| {
                Error::new(Kind::Corrupt, what()).remedy("restore the object 'domains' from a copy")
            })
        })
    }

    /// What the domain's blocks are known by: of the first version of its key, so that a new one does not make them new.
    pub(crate) fn fingerprints(&self, domain: u16) -> Result<FingerprintKey> {
        self.with_any(domain, |_, keys| {
            if domain == DEFAULT {
                return Ok(FingerprintKey::derive(&self.pool));
            }
            let secret = keys.first().map_or(&[][..], |key| key.secret.expose());
            let shared = Zeroizing::new([&self.pool[..], &domain.to_le_bytes(), secret].concat());
            Ok(FingerprintKey::derive(&shared))
        })
    }

    /// What seals the domain's records in a journal; `None` when they are not sealed.
    pub(crate) fn record_key(&self, domain: u16) -> Result<Option<Arc<RecordKey>>> {
        if domain == DEFAULT {
            return Ok(None);
        }
        self.with(domain, |_, record| Ok(record.cloned()))
    }

    /// What opens the domain's records in a journal.
    pub(crate) fn replay_key(&self, domain: u16, version: u32, journal: &JournalSeed) -> Result<SealKey> {
        let data = self.data_key(domain, version)?;
        Ok(SealKey::of_journal(&data, &journal.seed, &journal.incarnation))
    }

    /// Looks at an open or plain domain.
    fn with<T>(
        &self,
        domain: u16,
        look: impl FnOnce(&Name, Option<&Arc<RecordKey>>) -> Result<T>,
    ) -> Result<T> {
        match self.domains.read().get(&domain) {
            Some(Entry { name, state: State::Plain }) => look(name, None),
            Some(Entry { name, state: State::Open(_, record) }) => look(name, Some(record)),
            Some(Entry { name, state }) => Err(refusal(name, state)),
            None => Err(unknown(domain)),
        }
    }

    /// The same, also of one that is about to be shredded.
    fn with_any<T>(&self, domain: u16, look: impl FnOnce(&Name, &[DataKey]) -> Result<T>) -> Result<T> {
        match self.domains.read().get(&domain) {
            Some(Entry { name, state: State::Plain }) => look(name, &[]),
            Some(Entry { name, state: State::Open(keys, _) | State::Closing(keys) }) => look(name, keys),
            Some(Entry { name, state }) => Err(refusal(name, state)),
            None => Err(unknown(domain)),
        }
    }
}

fn refusal(name: &Name, state: &State) -> Error {
    match state {
        State::Locked(why) => why.clone(),
        State::Closing(_) => Error::new(Kind::Busy, format!("domain '{name}' is about to be shredded"))
            .remedy("remove its disks"),
        _ => Error::new(
            Kind::WrongKey,
            format!("domain '{name}' was shredded: nothing opens its data any more"),
        )
        .remedy("remove its disks, which gives their space back"),
    }
}

fn unknown(domain: u16) -> Error {
    Error::new(Kind::Corrupt, format!("the pool's record of domains does not know number {domain}"))
        .remedy("restore the object 'domains' from a copy")
}

/// Why a domain is locked.
pub(super) fn locked(name: &Name, has_master: bool) -> Error {
    let why = match has_master {
        true => "the server's master key does not open it",
        false => "the server was started without the master key",
    };
    Error::new(Kind::WrongKey, format!("domain '{name}' is locked: {why}")).remedy(KEY_REMEDY)
}
