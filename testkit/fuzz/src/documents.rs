//! Documents: small mutable records in an envelope whose checksum is made right again.

use crate::Target;
use stonefold_format::account::Accounts;
use stonefold_format::document::{self, DocumentKind};
use stonefold_format::domains::Domains;
use stonefold_format::entry::{Entry, Hint, SegmentId};
use stonefold_format::growth::{self, Sample};
use stonefold_format::head::{Base, Head, Lease};
use stonefold_format::ledger::LedgerRef;
use stonefold_format::pool::{Pool, TrustedTime};
use stonefold_format::qos::QosClasses;
use stonefold_format::scrub::{self, ScrubRecord};
use stonefold_format::snapshots::{
    Commit, PageRef, SnapshotRecord, decode_directory, decode_page, encode_directory, encode_page,
};
use stonefold_format::tokens::{SecretHash, Token, Tokens};
use stonefold_types::{DiskSettings, Name, Role};

/// Bytes before a document's body.
const ENVELOPE: usize = 24;

/// The readers.
pub fn targets() -> Vec<Target> {
    let target = |name, seeds, read| Target { name, seeds, read, bytes_max: 64 << 10 };
    vec![
        target(
            "head",
            || vec![body(&head().encode())],
            |bytes| {
                read(bytes, DocumentKind::Head, Head::decode, Head::encode);
            },
        ),
        target("snapshot page", || vec![body(&encode_page(77, 9, &[snapshot(2), snapshot(5)]))], read_page),
        target(
            "snapshot directory",
            || {
                let of = |number, id| PageRef { number, first: id, last: id, records: 1 };
                vec![body(&encode_directory(77, 9, &[of(3, 2), of(4, 5)]))]
            },
            read_directory,
        ),
        target(
            "pool",
            || vec![body(&pool().encode())],
            |bytes| {
                read(bytes, DocumentKind::Pool, Pool::decode, Pool::encode);
            },
        ),
        target(
            "accounts",
            || vec![body(&accounts().encode())],
            |bytes| {
                read(bytes, DocumentKind::Accounts, Accounts::decode, Accounts::encode);
            },
        ),
        target(
            "tokens",
            || vec![body(&tokens().encode())],
            |bytes| {
                read(bytes, DocumentKind::Tokens, Tokens::decode, Tokens::encode);
            },
        ),
        target(
            "qos",
            || vec![body(&QosClasses::default().encode())],
            |bytes| {
                read(bytes, DocumentKind::Qos, QosClasses::decode, QosClasses::encode);
            },
        ),
        target(
            "domains",
            || vec![body(&Domains::default().encode())],
            |bytes| {
                read(bytes, DocumentKind::Domains, Domains::decode, Domains::encode);
            },
        ),
        target(
            "growth",
            || {
                vec![body(&growth::encode(&[
                    Sample { time: 5, used_bytes: 7 },
                    Sample { time: 6, used_bytes: 1 << 40 },
                ]))]
            },
            |bytes| {
                read(bytes, DocumentKind::Growth, growth::decode, |samples| growth::encode(samples));
            },
        ),
        target(
            "catalog",
            || vec![body(&catalog("{\"version\":1,\"name\":\"wéb\"}"))],
            |bytes| read(bytes, DocumentKind::Catalog, decode_catalog, |text| catalog(text)),
        ),
        target(
            "scrub",
            || vec![body(&scrub::encode(&ScrubRecord { passes: 3, begun: 5, ..ScrubRecord::default() }))],
            |bytes| {
                read(bytes, DocumentKind::Scrub, scrub::decode, scrub::encode);
            },
        ),
    ]
}

fn body(document: &[u8]) -> Vec<u8> {
    document[ENVELOPE..].to_vec()
}

