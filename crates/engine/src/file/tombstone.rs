//! What stays in a directory that has left its pool: the file `left`.
//!
//! A server's URL may go on naming such a directory. Empty, it would look like the place for a new pool, and whoever starts by that
//! URL would find none of his disks. *Promises*: where a tombstone holds no pool is made; it says which pool was here, and by
//! which URL it opens. *Invariants*: it is durable before anything of the pool is removed from the directory ([`super::leaving`]);
//! it holds for the member that it names, and for no other: a directory that has come back is another member, whose own
//! record says so, and its tombstone is void until somebody has removed it.
//!
//! ```text
//! stonefold tombstone 1
//! pool 0123456789abcdef0123456789abcdef      which pool it was
//! member 0123456789abcdef0123456789abcdef    which of its members
//! generation 17                              of the record that let it leave; the highest of several is believed
//! url file:///srv/b?also=/srv/c&copies=2     what opened the pool then
//!                                            an empty line, and behind it words for whoever looks into the directory
//! ```
//! A text, because people find it. One that cannot be read holds all the same, for whatever member.

use super::durable::sync_folder;
use super::layout::Layout;
use super::private;
use super::roster::{self, MemberId};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::Path;
use stonefold_types::{Error, Kind, Result};

const MAGIC: &str = "stonefold tombstone 1";
/// Longest, in bytes: a URL of 32 of the longest paths, each byte of them three when it is encoded.
const BYTES_MAX: u64 = 32 * 3 * 4096 + 4096;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tombstone {
    pub(super) pool: [u8; 16],
    pub(super) member: MemberId,
    pub(super) generation: u64,
    pub(super) url: String,
}

/// What was found in a directory.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// None.
    Absent,
    /// One that was read.
    Left(Tombstone),
    /// One that cannot be read as such.
    Damaged,
}

impl Tombstone {
    pub(super) fn encode(&self) -> String {
        let hex = |id: &[u8; 16]| format!("{:032x}", u128::from_be_bytes(*id));
        format!(
            "{MAGIC}\npool {}\nmember {}\ngeneration {}\nurl {}\n\n\
             This directory has left its pool, and nothing of the pool lies here any more. The URL above opened the pool when it left.\n\
             As long as this file is here no server makes a new, empty pool in its place by mistake. Remove it to have one made here.\n",
            hex(&self.pool),
            hex(&self.member),
            self.generation,
            self.url
        )
    }

    /// `None` where it is none, or damaged.
    pub(super) fn decode(text: &str) -> Option<Tombstone> {
        let mut lines = text.lines();
        let rest = lines.next().filter(|line| *line == MAGIC).map(|_| lines)?;
        let mut rest = rest.take_while(|line| !line.is_empty());
        let mut value = |name: &str| rest.next()?.strip_prefix(name)?.strip_prefix(' ');
        let id = |text: &str| {
            let plain = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
            let number = u128::from_str_radix(text, 16).ok().filter(|_| plain)?;
            Some(number.to_be_bytes())
        };
        Some(Tombstone {
            pool: id(value("pool")?)?,
            member: id(value("member")?)?,
            generation: value("generation")?.parse().ok()?,
            url: value("url")?.to_owned(),
        })
    }

    /// Lays it in a directory, durably.
    pub(super) fn write(&self, layout: &Layout) -> io::Result<()> {
        private::make_folders(&layout.temporary())?;
        let fresh = layout.temporary().join("left");
        private::write(&fresh, self.encode().as_ref())?;
        fs::rename(fresh, layout.tombstone())?;
        sync_folder(&layout.root)
    }
}

/// The tombstone of a directory.
pub(super) fn read(layout: &Layout) -> Result<Mark> {
    let path = layout.tombstone();
    let mut bytes = Vec::new();
    match File::open(&path).and_then(|file| file.take(BYTES_MAX).read_to_end(&mut bytes)) {
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(Mark::Absent),
        Err(e) => Err(Error::io(format!("looking into the directory '{}'", layout.root.display()), e)
            .remedy("run this as the user whose pool it is, or with sudo")),
        Ok(_) => {
            let read = std::str::from_utf8(&bytes).ok().and_then(Tombstone::decode);
            Ok(read.map_or(Mark::Damaged, Mark::Left))
        }
    }
}

/// Whether a directory has left and has not come back: its tombstone is for the member that its own record names, or there is
/// no record. One that was invited to come back has come once the pool's record says so.
pub(super) fn holds(layout: &Layout) -> Result<bool> {
    let here = layout.rosters().iter().find_map(|path| roster::read_roster(path).ok().flatten());
    Ok(match read(layout)? {
        Mark::Absent => false,
        Mark::Left(left) => here.is_none_or(|here| here.own == left.member),
        Mark::Damaged => here.is_none(),
    })
}

/// Removes it where it is void: the directory is a member's again.
pub(super) fn remove(layout: &Layout) -> io::Result<()> {
    match fs::remove_file(layout.tombstone()) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        other => other.and_then(|()| sync_folder(&layout.root)),
    }
}

