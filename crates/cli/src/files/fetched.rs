//! Files of a point, fetched: they appear whole at their place, or not at all.

mod tree;

use super::appliance::Appliance;
use super::layout::printable;
use super::listing::Entry;
use crate::table::count;
use indicatif::{ProgressBar, ProgressStyle};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use serde::Serialize;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use stonefold_types::{Error, Kind, Result};
use tempfile::TempDir;
use tree::Tree;

/// What is read at once, and how much of it is zeros to be left a hole.
const CHUNK_BYTES: usize = 1 << 20;
const HOLE_BYTES: usize = 4096;
/// What of a mode is restored: who may do what, and not as whom it runs. What a guest had may be nobody's here to run as root.
const MODE_BITS: u32 = 0o777;

/// What came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Counts {
    pub(super) files: u64,
    pub(super) folders: u64,
    pub(super) symlinks: u64,
    pub(super) bytes: u64,
    /// Devices and pipes.
    pub(super) left_out: u64,
}

/// Where it is to be: checked before anything is started.
pub(super) struct Place {
    folder: PathBuf,
    /// Where it is at the end.
    pub(super) path: PathBuf,
}

impl Place {
    /// A new name in a folder.
    ///
    /// # Errors
    /// When the folder is none or has that name.
    pub(super) fn new(folder: &Path, name: &OsStr) -> Result<Self> {
        if !folder.is_dir() {
            let what = format!("'{}' is no folder", folder.display());
            return Err(Error::new(Kind::NotFound, what).remedy("make it, or name another"));
        }
        let path = folder.join(name);
        if path.symlink_metadata().is_ok() {
            return Err(taken(&path));
        }
        Ok(Place { folder: folder.to_owned(), path })
    }

    /// A folder that nobody else may enter, on the same file system.
    fn workshop(&self) -> Result<TempDir> {
        let mut builder = tempfile::Builder::new();
        builder.prefix(".stonefold-").permissions(Permissions::from_mode(0o700));
        builder
            .tempdir_in(&self.folder)
            .map_err(|e| Error::io(format!("writing to '{}'", self.folder.display()), e))
    }

    fn take(&self, made: &Path) -> Result<()> {
        let moved = match renameat_with(CWD, made, CWD, &self.path, RenameFlags::NOREPLACE) {
            // A file system over the network knows no such thing.
            Err(Errno::INVAL | Errno::NOSYS) => self.take_slowly(made),
            moved => moved.map_err(std::io::Error::from),
        };
        moved.map_err(|e| match e.kind() {
            ErrorKind::AlreadyExists => taken(&self.path),
            _ => Error::io(format!("making '{}'", self.path.display()), e),
        })
    }

    /// A folder takes the place of an empty one alone, and a link of nothing.
    fn take_slowly(&self, made: &Path) -> std::io::Result<()> {
        if made.symlink_metadata()?.is_dir() {
            std::fs::create_dir(&self.path)?;
            return std::fs::rename(made, &self.path);
        }
        std::fs::hard_link(made, &self.path)?;
        std::fs::remove_file(made)
    }
}

fn taken(path: &Path) -> Error {
    let what = format!("'{}' is there already", path.display());
    Error::new(Kind::AlreadyExists, what).remedy("nothing is replaced: move it away, or choose another place")
}

