//! The ledger: what a round of the fold added to maps and took from them. Object `ledger/ID`.
//!
//! ```text
//! object  = section · section · …            one or two per disk and round, found through [`LedgerRef`]s in heads
//! section = check 8 · kind 1 · body          check: XXH3-64 of the rest, seeded with the object's number
//! changes = list of born · list of shared · list of freed
//! deaths  = groups: count, then each: birth · list
//! list    = runs: count, then each: (first - last of the run before) << 1 | longer · length - 2 if longer
//! ```
//! All numbers of a body are unsigned LEB128. A list holds block addresses ([`crate::entry`]) in ascending order; an address may
//! come twice, in two runs. *Born*: packed by this round and mapped. *Shared*: mapped although stored already, once for
//! each time. *Freed*: no longer mapped, and held by no snapshot. *Deaths*: no longer mapped, but held by a snapshot, each
//! with the epoch in which it was born, so that the removal of that snapshot can tell what it held alone.
//! A section is believed only as a whole. The numbers of objects come from the same count as those of segments.

use crate::entry::BIRTH_MAX;
use crate::wire::{Reader, Writer};
use stonefold_types::{Error, Kind, Result};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Addresses in one section, at most: what a reader must hold in memory.
pub const SECTION_ADDRESSES_MAX: usize = 1 << 20;

const CHANGES: u8 = 1;
const DEATHS: u8 = 2;
const CHECK: usize = 8;

/// Where a section lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LedgerRef {
    /// The object.
    pub id: u64,
    /// Byte offset in it.
    pub offset: u32,
    /// Bytes.
    pub length: u32,
    /// Addresses in the section.
    pub addresses: u32,
}

/// What a round did to the references of one disk. Each list ascends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Packed and mapped.
    pub born: Vec<u64>,
    /// Mapped once more.
    pub shared: Vec<u64>,
    /// No longer mapped, and held by nothing else of this disk.
    pub freed: Vec<u64>,
}

/// What is no longer mapped but held by a snapshot: birth and address, ascending.
pub type Deaths = Vec<(u64, u64)>;

impl Changes {
    /// Addresses in all lists.
    pub fn len(&self) -> usize {
        self.born.len() + self.shared.len() + self.freed.len()
    }

    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads and verifies a section of object `id`.
    pub fn decode(section: &[u8], id: u64) -> Result<Changes> {
        let mut reader = open(section, id, CHANGES)?;
        let mut left = SECTION_ADDRESSES_MAX;
        let changes = Changes {
            born: list(&mut reader, &mut left)?,
            shared: list(&mut reader, &mut left)?,
            freed: list(&mut reader, &mut left)?,
        };
        reader.end()?;
        Ok(changes)
    }
}

/// Reads and verifies a section of deaths of object `id`.
pub fn decode_deaths(section: &[u8], id: u64) -> Result<Deaths> {
    let mut reader = open(section, id, DEATHS)?;
    let mut left = SECTION_ADDRESSES_MAX;
    let mut deaths = Vec::new();
    let mut last = None;
    for _ in 0..reader.varint()? {
        let birth = reader.varint()?;
        if birth >= BIRTH_MAX || last.is_some_and(|last| birth <= last) {
            return Err(reader.malformed(&format!("birth {birth}")));
        }
        last = Some(birth);
        deaths.extend(list(&mut reader, &mut left)?.into_iter().map(|address| (birth, address)));
    }
    reader.end()?;
    Ok(deaths)
}

/// Collects sections into an object.
pub struct LedgerBuilder {
    id: u64,
    bytes: Vec<u8>,
}

impl LedgerBuilder {
    /// An empty object.
    pub fn new(id: u64) -> Self {
        LedgerBuilder { id, bytes: Vec::new() }
    }

    /// Its number.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Whether it has no section.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Adds sections for the changes, in as many as their number needs, and sorts them.
    pub fn changes(&mut self, mut changes: Changes) -> Vec<LedgerRef> {
        for list in [&mut changes.born, &mut changes.shared, &mut changes.freed] {
            list.sort_unstable();
        }
        let mut refs = Vec::new();
        while !changes.is_empty() {
            let mut room = SECTION_ADDRESSES_MAX;
            let mut take = |list: &mut Vec<u64>| {
                let rest = list.split_off(room.min(list.len()));
                room -= list.len();
                std::mem::replace(list, rest)
            };
            let lists = [take(&mut changes.born), take(&mut changes.shared), take(&mut changes.freed)];
            let count = lists.iter().map(Vec::len).sum();
            refs.push(
                self.section(CHANGES, count, |body| lists.iter().for_each(|list| put_list(body, list))),
            );
        }
        refs
    }

    /// Adds sections of deaths, in as many as their number needs, and sorts them.
    pub fn deaths(&mut self, mut deaths: Deaths) -> Vec<LedgerRef> {
        deaths.sort_unstable();
        let sections = deaths.chunks(SECTION_ADDRESSES_MAX);
        sections
            .map(|deaths| {
                self.section(DEATHS, deaths.len(), |body| {
                    let groups = || deaths.chunk_by(|a, b| a.0 == b.0);
                    body.varint(groups().count() as u64);
                    for group in groups() {
                        body.varint(group[0].0);
                        put_list(body, &group.iter().map(|(_, address)| *address).collect::<Vec<_>>());
                    }
                })
            })
            .collect()
    }

    fn section(&mut self, kind: u8, addresses: usize, fill: impl FnOnce(&mut Vec<u8>)) -> LedgerRef {
        let mut rest = vec![kind];
        fill(&mut rest);
        let offset = self.bytes.len() as u32;
        self.bytes.u64(xxh3_64_with_seed(&rest, self.id));
        self.bytes.put(&rest);
        LedgerRef { id: self.id, offset, length: (CHECK + rest.len()) as u32, addresses: addresses as u32 }
    }

