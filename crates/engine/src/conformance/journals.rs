//! Cases about journals.

use super::{Place, journal_id, kind, pattern};
use crate::{Engine, Journal, JournalId};
use bytes::Bytes;
use futures::future::join;
use stonefold_format::chunk::{self, CHUNK_BYTES_MAX, CHUNK_HEADER, ChunkHeader};
use stonefold_types::Kind;

fn chunk(id: JournalId, seq: u64, payload_bytes: usize) -> Bytes {
    chunk::encode(id.0, seq, 1, &pattern(payload_bytes, seq + 1)).freeze()
}

/// The sequence numbers that a replay returns, each chunk compared with what was appended.
async fn replay(engine: &dyn Engine, id: JournalId, payload_bytes: impl Fn(u64) -> usize) -> Vec<u64> {
    let mut reader = engine.journal_open(id).await.unwrap();
    let mut seqs = Vec::new();
    while let Some(found) = reader.next().await.unwrap() {
        let header = ChunkHeader::verify(&found).unwrap();
        assert!(
            found == chunk(id, header.seq, payload_bytes(header.seq)),
            "chunk {} comes back whole",
            header.seq
        );
        seqs.push(header.seq);
    }
    assert!(reader.next().await.unwrap().is_none(), "the end stays the end");
    assert!(seqs.windows(2).all(|pair| pair[1] == pair[0] + 1), "no gap: {seqs:?}");
    seqs
}

async fn append_all(
    journal: &dyn Journal,
    id: JournalId,
    seqs: std::ops::Range<u64>,
    payload_bytes: impl Fn(u64) -> usize,
) {
    for seq in seqs {
        journal.append(chunk(id, seq, payload_bytes(seq))).await.unwrap();
    }
}

pub(super) async fn chunks_come_back_in_order(engine: &dyn Engine) {
    let id = journal_id(1);
    let payload = |seq: u64| [0, 100, 4048, 4049, 20_000, 70_000][seq as usize % 6];
    let journal = engine.journal_create(id).await.unwrap();
    let again = engine.journal_create(id).await.map(drop);
    assert_eq!(kind(again, "a journal is made once"), Kind::AlreadyExists);
    append_all(&*journal, id, 0..50, payload).await;
    journal.sync().await.unwrap();
    append_all(&*journal, id, 50..60, payload).await;
    drop(journal);
    assert_eq!(replay(engine, id, payload).await, (0..60).collect::<Vec<_>>());
    assert_eq!(replay(engine, id, payload).await.len(), 60, "a journal can be read again");
    engine.journal_remove(id).await.unwrap();
}

/// Chunks up to the longest, one after the other.
pub(super) async fn long_chunks_come_back(engine: &dyn Engine) {
    let id = journal_id(2);
    let payload = |seq: u64| match seq {
        0 | 3 => 100,
        1 | 4 => CHUNK_BYTES_MAX - CHUNK_HEADER,
        _ => 5 << 20,
    };
    let journal = engine.journal_create(id).await.unwrap();
    append_all(&*journal, id, 0..6, payload).await;
    journal.sync().await.unwrap();
    drop(journal);
    assert_eq!(replay(engine, id, payload).await, [0, 1, 2, 3, 4, 5]);
    engine.journal_remove(id).await.unwrap();
}

pub(super) async fn a_first_chunk_may_be_the_longest(engine: &dyn Engine) {
    let id = journal_id(3);
    let payload = |seq: u64| if seq == 0 { CHUNK_BYTES_MAX - CHUNK_HEADER } else { 10 };
    let journal = engine.journal_create(id).await.unwrap();
    append_all(&*journal, id, 0..2, payload).await;
    drop(journal);
    assert_eq!(replay(engine, id, payload).await, [0, 1]);
    engine.journal_remove(id).await.unwrap();
}

pub(super) async fn an_empty_journal_replays_nothing(engine: &dyn Engine) {
    let id = journal_id(4);
    let absent = engine.journal_open(id).await.map(drop);
    assert_eq!(kind(absent, "an absent journal is not opened"), Kind::NotFound);
    let journal = engine.journal_create(id).await.unwrap();
    journal.sync().await.unwrap();
    journal.trim(0).await.unwrap();
    drop(journal);
    assert!(replay(engine, id, |_| 0).await.is_empty());
    engine.journal_remove(id).await.unwrap();
}

