//! Folders and files that only their owner can enter and read, whatever the umask says.
//!
//! A pool holds what machines hold. A mode that was forgotten at one place would show it to every user of the host, so
//! what the file engine makes is made here.

use super::durable::sync_file;
use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

const FOLDER: u32 = 0o700;
const FILE: u32 = 0o600;

/// Makes a folder that must not exist.
pub(super) fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(FOLDER).create(path)
}

/// Makes a folder, and those above it, as far as they do not exist.
pub(super) fn make_folders(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(FOLDER).recursive(true).create(path)
}

/// How to open a file, which gets its owner's mode if it is made.
pub(super) fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(FILE);
    options
}

/// Writes a file anew and makes its content durable.
pub(super) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = options().write(true).create(true).truncate(true).open(path)?;
    file.write_all(bytes)?;
    sync_file(&file)
}
