//! Making, changing and shredding domains, and changing their keys.

use super::Keyring;
use super::keyring::State;
use super::unlock::wrap_anew;
use super::{DomainInfo, DomainPolicy, DomainState, Domains, MasterKey, wrapping};
use crate::disks::check_idle;
use crate::store::Store;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use stonefold_engine::Version;
use stonefold_format::domains::{
    DEFAULT_NAME, DOMAINS_MAX, Domain, Domains as Document, KEYS_MAX, Master, Protection, WrappedKey,
};
use stonefold_format::export::{self, ExportedKey};
use stonefold_format::seal::{DataKey, Secret, WrappingKey};
use stonefold_types::{Error, Kind, Name, Result};
use zeroize::Zeroizing;

/// What could not be read back is read again after this.
const SETTLE_RETRY: Duration = Duration::from_secs(1);

impl Domains {
    /// As it was last stored.
    pub(super) fn find(&self, name: &Name) -> Result<Domain> {
        let document = self.document.lock().clone();
        document.list.iter().find(|domain| domain.name == *name).cloned().ok_or_else(|| missing(name))
    }

    /// Stores the document as `change` makes it, then takes it over. One change at a time; the caller holds `changing`. What an
    /// earlier swap tried to store and nobody knows whether it did is not taken over: it is overwritten.
    pub(super) async fn swap(&self, change: impl FnOnce(&mut Document) -> Result<()>) -> Result<()> {
        let (_, version) = self.look().await?;
        let mut document = Document::clone(&self.document.lock());
        change(&mut document)?;
        self.in_doubt.lock().push(document.clone());
        Self::store(&*self.engine, &document, version.as_ref()).await?;
        self.adopt(document);
        Ok(())
    }

    /// What is stored: the document as it is here, or what a swap tried of which nobody knew whether it was done.
    pub(super) async fn look(&self) -> Result<(Document, Option<Version>)> {
        let (stored, version) = Self::stored(&*self.engine).await?;
        let mut in_doubt = self.in_doubt.lock();
        if stored != **self.document.lock() && !in_doubt.contains(&stored) {
            return Err(Error::new(Kind::Fenced, "the domains were changed by another gateway")
                .remedy("stop this one: the other owns the pool"));
        }
        in_doubt.retain(|attempt| *attempt == stored);
        Ok((stored, version))
    }

    pub(super) fn adopt(&self, stored: Document) {
        self.in_doubt.lock().clear();
        *self.document.lock() = Arc::new(stored);
    }

    /// What wraps new keys.
    async fn wrapping(&self, how: &mut Master) -> Result<WrappingKey> {
        let master = self.master.lock().clone().ok_or_else(|| {
            Error::new(Kind::WrongKey, "the server has no master key, which would wrap the domain's")
                .remedy("start it with --key-file, --passphrase-file or --key-command")
        })?;
        wrapping(&self.env, self.pool, &master, how).await
    }

    /// A new version of a domain's key, and how it is stored.
    fn make_key(&self, domain: u16, version: u32, wrapping: &WrappingKey) -> (DataKey, WrappedKey) {
        let secret = Secret::new(&Zeroizing::new(self.env.random()));
        let key = DataKey { version, secret };
        let wrapped = wrapping.wrap(domain, &key, self.env.random());
        (key, WrappedKey { version, created: self.env.wall(), wrapped })
    }

    /// The keys of a sealed domain that is open.
    fn open_keys(&self, domain: &Domain) -> Result<Vec<DataKey>> {
        let Protection::Sealed(_) = &domain.protection else {
            let what = match domain.protection {
                Protection::Shredded => format!("domain '{}' was shredded: it has no key", domain.name),
                _ => format!("domain '{}' is not encrypted: it has no key", domain.name),
            };
            return Err(Error::new(Kind::Invalid, what).remedy("name an encrypted domain"));
        };
        self.keyring.check(domain.id)?;
        match self.keyring.state(domain.id) {
            Some(State::Open(keys, _)) => Ok(keys),
            _ => Err(Error::new(Kind::Busy, format!("domain '{}' is being changed", domain.name))
                .remedy("try again")),
        }
    }
}

impl Store {
    /// All domains, the predefined one first.
    pub fn domains(&self) -> Vec<DomainInfo> {
        let document = self.domains.document.lock().clone();
        document.list.iter().map(|domain| self.describe_domain(domain)).collect()
    }

    /// One domain.
    pub fn domain(&self, name: &Name) -> Result<DomainInfo> {
        self.check_open()?;
        self.domains.find(name).map(|domain| self.describe_domain(&domain))
    }

    fn describe_domain(&self, domain: &Domain) -> DomainInfo {
        let (state, key) = match &domain.protection {
            Protection::Plain => (DomainState::Plain, None),
            Protection::Shredded => (DomainState::Shredded, None),
            Protection::Sealed(keys) => {
                let open = self.domains.keyring.check(domain.id).is_ok();
                let newest = keys.last().map(|key| (key.version, key.created));
                (if open { DomainState::Open } else { DomainState::Locked }, newest)
            }
        };
        DomainInfo {
            name: domain.name.clone(),
            created: domain.created,
            policy: DomainPolicy { compression: domain.compression, dedupe: domain.dedupe },
            state,
            key,
            disks: self.all_disks().iter().filter(|disk| disk.domain == domain.id).count(),
        }
    }

