//! Folders for sockets that a QEMU makes and the server connects to, whoever each of them is.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::path::Path;
use stonefold_types::{Error, Result};
use tempfile::TempDir;

/// A folder below the one for machines, for a QEMU of `user`; nobody but that and the server may enter it. Where the server cannot give it to another
/// user, those of its group may, who can reach its NBD socket as well. It goes with this.
pub(crate) fn socket_folder(machines: &Path, user: Option<u32>) -> Result<TempDir> {
    let failed = |e| {
        Error::io(format!("making a folder for QEMU's socket in '{}'", machines.display()), e)
            .remedy("name a folder that the server may write to with --machines")
    };
    fs::DirBuilder::new().recursive(true).mode(0o700).create(machines).map_err(failed)?;
    // To be passed through by whoever knows what is in it, which is each its own.
    fs::set_permissions(machines, Permissions::from_mode(0o711)).map_err(failed)?;
    let mut made = tempfile::Builder::new();
    made.prefix("backup-").permissions(Permissions::from_mode(0o700));
    let folder = made.tempdir_in(machines).map_err(failed)?;
    let own = rustix::process::geteuid().as_raw();
    if let Some(user) = user.filter(|user| *user != own) {
        match chown(folder.path(), Some(user), None) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                fs::set_permissions(folder.path(), Permissions::from_mode(0o2770)).map_err(failed)?;
            }
            given => given.map_err(failed)?,
        }
    }
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_folder_is_for_one_qemu_and_goes() {
        let machines = tempfile::tempdir().unwrap();
        let at = machines.path().join("machines");
        let folder = socket_folder(&at, None).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
        assert_eq!((mode(&at), mode(folder.path())), (0o711, 0o700));
        if rustix::process::geteuid().is_root() {
            let given = socket_folder(&at, Some(64055)).unwrap();
            assert_eq!((fs::metadata(given.path()).unwrap().uid(), mode(given.path())), (64055, 0o700));
        }
        drop(folder);
        assert_eq!(fs::read_dir(&at).unwrap().count(), 0);
    }
}
