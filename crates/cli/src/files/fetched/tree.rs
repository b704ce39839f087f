//! A folder out of a tar stream.
//!
//! *Promise*: whatever the stream says, nothing outside the new folder is written, read or linked: names go downwards only, and symlinks
//! are made last, when nothing is written any more. *Never*: makes a device, or a file that runs as somebody else.

use super::{Counts, copy, new_file, settle, shown, unwritten};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{DirBuilder, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;
use stonefold_types::{Error, Kind, Result};
use tar::{Archive, Entry, EntryType};

/// A folder that is being filled.
pub(super) struct Tree {
    root: PathBuf,
    /// What is done when all is there: modes may forbid to write into them, and times change with what comes in.
    folders: Vec<(PathBuf, u32, Duration)>,
    symlinks: Vec<(PathBuf, PathBuf)>,
    left_out: HashSet<PathBuf>,
    counts: Counts,
}

impl Tree {
    /// An empty one.
    pub(super) fn new(root: &Path) -> Result<Self> {
        new_folder(root)?;
        Ok(Tree {
            root: root.to_owned(),
            folders: Vec::new(),
            symlinks: Vec::new(),
            left_out: HashSet::new(),
            counts: Counts::default(),
        })
    }

    /// Fills it.
    pub(super) fn unpack(&mut self, stream: &mut dyn Read) -> Result<()> {
        let broken = |e| Error::io("reading the folder of the point", e);
        for entry in Archive::new(stream).entries().map_err(broken)? {
            self.put(&mut entry.map_err(broken)?)?;
        }
        Ok(())
    }

    fn put(&mut self, entry: &mut Entry<'_, &mut dyn Read>) -> Result<()> {
        let unclear = |e| Error::io("reading the folder of the point", e);
        let path = self.below(&entry.path_bytes())?;
        let (mode, kind) = (entry.header().mode().map_err(unclear)?, entry.header().entry_type());
        let seconds = entry.header().mtime().map_err(unclear)?;
        // What was made before 1970 is of then: such a time comes as a negative number.
        let modified = Duration::from_secs(if i64::try_from(seconds).is_ok() { seconds } else { 0 });
        match kind {
            EntryType::Directory => {
                if path != self.root {
                    new_folder(&path)?;
                    self.counts.folders += 1;
                }
                self.folders.push((path, mode, modified));
            }
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                let (file, size) = (new_file(&path)?, entry.size());
                copy(entry, &file, size).map_err(|e| e.context(shown(&path)))?;
                settle(&file, mode, modified).map_err(|e| unwritten(&path, e))?;
                self.counts.files += 1;
                self.counts.bytes += size;
            }
            EntryType::Link => {
                let other = self.below(&entry.link_name_bytes().unwrap_or_default())?;
                self.link(&other, path)?;
            }
            EntryType::Symlink => {
                let target = OsStr::from_bytes(&entry.link_name_bytes().unwrap_or_default()).into();
                self.symlinks.push((path, target));
            }
            _ => self.leave_out(path),
        }
        Ok(())
    }

    /// Another name of something that came before, which need not be a file.
    fn link(&mut self, other: &Path, path: PathBuf) -> Result<()> {
        if let Some((_, target)) = self.symlinks.iter().find(|(of, _)| of == other) {
            let target = target.clone();
            self.symlinks.push((path, target));
        } else if self.left_out.contains(other) {
            self.leave_out(path);
        } else {
            std::fs::hard_link(other, &path).map_err(|e| unwritten(&path, e))?;
            self.counts.files += 1;
        }
        Ok(())
    }

    fn leave_out(&mut self, path: PathBuf) {
        self.left_out.insert(path);
        self.counts.left_out += 1;
    }

    /// Where a name of the stream is.
    fn below(&self, name: &[u8]) -> Result<PathBuf> {
        let mut path = self.root.clone();
        for part in Path::new(OsStr::from_bytes(name)).components() {
            match part {
                Component::CurDir => {}
                Component::Normal(part) => path.push(part),
                _ => {
                    let name = String::from_utf8_lossy(name).escape_debug().to_string();
                    return Err(Error::new(
                        Kind::Corrupt,
                        format!("'{name}' leads out of the folder it is in"),
                    ));
                }
            }
        }
        Ok(path)
    }

    /// Makes the symlinks, when nothing is written any more.
    pub(super) fn finish(&mut self) -> Result<()> {
        for (path, target) in &self.symlinks {
            std::os::unix::fs::symlink(target, path).map_err(|e| unwritten(path, e))?;
            self.counts.symlinks += 1;
        }
        Ok(())
    }

    /// Gives its folders their modes and times, once it is where it stays: one that may not be written to could neither be moved nor removed.
    pub(super) fn settle(self, at: &Path) -> Result<Counts> {
        // From the inside to the outside: a folder that may not be entered is settled after what is in it.
        for (path, mode, modified) in self.folders.iter().rev() {
            let path = at.join(path.strip_prefix(&self.root).unwrap_or(path));
            let settled = File::open(&path).and_then(|folder| settle(&folder, *mode, *modified));
            settled.map_err(|e| unwritten(&path, e))?;
        }
        Ok(self.counts)
    }
}

