//! Domains that are given back, also by a later server.

use super::{AGAIN, Checkpoints, DomainBackup, RELEASES_MAX, xml};
use crate::hypervisor::Virsh;
use crate::sources::LibvirtDomain;
use crate::{Protection, Source, catalog, image};
use std::path::{Path, PathBuf};
use stonefold_types::{Error, Kind, Result};

impl Protection {
    pub(super) async fn release_domain_or_tell(&self, backup: &DomainBackup) {
        if let Err(error) = self.release_domain(backup).await {
            tracing::warn!("source '{}': its domain may still be in a backup: {error}", backup.source);
        }
    }

    /// Ends the job, where it is ours and goes on, removes what it left, and forgets it. Whoever comes meanwhile waits, and finds it done: an
    /// end that is told twice would be the next job's.
    pub(super) async fn release_domain(&self, backup: &DomainBackup) -> Result<()> {
        let turn = self.releasing.lock().entry(backup.source.clone()).or_default().clone();
        let _turn = turn.lock().await;
        let known = catalog::find::<DomainBackup>(&self.store, backup.source.as_str()).await;
        // A pool that cannot be read is no reason to leave a guest in its backup.
        if known.is_ok_and(|known| known.is_none_or(|known| known.socket != backup.socket)) {
            return Ok(());
        }
        if backup.boot == boot_id() {
            self.end_job(backup).await?;
        }
        // libvirt removes them; but where it was killed, or the host went down.
        let (scratches, socket) = (backup.scratches.clone(), backup.socket.clone());
        image::aside(move || remove_left(&scratches, &socket)).await?;
        self.change(catalog::remove::<DomainBackup>(&self.store, backup.source.as_str())).await
    }

    async fn end_job(&self, backup: &DomainBackup) -> Result<()> {
        let virsh = Virsh { env: &self.env, uri: &backup.uri };
        let is_ours = |told: &String| xml::is_served_on(told, &backup.socket);
        let mut told = Ok(());
        for at in 0..RELEASES_MAX {
            if virsh.backup_of(&backup.domain).await?.filter(is_ours).is_none() {
                return Ok(());
            }
            if at == 0 {
                // It may have ended by itself since.
                told = virsh.abort_job(&backup.domain).await;
            }
            self.env.sleep(AGAIN).await;
        }
        told?;
        let what = format!("domain '{}' is still in its backup", backup.domain);
        Err(Error::new(Kind::Busy, what).remedy(format!("end it: virsh domjobabort {}", backup.domain)))
    }

    /// Takes out what runs have left that were cut off, each in a task of its own: a libvirt that does not answer keeps nothing else waiting.
    pub(crate) async fn release_left_domains(&self) -> Result<()> {
        for key in catalog::keys::<DomainBackup>(&self.store, None).await? {
            let Some(left) = self.readable::<DomainBackup>(&key).await? else { continue };
            let Some(me) = self.me.upgrade().filter(|me| !me.copies.is_copied(&left.source)) else {
                continue;
            };
            self.env.spawn("release a domain", async move {
                match me.release_domain(&left).await {
                    Ok(()) => tracing::warn!(
                        "source '{}': what a backup left of its domain is taken out",
                        left.source
                    ),
                    Err(error) => tracing::warn!(
                        "source '{}': its domain may still be in a backup: {error}",
                        left.source
                    ),
                }
            });
        }
        Ok(())
    }

    /// Takes the checkpoints of a source out of its domain.
    pub(crate) async fn forget_checkpoints(&self, source: &Source, of: &LibvirtDomain) -> Result<()> {
        let domain = Virsh { env: &self.env, uri: &of.uri }.uuid_of(&of.domain).await?;
        Checkpoints::of(&self.env, source, of, &domain, [None, None]).remove_but(None).await
    }
}

/// Which life of the kernel's this is.
pub(super) fn boot_id() -> String {
    let told = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    told.trim().to_owned()
}

fn remove_left(scratches: &[PathBuf], socket: &Path) {
    for path in scratches.iter().map(PathBuf::as_path).chain([socket]) {
        match std::fs::remove_file(path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                tracing::warn!("'{}' is left of a backup: remove it ({e})", path.display());
            }
            _ => {}
        }
    }
    if let Some(folder) = socket.parent() {
        // One of this life's goes with whoever has it.
        let _ = std::fs::remove_dir(folder);
    }
}
