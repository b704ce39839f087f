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
//! are seen as two histories. `own` is the member in whose directory the record lies. `state` is the number of a
//! [`State`]; `since` is the generation that made it so. `directory` is where it was last found: for people, and to find
//! it again where the pool's URL does not name it.
//!
//! The magic ends in 1 where the states are 0 and 1 alone, and in 2 where others are: so a program that does not know the
//! others refuses a pool whose directories are being changed, by name, and opens any other.
//!
//! Generation 0 is a pool that is being made: nothing was acknowledged yet. The record lies twice in each directory,
//! `member` and `member.second`, written one after the other, so that no single rotten sector shuts a pool.

use super::durable::sync_folder;
use super::member::{Member, file_error};
use super::planted;
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
/// Of a pool whose members are being changed.
const MAGIC_CHANGING: &[u8; 8] = b"SFMEMBR2";
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

/// What a member is to its pool. Where an object may lie follows from it ([`super::view`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It failed or was not there: what it holds counts for nothing until it is filled again.
    Dropped,
    /// It counts.
    Current,
    /// It counts, and what shall lie on it may still lie elsewhere.
    Joining,
    /// It counts, and what lies on it shall lie elsewhere.
    Leaving,
    /// Dropped, and not coming back: forgotten once the others hold everything as often as they shall.
    Lost,
    /// Nothing lies on it any more: its directory is to be emptied.
    Left,
    /// It has left. Never written: in memory it keeps the seats of the others what they are.
    Gone,
}

impl State {
    /// In the order of their numbers.
    const WRITTEN: [State; 6] =
        [State::Dropped, State::Current, State::Joining, State::Leaving, State::Lost, State::Left];

    /// Whether acknowledgements wait for it, and it is asked where an object may lie on it.
    pub(super) fn counts(self) -> bool {
        self.receives() || self == State::Leaving
    }

    /// Whether objects are placed on it.
    pub(super) fn receives(self) -> bool {
        matches!(self, State::Current | State::Joining)
    }

    /// Whether objects were placed on it before the change under way.
    pub(super) fn received(self) -> bool {
        matches!(self, State::Current | State::Leaving)
    }

    /// Whether it is part of a change under way.
    pub(super) fn changes(self) -> bool {
        matches!(self, State::Joining | State::Leaving | State::Lost)
    }
}

/// One member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) id: MemberId,
    /// The generation since which it is in its state.
    pub(super) since: u64,
    pub(super) state: State,
    pub(super) dir: PathBuf,
}

impl Roster {
    /// The next generation: the same members, with a nonce of its own.
    pub(super) fn next(&self, nonce: [u8; 16]) -> Roster {
        Roster { generation: self.generation + 1, nonce, ..self.clone() }
    }

    /// Sets the state of a member, as of this generation.
    pub(super) fn set(&mut self, seat: usize, state: State) {
        let entry = &mut self.members[seat];
        (entry.state, entry.since) = (state, self.generation);
    }

    /// The members that should be used and are not.
    pub(super) fn dropped(&self) -> impl Iterator<Item = &Entry> {
        self.members.iter().filter(|entry| matches!(entry.state, State::Dropped | State::Lost))
    }

    /// How many copies an object may lack at most.
    pub(super) fn lacking(&self) -> usize {
        self.dropped().count()
    }

    /// Does without a member from now on, because it fails or is not there.
    pub(super) fn drop_member(&mut self, seat: usize) {
        let leaves = matches!(self.members[seat].state, State::Leaving | State::Lost);
        self.set(seat, if leaves { State::Lost } else { State::Dropped });
    }

    pub(super) fn encode(&self, own: MemberId) -> Vec<u8> {
        let written: Vec<&Entry> = self.members.iter().filter(|entry| entry.state != State::Gone).collect();
        let plain = written.iter().all(|entry| entry.is_plain());
        let mut bytes = vec![0; 8];
        bytes.extend_from_slice(if plain { MAGIC } else { MAGIC_CHANGING });
        bytes.extend_from_slice(&self.pool);
        bytes.extend_from_slice(&self.generation.to_le_bytes());
        bytes.extend_from_slice(&self.nonce);
        bytes.extend_from_slice(&own);
        bytes.extend_from_slice(&self.copies.to_le_bytes());
        bytes.extend_from_slice(&(written.len() as u16).to_le_bytes());
        for entry in written {
            let dir = entry.dir.as_os_str().as_encoded_bytes();
            bytes.extend_from_slice(&entry.id);
            bytes.extend_from_slice(&entry.since.to_le_bytes());
            bytes.extend_from_slice(&(entry.state as u16).to_le_bytes());
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
        if magic != MAGIC && magic != MAGIC_CHANGING {
            let why = "the record of the pool's members is of another version";
            return Err(Error::new(Kind::Unsupported, why).remedy("open it with a newer stonefold"));
        }
        let roster = Self::read(&mut &bytes[16..]).ok_or_else(damaged)?;
        let known = |entry: &Entry| magic != MAGIC || entry.is_plain();
        if roster.members.iter().all(known) { Ok(roster) } else { Err(damaged()) }
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
    /// Whether its state is one of those that every version knows.
    fn is_plain(&self) -> bool {
        matches!(self.state, State::Dropped | State::Current)
    }

    fn read(from: &mut &[u8]) -> Option<Entry> {
        let id = take(from)?;
        let since = u64::from_le_bytes(take(from)?);
        let state = u16::from_le_bytes(take(from)?);
        let len = u16::from_le_bytes(take(from)?) as usize;
        let (dir, rest) = from.split_at_checked(len)?;
        *from = rest;
        let dir = PathBuf::from(String::from_utf8_lossy(dir).into_owned());
        let state = *State::WRITTEN.get(usize::from(state))?;
        Some(Entry { id, since, state, dir })
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
                if !planted::is("roster-not-synced") {
                    sync_folder(&root)?;
                }
            }
            Ok(())
        });
        written.await.map_err(|e| file_error("recording the pool's members in", &self.layout.root, e))
    }
}