    /// The id of a domain in which disks can be made.
    pub(crate) fn domain_id(&self, name: &Name) -> Result<u16> {
        let id = self.domains.find(name)?.id;
        self.domains.keyring.check(id).map(|()| id)
    }

    /// Makes a domain; with a key of its own when it is to be sealed.
    pub async fn create_domain(&self, name: &Name, policy: DomainPolicy, seal: bool) -> Result<DomainInfo> {
        self.check_open()?;
        let domains = &self.domains;
        let _alone = domains.changing.lock().await;
        let document = domains.document.lock().clone();
        check_new(&document, name)?;
        let (id, mut master) = (document.next_id, document.master);
        let mut state = State::Plain;
        let mut protection = Protection::Plain;
        if seal {
            let (key, wrapped) = domains.make_key(id, 1, &domains.wrapping(&mut master).await?);
            state = Keyring::opened(id, vec![key]);
            protection = Protection::Sealed(vec![wrapped]);
        }
        let domain = Domain {
            id,
            name: name.clone(),
            created: self.env.wall(),
            compression: policy.compression,
            dedupe: policy.dedupe,
            protection,
        };
        let made = domain.clone();
        let add = |document: &mut Document| {
            (document.next_id, document.master) = (id + 1, master);
            document.list.push(made);
            Ok(())
        };
        domains.swap(add).await.map_err(|e| e.context(format!("creating domain '{name}'")))?;
        domains.keyring.set(id, name, state);
        Ok(self.describe_domain(&domain))
    }

    /// Changes what new disks of a domain get to what `change` makes of it, one call after another.
    pub async fn set_domain(
        &self,
        name: &Name,
        change: impl FnOnce(DomainPolicy) -> DomainPolicy,
    ) -> Result<DomainInfo> {
        self.check_open()?;
        let _alone = self.domains.changing.lock().await;
        let policy = change(self.domain(name)?.policy);
        let set = |document: &mut Document| {
            let domain = entry(document, name)?;
            (domain.compression, domain.dedupe) = (policy.compression, policy.dedupe);
            Ok(())
        };
        self.domains.swap(set).await?;
        self.domain(name)
    }

    /// Makes a new version of a domain's key, which seals from now on. What is there stays as it is and is opened by the older ones;
    /// reclaim seals what it moves by the newest.
    pub async fn rotate_domain(&self, name: &Name) -> Result<DomainInfo> {
        self.check_open()?;
        let domains = &self.domains;
        let _alone = domains.changing.lock().await;
        let domain = domains.find(name)?;
        let mut keys = domains.open_keys(&domain)?;
        if keys.len() >= KEYS_MAX {
            let what = format!("domain '{name}' has {KEYS_MAX} keys, and that is the most it can have");
            return Err(Error::new(Kind::Invalid, what).remedy("make another domain, and copy the disks"));
        }
        let mut master = domains.document.lock().master;
        let wrapping = domains.wrapping(&mut master).await?;
        let version = keys.last().map_or(0, |key| key.version) + 1;
        let (key, wrapped) = domains.make_key(domain.id, version, &wrapping);
        let add = |document: &mut Document| {
            if let Protection::Sealed(keys) = &mut entry(document, name)?.protection {
                keys.push(wrapped);
            }
            Ok(())
        };
        domains.swap(add).await.map_err(|e| e.context(format!("rotating the key of domain '{name}'")))?;
        keys.push(key);
        domains.keyring.set(domain.id, name, Keyring::opened(domain.id, keys));
        self.domain(name)
    }

    /// Forgets all keys of a domain, for good: on return nothing opens what its disks and their snapshots hold. Refused while
    /// clients are attached. When it fails, and it is not known whether it was stored, the domain stays closed until it is.
    pub async fn shred_domain(self: &Arc<Self>, name: &Name) -> Result<DomainInfo> {
        self.check_open()?;
        let _alone = self.domains.changing.lock().await;
        let domain = self.domains.find(name)?;
        if domain.protection == Protection::Plain {
            let what = format!("domain '{name}' is not encrypted: there is no key to be shredded");
            return Err(Error::new(Kind::Invalid, what).remedy("remove its disks instead"));
        }
        if let Some(State::Open(keys, _)) = self.domains.keyring.state(domain.id) {
            // From here on nobody attaches and nobody writes.
            self.domains.keyring.set(domain.id, name, State::Closing(keys));
        }
        if let Err(error) = self.shred(&domain).await {
            if self.settle_shred(&domain).await.is_err() {
                self.env.spawn("domain in doubt", self.clone().settle_shred_later(domain));
            }
            return Err(error.context(format!("shredding domain '{name}'")));
        }
        self.forget_domain(&domain);
        self.domain(name)
    }

