//! Checkpoints of libvirt's: since when a domain's bitmaps mark.

use super::xml;
use crate::Source;
use crate::hypervisor::Virsh;
use crate::sources::LibvirtDomain;
use stonefold_env::Env;
use stonefold_types::{Name, Result};

/// Checkpoints of a run.
pub(crate) struct Checkpoints {
    env: Env,
    uri: String,
    pub(super) domain: String,
    /// What the source's are named with.
    ours: String,
    /// Since when they mark: its own run, and the last point.
    pub(super) own: String,
    pub(super) last: Option<String>,
}

impl Checkpoints {
    pub(super) fn of(
        env: &Env,
        source: &Source,
        of: &LibvirtDomain,
        domain: &str,
        stamps: [Option<&Name>; 2],
    ) -> Self {
        let ours = format!("stonefold-{:x}-", source.added);
        let [own, last] = stamps.map(|stamp| stamp.map(|stamp| format!("{ours}{stamp}")));
        let own = own.unwrap_or_default();
        Checkpoints { env: env.clone(), uri: of.uri.clone(), domain: domain.to_owned(), ours, own, last }
    }

    pub(super) fn virsh(&self) -> Virsh<'_> {
        Virsh { env: &self.env, uri: &self.uri }
    }

    /// Once it is known whether there is a point: of what has changed since that, or since the last one, is known the next time.
    pub(crate) async fn settle(&self, is_done: bool) {
        let kept = if is_done { Some(self.own.as_str()) } else { self.last.as_deref() };
        // A run that has begun since has a later one.
        let is_earlier = |name: &str| name <= self.own.as_str();
        if let Err(error) = self.remove(|name| is_earlier(name) && Some(name) != kept).await {
            tracing::warn!("checkpoints '{}…' of domain '{}' stay for now: {error}", self.ours, self.domain);
        }
    }

    /// Removes ours, but one.
    pub(super) async fn remove_but(&self, kept: Option<&str>) -> Result<()> {
        self.remove(|name| Some(name) != kept).await
    }

    /// Removes those of ours that shall go from a domain that runs: libvirt does it from no other.
    async fn remove(&self, goes: impl Fn(&str) -> bool) -> Result<()> {
        let virsh = self.virsh();
        if virsh.state(&self.domain).await? != Some(true) {
            tracing::info!("checkpoints of domain '{}' stay while it does not run", self.domain);
            return Ok(());
        }
        let there = virsh.checkpoints(&self.domain).await?;
        for name in there.iter().filter(|name| name.starts_with(&self.ours) && goes(name)) {
            virsh.remove_checkpoint(&self.domain, name).await?;
        }
        Ok(())
    }

    /// The disks of which it is known what has changed since the last point.
    pub(super) async fn marked(&self) -> Result<Vec<String>> {
        let virsh = self.virsh();
        let there = virsh.checkpoints(&self.domain).await?;
        match self.last.as_ref().filter(|last| there.contains(last)) {
            Some(last) => Ok(xml::marked(&virsh.checkpoint(&self.domain, last).await?)),
            None => Ok(Vec::new()),
        }
    }
}
