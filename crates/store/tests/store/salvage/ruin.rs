//! Finding nodes in the pool by the indexes of its segments, and making them rot.

use bytes::Bytes;
use std::collections::BTreeMap;
use stonefold_engine::{Engine, Key, MemoryEngine};
use stonefold_format::entry::SegmentId;
use stonefold_format::segment::{Footer, Header, SegmentKind};

/// A node that lies somewhere in the pool.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Lying {
    /// Grows with time.
    pub(crate) address: u64,
    key: Key,
    offset: u64,
    length: u64,
    pub(crate) level: u32,
    pub(crate) base: u64,
}

/// Every object.
pub(crate) async fn everything(engine: &std::sync::Arc<dyn Engine>) -> BTreeMap<Key, Bytes> {
    let mut all = BTreeMap::new();
    for prefix in ["segment/", "head/web", "ledger/"] {
        for one in engine.list(prefix, None, 100_000).await.unwrap() {
            let (bytes, _) = engine.get(&one.key).await.unwrap();
            all.insert(one.key, bytes);
        }
    }
    all
}

/// All nodes, oldest first.
pub(crate) async fn nodes(memory: &MemoryEngine) -> Vec<Lying> {
    let mut all = Vec::new();
    for one in memory.list("segment/", None, 100_000).await.unwrap() {
        let id = one.key.as_str().strip_prefix("segment/").unwrap();
        let segment = SegmentId(u64::from_str_radix(id.split('.').next().unwrap(), 16).unwrap());
        let (bytes, _) = memory.get(&one.key).await.unwrap();
        let footer = Footer::decode(&bytes, segment).unwrap();
        if Header::decode(&bytes, segment).unwrap().kind != SegmentKind::Map {
            continue;
        }
        let at = footer.index_offset as usize;
        for record in footer.decode_index(&bytes[at..at + footer.index_bytes()]).unwrap().0 {
            let (level, base) = record.first_use(0).node_at();
            let address = segment.0 << 20 | u64::from(record.first_slot);
            let (offset, length) = (record.offset.into(), record.length.into());
            all.push(Lying { address, key: one.key.clone(), offset, length, level, base });
        }
    }
    all.sort();
    all
}

pub(crate) fn rot(memory: &MemoryEngine, node: &Lying) {
    // The header's and the payload's beginning; a node is never shorter.
    for byte in [8, 20, 40].into_iter().filter(|byte| *byte < node.length) {
        assert!(memory.rot(&node.key, (node.offset + byte) * 8 + 3));
    }
}

/// The newest node at a place rots.
pub(crate) async fn rot_node(memory: &MemoryEngine, level: u32, base: u64) -> Lying {
    let all = nodes(memory).await;
    let newest = all.iter().rfind(|node| (node.level, node.base) == (level, base)).expect("there is one");
    rot(memory, newest);
    newest.clone()
}

/// Every version of the node at a place rots.
pub(crate) async fn rot_nodes(memory: &MemoryEngine, level: u32, base: u64) {
    for node in nodes(memory).await.iter().filter(|node| (node.level, node.base) == (level, base)) {
        rot(memory, node);
    }
}
