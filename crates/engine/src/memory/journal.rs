//! Journals in memory: which chunks are there, which of them would survive a loss of power.

use super::State;
use crate::chunks::{self, Replay};
use crate::{Journal, JournalId, JournalReader};
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use stonefold_types::{Error, Kind, Result};

/// Trimmed chunks that come back all the same, because a real engine trims whole files: number of chunks.
const TRIMMED_KEPT: u64 = 3;

/// The chunks of one journal, oldest first.
#[derive(Default)]
pub(super) struct JournalState {
    pub(super) chunks: VecDeque<Stored>,
    next_seq: u64,
    failed: bool,
}

/// One chunk as the medium holds it.
#[derive(Clone)]
pub(super) struct Stored {
    pub(super) seq: u64,
    pub(super) bytes: Bytes,
    pub(super) durable: bool,
}

impl JournalState {
    /// What a crash left behind; nobody appends to it any more.
    pub(super) fn left_behind(chunks: VecDeque<Stored>) -> Self {
        JournalState { chunks, next_seq: 0, failed: true }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.chunks.iter().map(|c| c.bytes.len() as u64).sum()
    }

    /// Makes all of it durable, to be read.
    pub(super) fn open(&mut self, id: JournalId) -> MemoryReader {
        self.chunks.iter_mut().for_each(|c| c.durable = true);
        let first_seq = self.chunks.front().map_or(0, |first| first.seq);
        let chunks = self.chunks.iter().map(|c| c.bytes.clone()).collect();
        MemoryReader { replay: Replay::new(id, first_seq), chunks }
    }
}

/// The writing end.
pub(super) struct MemoryJournal {
    state: Arc<Mutex<State>>,
    id: JournalId,
}

impl MemoryJournal {
    pub(super) fn new(state: Arc<Mutex<State>>, id: JournalId) -> Self {
        MemoryJournal { state, id }
    }
}

#[async_trait]
impl Journal for MemoryJournal {
    async fn append(&self, chunk: Bytes) -> Result<()> {
        {
            let mut state = self.state.lock();
            let space = state.reserve(&format_args!("a chunk of journal {}", self.id), chunk.len());
            let journal = state.journal(self.id)?;
            if journal.failed {
                return Err(failed(self.id));
            }
            space?;
            if let Err(error) = chunks::check_next(&chunk, self.id, journal.next_seq) {
                journal.failed = true;
                return Err(error);
            }
            let seq = journal.next_seq;
            journal.next_seq += 1;
            let bytes = chunk.len() as u64;
            journal.chunks.push_back(Stored { seq, bytes: chunk, durable: false });
            state.used_bytes += bytes;
        }
        tokio::task::yield_now().await;
        Ok(())
    }

    async fn sync(&self) -> Result<()> {
        let below = self.state.lock().journal(self.id)?.next_seq;
        tokio::task::yield_now().await;
        let mut state = self.state.lock();
        let journal = state.journal(self.id)?;
        if journal.failed {
            return Err(failed(self.id));
        }
        journal.chunks.iter_mut().filter(|c| c.seq < below).for_each(|c| c.durable = true);
        Ok(())
    }

    async fn trim(&self, below: u64) -> Result<()> {
        let mut state = self.state.lock();
        let journal = state.journal(self.id)?;
        let mut gone = 0;
        while journal.chunks.front().is_some_and(|c| c.seq + TRIMMED_KEPT < below) {
            gone += journal.chunks.pop_front().map_or(0, |c| c.bytes.len() as u64);
        }
        state.used_bytes -= gone;
        Ok(())
    }
}

fn failed(id: JournalId) -> Error {
    Error::new(Kind::Closed, format!("journal {id} has failed and takes nothing more"))
        .remedy("write what is still in memory into a new journal")
}

/// The reading end.
pub(super) struct MemoryReader {
    replay: Replay,
    chunks: VecDeque<Bytes>,
}

#[async_trait]
impl JournalReader for MemoryReader {
    async fn next(&mut self) -> Result<Option<Bytes>> {
        let next = self.chunks.pop_front().and_then(|chunk| self.replay.accept(chunk));
        if next.is_none() {
            self.replay.end();
            for beyond in std::mem::take(&mut self.chunks) {
                self.replay.check_beyond(&beyond)?;
            }
        }
        Ok(next)
    }
}