/// What is accepted is written so that it reads the same again; the bytes as they are are no document.
fn read<T: PartialEq + std::fmt::Debug>(
    bytes: &[u8],
    kind: DocumentKind,
    decode: fn(&[u8]) -> stonefold_types::Result<T>,
    encode: fn(&T) -> Vec<u8>,
) {
    let _ = decode(bytes);
    for version in [0, 1, 2, u16::MAX] {
        if let Ok(found) = decode(&document::seal(kind, version, bytes)) {
            let again = decode(&encode(&found)).expect("what was accepted once is accepted again");
            assert_eq!(again, found);
        }
    }
}

fn catalog(text: &str) -> Vec<u8> {
    stonefold_format::catalog::encode(text).expect("no longer than an entry can be")
}

fn decode_catalog(bytes: &[u8]) -> stonefold_types::Result<String> {
    stonefold_format::catalog::decode(bytes).map(str::to_owned)
}

fn name(text: &str) -> Name {
    Name::new(text).expect("letters make a name")
}

fn section(id: u64) -> LedgerRef {
    LedgerRef { id, offset: 8, length: 40, addresses: 12 }
}

fn commit() -> Commit {
    let root = Entry::new(SegmentId::new(1, 5), 6, Hint::new(64, 900, 0)).born(3);
    Commit { root, mapped_blocks: 17 }
}

fn snapshot(id: u64) -> SnapshotRecord {
    SnapshotRecord {
        id,
        removed: id == 2,
        name: name(&format!("s{id}")),
        created: 1 << 60,
        size_bytes: 1 << 30,
        locked_until: id,
        commit: commit(),
        deaths: vec![section(id)],
    }
}

/// Bytes are read for the disk, the number and the range of this page, which those of the seed are of.
const PAGE: PageRef = PageRef { number: 9, first: 2, last: 5, records: 2 };

fn read_page(bytes: &[u8]) {
    let sealed = document::seal(DocumentKind::SnapshotPage, 1, bytes);
    if let Ok(found) = decode_page(&sealed, 77, &PAGE) {
        assert_eq!(decode_page(&encode_page(77, 9, &found), 77, &PAGE).expect("accepted again"), found);
    }
}

fn read_directory(bytes: &[u8]) {
    let sealed = document::seal(DocumentKind::SnapshotDirectory, 1, bytes);
    if let Ok(found) = decode_directory(&sealed, 77, &PAGE) {
        let again = decode_directory(&encode_directory(77, 9, &found), 77, &PAGE);
        assert_eq!(again.expect("accepted again"), found);
    }
}

fn head() -> Head {
    Head {
        id: 77,
        domain: 1,
        name: name("web"),
        created: 1 << 60,
        size_bytes: 1 << 34,
        settings: DiskSettings::default(),
        lease: Lease { owner: [6; 16], epoch: 4 },
        origin: Some("other@monday".parse().expect("a snapshot's name")),
        base: Some(Base { disk: 12, epoch: 3 }),
        folded_lsn: 99,
        commit: commit(),
        next_snapshot_id: 8,
        reclaimed: 0,
        changes: vec![section(1), section(2)],
        deaths: vec![section(3)],
        directories: vec![PageRef { number: 9, first: 1, last: 1, records: 1 }],
        recent: vec![snapshot(2), snapshot(5)],
    }
}

fn pool() -> Pool {
    let time = TrustedTime { trusted: 1 << 60, unproven: 5, in_doubt: true };
    Pool { id: [7; 16], created: 1 << 60, sessions: 3, time }
}

fn accounts() -> Accounts {
    Accounts {
        batch: 4,
        live_blocks: 1000,
        present_blocks: 2000,
        shards: [(0, (9, 0)), (1, (11, 3))].into(),
        consumed: [(77, 8), (78, 9)].into(),
    }
}

fn tokens() -> Tokens {
    let token = |text: &str| Token {
        name: name(text),
        role: Role::Operator,
        created: 1 << 60,
        hash: SecretHash::of(text),
    };
    Tokens(vec![token("ci"), token("backup")])
}
