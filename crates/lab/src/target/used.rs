//! Whatever else has a file open, beside other runs of the lab.
//!
//! *Method*: QEMU and its programs hold locks on bytes of the images that they have (QEMU, `docs/system/qemu-block-drivers`, "Disk image file
//! locking"), so that a lock of the whole file is refused. The kernel names the file beneath each loop device. Of what uses a file without
//! telling nobody knows.

use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use stonefold_types::{Error, Kind, Result};

/// Fails where a QEMU or a loop device has a file.
pub(super) fn check(file: &File, path: &Path) -> Result<()> {
    let used = |by: String, remedy: String| {
        Err(Error::new(Kind::Busy, format!("'{}' is used by {by}", path.display())).remedy(remedy))
    };
    if let Some(device) = loop_over(file) {
        let device = device.display().to_string();
        return used(
            format!("the loop device {device}"),
            format!("name another file, or take the device away: losetup -d {device}"),
        );
    }
    match fcntl_lock(file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK | Errno::ACCESS) => used(
            "a QEMU, or one of its programs".to_owned(),
            "name another file, or end what uses it: a machine, qemu-nbd, qemu-storage-daemon".to_owned(),
        ),
        // Given back at once: it would go anyway with the first of this program's copies of the file that is closed.
        Ok(()) => fcntl_lock(file, FlockOperation::Unlock)
            .map_err(|error| Error::io(format!("unlocking '{}'", path.display()), error.into())),
        // A file system without locks has nobody's.
        Err(_) => Ok(()),
    }
}

/// The loop device over a file, by whatever name it has that.
fn loop_over(file: &File) -> Option<PathBuf> {
    let own = file.metadata().ok()?;
    let devices = std::fs::read_dir("/sys/block").ok()?.flatten();
    let is_over = |device: &std::fs::DirEntry| {
        let Ok(beneath) = std::fs::read_to_string(device.path().join("loop/backing_file")) else {
            return false;
        };
        let beneath = std::fs::metadata(beneath.trim_end_matches('\n'));
        beneath.is_ok_and(|beneath| (beneath.dev(), beneath.ino()) == (own.dev(), own.ino()))
    };
    devices.into_iter().find(is_over).map(|device| Path::new("/dev").join(device.file_name()))
}
