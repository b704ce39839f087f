//! Files that journals are done with.
//!
//! A chunk is cheapest to make durable where it overwrites bytes that were written before: then fdatasync has no
//! metadata to commit. So a journal's files are kept and handed to the next that needs one. What they still hold
//! is told from fresh chunks by incarnation and sequence number. Where none is left, one is prepared in the
//! background ahead of need: filled with zeros once, then recycled for good.

use super::durable::unsupported;
use super::member::{Member, file_error, opening_error};
use super::options::Options;
use crate::io::Io;
use parking_lot::Mutex;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use stonefold_types::{AlignedBuf, Result};

/// The length of the first file of a new pool, in bytes: zeroed in some 10 ms.
const FIRST_BYTES: u64 = 4 << 20;
/// Spare files together, in bytes, at most: a large journal's worth. Also no more than a 64th of the file system.
const KEPT_BYTES_MAX: u64 = 1 << 30;
/// How often it is looked whether a file that is being made is there, and how many times at most: a second in all. One that takes longer stays
/// for the next opening.
const LOOK_EVERY: Duration = Duration::from_millis(5);
const LOOKS_MAX: usize = 200;
/// Zeros written at once.
const ZEROS_BYTES: usize = 1 << 20;

/// The spare files of one member.
pub(super) struct Spares {
    folder: PathBuf,
    kept_bytes_max: u64,
    file_bytes_max: u64,
    state: Mutex<State>,
}

struct State {
    ready: Vec<Spare>,
    /// The length of the next file to be made, in bytes: doubles with use.
    next_bytes: u64,
    number: u64,
    preparing: bool,
}

/// A file whose every byte has been written once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Spare {
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
}

impl Spares {
    pub(super) fn open(folder: &Path, total_bytes: u64, options: &Options) -> io::Result<Self> {
        let mut ready = Vec::new();
        let mut number = 0;
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            ready.push(Spare { path: entry.path(), bytes: entry.metadata()?.len() });
            number =
                number.max(entry.file_name().to_str().and_then(|n| n.parse().ok()).map_or(0, |n: u64| n + 1));
        }
        let align = AlignedBuf::ALIGN as u64;
        let file_bytes_max =
            options.journal_file_bytes_max.min(total_bytes / 64).max(16 * align).next_multiple_of(align);
        let next_bytes = FIRST_BYTES.min(file_bytes_max);
        let kept_bytes_max = KEPT_BYTES_MAX.min(total_bytes / 64);
        let state = Mutex::new(State { ready, next_bytes, number, preparing: false });
        Ok(Spares { folder: folder.into(), kept_bytes_max, file_bytes_max, state })
    }

    /// The smallest spare that holds `min_bytes`.
    pub(super) fn take(&self, min_bytes: u64) -> Option<Spare> {
        let mut state = self.state.lock();
        let fits = state.ready.iter().enumerate().filter(|(_, s)| s.bytes >= min_bytes);
        let index = fits.min_by_key(|(_, s)| s.bytes).map(|(index, _)| index)?;
        Some(state.ready.swap_remove(index))
    }

    /// Bytes that the spares occupy.
    pub(super) fn bytes(&self) -> u64 {
        self.state.lock().ready.iter().map(|s| s.bytes).sum()
    }

    /// See [`Member::release_spares`].
    pub(super) fn release(&self) -> u64 {
        let ready = std::mem::take(&mut self.state.lock().ready);
        // One that cannot be removed is found again when the pool is opened.
        ready.iter().filter(|s| fs::remove_file(&s.path).is_ok()).map(|s| s.bytes).sum()
    }

    /// The length of a file that is made now because no spare is there, and the path to make it at.
    pub(super) fn to_make(&self, min_bytes: u64) -> Spare {
        let mut state = self.state.lock();
        let bytes = state.next_bytes.max(min_bytes);
        state.next_bytes = (state.next_bytes * 2).min(self.file_bytes_max);
        Spare { path: self.next_path(&mut state), bytes }
    }

    fn next_path(&self, state: &mut State) -> PathBuf {
        state.number += 1;
        self.folder.join(format!("{:08}", state.number))
    }

    /// Takes back a file nobody needs, whose removal from its journal is durable; returns the bytes given back to
    /// the file system when there are spares enough.
    pub(super) fn give(&self, from: &Path, bytes: u64) -> io::Result<u64> {
        let to = {
            let mut state = self.state.lock();
            let kept: u64 = state.ready.iter().map(|s| s.bytes).sum();
            if kept + bytes > self.kept_bytes_max { None } else { Some(self.next_path(&mut state)) }
        };
        let Some(path) = to else {
            fs::remove_file(from)?;
            return Ok(bytes);
        };
        fs::rename(from, &path)?;
        self.state.lock().ready.push(Spare { path, bytes });
        Ok(0)
    }

    /// Sees to it that a spare will be there when one is needed.
    pub(super) fn prepare_ahead(member: &Arc<Member>) {
        let spares = &member.spares;
        {
            let mut state = spares.state.lock();
            if state.preparing || !state.ready.is_empty() {
                return;
            }
            state.preparing = true;
        }
        let by = member.clone();
        member.env.spawn("journal-spare", async move {
            let member = by;
            let spare = member.spares.to_make(0);
            let free_bytes = member.room().await.map_or(0, |(_, room)| room.free_bytes);
            // A nearly full disk has better uses for its last bytes.
            if spare.bytes <= member.spares.kept_bytes_max.min(free_bytes / 4) {
                match make(&member, &spare, true).await {
                    Ok(_) => member.spares.state.lock().ready.push(spare),
                    // Whoever needs a file makes one, or says that there is no room.
                    Err(error) => tracing::debug!(%error, "no journal file was made ahead"),
                }
            }
            member.spares.state.lock().preparing = false;
        });
    }
}

