//! The record of who belongs to a pool: one in each directory.
//!
//! ```text
//!  0        8        16               32       40               56               72     74     76
//!  +--------+--------+----------------+--------+----------------+----------------+------+------+------------+
//!  | check  | magic  | pool           | gener. | nonce          | own            |copies|count | members …  |
//!  +--------+--------+----------------+--------+----------------+----------------+------+------+------------+
//!
//!  a member  0                16       24     26     28
//!            +----------------+--------+------+------+-------------+
//!            | id             | since  | state| len  | directory … |
//!            +----------------+--------+------+------+-------------+
//! ```
//! All integers little-endian. `check` is XXH3-64 of everything behind it; it comes first so that one call covers the
//! rest, to the end of the file. `pool` names the pool. `generation` counts the changes of membership: the record with
//! the highest one is believed, and `nonce` is made anew with each, so that two records of one generation that differ
//! are seen as two histories. `own` is the member in whose directory the record lies. `state` is 1 for a member that
//! every acknowledgement waited for, 0 for one that was dropped; `since` is the generation that made it so.
//! `directory` is where it was last found, for people.
//!
//! Generation 0 is a pool that is being made: nothing was acknowledged yet. The record lies twice in each directory,
//! `member` and `member.second`, written one after the other, so that no single rotten sector shuts a pool.

use super::durable::sync_folder;
use super::member::{Member, file_error};
use super::private;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use stonefold_types::{Error, Kind, Result};
use xxhash_rust::xxh3::xxh3_64;

/// Members of a pool at most: what a machine holds; they are told in one byte.
pub(super) const MEMBERS_MAX: usize = 32;
/// Longest record, in bytes: all members with the longest paths the kernel takes.
const RECORD_BYTES_MAX: u64 = (HEAD_BYTES + MEMBERS_MAX * (MEMBER_BYTES + 4096)) as u64;

const MAGIC: &[u8; 8] = b"SFMEMBR1";
const HEAD_BYTES: usize = 76;
const MEMBER_BYTES: usize = 28;

/// The name of a member; never reused.
pub(super) type MemberId = [u8; 16];

/// One state of a pool's membership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Roster {
    pub(super) pool: [u8; 16],
    pub(super) generation: u64,
    pub(super) nonce: [u8; 16],
    /// The member in whose directory this lies.
    pub(super) own: MemberId,
    /// On how many members each object lies.
    pub(super) copies: u16,
    pub(super) members: Vec<Entry>,
}

/// One member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) id: MemberId,
    /// The generation since which it is current, or dropped.
    pub(super) since: u64,
    pub(super) current: bool,
    pub(super) dir: PathBuf,
}

impl Roster {
    /// The next generation: the same members, with a nonce of its own.
    pub(super) fn next(&self, nonce: [u8; 16]) -> Roster {
        Roster { generation: self.generation + 1, nonce, ..self.clone() }
    }

    /// Sets the state of a member, as of this generation.
    pub(super) fn set(&mut self, seat: usize, current: bool) {
        let entry = &mut self.members[seat];
        (entry.current, entry.since) = (current, self.generation);
    }

    /// The members that do not count any more.
    pub(super) fn dropped(&self) -> impl Iterator<Item = &Entry> {
        self.members.iter().filter(|entry| !entry.current)
    }

    pub(super) fn encode(&self, own: MemberId) -> Vec<u8> {
        let mut bytes = vec![0; 8];
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&self.pool);
        bytes.extend_from_slice(&self.generation.to_le_bytes());
        bytes.extend_from_slice(&self.nonce);
        bytes.extend_from_slice(&own);
        bytes.extend_from_slice(&self.copies.to_le_bytes());
        bytes.extend_from_slice(&(self.members.len() as u16).to_le_bytes());
        for entry in &self.members {
            let dir = entry.dir.as_os_str().as_encoded_bytes();
            bytes.extend_from_slice(&entry.id);
            bytes.extend_from_slice(&entry.since.to_le_bytes());
            bytes.extend_from_slice(&u16::from(entry.current).to_le_bytes());
            bytes.extend_from_slice(&(dir.len() as u16).to_le_bytes());
            bytes.extend_from_slice(dir);
        }
        let check = xxh3_64(&bytes[8..]);
        bytes[..8].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Roster> {
        let damaged = || Error::new(Kind::Corrupt, "the record of the pool's members is damaged");
        let check = bytes.first_chunk().map(|check| u64::from_le_bytes(*check));
        if check.is_none_or(|check| check != xxh3_64(&bytes[8..])) {
            return Err(damaged());
        }
        let magic = bytes.get(8..16).ok_or_else(damaged)?;
        if magic != MAGIC {
            let why = "the record of the pool's members is of another version";
            return Err(Error::new(Kind::Unsupported, why).remedy("open it with a newer stonefold"));
        }
        Self::read(&mut &bytes[16..]).ok_or_else(damaged)
    }

