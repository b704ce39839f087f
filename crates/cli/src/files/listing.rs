//! What is in a folder of a point.

use super::appliance::Appliance;
use super::layout::printable;
use crate::table::Table;
use serde::{Serialize, Serializer};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use stonefold_api::Time;
use stonefold_types::{Error, Kind, Result};

/// The bits of a mode that tell what it is, and of each what it is: those of Linux (inode(7)).
const KIND_BITS: u32 = 0o170_000;
const KINDS: [(u32, char, &str); 7] = [
    (0o040_000, 'd', "folder"),
    (0o100_000, '-', "file"),
    (0o120_000, 'l', "symlink"),
    (0o060_000, 'b', "block device"),
    (0o020_000, 'c', "character device"),
    (0o010_000, 'p', "pipe"),
    (0o140_000, 's', "socket"),
];

/// A file, a folder, or what else a name stands for.
#[derive(Debug, Serialize)]
pub(super) struct Entry {
    /// What is not UTF-8 in it is replaced here.
    pub(super) name: String,
    kind: &'static str,
    pub(super) size_bytes: u64,
    /// Permissions, with setuid, setgid and sticky.
    pub(super) mode: u32,
    uid: u64,
    gid: u64,
    pub(super) modified: Time,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_text")]
    target: Option<Vec<u8>>,
}

impl Entry {
    /// Looks at what a path names.
    pub(super) fn of(appliance: &mut Appliance<'_>, path: &[u8], name: &[u8]) -> Result<Self> {
        let answer = appliance.ask(b"lstatns", &[path])?;
        let mut entry = read(&String::from_utf8_lossy(&answer), name).ok_or_else(|| {
            Error::new(Kind::Unsupported, "this guestfish does not tell what a file is as others do")
        })?;
        if entry.is("symlink") {
            let mut target = appliance.ask(b"readlink", &[path])?;
            // One is the end of the answer; more are the target's own.
            if target.last() == Some(&b'\n') {
                target.pop();
            }
            entry.target = Some(target);
        }
        Ok(entry)
    }

    pub(super) fn is(&self, kind: &str) -> bool {
        self.kind == kind
    }

    /// What it is, with its article.
    pub(super) fn what(&self) -> String {
        format!("a {}", self.kind)
    }

    pub(super) fn target(&self) -> Option<&OsStr> {
        self.target.as_deref().map(OsStr::from_bytes)
    }

    fn letters(&self) -> String {
        let first =
            KINDS.iter().find(|(_, _, kind)| *kind == self.kind).map_or('?', |(_, letter, _)| *letter);
        let bits = (0..9).rev().map(|bit| match (self.mode >> bit & 1, bit % 3) {
            (0, _) => '-',
            (_, 2) => 'r',
            (_, 1) => 'w',
            _ => 'x',
        });
        let mut letters: Vec<char> = std::iter::once(first).chain(bits).collect();
        for (bit, at, with, without) in [(11, 3, 's', 'S'), (10, 6, 's', 'S'), (9, 9, 't', 'T')] {
            if self.mode >> bit & 1 == 1 {
                letters[at] = if letters[at] == 'x' { with } else { without };
            }
        }
        letters.into_iter().collect()
    }
}

/// All in a folder, by name; of anything else itself.
pub(super) fn list(appliance: &mut Appliance<'_>, path: &[u8]) -> Result<Vec<Entry>> {
    let itself = Entry::of(appliance, path, path)?;
    if !itself.is("folder") {
        return Ok(vec![itself]);
    }
    let answer = appliance.ask(b"ls0", &[path, b"-"])?;
    let mut names: Vec<&[u8]> = answer.split(|&byte| byte == 0).filter(|name| !name.is_empty()).collect();
    names.sort_unstable();
    names.into_iter().map(|name| Entry::of(appliance, &below(path, name), name)).collect()
}

pub(super) fn table(entries: &[Entry]) -> String {
    let mut table = Table::new(&["MODE", "UID>", "GID>", "BYTES>", "MODIFIED (UTC)", "NAME"]);
    for entry in entries {
        let name = printable(&entry.name);
        table.row([
            entry.letters(),
            entry.uid.to_string(),
            entry.gid.to_string(),
            entry.size_bytes.to_string(),
            entry.modified.to_seconds_text(),
            entry.target.as_ref().map_or(name.clone(), |target| {
                format!("{name} -> {}", printable(&String::from_utf8_lossy(target)))
            }),
        ]);
    }
    table.or("nothing is in it")
}

fn as_text<S: Serializer>(target: &Option<Vec<u8>>, to: S) -> std::result::Result<S::Ok, S::Error> {
    target.as_ref().map(|target| String::from_utf8_lossy(target)).serialize(to)
}

fn below(folder: &[u8], name: &[u8]) -> Vec<u8> {
    let between: &[u8] = if folder.ends_with(b"/") { b"" } else { b"/" };
    [folder, between, name].concat()
}

/// Out of lines of `st_mode: 33261`.
fn read(text: &str, name: &[u8]) -> Option<Entry> {
    let field = |wanted: &str| {
        text.lines()
            .find_map(|line| line.split_once(": ").filter(|(name, _)| *name == wanted))?
            .1
            .parse::<i64>()
            .ok()
    };
    let bits = u32::try_from(field("st_mode")?).ok()?;
    let kind = KINDS.iter().find(|(of_kind, ..)| *of_kind == bits & KIND_BITS)?.2;
    // What was made before 1970 is of then.
    let whole = |name| field(name).map(|number| u64::try_from(number).unwrap_or(0));
    Some(Entry {
        name: String::from_utf8_lossy(name).into_owned(),
        kind,
        size_bytes: whole("st_size")?,
        mode: bits & 0o7777,
        uid: whole("st_uid")?,
        gid: whole("st_gid")?,
        modified: Time(
            whole("st_mtime_sec")?.saturating_mul(1000) + whole("st_mtime_nsec").unwrap_or(0) / 1_000_000,
        ),
        target: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(mode: u32) -> Entry {
        let text = format!(
            "st_mode: {mode}\nst_uid: 5\nst_gid: 6\nst_size: 7\nst_mtime_sec: 1795646134\nst_mtime_nsec: 5000000\n"
        );
        read(&text, b"x\xff").unwrap()
    }

    #[test]
    fn what_libguestfs_tells_is_what_a_file_is() {
        let file = entry(33_261);
        assert!(file.is("file"));
        assert_eq!((file.letters().as_str(), file.mode, file.size_bytes), ("-rwxr-xr-x", 0o755, 7));
        assert_eq!((file.uid, file.gid, file.name.as_str()), (5, 6, "x\u{fffd}"));
        assert_eq!(file.modified.to_string(), "2026-11-25T22:35:34.005Z");
        assert_eq!(entry(0o104_755).letters(), "-rwsr-xr-x");
        assert_eq!(entry(0o102_644).letters(), "-rw-r-Sr--");
        assert_eq!(entry(0o041_777).letters(), "drwxrwxrwt");
        assert_eq!(entry(0o120_777).letters(), "lrwxrwxrwx");
        assert!(read("st_mode: 33261\n", b"x").is_none());
        assert!(read("", b"x").is_none());
    }

    #[test]
    fn paths_are_joined_once() {
        assert_eq!(below(b"/", b"etc"), b"/etc");
        assert_eq!(below(b"/etc", b"fstab"), b"/etc/fstab");
    }
}
