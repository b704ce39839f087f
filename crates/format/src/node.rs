//! One node of a disk's map: 256 entries, in 4 KiB.
//!
//! The map is a radix tree over the block address with 256 ways. A *leaf* (level 0) holds the entries of 256
//! consecutive blocks; a node of level n holds the entries of 256 nodes of level n-1. A node is the content of a
//! frame of one block, laid out as columns so that it compresses: the 256 addresses first, then the 256 hints. The
//! level and the position are not stored: a reader always knows them from the way it came, and the checksum
//! binds the frame to its own address.

use crate::entry::{Entry, Hint};
use stonefold_types::{BLOCK_BYTES, Error, Kind, Result};

/// Ways of a node.
pub const NODE_WAYS: usize = 256;
/// log2 of [`NODE_WAYS`].
pub const NODE_SHIFT: u32 = 8;

const _: () = assert!(NODE_WAYS * crate::entry::ENTRY_BYTES == BLOCK_BYTES);

/// The entries of one node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// By position.
    pub entries: Box<[Entry; NODE_WAYS]>,
}

impl Default for Node {
    fn default() -> Self {
        Node::filled(Entry::HOLE)
    }
}

impl Node {
    /// A node of 256 times the same: holes, or what is lost.
    pub fn filled(entry: Entry) -> Self {
        debug_assert!(!entry.is_stored());
        Node { entries: Box::new([entry; NODE_WAYS]) }
    }

    /// What can stand for the node in the one above: a hole where all are, what is lost where all is.
    pub fn in_place(&self) -> Option<Entry> {
        let first = self.entries[0];
        (!first.is_stored() && self.entries.iter().all(|entry| *entry == first)).then_some(first)
    }

    /// Its 4 KiB.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(BLOCK_BYTES);
        self.entries.iter().for_each(|e| bytes.extend_from_slice(&e.address.to_le_bytes()));
        self.entries.iter().for_each(|e| bytes.extend_from_slice(&e.hint.0.to_le_bytes()));
        bytes
    }

    /// From a frame's content. Fails with `Corrupt` when that is not 4 KiB.
    pub fn decode(bytes: &[u8]) -> Result<Node> {
        if bytes.len() != BLOCK_BYTES {
            return Err(Error::new(Kind::Corrupt, format!("a map node of {} bytes", bytes.len())));
        }
        let word = |at: usize| u64::from_le_bytes(bytes[at * 8..at * 8 + 8].try_into().expect("8 bytes"));
        let mut node = Node::default();
        for (at, entry) in node.entries.iter_mut().enumerate() {
            *entry = Entry { address: word(at), hint: Hint(word(NODE_WAYS + at)) };
        }
        Ok(node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::SegmentId;

    #[test]
    fn comes_back() {
        let mut node = Node::default();
        assert_eq!(node.in_place(), Some(Entry::HOLE));
        assert_eq!(Node::filled(Entry::LOST).in_place(), Some(Entry::LOST));
        node.entries[3] = Entry::new(SegmentId(9), 4, Hint::new(64, 5000, 2)).born(9);
        node.entries[255] = Entry::new(SegmentId(1), 0, Hint::new(0, 1, 0));
        node.entries[9] = Entry::LOST;
        assert_eq!(node.in_place(), None);
        assert_eq!(Node::decode(&node.encode()).unwrap(), node);
        assert!(Node::decode(&[0; 4095]).is_err());
    }
}
