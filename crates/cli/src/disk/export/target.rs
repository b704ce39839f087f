//! Where an export goes: a file that appears whole or not at all, or a block device that is written over.
//!
//! *Promises*: nothing but a regular file is ever replaced, whatever `--force` says; a device that is mounted, or too
//! small, is not touched. *Never*: follows a link to somewhere without saying what lies there.

use std::fs::{File, FileType, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use stonefold_types::{Error, Kind, Result, Size};

/// Where an export goes.
#[derive(Debug)]
pub(super) enum Target {
    /// A file that is made, or replaced.
    File(Partial),
    /// A block device, held while it is written, so that nobody mounts it meanwhile.
    Device { path: PathBuf, held: File },
}

impl Target {
    /// Looks at what lies at `named`, and makes ready for `size_bytes` of data there.
    pub(super) fn ready(named: &Path, force: bool, size_bytes: u64) -> Result<Target> {
        let path = followed(named)?;
        match std::fs::metadata(&path) {
            Ok(meta) if meta.file_type().is_block_device() => {
                if !force {
                    let what = format!("'{}' is a block device", named.display());
                    return Err(Error::new(Kind::AlreadyExists, what)
                        .remedy("name a file, or add --force to write over what the device holds"));
                }
                Ok(Target::Device { held: hold(&path, size_bytes)?, path })
            }
            _ => Ok(Target::File(Partial::beside(&path, force)?)),
        }
    }

    /// What is written to while copying.
    pub(super) fn path(&self) -> &Path {
        match self {
            Target::File(partial) => &partial.path,
            Target::Device { path, .. } => path,
        }
    }

    /// Whether it is a device, which is there before and after, and holds zeros only where they were written.
    pub(super) fn is_device(&self) -> bool {
        matches!(self, Target::Device { .. })
    }

    /// Makes what was written durable, and gives a file its name.
    pub(super) fn finish(self) -> Result<()> {
        match self {
            Target::File(partial) => partial.become_file(),
            Target::Device { path, held } => {
                held.sync_all().map_err(|e| Error::io(format!("making '{}' durable", path.display()), e))
            }
        }
    }
}

/// Refuses early what could not be written to; changes nothing.
pub(super) fn refuse(named: &Path, force: bool) -> Result<()> {
    let path = followed(named)?;
    let Ok(meta) = std::fs::metadata(&path) else { return Ok(()) };
    let shown = named.display();
    let strange = |what: &str| {
        Err(Error::new(Kind::Invalid, format!("'{shown}' is {what}, and not a file"))
            .remedy("name the file to make, or a block device to write to"))
    };
    match meta.file_type() {
        kind if kind.is_dir() => {
            let error = Error::new(Kind::Invalid, format!("'{shown}' is a folder"));
            Err(error.remedy("name the file to make in it"))
        }
        kind if kind.is_char_device() => strange("a character device"),
        kind if kind.is_fifo() => strange("a pipe"),
        kind if kind.is_socket() => strange("a socket"),
        kind if kind.is_file() && !force => Err(exists(named)),
        _ => Ok(()),
    }
}

/// Where a name leads: links are followed, because replacing a link in /dev/disk by a file would lose the device.
fn followed(named: &Path) -> Result<PathBuf> {
    match std::fs::symlink_metadata(named) {
        Ok(meta) if meta.file_type().is_symlink() => std::fs::canonicalize(named).map_err(|e| {
            Error::io(format!("the link '{}' leads nowhere", named.display()), e)
                .remedy("remove it, or name the file itself")
        }),
        _ => Ok(named.to_path_buf()),
    }
}

fn exists(file: &Path) -> Error {
    Error::new(Kind::AlreadyExists, format!("file '{}' exists already", file.display()))
        .remedy("choose another, or replace it with --force")
}

/// Opens a device as its only user; the kernel refuses one that is mounted or part of another device.
fn hold(path: &Path, size_bytes: u64) -> Result<File> {
    let shown = path.display();
    let exclusive = i32::try_from(rustix::fs::OFlags::EXCL.bits()).expect("flags are few");
    let opened = OpenOptions::new().read(true).write(true).custom_flags(exclusive).open(path);
    let mut held = opened.map_err(|e| {
        let remedy = match e.kind() {
            std::io::ErrorKind::ResourceBusy => "unmount it first; nothing was written",
            _ => "name a device that you may write to; nothing was written",
        };
        Error::io(format!("the device '{shown}' cannot be opened alone"), e).remedy(remedy)
    })?;
    let failed = |e| Error::io(format!("the size of '{shown}' cannot be found out"), e);
    let room = held.seek(SeekFrom::End(0)).map_err(failed)?;
    if room < size_bytes {
        let what = format!("the device '{shown}' has {}, and the disk {}", Size(room), Size(size_bytes));
        return Err(Error::new(Kind::NoSpace, what).remedy("name a larger one; nothing was written"));
    }
    Ok(held)
}

/// A file while it is made, beside its later place; taken away unless it became the file.
#[derive(Debug)]
pub(super) struct Partial {
    path: PathBuf,
    file: PathBuf,
    replaces: bool,
}

impl Partial {
    fn beside(file: &Path, replaces: bool) -> Result<Self> {
        let name = file.file_name().ok_or_else(|| {
            Error::new(Kind::Invalid, format!("'{}' names no file", file.display()))
                .remedy("name the file to make")
        })?;
        let hidden = format!(".{}.partial-{}", name.to_string_lossy(), std::process::id());
        let path = file.with_file_name(hidden);
        // Made here so that a folder that cannot be written is told in our words, before any copying.
        File::create_new(&path).map_err(|e| {
            Error::io(format!("cannot make a file in '{}'", folder_of(&path).display()), e)
                .remedy("name a file in a folder that exists and that you may write to")
        })?;
        Ok(Partial { path, file: file.to_path_buf(), replaces })
    }

    /// Makes it durable and gives it its name.
    fn become_file(&self) -> Result<()> {
        let sync = |path: &Path| File::open(path).and_then(|opened| opened.sync_all());
        sync(&self.path).map_err(|e| Error::io("making the file durable", e))?;
        // Looked at again: copying took long, and a name that now means something else is not ours to replace.
        match std::fs::symlink_metadata(&self.file).map(|meta| meta.file_type()) {
            Ok(_) if !self.replaces => return Err(exists(&self.file)),
            Ok(kind) if !FileType::is_file(&kind) => {
                let what = format!("'{}' is no file any more", self.file.display());
                return Err(Error::new(Kind::Busy, what).remedy("name another file"));
            }
            _ => {}
        }
        std::fs::rename(&self.path, &self.file).map_err(|e| Error::io("giving the file its name", e))?;
        sync(folder_of(&self.file)).map_err(|e| Error::io("making the file's name durable", e))
    }
}

fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

impl Drop for Partial {
    fn drop(&mut self) {
        // Absent when it became the file.
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn file(path: &Path, force: bool) -> Result<()> {
        refuse(path, force)?;
        Target::ready(path, force, 0)?.finish()
    }

    #[test]
    fn a_partial_file_becomes_the_file_or_goes() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out.img");
        let left = || std::fs::read_dir(folder.path()).unwrap().count();
        drop(Partial::beside(&out, false).unwrap());
        assert_eq!(left(), 0);
        file(&out, false).unwrap();
        assert!(out.exists());
        let again = Partial::beside(&out, false).unwrap().become_file().unwrap_err();
        assert_eq!((again.kind(), left()), (Kind::AlreadyExists, 1));
        file(&out, true).unwrap();
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let error = Target::ready(Path::new("/nowhere/at/all.img"), false, 0).unwrap_err();
        assert!(error.what().contains("'/nowhere/at'"), "{error}");
    }

    #[test]
    fn what_is_no_file_is_never_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        let socket = folder.path().join("socket");
        let _listening = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        for path in [&pipe, &socket, &folder.path().to_path_buf()] {
            assert_eq!(file(path, true).unwrap_err().kind(), Kind::Invalid, "{path:?}");
        }
        // Not by a rename either, should it come to lie there meanwhile.
        let partial = Partial::beside(&pipe, true).unwrap();
        assert_eq!(partial.become_file().unwrap_err().kind(), Kind::Busy);
        assert!(std::fs::symlink_metadata(&pipe).unwrap().file_type().is_fifo());
    }

    #[test]
    fn a_link_is_followed_and_stays_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let (real, link) = (folder.path().join("real.img"), folder.path().join("link.img"));
        symlink(&real, &link).unwrap();
        assert_eq!(file(&link, true).unwrap_err().kind(), Kind::NotFound);
        std::fs::write(&real, "old").unwrap();
        file(&link, true).unwrap();
        assert_eq!(std::fs::read(&real).unwrap(), b"");
        assert!(std::fs::symlink_metadata(&link).unwrap().file_type().is_symlink());
    }
}
