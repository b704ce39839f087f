//! A trace's parts, one after another: writing them, and reading them from bytes that may end anywhere.

use super::block::{self, Block};
use super::{End, Header, Record, Totals};
use stonefold_types::{Error, Kind, Result};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Bytes of a part before its body.
pub const HEAD_BYTES: usize = 24;
const MAGIC: [u8; 4] = *b"SFT1";
const HEADER: u32 = 1;
const BLOCK: u32 = 2;
const END: u32 = 3;
/// Bytes of a body at most: the largest block that does not compress, and some.
const BODY_BYTES_MAX: usize = block::PLAIN_BYTES_MAX + (4 << 10);

/// Makes the parts of one trace, in order.
#[derive(Debug)]
pub struct Writer {
    header: Header,
    number: u64,
    totals: Totals,
    /// When the last record was made.
    last: u64,
}

impl Writer {
    /// Begins a trace; returns its first part, too.
    pub fn new(header: Header) -> (Self, Vec<u8>) {
        let part = seal(HEADER, 0, 0, &header.body());
        (Writer { header, number: 1, totals: Totals::default(), last: 0 }, part)
    }

    /// Goes on with a trace that was cut short, behind its last whole part.
    ///
    /// # Errors
    /// [`Kind::Corrupt`].
    pub fn resume(trace: &[u8]) -> Result<Self> {
        let mut parts = Parts::new(trace)?;
        let (mut totals, mut records) = (Totals::default(), Vec::new());
        while let Next::Block(block) = parts.next()? {
            block.records(trace, &parts.header, &mut records)?;
            records.drain(..).for_each(|record| totals.add(&record));
        }
        Ok(Writer { header: parts.header, number: parts.number, totals, last: parts.last })
    }

    /// The next part: a block of records, which go on where the last ended.
    ///
    /// # Panics
    /// See [`block`]; and when they begin before the last record.
    pub fn block(&mut self, records: &[Record]) -> Vec<u8> {
        assert!(records.first().is_none_or(|first| first.at >= self.last), "blocks go forward in time");
        records.iter().for_each(|record| self.totals.add(record));
        self.last = records.last().map_or(self.last, |record| record.at);
        let (body, plain) = block::encode(records, &self.header);
        self.number += 1;
        seal(BLOCK, self.number - 1, plain as u32, &body)
    }

    /// The last part. `end.totals` is set to what was written, and its length is not shorter than that.
    pub fn end(self, end: End) -> Vec<u8> {
        let end = End { totals: self.totals, length: end.length.max(self.last), ..end };
        seal(END, self.number, 0, &end.body(self.header.tick_nanos))
    }

    /// What was written.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// When the last record was made, in nanoseconds since the start.
    pub fn last(&self) -> u64 {
        self.last
    }
}

/// Reads a trace from its bytes, part by part. Blocks are not decompressed here, and are verified.
#[derive(Clone, Debug)]
pub struct Parts<'a> {
    header: Header,
    rest: &'a [u8],
    /// Bytes before `rest`.
    at: usize,
    number: u64,
    records: u64,
    last: u64,
}

/// What comes next in a trace.
#[derive(Debug)]
pub enum Next {
    /// More records.
    Block(Block),
    /// All is there.
    End(End),
    /// The bytes end here, and the trace does not: after so many whole bytes.
    Cut(usize),
}

impl<'a> Parts<'a> {
    /// Reads the header.
    ///
    /// # Errors
    /// [`Kind::Corrupt`], also when not even the header is whole; [`Kind::Unsupported`] for a later version.
    pub fn new(bytes: &'a [u8]) -> Result<Self> {
        let wrong = |why| Error::new(Kind::Corrupt, why);
        if bytes.len() >= 12 && bytes[8..12] != MAGIC {
            return Err(wrong("it does not begin as a trace does"));
        }
        let part = part(bytes, 0)?.ok_or_else(|| wrong("a trace that ends before its header does"))?;
        if part.kind != HEADER {
            return Err(wrong("a trace that does not begin with a header"));
        }
        let header = Header::read(part.body)?;
        let at = HEAD_BYTES + part.body.len();
        Ok(Parts { header, rest: &bytes[at..], at, number: 1, records: 0, last: 0 })
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// How many bytes were taken: whole parts only.
    pub fn taken(&self) -> usize {
        self.at
    }

    /// The next part. Not to be asked again after an end or a cut.
    ///
    /// # Errors
    /// [`Kind::Corrupt`] for what is damaged, out of place, or behind the end.
    #[expect(clippy::should_implement_trait, reason = "an iterator would go on after an error")]
    pub fn next(&mut self) -> Result<Next> {
        let Some(part) = part(self.rest, self.number)? else { return Ok(Next::Cut(self.at)) };
        let wrong = |why: String| Error::new(Kind::Corrupt, why);
        let (number, body_at) = (self.number, self.at + HEAD_BYTES);
        self.number += 1;
        self.at += HEAD_BYTES + part.body.len();
        self.rest = &self.rest[HEAD_BYTES + part.body.len()..];
        match part.kind {
            BLOCK => {
                let block = Block::read(part.body, body_at, part.plain as usize, &self.header)?;
                if block.first < self.last {
                    return Err(wrong(format!("part {number} of the trace goes back in time")));
                }
                self.last = block.last;
                self.records += block.count as u64;
                Ok(Next::Block(block))
            }
            END => {
                let end = End::read(part.body, self.header.tick_nanos)?;
                if end.totals.records() != self.records || !self.rest.is_empty() || end.length < self.last {
                    return Err(wrong("the trace's end does not fit what is before and behind it".into()));
                }
                Ok(Next::End(end))
            }
            other => Err(wrong(format!("part {number} of the trace is of the unknown kind {other}"))),
        }
    }
}

struct Part<'a> {
    kind: u32,
    plain: u32,
    body: &'a [u8],
}

fn seal(kind: u32, number: u64, plain: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 8];
    bytes.extend_from_slice(&MAGIC);
    for field in [kind, body.len() as u32, plain] {
        bytes.extend_from_slice(&field.to_le_bytes());
    }
    bytes.extend_from_slice(body);
    let check = xxh3_64_with_seed(&bytes[8..], number);
    bytes[..8].copy_from_slice(&check.to_le_bytes());
    bytes
}

/// The part at the front; nothing when the bytes end before it does.
fn part(bytes: &[u8], number: u64) -> Result<Option<Part<'_>>> {
    let wrong = |why: &str| Error::new(Kind::Corrupt, format!("part {number} of the trace {why}"));
    let Some(head) = bytes.first_chunk::<HEAD_BYTES>() else { return Ok(None) };
    let field = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("4 bytes"));
    let length = field(16) as usize;
    if head[8..12] != MAGIC || length > BODY_BYTES_MAX {
        return Err(wrong("is damaged, or none"));
    }
    let Some(whole) = bytes.get(..HEAD_BYTES + length) else { return Ok(None) };
    if xxh3_64_with_seed(&whole[8..], number).to_le_bytes() != head[..8] {
        return Err(wrong("fails its checksum"));
    }
    Ok(Some(Part { kind: field(12), plain: field(20), body: &whole[HEAD_BYTES..] }))
}