fn new_folder(path: &Path) -> Result<()> {
    DirBuilder::new().mode(0o700).create(path).map_err(|e| unwritten(path, e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;
    use tar::{Builder, Header};

    fn add(builder: &mut Builder<Vec<u8>>, kind: EntryType, name: &str, link: &str, bytes: &[u8], mode: u32) {
        let mut header = Header::new_gnu();
        // Not through the library, which refuses names that lead upwards.
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.as_mut_bytes()[157..157 + link.len()].copy_from_slice(link.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_mtime(1_000_000_000);
        header.set_size(bytes.len() as u64);
        header.set_cksum();
        builder.append(&header, bytes).unwrap();
    }

    fn unpack(builder: Builder<Vec<u8>>, root: &Path) -> Result<Counts> {
        let stream = builder.into_inner().unwrap();
        let mut tree = Tree::new(root)?;
        tree.unpack(&mut &stream[..])?;
        tree.finish()?;
        let at = root.with_extension("there");
        std::fs::rename(root, &at).unwrap();
        tree.settle(&at)
    }

    #[test]
    fn a_folder_comes_as_it_was_but_for_what_could_harm() {
        let place = tempfile::tempdir().unwrap();
        let (made, root) = (place.path().join("made"), place.path().join("made.there"));
        let mut builder = Builder::new(Vec::new());
        add(&mut builder, EntryType::Directory, "./", "", b"", 0o555);
        add(&mut builder, EntryType::Directory, "./shut", "", b"", 0o500);
        add(&mut builder, EntryType::Regular, "./shut/run", "", b"abc", 0o4755);
        add(&mut builder, EntryType::Link, "./again", "./shut/run", b"", 0o4755);
        add(&mut builder, EntryType::Symlink, "./link", "/etc/shadow", b"", 0o777);
        add(&mut builder, EntryType::Link, "./link2", "./link", b"", 0o777);
        add(&mut builder, EntryType::Block, "./sda", "", b"", 0o666);
        add(&mut builder, EntryType::Link, "./sdb", "./sda", b"", 0o666);
        let counts = unpack(builder, &made).unwrap();
        assert_eq!(counts, Counts { files: 2, folders: 1, symlinks: 2, bytes: 3, left_out: 2 });
        assert_eq!(root.metadata().unwrap().mode() & 0o7777, 0o555);
        assert_eq!(std::fs::read_link(root.join("link2")).unwrap(), Path::new("/etc/shadow"));
        let run = root.join("shut/run").metadata().unwrap();
        assert_eq!((run.mode() & 0o7777, run.mtime(), run.nlink()), (0o755, 1_000_000_000, 2));
        let shut = root.join("shut").metadata().unwrap();
        assert_eq!((shut.mode() & 0o7777, shut.mtime()), (0o500, 1_000_000_000));
        assert_eq!(std::fs::read_link(root.join("link")).unwrap(), Path::new("/etc/shadow"));
        assert!(!root.join("sda").exists());
    }

    #[test]
    fn what_was_made_before_1970_is_of_then() {
        let place = tempfile::tempdir().unwrap();
        let mut builder = Builder::new(Vec::new());
        let mut header = Header::new_gnu();
        header.set_path("old").unwrap();
        header.set_mode(0o644);
        header.set_size(0);
        // As GNU tar writes a negative number: in base 256.
        header.as_mut_bytes()[136..148].fill(0xff);
        header.set_cksum();
        builder.append(&header, &b""[..]).unwrap();
        unpack(builder, &place.path().join("made")).unwrap();
        assert_eq!(place.path().join("made.there/old").metadata().unwrap().mtime(), 0);
    }

    #[test]
    fn nothing_outside_is_written_or_linked() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("secret"), "s").unwrap();
        for (number, (kind, name, link)) in [
            (EntryType::Regular, "../out", ""),
            (EntryType::Regular, "/tmp/stonefold-out", ""),
            (EntryType::Link, "in", "../secret"),
            (EntryType::Directory, "a/../../out", ""),
        ]
        .into_iter()
        .enumerate()
        {
            let mut builder = Builder::new(Vec::new());
            add(&mut builder, kind, name, link, b"", 0o644);
            let refused = unpack(builder, &place.path().join(number.to_string()));
            assert_eq!(refused.unwrap_err().kind(), Kind::Corrupt, "{name}");
        }
        // A symlink that comes before what lies behind it is not followed: there is none yet.
        let mut builder = Builder::new(Vec::new());
        add(&mut builder, EntryType::Symlink, "door", "..", b"", 0o777);
        add(&mut builder, EntryType::Regular, "door/out", "", b"x", 0o644);
        assert!(unpack(builder, &place.path().join("link")).is_err());
        assert!(!place.path().join("out").exists());
    }
}
