//! Opening the domains of a pool with the keys that are there.

use super::keyring::{Keyring, State, locked};
use super::{Domains, KEY_REMEDY, Keys, wrapping};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use stonefold_engine::Engine;
use stonefold_env::Env;
use stonefold_format::domains::{Domain, Domains as Document, Master, Protection, WrappedKey};
use stonefold_format::export::ExportedKey;
use stonefold_format::seal::{DataKey, WrappingKey};
use stonefold_types::{Error, Kind, Result};

/// Data keys by domain.
type Opened = HashMap<u16, Vec<DataKey>>;

impl Domains {
    /// Reads the domains and opens what the keys open. Fails with `WrongKey`, having changed nothing, when there are sealed domains and a
    /// master key that opens none. Without one they stay locked.
    pub(crate) async fn open(
        env: Env,
        engine: Arc<dyn Engine>,
        pool: [u8; 16],
        keys: Keys,
    ) -> Result<Domains> {
        let (mut document, version) = Self::stored(&*engine).await?;
        let recovered = by_recovery(&document, pool, &keys.recovery)?;
        let mut opened = Opened::new();
        if let Some(master) = &keys.master {
            let mut how = document.master;
            match wrapping(&env, pool, master, &mut how).await {
                Ok(wrapping) => opened = by_master(&document, &wrapping),
                Err(error) if recovered.is_empty() => return Err(error),
                // What they were wrapped with is lost; it is replaced below.
                Err(_) => {}
            }
            if opened.is_empty() && recovered.is_empty() && sealed(&document).next().is_some() {
                let what = "the master key is not the one that this pool's keys were wrapped with";
                return Err(Error::new(Kind::WrongKey, what)
                    .remedy("start it with the right one, or without one; nothing was changed"));
            }
            let wanting: Opened =
                recovered.iter().filter(|(id, _)| !opened.contains_key(id)).map(owned).collect();
            if !wanting.is_empty() {
                if opened.is_empty() {
                    check_all_recovered(&document, &recovered)?;
                    document.master = Master::None;
                }
                let wrapping = wrapping(&env, pool, master, &mut document.master).await?;
                wrap_anew(&env, &mut document, &wrapping, &wanting);
                Self::store(&*engine, &document, version.as_ref()).await?;
                tracing::warn!("the keys of {} domains were recovered and wrapped anew", wanting.len());
            }
        }
        opened.extend(recovered);
        let keyring = Keyring::new(pool);
        for domain in &document.list {
            keyring.set(domain.id, &domain.name, state(domain, &mut opened, keys.master.is_some()));
        }
        Ok(Domains {
            env,
            engine,
            pool,
            keyring: Arc::new(keyring),
            document: Mutex::new(Arc::new(document)),
            in_doubt: Mutex::default(),
            changing: tokio::sync::Mutex::default(),
            master: Mutex::new(keys.master),
        })
    }
}

fn owned((id, keys): (&u16, &Vec<DataKey>)) -> (u16, Vec<DataKey>) {
    (*id, keys.clone())
}

fn state(domain: &Domain, opened: &mut Opened, has_master: bool) -> State {
    match &domain.protection {
        Protection::Plain => State::Plain,
        Protection::Shredded => State::Shredded,
        Protection::Sealed(_) => match opened.remove(&domain.id) {
            Some(keys) => Keyring::opened(domain.id, keys),
            None => {
                let why = locked(&domain.name, has_master);
                tracing::warn!("{why}");
                State::Locked(why)
            }
        },
    }
}

/// The sealed domains and their keys.
fn sealed(document: &Document) -> impl Iterator<Item = (&Domain, &[WrappedKey])> {
    document.list.iter().filter_map(|domain| match &domain.protection {
        Protection::Sealed(keys) => Some((domain, &keys[..])),
        _ => None,
    })
}

/// What a master key opens.
fn by_master(document: &Document, wrapping: &WrappingKey) -> Opened {
    let open = |(domain, keys): (&Domain, &[WrappedKey])| {
        let unwrap = |key: &WrappedKey| wrapping.unwrap(domain.id, key.version, &key.wrapped);
        Some((domain.id, keys.iter().map(unwrap).collect::<Option<Vec<_>>>()?))
    };
    sealed(document).filter_map(open).collect()
}

/// What exported keys open. They must be of this pool, and reach up to a domain's newest version.
fn by_recovery(document: &Document, pool: [u8; 16], exported: &[ExportedKey]) -> Result<Opened> {
    if exported.iter().any(|key| key.pool != pool) {
        return Err(Error::new(Kind::WrongKey, "a recovery key is of another pool").remedy("leave it out"));
    }
    let mut opened = Opened::new();
    for (domain, keys) in sealed(document) {
        let mine = || exported.iter().filter(|key| key.domain == domain.id).map(|key| &key.key);
        let find = |key: &WrappedKey| mine().find(|found| found.version == key.version).cloned();
        match keys.iter().map(find).collect::<Option<Vec<_>>>() {
            Some(keys) => drop(opened.insert(domain.id, keys)),
            None if mine().next().is_some() => {
                let what =
                    format!("the recovery key of domain '{}' is older than its newest key", domain.name);
                return Err(Error::new(Kind::WrongKey, what)
                    .remedy("give the one that was exported after the last rotation"));
            }
            None => {}
        }
    }
    Ok(opened)
}

/// Another master key may take a lost one's place only when nothing stays behind that only the lost one opens.
fn check_all_recovered(document: &Document, recovered: &Opened) -> Result<()> {
    match sealed(document).find(|(domain, _)| !recovered.contains_key(&domain.id)) {
        None => Ok(()),
        Some((domain, _)) => {
            let what =
                format!("domain '{}' is opened neither by the master key nor by a recovery key", domain.name);
            Err(Error::new(Kind::WrongKey, what)
                .remedy(format!("give its recovery key, too, or shred it first; {KEY_REMEDY}")))
        }
    }
}

/// Replaces the wrapped keys of some domains.
pub(super) fn wrap_anew(env: &Env, document: &mut Document, wrapping: &WrappingKey, keys: &Opened) {
    for domain in &mut document.list {
        let (Protection::Sealed(wrapped), Some(keys)) = (&mut domain.protection, keys.get(&domain.id)) else {
            continue;
        };
        for (wrapped, key) in wrapped.iter_mut().zip(keys) {
            wrapped.wrapped = wrapping.wrap(domain.id, key, env.random());
        }
    }
}
