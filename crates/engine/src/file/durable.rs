//! Making files and names durable: whatever the file engine syncs by itself is synced here.

use super::planted;
use crate::medium;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::Duration;

/// How often a folder is opened while there is no descriptor: half a minute, within which clients come and go.
const OPEN_TRIES_MAX: u32 = 600;
const OPEN_PAUSE: Duration = Duration::from_millis(50);

/// Makes the names in a folder durable.
pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    let folder = open_patiently(folder)?;
    let syncing = medium::begin(&folder)?;
    folder.sync_all()?;
    syncing.end()
}

/// Makes durable what a file holds.
pub(super) fn sync_file(file: &File) -> io::Result<()> {
    let syncing = medium::begin(file)?;
    file.sync_data()?;
    syncing.end()
}

/// Makes the name of a folder durable, and those of the folders above it: they may have been made with it, by us or by a process
/// that did not live to see to it. Fails where that of the folder itself cannot be.
pub(super) fn sync_way_to(folder: &Path) -> io::Result<()> {
    let heights = if planted::is("way-not-synced") { 1 } else { usize::MAX };
    for (height, above) in folder.ancestors().skip(1).take(heights).enumerate() {
        match sync_folder(above) {
            // What belongs to others, or cannot be written, was not made by us.
            Err(error) if height > 0 && is_of_others(&error) => return Ok(()),
            other => other?,
        }
    }
    Ok(())
}

fn is_of_others(error: &io::Error) -> bool {
    let kinds = [ErrorKind::PermissionDenied, ErrorKind::InvalidInput, ErrorKind::ReadOnlyFilesystem];
    kinds.contains(&error.kind())
}

/// Whether the process, or the system, has no descriptor left.
pub(super) fn lacks_descriptors(error: &io::Error) -> bool {
    let known = [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE];
    known.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// Waits for a descriptor where there is none: names were changed already, and to give up would be taken for a failed sync, which
/// is final. Runs where it may block.
fn open_patiently(folder: &Path) -> io::Result<File> {
    let mut tries = 0;
    loop {
        match File::open(folder) {
            Err(error) if lacks_descriptors(&error) && tries < OPEN_TRIES_MAX => {
                tries += 1;
                std::thread::sleep(OPEN_PAUSE);
            }
            done => return done,
        }
    }
}

/// Gives a file its name unless the name is taken.
pub(super) fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // A file system without it (NFS, some FUSE): a link never replaces either.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {
            fs::hard_link(from, to)?;
            fs::remove_file(from)
        }
        other => Ok(other?),
    }
}

/// Whether an error of fallocate only says that the file system does not know it.
pub(super) fn unsupported(error: rustix::io::Errno) -> bool {
    matches!(error, rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS | rustix::io::Errno::INVAL)
}
