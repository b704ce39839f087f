//! New files that reach their medium evenly, while they are copied.
//!
//! What QEMU writes goes through the host's page cache, and to the medium when the copy is complete, in one go: of 3 GiB a database on the same medium
//! stood still for five seconds, and did half for eight more. Past the page cache, by `O_DIRECT`, it kept 0.7 of its speed all the way. So the kernel is asked to
//! begin writing what it has, again and again; what is written is let go of there, and takes no memory from anybody.

use super::Migration;
use super::home::Home;
use rustix::fs::{Advice, fadvise};
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often: some MiB at a time.
const EVERY: Duration = Duration::from_millis(100);

/// As long as it lives.
pub(super) struct Writeback(Arc<AtomicBool>);

impl Writeback {
    /// Of all files that a move writes, from when they are there; on a thread of its own, as a medium that is busy is waited for.
    pub(super) fn begin(migration: &Migration) -> Writeback {
        let ended = Arc::new(AtomicBool::new(false));
        let path = |home: &Home| match home {
            Home::File(path) => Some(path.clone()),
            Home::Nbd(_) => None,
        };
        let paths: Vec<PathBuf> = migration.disks.iter().filter_map(|disk| path(&disk.home)).collect();
        let seen = ended.clone();
        let work = move || {
            while !seen.load(Ordering::Relaxed) {
                std::thread::sleep(EVERY);
                paths.iter().for_each(write_back);
            }
        };
        if let Err(error) = std::thread::Builder::new().name("writeback".into()).spawn(work) {
            tracing::warn!(
                "what is copied of '{}' is written when the kernel likes: {error}",
                migration.name
            );
        }
        Writeback(ended)
    }
}

impl Drop for Writeback {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Linux begins to write what is dirty of a file before it lets go of the rest (`generic_fadvise`). One that cannot be opened is written when the kernel
/// likes.
fn write_back(path: &PathBuf) {
    if let Ok(file) = File::open(path) {
        let _ = fadvise(&file, 0, None, Advice::DontNeed);
    }
}