pub(super) fn read_roster(path: &Path) -> Result<Option<Roster>> {
    let mut bytes = Vec::new();
    match File::open(path).and_then(|file| file.take(RECORD_BYTES_MAX + 1).read_to_end(&mut bytes)) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        other => other.map_err(|e| file_error("reading", path, e))?,
    };
    Roster::decode(&bytes).map(Some).map_err(|e| e.context(format!("'{}'", path.display())))
}

#[cfg(test)]
mod tests {
    use super::super::tests::hex;
    use super::*;
    use stonefold_dice::Dice;

    fn roster() -> Roster {
        let states = [State::Current, State::Dropped, State::Current];
        let entry = |n: u8| Entry {
            id: [n; 16],
            since: 3,
            state: states[usize::from(n)],
            dir: format!("/d{n}").into(),
        };
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

    /// Every state reads back but the one that is never written; a program from before them is told by the magic.
    #[test]
    fn states_read_back() {
        for (number, state) in State::WRITTEN.into_iter().enumerate() {
            assert_eq!(state as usize, number);
            let mut roster = roster();
            roster.set(0, state);
            let mut bytes = roster.encode([2; 16]);
            assert_eq!(Roster::decode(&bytes).unwrap(), Roster { own: [2; 16], ..roster });
            let plain = number <= 1;
            assert_eq!(&bytes[8..16], if plain { b"SFMEMBR1" } else { b"SFMEMBR2" });
            bytes[15] = b'1';
            let check = xxh3_64(&bytes[8..]);
            bytes[..8].copy_from_slice(&check.to_le_bytes());
            assert_eq!(Roster::decode(&bytes).is_ok(), plain);
        }
        let mut roster = roster();
        roster.set(1, State::Gone);
        let read = Roster::decode(&roster.encode([2; 16])).unwrap();
        assert_eq!(read.members, [roster.members[0].clone(), roster.members[2].clone()]);
    }

    /// Kept bytes of version 1, in its first form and in that of a pool whose directories change: every later program reads them.
    #[test]
    fn version_1_is_read() {
        let plain = "12e3054bce624c3a53464d454d425231090909090909090909090909090909090400000000000000080808080808080808080808080808080202020202020202020202020202020202000300000000000000000000000000000000000300000000000000010003002f6430010101010101010101010101010101010300000000000000000003002f6431020202020202020202020202020202020300000000000000010003002f6432";
        assert_eq!(hex(&roster().encode([2; 16])), plain);
        let mut changing = roster();
        changing.set(1, State::WRITTEN[2]);
        let kept = "f52b7218e0c63a2e53464d454d425232090909090909090909090909090909090400000000000000080808080808080808080808080808080202020202020202020202020202020202000300000000000000000000000000000000000300000000000000010003002f6430010101010101010101010101010101010400000000000000020003002f6431020202020202020202020202020202020300000000000000010003002f6432";
        let written = changing.encode([2; 16]);
        assert_eq!(hex(&written), kept);
        assert_eq!(Roster::decode(&written).unwrap(), changing);
    }

    /// Fields changed under a right check: refused, or read as what would be written so again.
    #[test]
    fn what_is_read_is_written_the_same_way() {
        let mut dice = Dice::new(Dice::seed("STONEFOLD_ROSTER_SEED"));
        let mut read = 0;
        for _ in 0..20_000 {
            let mut bytes = roster().encode([2; 16]);
            bytes.truncate(16 + dice.index(bytes.len() * 2).min(bytes.len() - 16));
            for _ in 0..dice.below(4) {
                let at = 8 + dice.index(bytes.len() - 8);
                bytes[at] = dice.number() as u8;
            }
            let check = xxh3_64(&bytes[8..]);
            bytes[..8].copy_from_slice(&check.to_le_bytes());
            if let Ok(found) = Roster::decode(&bytes) {
                read += 1;
                assert_eq!(Roster::decode(&found.encode(found.own)).unwrap(), found);
            }
        }
        assert!(read > 1000, "{read} were read");
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