/// Fetches what a path names, with all below it.
pub(super) fn fetch(mut appliance: Appliance<'_>, path: &[u8], place: &Place) -> Result<Counts> {
    let path = appliance.real(path)?;
    let (path, entry) = (path.as_slice(), Entry::of(&mut appliance, &path, &path)?);
    let workshop = place.workshop()?;
    let made = workshop.path().join("made");
    let counts = if entry.is("folder") {
        let mut tree = Tree::new(&made)?;
        let bar = bar(&entry.name, None)?;
        appliance.stream(b"tar-out", &[path, b"-", b"numericowner:true"], |stream| {
            tree.unpack(&mut bar.wrap_read(stream))
        })?;
        tree.finish()?;
        place.take(&made)?;
        return tree.settle(&place.path);
    } else if entry.is("file") {
        let bar = bar(&entry.name, Some(entry.size_bytes))?;
        let file = new_file(&made)?;
        let size = entry.size_bytes;
        appliance
            .stream(b"download", &[path, b"-"], |stream| copy(&mut bar.wrap_read(stream), &file, size))?;
        settle(&file, entry.mode, Duration::from_millis(entry.modified.0))
            .map_err(|e| unwritten(&made, e))?;
        Counts { files: 1, bytes: entry.size_bytes, ..Counts::default() }
    } else if let Some(target) = entry.target() {
        std::os::unix::fs::symlink(target, &made).map_err(|e| unwritten(&made, e))?;
        Counts { symlinks: 1, ..Counts::default() }
    } else {
        let what = format!(
            "'{}' is {}, and holds nothing that could be fetched",
            printable(&entry.name),
            entry.what()
        );
        return Err(Error::new(Kind::Invalid, what).remedy("name a file or a folder"));
    };
    place.take(&made)?;
    Ok(counts)
}

/// Makes an archive of a folder, with all that tar can keep: owners, modes, times, hard links, devices, extended attributes.
pub(super) fn archive(mut appliance: Appliance<'_>, path: &[u8], place: &Place) -> Result<Counts> {
    let path = appliance.real(path)?;
    let (path, entry) = (path.as_slice(), Entry::of(&mut appliance, &path, &path)?);
    if !entry.is("folder") {
        let what =
            format!("'{}' is {}, and an archive is made of a folder", printable(&entry.name), entry.what());
        return Err(Error::new(Kind::Invalid, what).remedy("name its folder, or leave --archive out"));
    }
    let workshop = place.workshop()?;
    let made = workshop.path().join("made");
    let mut file = new_file(&made)?;
    let bar = bar(&entry.name, None)?;
    let words: [&[u8]; 6] = [path, b"-", b"numericowner:true", b"xattrs:true", b"selinux:true", b"acls:true"];
    let bytes = appliance.stream(b"tar-out", &words, |stream| {
        std::io::copy(&mut bar.wrap_read(stream), &mut file).map_err(|e| unwritten(&place.path, e))
    })?;
    place.take(&made)?;
    Ok(Counts { bytes, ..Counts::default() })
}

fn new_file(path: &Path) -> Result<File> {
    let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    opened.map_err(|e| unwritten(path, e))
}

/// Copies a file's bytes, of which there are `size`; what is zeros becomes a hole.
fn copy(from: &mut dyn Read, mut to: &File, size: u64) -> Result<()> {
    let failed =
        |e| Error::io("writing a file", e).remedy("make room where it is written to, then try again");
    let mut from = from.take(size);
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut seen = 0;
    loop {
        let mut filled = 0;
        while filled < chunk.len() {
            match from.read(&mut chunk[filled..]).map_err(|e| Error::io("reading a file of the point", e))? {
                0 => break,
                read => filled += read,
            }
        }
        for piece in chunk[..filled].chunks(HOLE_BYTES) {
            let step = i64::try_from(piece.len()).expect("a piece is small");
            match piece.iter().all(|&byte| byte == 0) {
                true => to.seek(SeekFrom::Current(step)).map(drop).map_err(failed)?,
                false => to.write_all(piece).map_err(failed)?,
            }
        }
        seen += filled as u64;
        if filled < chunk.len() {
            break;
        }
    }
    if seen != size {
        return Err(Error::new(Kind::Io, format!("a file of {size} bytes ended after {seen}")));
    }
    to.set_len(size).map_err(failed)
}

/// Gives a file or a folder its mode and its time.
fn settle(file: &File, mode: u32, modified: Duration) -> std::io::Result<()> {
    file.set_permissions(Permissions::from_mode(mode & MODE_BITS))?;
    file.set_modified(SystemTime::UNIX_EPOCH.checked_add(modified).unwrap_or(SystemTime::UNIX_EPOCH))
}

