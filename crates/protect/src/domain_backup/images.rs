//! A domain that is off: its images, as long as they stay as they are.

use crate::hypervisor::Virsh;
use crate::image;
use std::path::{Path, PathBuf};
use stonefold_env::Env;
use stonefold_types::{Error, Kind, Result, Size};

/// Images of a domain that does not run.
pub(super) struct Images {
    pub(super) uri: String,
    pub(super) domain: String,
    pub(super) seen: Vec<image::Seen>,
    pub(super) _served: Vec<image::Served>,
}

impl Images {
    /// Fails where the domain runs, or its images were written: QEMU's locks keep it from a qcow2 image that is read, and not from a raw one.
    pub(super) async fn check_still(&self, env: &Env) -> Result<()> {
        let virsh = Virsh { env, uri: &self.uri };
        for image in &self.seen {
            image.check().await?;
        }
        if virsh.state(&self.domain).await? != Some(false) {
            let what = "the domain was started while its images were read";
            return Err(Error::new(Kind::Conflict, what).remedy("run it again: it is read while it runs"));
        }
        Ok(())
    }
}

/// Fails where less room is left for a scratch than that.
pub(super) async fn check_room(scratches: &[PathBuf], bytes_min: u64) -> Result<()> {
    let folders: Vec<PathBuf> =
        scratches.iter().filter_map(|path| path.parent().map(Path::to_owned)).collect();
    // A file system that does not answer would hold up everything.
    let room = |folder: PathBuf| {
        let told = rustix::fs::statvfs(&folder).ok()?;
        Some((folder, told.f_bavail.saturating_mul(told.f_frsize)))
    };
    // Where the server cannot look, libvirt can.
    let told = image::aside(move || folders.into_iter().filter_map(room).collect::<Vec<_>>()).await?;
    match told.iter().find(|(_, left)| *left < bytes_min) {
        None => Ok(()),
        Some((folder, left)) => {
            let (left, at) = (Size(*left), folder.display());
            let what = format!(
                "{left} are left in '{at}', where libvirt keeps what the guest overwrites while it is read"
            );
            Err(Error::new(Kind::NoSpace, what)
                .remedy("make room there, or add the source with --scratch and another folder"))
        }
    }
}