    /// The object.
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

/// As heads and pages of snapshots hold them.
pub(crate) fn put_refs(body: &mut Vec<u8>, refs: &[LedgerRef]) {
    body.u32(refs.len() as u32);
    for at in refs {
        body.u64(at.id);
        body.u32(at.offset);
        body.u32(at.length);
        body.u32(at.addresses);
    }
}

pub(crate) fn refs(reader: &mut Reader<'_>) -> Result<Vec<LedgerRef>> {
    let count = reader.u32()?;
    let mut refs = Vec::new();
    for _ in 0..count {
        let (id, offset, length, addresses) = (reader.u64()?, reader.u32()?, reader.u32()?, reader.u32()?);
        refs.push(LedgerRef { id, offset, length, addresses });
    }
    Ok(refs)
}

fn open(section: &[u8], id: u64, kind: u8) -> Result<Reader<'_>> {
    let wrong = |why: &str| Error::new(Kind::Corrupt, format!("a section of ledger {id:011x} {why}"));
    let (check, rest) = section.split_first_chunk::<CHECK>().ok_or_else(|| wrong("is cut short"))?;
    if xxh3_64_with_seed(rest, id).to_le_bytes() != *check {
        return Err(wrong("fails its checksum"));
    }
    if rest.first() != Some(&kind) {
        return Err(wrong("is of another kind"));
    }
    Ok(Reader::new(&rest[1..], "a section of the ledger"))
}

fn put_list(body: &mut Vec<u8>, addresses: &[u64]) {
    let runs = || addresses.chunk_by(|a, b| *b == *a + 1);
    body.varint(runs().count() as u64);
    let mut last = 0;
    for run in runs() {
        let longer = run.len() > 1;
        body.varint((run[0] - last) << 1 | u64::from(longer));
        if longer {
            body.varint(run.len() as u64 - 2);
        }
        last = run[run.len() - 1];
    }
}

/// Reads a list of at most `left` addresses, and counts them off.
fn list(reader: &mut Reader<'_>, left: &mut usize) -> Result<Vec<u64>> {
    let mut addresses = Vec::new();
    let mut last = 0u64;
    for _ in 0..reader.varint()? {
        let head = reader.varint()?;
        let more = if head & 1 == 1 { reader.varint()?.saturating_add(1) } else { 0 };
        let first = last.checked_add(head >> 1);
        let run = first.and_then(|first| Some(first..=first.checked_add(more)?));
        let run = run.ok_or_else(|| reader.malformed("an address is too large"))?;
        if more >= *left as u64 {
            return Err(reader.malformed("it holds too many addresses"));
        }
        *left -= more as usize + 1;
        last = *run.end();
        addresses.extend(run);
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn addresses() -> impl Strategy<Value = Vec<u64>> {
        vec((0u64..1 << 50, 1u64..5), 0..40)
            .prop_map(|runs| runs.into_iter().flat_map(|(first, len)| first..first + len).collect())
    }

    proptest! {
        #[test]
        fn comes_back(born in addresses(), shared in addresses(), freed in addresses(), births in vec(1u64..9, 200), id: u64) {
            let mut builder = LedgerBuilder::new(id);
            let deaths: Deaths = births.into_iter().zip(shared.iter().copied()).collect();
            let shared = [shared.clone(), shared].concat();
            let refs = [builder.changes(Changes { born: born.clone(), shared: shared.clone(), freed: freed.clone() }), builder.deaths(deaths.clone())];
            let object = builder.finish();
            let section = |at: &LedgerRef| &object[at.offset as usize..][..at.length as usize];
            let sorted = |mut list: Vec<u64>| { list.sort_unstable(); list };
            if let [at] = &refs[0][..] {
                let back = Changes::decode(section(at), id).unwrap();
                prop_assert_eq!(back.len(), at.addresses as usize);
                prop_assert_eq!(back, Changes { born: sorted(born), shared: sorted(shared), freed: sorted(freed) });
                prop_assert!(Changes::decode(section(at), id ^ 1).is_err());
                prop_assert!(decode_deaths(section(at), id).is_err());
            }
            if let [at] = &refs[1][..] {
                let mut sorted = deaths;
                sorted.sort_unstable();
                prop_assert_eq!(decode_deaths(section(at), id).unwrap(), sorted);
            }
        }

        #[test]
        fn noise_is_refused(bytes in vec(any::<u8>(), 0..200), kind in 1u8..3) {
            prop_assert!(Changes::decode(&bytes, 7).is_err());
            let mut rest = vec![kind];
            rest.extend(bytes);
            let mut sealed = xxh3_64_with_seed(&rest, 7).to_le_bytes().to_vec();
            sealed.extend(rest);
            let _ = (Changes::decode(&sealed, 7), decode_deaths(&sealed, 7));
        }
    }

    #[test]
    fn long_lists_are_cut_into_sections() {
        let mut builder = LedgerBuilder::new(1);
        let many = SECTION_ADDRESSES_MAX as u64 + 10;
        let refs =
            builder.changes(Changes { born: (0..many).collect(), freed: vec![5], ..Changes::default() });
        assert_eq!(
            refs.iter().map(|at| at.addresses).collect::<Vec<_>>(),
            [SECTION_ADDRESSES_MAX as u32, 11]
        );
        let refs = builder.deaths((0..many).map(|at| (1 + at / 700_000, at)).collect());
        assert_eq!(refs.len(), 2);
        let object = builder.finish();
        let read =
            |at: &LedgerRef| decode_deaths(&object[at.offset as usize..][..at.length as usize], 1).unwrap();
        assert_eq!(refs.iter().flat_map(read).count() as u64, many);
    }
}
