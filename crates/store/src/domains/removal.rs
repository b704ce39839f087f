//! Removing a domain that nothing needs any more.
//!
//! *Promises*: a domain goes only when no disk of it is there, none that was removed has still to be given back, and none is hidden by
//! damage; no disk comes to a domain that goes. While it is not known whether it went, it is closed, so that none comes then either.

use super::Domains;
use super::changes::missing;
use super::keyring::{DEFAULT, State};
use crate::store::Store;
use stonefold_engine::Engine;
use stonefold_format::domains::{DEFAULT_NAME, Domain, Domains as Document};
use stonefold_format::head::Head;
use stonefold_types::{Error, Kind, Name, Result};

/// Heads asked for at one time.
const LIST_LIMIT: usize = 1000;
/// Disks named in an error.
const NAMES_MAX: usize = 5;

impl Store {
    /// Removes a domain, and with it the keys that it may have. Fails with `Busy` while disks of it are there, or were and have not been
    /// given back.
    pub async fn remove_domain(&self, name: &Name) -> Result<()> {
        self.check_open()?;
        // In this order: what was removed is not given back meanwhile, no disk comes, and no other domain changes.
        let _no_pass = self.reclaiming.lock().await;
        let _no_disk_comes = self.qos.changing.lock().await;
        let _alone = self.domains.changing.lock().await;
        let domain = self.domains.find(name)?;
        if domain.id == DEFAULT {
            let what = format!("domain '{DEFAULT_NAME}' cannot be removed");
            return Err(Error::new(Kind::Invalid, what)
                .remedy("it is what disks are made in where nothing else is said"));
        }
        self.check_needless(&domain).await.map_err(|e| e.context(format!("removing domain '{name}'")))?;
        self.drop_domain(&domain).await.map_err(|e| e.context(format!("removing domain '{name}'")))?;
        tracing::info!("domain '{name}' is removed");
        Ok(())
    }

    async fn check_needless(&self, domain: &Domain) -> Result<()> {
        if let Some(State::Closing(_)) = self.domains.keyring.state(domain.id) {
            return Err(Error::new(Kind::Busy, "it is not known yet whether it was shredded")
                .remedy("try again later"));
        }
        if let Some(why) = self.damage.why() {
            return Err(why.context("nobody knows which domain a damaged disk is of"));
        }
        let disks = self.all_disks().into_iter().filter(|disk| disk.domain == domain.id);
        let names: Vec<String> = disks.map(|disk| format!("'{}'", disk.name)).collect();
        if !names.is_empty() {
            let more = if names.len() > NAMES_MAX { " and others" } else { "" };
            let what =
                format!("disks are made in it: {}{more}", names[..names.len().min(NAMES_MAX)].join(", "));
            return Err(Error::new(Kind::Busy, what)
                .remedy("remove them first, or copy them to disks of another domain"));
        }
        check_stored(&*self.engine, domain.id).await
    }

    /// One swap. The caller holds what [`Store::remove_domain`] says.
    async fn drop_domain(&self, domain: &Domain) -> Result<()> {
        let domains = &self.domains;
        let without = |document: &mut Document| {
            document.list.retain(|other| other.id != domain.id);
            Ok(())
        };
        if let Err(error) = domains.swap(without).await {
            match domains.look().await {
                Ok((stored, _)) if is_there(&stored, domain.id) => return Err(error),
                Ok((stored, _)) => domains.adopt(stored),
                Err(_) => {
                    let unclear = Error::new(Kind::Busy, "it is not known whether it was removed");
                    let unclear = unclear.remedy(format!("try again: stonefold domain rm {}", domain.name));
                    domains.keyring.set(domain.id, &domain.name, State::Locked(unclear));
                    return Err(error);
                }
            }
        }
        domains.keyring.remove(domain.id);
        self.segments.forget_keys();
        Ok(())
    }
}

impl Domains {
    /// Fails when the domain was removed meanwhile.
    pub(crate) fn check_there(&self, id: u16) -> Result<()> {
        let there = is_there(&self.document.lock(), id);
        if there { Ok(()) } else { Err(missing(&self.keyring.name(id))) }
    }
}

fn is_there(document: &Document, id: u16) -> bool {
    document.list.iter().any(|domain| domain.id == id)
}

/// No head that is stored names the domain: neither of a removed disk whose space has not been given back, nor of one of which nobody
/// knows whether it was made.
async fn check_stored(engine: &dyn Engine, id: u16) -> Result<()> {
    for (prefix, is) in [
        ("gone/", "was removed, and not all of its space is given back"),
        ("head/", "may have been made in it"),
    ] {
        let mut after = None;
        loop {
            let listed = engine.list(prefix, after.as_ref(), LIST_LIMIT).await?;
            let Some(last) = listed.last() else { break };
            after = Some(last.key.clone());
            for one in &listed {
                let (bytes, _) =
                    engine.get(&one.key).await.map_err(|e| e.context(format!("reading '{}'", one.key)))?;
                let head = Head::decode(&bytes).map_err(|e| e.context(format!("reading '{}'", one.key)))?;
                if head.domain == id {
                    let what = format!("disk '{}' {is}", head.name);
                    return Err(Error::new(Kind::Busy, what)
                        .remedy("'stonefold pool reclaim' gives it back; then try again"));
                }
            }
        }
    }
    Ok(())
}
