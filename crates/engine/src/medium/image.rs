//! Files and folders as they are at one moment: contents and names by inode, so that a file is the same one wherever it is moved.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

/// A file or a folder. File systems use numbers again, so when it was made belongs to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Inode {
    number: u64,
    born: SystemTime,
    pub(super) is_folder: bool,
}

impl Inode {
    pub(super) fn of(metadata: &Metadata) -> Self {
        let born = metadata.created().unwrap_or(SystemTime::UNIX_EPOCH);
        Inode { number: metadata.ino(), born, is_folder: metadata.is_dir() }
    }
}

/// The names in a folder.
pub(super) type Names = BTreeMap<OsString, Inode>;

/// See the module.
#[derive(Clone, Default)]
pub(super) struct Image {
    pub(super) files: HashMap<Inode, Arc<[u8]>>,
    pub(super) folders: HashMap<Inode, Names>,
}

impl Image {
    /// All below a folder, which others may be changing: what vanishes meanwhile is left out.
    pub(super) fn of(root: &Path, with_contents: bool) -> io::Result<Image> {
        let mut image = Image::default();
        image.take(root, with_contents)?;
        Ok(image)
    }

    fn take(&mut self, folder: &Path, with_contents: bool) -> io::Result<()> {
        let Some(names) = unless_gone(names(folder))? else { return Ok(()) };
        let Some(own) = unless_gone(fs::metadata(folder))? else { return Ok(()) };
        for (name, inode) in &names {
            let path = folder.join(name);
            if inode.is_folder {
                self.take(&path, with_contents)?;
            } else if with_contents {
                let bytes = unless_gone(fs::read(&path))?;
                self.files.extend(bytes.map(|bytes| (*inode, bytes.into())));
            }
        }
        self.folders.insert(Inode::of(&own), names);
        Ok(())
    }

    /// Every inode that has a name here.
    pub(super) fn named(&self) -> HashSet<Inode> {
        self.folders.values().flat_map(|names| names.values().copied()).collect()
    }
}

/// The names in a folder, with what they lead to.
pub(super) fn names(folder: &Path) -> io::Result<Names> {
    let mut names = Names::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if let Some(metadata) = unless_gone(entry.metadata())? {
            names.insert(entry.file_name(), Inode::of(&metadata));
        }
    }
    Ok(names)
}

fn unless_gone<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}
