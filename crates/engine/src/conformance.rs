//! One suite of behaviour for every engine and every wrapper.
//!
//! *Promises*: whatever passes [`run`] keeps the words on [`Engine`] as far as they can be seen without pulling a plug.
//! *Never*: asks which engine it is. *May be used by*: tests. It panics with the promise that was broken.
//!
//! Each case works under keys of its own and leaves nothing behind, so that one place can serve them all.

#![allow(clippy::missing_panics_doc, reason = "a suite of assertions panics by design")]

mod journals;
mod objects;
mod races;
mod repairs;

use crate::{Engine, JournalId, Key};
use async_trait::async_trait;
use bytes::Bytes;
use std::sync::Arc;
use stonefold_types::{AlignedBuf, Error, Kind};

/// Where an engine's objects live, apart from the engine.
#[async_trait]
pub trait Place: Send + Sync {
    /// Opens it, or opens it again; no engine from before is in use any more.
    async fn open(&self) -> Arc<dyn Engine>;
}

/// A place that is one engine all along: for engines without anything to reopen.
#[async_trait]
impl Place for Arc<dyn Engine> {
    async fn open(&self) -> Arc<dyn Engine> {
        self.clone()
    }
}

/// Runs every case.
///
/// # Panics
/// With the promise that the engine does not keep.
pub async fn run(place: &dyn Place) {
    objects(place).await;
    journals(place).await;
}

/// Runs the cases about objects.
pub async fn objects(place: &dyn Place) {
    let engine = place.open().await;
    assert!(!engine.describe().is_empty(), "an engine says what it is");
    objects::put_new_is_for_new_objects(&*engine).await;
    objects::ranges_end_where_the_object_ends(&*engine).await;
    objects::odd_lengths_come_back(&*engine).await;
    objects::long_objects_come_back(&*engine).await;
    objects::documents_change_by_version(&*engine).await;
    objects::a_version_never_comes_back(&*engine).await;
    objects::deleting_twice_is_no_error(&*engine).await;
    objects::absent_objects_are_not_found(&*engine).await;
    objects::listings_are_ordered_and_paged(&*engine).await;
    objects::room_is_told(&*engine).await;
    repairs::a_repair_gives_sound_bytes_or_none(&*engine).await;
    races::one_of_many_puts_wins(&engine).await;
    races::one_of_many_swaps_wins(&engine).await;
    races::counters_lose_no_increment(&engine).await;
    races::a_dropped_put_is_whole_or_absent(&engine).await;
    races::readers_see_whole_documents(&engine).await;
    drop(engine);
    objects::objects_survive_reopening(place).await;
}

/// Runs the cases about journals.
pub async fn journals(place: &dyn Place) {
    let engine = place.open().await;
    journals::chunks_come_back_in_order(&*engine).await;
    journals::long_chunks_come_back(&*engine).await;
    journals::a_first_chunk_may_be_the_longest(&*engine).await;
    journals::an_empty_journal_replays_nothing(&*engine).await;
    journals::only_the_next_chunk_is_taken(&*engine).await;
    journals::trimmed_chunks_leave_no_gap(&*engine).await;
    journals::removed_journals_are_gone(&*engine).await;
    journals::a_new_journal_sees_nothing_of_the_old(&*engine).await;
    journals::syncs_run_beside_appends(&*engine).await;
    drop(engine);
    journals::journals_survive_reopening(place).await;
}

fn key(text: &str) -> Key {
    Key::new(format!("conformance/{text}"))
}

/// Bytes that repeat nowhere at a page's distance.
fn pattern(len: usize, seed: u64) -> Bytes {
    let mut buf = AlignedBuf::zeroed(len);
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for piece in buf.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        piece.copy_from_slice(&state.to_le_bytes()[..piece.len()]);
    }
    buf.freeze()
}

#[track_caller]
fn kind<T>(result: Result<T, Error>, promise: &str) -> Kind {
    match result {
        Ok(_) => panic!("{promise}, but it succeeded"),
        Err(error) => {
            assert!(!error.what().is_empty(), "an error says what failed");
            error.kind()
        }
    }
}

fn journal_id(number: u8) -> JournalId {
    let mut id = *b"conformance ....";
    id[15] = number;
    JournalId(id)
}