fn unwritten(path: &Path, error: std::io::Error) -> Error {
    Error::io(format!("writing '{}'", shown(path)), error)
}

/// A guest has named it.
fn shown(path: &Path) -> String {
    printable(&path.to_string_lossy())
}

/// How much has come, on a terminal.
fn bar(name: &str, size: Option<u64>) -> Result<ProgressBar> {
    let template = match size {
        Some(_) => "{msg} [{bar:30}] {binary_bytes}/{binary_total_bytes}, {binary_bytes_per_sec}",
        None => "{spinner} {msg}: {binary_bytes}, {binary_bytes_per_sec}",
    };
    let style =
        ProgressStyle::with_template(template).map_err(|e| Error::new(Kind::Invalid, e.to_string()))?;
    let bar = size.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
    bar.set_style(style.progress_chars("=> "));
    bar.set_message(format!("fetching {}", printable(name)));
    bar.enable_steady_tick(Duration::from_millis(200));
    Ok(bar)
}

/// For people.
pub(super) fn text(counts: &Counts, place: &Path) -> String {
    let left = match counts.left_out {
        0 => String::new(),
        some => format!("; {some} left out: devices and pipes"),
    };
    let what = [(counts.files, "file"), (counts.folders, "folder"), (counts.symlinks, "symlink")];
    let what: Vec<String> =
        what.iter().filter(|(number, _)| *number > 0).map(|(number, noun)| count(*number, noun)).collect();
    let what = if what.is_empty() { String::new() } else { format!("{}, ", what.join(", ")) };
    format!("{what}{} at '{}'{left}\n", count(counts.bytes, "byte"), place.display())
}

/// What a path is called where it is fetched to: its last name, or that of the whole.
pub(super) fn name_of<'a>(path: &'a [u8], whole: &'a str) -> &'a OsStr {
    let bare = path.iter().rposition(|&byte| byte != b'/').map_or(&path[..0], |last| &path[..=last]);
    let name = bare.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    if name.is_empty() { OsStr::new(whole) } else { OsStr::from_bytes(name) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_file_comes_with_its_holes_and_a_short_one_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let mut bytes = vec![0; 5 << 20];
        (bytes[0], bytes[3 << 20]) = (1, 2);
        let size = bytes.len() as u64;
        copy(&mut &bytes[..], &new_file(&path).unwrap(), size).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
        assert!(path.metadata().unwrap().blocks() * 512 < size / 2);
        let short = copy(&mut &bytes[1..], &File::create(folder.path().join("y")).unwrap(), size);
        assert!(short.unwrap_err().to_string().contains("ended after"));
    }

    #[test]
    fn nothing_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::new(folder.path(), OsStr::new("x")).unwrap();
        let workshop = place.workshop().unwrap();
        let made = workshop.path().join("made");
        std::fs::write(&made, "new").unwrap();
        // Between the look and the move.
        std::fs::write(&place.path, "old").unwrap();
        assert_eq!(place.take(&made).unwrap_err().kind(), Kind::AlreadyExists);
        assert_eq!(std::fs::read(&place.path).unwrap(), b"old");
        assert_eq!(place.take_slowly(&made).unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&place.path).unwrap(), b"old");
        std::fs::remove_file(&place.path).unwrap();
        place.take_slowly(&made).unwrap();
        assert_eq!(std::fs::read(&place.path).unwrap(), b"new");
        assert!(Place::new(folder.path(), OsStr::new("x")).is_err());
        assert!(Place::new(&place.path, OsStr::new("y")).is_err());
    }

    #[test]
    fn a_path_is_called_by_its_last_name() {
        for (path, name) in
            [("/etc/fstab", "fstab"), ("/etc/", "etc"), ("/", "web"), ("//", "web"), ("/a b", "a b")]
        {
            assert_eq!(name_of(path.as_bytes(), "web"), name, "{path}");
        }
    }
}
