//! A disk of the other machine: read, and summed chunk by chunk.

use super::layout::{Disk, Piece, Place, part_of};
use super::session::Session;
use crate::nbd::Read;
use std::ops::Range;
use std::sync::Arc;
use stonefold_types::{Error, Kind, Result};

/// What is summed at once, in bytes: more is read again where little differs, less takes a program's start for each.
pub(crate) const CHUNK_BYTES: u64 = 1 << 20;
/// What one read is at most, in bytes.
const PIECE_BYTES: u64 = 1 << 20;

/// A disk there.
pub(crate) struct RemoteDisk {
    session: Arc<Session>,
    bytes: u64,
    pieces: Vec<Piece>,
}

/// Of a chunk.
pub(crate) type Sum = [u8; 32];

impl RemoteDisk {
    pub(super) fn new(session: Arc<Session>, Disk { bytes, pieces }: Disk) -> Self {
        RemoteDisk { session, bytes, pieces }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reads a range.
    pub(crate) async fn read(&self, offset: u64, len: u32) -> Result<Read> {
        let (mut bytes, mut sent) = (Vec::with_capacity(len as usize), 0);
        for piece in self.cut(offset..offset + u64::from(len)) {
            let request = match &piece.from {
                Place::Device(..) => format!("data {}", words(&piece)),
                _ => {
                    bytes.resize(bytes.len() + piece.bytes as usize, 0);
                    continue;
                }
            };
            let read = self.session.ask(&request).await?;
            if read.len() as u64 != piece.bytes {
                return Err(Error::new(Kind::Io, "the other machine sent less than it was asked for"));
            }
            sent += piece.bytes;
            bytes.extend(read);
        }
        Ok(Read { bytes, sent })
    }

    /// The sums (SHA-256) of a range, of each chunk from its beginning on.
    pub(crate) async fn sums(&self, range: Range<u64>) -> Result<Vec<Sum>> {
        let starts = range.clone().step_by(CHUNK_BYTES as usize);
        let lines: Vec<String> = starts
            .map(|at| {
                let pieces = self.cut(at..range.end.min(at + CHUNK_BYTES));
                pieces.iter().map(words).collect::<Vec<_>>().join(" ")
            })
            .collect();
        let told = self.session.ask_text(&format!("sums {}\n{}", lines.len(), lines.join("\n"))).await?;
        let sums: Vec<Sum> = told.lines().filter_map(sum).collect();
        if sums.len() != lines.len() {
            let what = format!("the other machine has {} sums of {} chunks", sums.len(), lines.len());
            return Err(Error::new(Kind::Io, what).remedy("see that sha256sum is there (coreutils)"));
        }
        Ok(sums)
    }

    /// What a range is read from, in order, each no longer than one read.
    fn cut(&self, range: Range<u64>) -> Vec<Piece> {
        let first = self.pieces.partition_point(|piece| piece.at + piece.bytes <= range.start);
        let within = self.pieces[first..].iter().take_while(|piece| piece.at < range.end);
        let of = |piece: &Piece| {
            let piece = part_of(piece, range.start, range.end)?;
            let starts = (piece.at..piece.at + piece.bytes).step_by(PIECE_BYTES as usize);
            Some(starts.filter_map(|at| part_of(&piece, at, at + PIECE_BYTES)).collect::<Vec<_>>())
        };
        within.filter_map(of).flatten().collect()
    }
}

/// A piece as `dd` is told: what to read, how long its blocks are, how many to skip, how many to read.
pub(super) fn words(piece: &Piece) -> String {
    let (path, at) = match &piece.from {
        Place::Device(path, at) => (path.as_str(), *at),
        _ => ("/dev/zero", 0),
    };
    // The longest that divides both, so that it reads in few steps.
    let block = 1u64 << (at | piece.bytes | PIECE_BYTES).trailing_zeros();
    format!("{path} {block} {} {}", at / block, piece.bytes / block)
}

/// A line of sha256sum.
fn sum(line: &str) -> Option<Sum> {
    let text = line.split_whitespace().next().filter(|text| text.len() == 64 && text.is_ascii())?;
    let mut sum = [0; 32];
    for (byte, at) in sum.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(&text[at..at + 2], 16).ok()?;
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_is_told_in_the_longest_blocks() {
        let piece = |at, bytes| Piece { at: 0, bytes, from: Place::Device("/dev/x".to_owned(), at) };
        assert_eq!(words(&piece(0, 1 << 20)), "/dev/x 1048576 0 1");
        assert_eq!(words(&piece(3 << 20, 4096)), "/dev/x 4096 768 1");
        assert_eq!(words(&piece(512, 1 << 20)), "/dev/x 512 1 2048");
        assert_eq!(words(&piece(0, 1001)), "/dev/x 1 0 1001");
        assert_eq!(words(&Piece { at: 7 << 20, bytes: 4096, from: Place::Zeros }), "/dev/zero 4096 0 1");
    }

    #[test]
    fn sums_are_read() {
        let line = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  -";
        assert_eq!(sum(line).unwrap()[..2], [0xe3, 0xb0]);
        for wrong in ["", "e3", &line.replace('b', "x"), &line[1..]] {
            assert!(sum(wrong).is_none(), "{wrong}");
        }
    }
}