impl Member {
    /// Gives all spares back, the one, too, that is being made ahead of need.
    pub(super) async fn rest(self: &Arc<Self>) {
        for _ in 0..LOOKS_MAX {
            if !self.spares.state.lock().preparing {
                break;
            }
            self.env.sleep(LOOK_EVERY).await;
        }
        self.release_spares().await;
    }

    /// Gives all spares back to the file system; returns their bytes.
    pub(super) async fn release_spares(self: &Arc<Self>) -> u64 {
        let member = self.clone();
        let released = self.io.blocking(move || member.spares.release()).await;
        self.count_bytes(released, 0);
        released
    }
}

/// Makes a file with room for its full length. `filled`: all of it zeros written and durable, which takes as long as
/// writing it.
pub(super) async fn make(member: &Arc<Member>, spare: &Spare, filled: bool) -> Result<Arc<File>> {
    let (by, at) = (member.clone(), spare.clone());
    let file = member.io.blocking(move || allocate(&by, &at)).await?;
    if filled {
        if let Err(error) = fill(&member.io, &file, spare.bytes).await {
            let path = spare.path.clone();
            member.io.blocking(move || fs::remove_file(&path)).await.ok();
            return Err(file_error("preparing journal file", &spare.path, error));
        }
    }
    member.count_bytes(0, spare.bytes);
    Ok(file)
}

/// Opens a spare, its first page zeroed.
pub(super) async fn reopen(member: &Arc<Member>, spare: &Spare) -> Result<Arc<File>> {
    let (by, path) = (member.clone(), spare.path.clone());
    let doing = "opening journal file";
    let opened = member.io.blocking(move || by.open_options().read(true).write(true).open(&path)).await;
    let file = match opened {
        Ok(file) => Arc::new(file),
        Err(error) => {
            // It is as good as it was.
            member.spares.state.lock().ready.push(spare.clone());
            return Err(opening_error(doing, &spare.path, error));
        }
    };
    let page = AlignedBuf::zeroed(AlignedBuf::ALIGN).freeze();
    member.io.write_all_at(&file, page, 0).await.map_err(|e| file_error(doing, &spare.path, e))?;
    Ok(file)
}

fn allocate(member: &Member, spare: &Spare) -> Result<Arc<File>> {
    let failed = |e| file_error("making journal file", &spare.path, e);
    let mut options: OpenOptions = member.open_options();
    let opened = options.read(true).write(true).create_new(true).open(&spare.path);
    let file = opened.map_err(|e| opening_error("making journal file", &spare.path, e))?;
    match rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, spare.bytes) {
        Err(e) if !unsupported(e) => {
            let _ = fs::remove_file(&spare.path);
            Err(failed(e.into()))
        }
        _ => Ok(Arc::new(file)),
    }
}

async fn fill(io: &Io, file: &Arc<File>, bytes: u64) -> io::Result<()> {
    let zeros = AlignedBuf::zeroed(ZEROS_BYTES).freeze();
    let mut at = 0;
    while at < bytes {
        let len = zeros.len().min((bytes - at) as usize);
        io.write_all_at(file, zeros.slice(..len), at).await?;
        at += len as u64;
    }
    io.datasync(file).await
}