/// Refuses to make a pool where one of these directories has left another; the tombstone laid last says where that is.
pub(super) fn check_none<'a>(dirs: impl Iterator<Item = &'a Path>) -> Result<()> {
    let mut last: Option<(&Path, Option<Tombstone>)> = None;
    for dir in dirs {
        let found = match read(&Layout { root: dir.to_path_buf() })? {
            Mark::Absent => continue,
            Mark::Damaged => None,
            Mark::Left(tombstone) => Some(tombstone),
        };
        let generation = |found: &Option<Tombstone>| found.as_ref().map(|found| found.generation);
        if last.as_ref().is_none_or(|(_, last)| generation(last) < generation(&found)) {
            last = Some((dir, found));
        }
    }
    last.map_or(Ok(()), |(dir, tombstone)| Err(refusal(dir, tombstone)))
}

fn refusal(dir: &Path, tombstone: Option<Tombstone>) -> Error {
    let file = Layout { root: dir.to_path_buf() }.tombstone();
    let (dir, file) = (dir.display(), file.display());
    let (what, open) = match tombstone {
        Some(Tombstone { url, .. }) => (
            format!("'{dir}' has left its pool, which was {url} then"),
            format!("open it by that URL ('{url}')"),
        ),
        None => (
            format!("'{dir}' has left its pool, and '{file}', which said where that is, is damaged"),
            "open the pool by the URL of its other directories".to_owned(),
        ),
    };
    Error::new(Kind::NotFound, what)
        .remedy(format!("{open}; or, to make a new, empty pool here, remove '{file}'"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use stonefold_dice::Dice;

    fn tombstone() -> Tombstone {
        Tombstone { pool: [0x0a; 16], member: [0xf1; 16], generation: 17, url: "file:///b?also=/c".into() }
    }

    #[test]
    fn reads_back_and_sees_damage() {
        let text = tombstone().encode();
        assert_eq!(Tombstone::decode(&text), Some(tombstone()));
        let known = text.find("\n\n").unwrap();
        for len in 0..known - "file:///b?also=/c".len() {
            assert_eq!(Tombstone::decode(&text[..len]), None, "{len} bytes of it");
        }
        for at in 0..text.find("url").unwrap() {
            let mut noise = text.clone().into_bytes();
            noise[at] ^= 0x90;
            let read = std::str::from_utf8(&noise).ok().and_then(Tombstone::decode);
            assert!(read.is_none_or(|read| read != tombstone()), "byte {at}");
        }
    }

    /// A kept text of version 1, which every later program reads.
    #[test]
    fn version_1_is_read() {
        let kept = "stonefold tombstone 1\npool 0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a\nmember f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1\n\
                    generation 17\nurl file:///b?also=/c\n\n";
        assert_eq!(Tombstone::decode(kept), Some(tombstone()));
        assert!(tombstone().encode().starts_with(kept));
    }

    /// Noise in it, by character and by line: never believed to be another's, and nothing else comes of it.
    #[test]
    fn noise_is_no_tombstone() {
        let mut dice = Dice::new(Dice::seed("STONEFOLD_TOMBSTONE_SEED"));
        for _ in 0..20_000 {
            let mut lines: Vec<String> = tombstone().encode().lines().map(str::to_owned).collect();
            let at = dice.index(lines.len());
            match dice.below(4) {
                0 => drop(lines.remove(at)),
                1 => lines.insert(at, lines[dice.index(lines.len())].clone()),
                2 => lines[at].push(char::from(dice.number() as u8)),
                _ => {
                    let len = dice.index(lines[at].len() + 1);
                    lines[at].truncate(len);
                }
            }
            if let Some(read) = Tombstone::decode(&lines.join("\n")) {
                assert_eq!((read.pool, read.member), (tombstone().pool, tombstone().member));
                assert_eq!(Tombstone::decode(&read.encode()), Some(read));
            }
        }
    }

    /// Whatever the file holds, no pool is made beside it; and one that cannot be read says so.
    #[test]
    fn whatever_it_holds_no_pool_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout { root: dir.path().to_path_buf() };
        let refused = || check_none([dir.path()].into_iter()).unwrap_err().to_string();
        check_none([dir.path()].into_iter()).unwrap();
        tombstone().write(&layout).unwrap();
        assert!(refused().contains("file:///b?also=/c") && holds(&layout).unwrap(), "{}", refused());
        for noise in [&b""[..], b"stonefold tombstone 1\n", b"\xff\xfe", &[b'x'; 100_000]] {
            fs::write(layout.tombstone(), noise).unwrap();
            assert!(refused().contains("is damaged") && holds(&layout).unwrap(), "{}", refused());
        }
        remove(&layout).unwrap();
        remove(&layout).unwrap();
        check_none([dir.path()].into_iter()).unwrap();
        assert_eq!(read(&layout).unwrap(), Mark::Absent);
    }
}