    /// Nothing in memory opens the domain any more.
    fn forget_domain(&self, domain: &Domain) {
        self.domains.keyring.set(domain.id, &domain.name, State::Shredded);
        self.segments.forget_keys();
        self.drop_cache();
    }

    /// Opens a domain again whose shredding has failed, or forgets it when it was stored all the same. Fails while nobody can
    /// tell: under a key that is durable nowhere nothing may be written. The caller holds `changing`.
    async fn settle_shred(&self, domain: &Domain) -> Result<()> {
        let domains = &self.domains;
        let Some(State::Closing(keys)) = domains.keyring.state(domain.id) else { return Ok(()) };
        if !domains.in_doubt.lock().is_empty() {
            let (stored, _) = domains.look().await?;
            let mut same = stored.list.iter().filter(|other| other.id == domain.id);
            if same.any(|other| other.protection == Protection::Shredded) {
                domains.adopt(stored);
                self.forget_domain(domain);
                return Ok(());
            }
        }
        domains.keyring.set(domain.id, &domain.name, Keyring::opened(domain.id, keys));
        Ok(())
    }

    async fn settle_shred_later(self: Arc<Self>, domain: Domain) {
        while self.check_open().is_ok() {
            self.env.sleep(SETTLE_RETRY).await;
            let _alone = self.domains.changing.lock().await;
            match self.settle_shred(&domain).await {
                Ok(()) => return,
                Err(error) => {
                    tracing::warn!(
                        "domain '{}' stays closed until it is known whether it was shredded: {error}",
                        domain.name
                    );
                }
            }
        }
    }

    async fn shred(&self, domain: &Domain) -> Result<()> {
        if let Some(why) = self.damage.why() {
            // It may be of this domain, with a snapshot that is locked.
            return Err(
                why.context("nobody knows which domain a damaged disk is of, nor what of it is locked")
            );
        }
        for disk in self.all_disks().iter().filter(|disk| disk.domain == domain.id) {
            let state = disk.state.lock();
            self.check_none_locked(disk, &state)?;
            check_idle(&disk.name, &state)?;
        }
        // While it can still be sealed: what memory holds must not be left over.
        self.fold(None).await?;
        let shred = |document: &mut Document| {
            entry(document, &domain.name)?.protection = Protection::Shredded;
            Ok(())
        };
        self.domains.swap(shred).await
    }

    /// Wraps the keys of all domains under another master key, by one swap. No data is touched.
    pub async fn rewrap_domains(&self, new: MasterKey) -> Result<()> {
        self.check_open()?;
        let domains = &self.domains;
        let _alone = domains.changing.lock().await;
        let document = domains.document.lock().clone();
        let mut keys = HashMap::new();
        for domain in document.list.iter().filter(|d| matches!(d.protection, Protection::Sealed(_))) {
            keys.insert(domain.id, domains.open_keys(domain)?);
        }
        let mut how = Master::None;
        let wrapping = wrapping(&domains.env, domains.pool, &new, &mut how).await?;
        let rewrap = |document: &mut Document| {
            document.master = how;
            wrap_anew(&domains.env, document, &wrapping, &keys);
            Ok(())
        };
        domains.swap(rewrap).await.map_err(|e| e.context("wrapping the domains' keys anew"))?;
        *domains.master.lock() = Some(new);
        Ok(())
    }

    /// A domain's keys as a text that opens its data without the master key.
    pub fn export_domain_key(&self, name: &Name) -> Result<Zeroizing<String>> {
        self.check_open()?;
        let domain = self.domains.find(name)?;
        let keys = self.domains.open_keys(&domain)?.into_iter();
        let exported = keys.map(|key| ExportedKey { pool: self.domains.pool, domain: domain.id, key });
        Ok(export::encode(&exported.collect::<Vec<_>>()))
    }
}

fn entry<'a>(document: &'a mut Document, name: &Name) -> Result<&'a mut Domain> {
    document.list.iter_mut().find(|domain| domain.name == *name).ok_or_else(|| missing(name))
}

pub(super) fn missing(name: &Name) -> Error {
    Error::new(Kind::NotFound, format!("domain '{name}' does not exist"))
        .remedy("'stonefold domain ls' names those that do")
}

fn check_new(document: &Document, name: &Name) -> Result<()> {
    if document.list.iter().any(|domain| domain.name == *name) {
        let what = match name.as_str() {
            DEFAULT_NAME => format!("domain '{name}' exists always"),
            _ => format!("domain '{name}' exists already"),
        };
        return Err(Error::new(Kind::AlreadyExists, what).remedy("choose another name"));
    }
    if document.list.len() >= DOMAINS_MAX || document.next_id == u16::MAX {
        let what = format!("the pool has {DOMAINS_MAX} domains, and that is the most it can have");
        return Err(Error::new(Kind::Invalid, what).remedy("make the disk in one of those there are"));
    }
    Ok(())
}