    fn read(from: &mut &[u8]) -> Option<Roster> {
        let pool = take(from)?;
        let generation = u64::from_le_bytes(take(from)?);
        let (nonce, own) = (take(from)?, take(from)?);
        let copies = u16::from_le_bytes(take(from)?);
        let count = u16::from_le_bytes(take(from)?) as usize;
        if count == 0 || count > MEMBERS_MAX || copies == 0 || copies as usize > count {
            return None;
        }
        let members: Option<Vec<Entry>> = (0..count).map(|_| Entry::read(from)).collect();
        let known = |members: &Vec<Entry>| members.iter().any(|entry| entry.id == own);
        let members = members.filter(known).filter(|_| from.is_empty())?;
        Some(Roster { pool, generation, nonce, own, copies, members })
    }
}

impl Entry {
    fn read(from: &mut &[u8]) -> Option<Entry> {
        let id = take(from)?;
        let since = u64::from_le_bytes(take(from)?);
        let state = u16::from_le_bytes(take(from)?);
        let len = u16::from_le_bytes(take(from)?) as usize;
        let (dir, rest) = from.split_at_checked(len)?;
        *from = rest;
        let dir = PathBuf::from(String::from_utf8_lossy(dir).into_owned());
        (state <= 1).then_some(Entry { id, since, current: state == 1, dir })
    }
}

fn take<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = from.split_first_chunk()?;
    *from = rest;
    Some(*first)
}

impl Member {
    /// What this directory knows of the pool's members, and whether it has that twice; `None` where it was not told
    /// yet.
    pub(super) async fn read_roster(&self) -> Result<Option<(Roster, bool)>> {
        let paths = self.layout.rosters();
        let read = self.io.blocking(move || paths.map(|path| read_roster(&path))).await;
        match read {
            [Ok(Some(first)), Ok(Some(second))] => {
                let twice = first == second;
                let newer = if first.generation < second.generation { second } else { first };
                Ok(Some((newer, twice)))
            }
            [Ok(Some(one)), _] | [_, Ok(Some(one))] => Ok(Some((one, false))),
            [Err(error), _] | [_, Err(error)] => Err(error),
            [Ok(None), Ok(None)] => Ok(None),
        }
    }

    /// Tells this directory of the pool's members, durably.
    pub(super) async fn write_roster(&self, roster: &Roster, own: usize) -> Result<()> {
        self.check_sound()?;
        let bytes = roster.encode(roster.members[own].id);
        let (paths, root) = (self.layout.rosters(), self.layout.root.clone());
        let temporary = self.temporary_path();
        let written = self.io.blocking(move || {
            for path in paths {
                private::write(&temporary, &bytes)?;
                fs::rename(&temporary, &path)?;
                sync_folder(&root)?;
            }
            Ok(())
        });
        written.await.map_err(|e| file_error("recording the pool's members in", &self.layout.root, e))
    }
}

fn read_roster(path: &Path) -> Result<Option<Roster>> {
    let mut bytes = Vec::new();
    match File::open(path).and_then(|file| file.take(RECORD_BYTES_MAX + 1).read_to_end(&mut bytes)) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        other => other.map_err(|e| file_error("reading", path, e))?,
    };
    Roster::decode(&bytes).map(Some).map_err(|e| e.context(format!("'{}'", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roster() -> Roster {
        let entry = |n: u8| Entry { id: [n; 16], since: 3, current: n != 1, dir: format!("/d{n}").into() };
        let members = (0..3).map(entry).collect();
        Roster { pool: [9; 16], generation: 4, nonce: [8; 16], own: [2; 16], copies: 2, members }
    }

    #[test]
    fn reads_back_and_sees_damage() {
        let mut bytes = roster().encode([2; 16]);
        assert_eq!(Roster::decode(&bytes).unwrap(), roster());
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Roster::decode(&bytes).is_err(), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        for len in 0..bytes.len() {
            assert!(Roster::decode(&bytes[..len]).is_err(), "{len} bytes of it");
        }
    }

    /// Noise under a right check is refused, and never believed about its lengths.
    #[test]
    fn noise_is_refused() {
        let mut noise = roster().encode([2; 16]);
        for at in 72..noise.len() {
            let was = noise[at];
            noise[at] = was.wrapping_add(0x81);
            let check = xxh3_64(&noise[8..]);
            noise[..8].copy_from_slice(&check.to_le_bytes());
            let _ = Roster::decode(&noise);
            noise[at] = was;
        }
    }
}