/// A chunk that is not the next one is refused, and an error ends the journal.
pub(super) async fn only_the_next_chunk_is_taken(engine: &dyn Engine) {
    let id = journal_id(5);
    for wrong in [chunk(id, 2, 10), chunk(id, 0, 10), chunk(journal_id(99), 1, 10), pattern(4096, 1)] {
        let journal = engine.journal_create(id).await.unwrap();
        journal.append(chunk(id, 0, 10)).await.unwrap();
        journal.sync().await.unwrap();
        assert_eq!(kind(journal.append(wrong).await, "a wrong chunk is refused"), Kind::Invalid);
        kind(journal.append(chunk(id, 1, 10)).await, "after an error a journal takes nothing more");
        drop(journal);
        assert_eq!(replay(engine, id, |_| 10).await, [0], "what was there before the error is kept");
        engine.journal_remove(id).await.unwrap();
    }
}

/// Trimmed chunks may come back; all others must, in one run that ends with the last.
pub(super) async fn trimmed_chunks_leave_no_gap(engine: &dyn Engine) {
    let id = journal_id(6);
    let payload = |_| 1 << 20;
    let journal = engine.journal_create(id).await.unwrap();
    let mut appended = 0;
    for below in [0, 1, 7, 30, 30, 29, 47] {
        append_all(&*journal, id, appended..appended + 8, payload).await;
        appended += 8;
        journal.sync().await.unwrap();
        journal.trim(below).await.unwrap();
    }
    drop(journal);
    let seqs = replay(engine, id, payload).await;
    assert!(seqs[0] <= 47, "chunk 47 was not trimmed: {seqs:?}");
    assert_eq!(seqs.last(), Some(&(appended - 1)), "the last chunk comes back");
    engine.journal_remove(id).await.unwrap();
}

pub(super) async fn removed_journals_are_gone(engine: &dyn Engine) {
    let ids = [journal_id(7), journal_id(8), journal_id(9)];
    for id in ids {
        drop(engine.journal_create(id).await.unwrap());
    }
    let listed = engine.journal_list().await.unwrap();
    assert!(ids.iter().all(|id| listed.contains(id)), "journals are listed");
    engine.journal_remove(ids[1]).await.unwrap();
    engine.journal_remove(ids[1]).await.unwrap();
    let listed = engine.journal_list().await.unwrap();
    assert!(!listed.contains(&ids[1]) && listed.contains(&ids[0]), "a removed journal is not listed");
    assert_eq!(kind(engine.journal_open(ids[1]).await.map(drop), "nor opened"), Kind::NotFound);
    engine.journal_remove(ids[0]).await.unwrap();
    engine.journal_remove(ids[2]).await.unwrap();
}

/// Space that one journal leaves to the next carries nothing of it over.
pub(super) async fn a_new_journal_sees_nothing_of_the_old(engine: &dyn Engine) {
    let (old, new) = (journal_id(10), journal_id(11));
    let journal = engine.journal_create(old).await.unwrap();
    append_all(&*journal, old, 0..200, |_| 5000).await;
    drop(journal);
    engine.journal_remove(old).await.unwrap();
    let journal = engine.journal_create(new).await.unwrap();
    append_all(&*journal, new, 0..3, |_| 5000).await;
    drop(journal);
    assert_eq!(replay(engine, new, |_| 5000).await, [0, 1, 2]);
    engine.journal_remove(new).await.unwrap();
}

pub(super) async fn syncs_run_beside_appends(engine: &dyn Engine) {
    let id = journal_id(12);
    let journal = engine.journal_create(id).await.unwrap();
    let appends = append_all(&*journal, id, 0..100, |_| 9000);
    let syncs = async {
        for _ in 0..20 {
            journal.sync().await.unwrap();
            journal.trim(0).await.unwrap();
        }
    };
    join(appends, join(syncs, async { journal.sync().await.unwrap() })).await;
    drop(journal);
    assert_eq!(replay(engine, id, |_| 9000).await.len(), 100);
    engine.journal_remove(id).await.unwrap();
}

pub(super) async fn journals_survive_reopening(place: &dyn Place) {
    let id = journal_id(13);
    let engine = place.open().await;
    let journal = engine.journal_create(id).await.unwrap();
    append_all(&*journal, id, 0..10, |_| 300_000).await;
    journal.sync().await.unwrap();
    // Appended, not synced: it outlives the process all the same.
    append_all(&*journal, id, 10..20, |_| 300_000).await;
    drop((journal, engine));
    let engine = place.open().await;
    assert!(engine.journal_list().await.unwrap().contains(&id));
    assert_eq!(replay(&*engine, id, |_| 300_000).await, (0..20).collect::<Vec<_>>());
    engine.journal_remove(id).await.unwrap();
    drop(engine);
    let engine = place.open().await;
    assert!(!engine.journal_list().await.unwrap().contains(&id), "a removed journal stays removed");
}
