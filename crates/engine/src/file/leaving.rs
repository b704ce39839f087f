//! Emptying a directory that has left its pool.
//!
//! The order is what makes a crash harmless: that it has left is recorded on all others; then a [tombstone](super::tombstone) is
//! laid in it, and from then on nobody takes for a pool's what else is there; then that is removed, and the tombstone stays.

use super::durable::sync_folder;
use super::layout::Layout;
use super::lock;
use super::member::{Member, file_error};
use super::planted;
use super::tombstone::{self, Mark, Tombstone};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use stonefold_types::Result;

impl Member {
    /// Removes all that the pool made in this directory, and leaves a tombstone. What was cut short goes on when it is called again.
    pub(super) async fn empty(self: &Arc<Self>, tombstone: Tombstone) -> Result<()> {
        // What journals are done with is needless here, and its room may be needed for the tombstone.
        self.spares.release();
        if !planted::is("no-tombstone") {
            self.emptying(move |layout| tombstone.write(layout)).await?;
        }
        for folder in folders(&self.layout) {
            self.emptying(move |_| unless_absent(fs::remove_dir_all(folder))).await?;
        }
        self.emptying(remove_marks).await
    }

    /// One step of it.
    async fn emptying(&self, step: impl FnOnce(&Layout) -> io::Result<()> + Send + 'static) -> Result<()> {
        let layout = self.layout.clone();
        let done = move || step(&layout).map_err(|e| file_error("emptying", &layout.root, e));
        self.io.blocking(done).await
    }

    /// Removes the tombstone of a directory that is a member's again. One that stays is void, and harms nobody.
    pub(super) async fn remove_tombstone(&self) {
        let layout = self.layout.clone();
        let removed = self.io.blocking(move || tombstone::remove(&layout)).await;
        if let Err(error) = removed {
            tracing::warn!(%error, "'{}' is a directory of the pool again, and says still that it has left", self.path().display());
        }
    }
}

fn folders(layout: &Layout) -> [PathBuf; 4] {
    [layout.objects(), layout.journals(), layout.spares(), layout.temporary()]
}

/// What says that it is a pool's.
fn remove_marks(layout: &Layout) -> io::Result<()> {
    let [first, second] = layout.rosters();
    let marks = [layout.pool(), first, second, layout.lock()];
    marks.iter().try_for_each(|file| unless_absent(fs::remove_file(file)))?;
    sync_folder(&layout.root)
}

/// Removes what a crash has left of an emptying: everything where a tombstone tells that it was this one, elsewhere what is empty.
/// What cannot be removed harms nobody.
pub(super) fn remove_remains(dir: &Path, left: &Tombstone) {
    let layout = Layout { root: dir.to_path_buf() };
    let is_ours = || match tombstone::read(&layout) {
        Ok(Mark::Left(found)) => found.member == left.member && tombstone::holds(&layout).unwrap_or(false),
        _ => false,
    };
    if !is_ours() {
        return remove_what_is_empty(&layout);
    }
    // Who has been invited there meanwhile has the lock, or is seen by his record under it.
    let Ok(_lock) = lock::take(&layout.lock(), dir) else { return };
    if is_ours() {
        let removed =
            folders(&layout).iter().try_for_each(|folder| unless_absent(fs::remove_dir_all(folder)));
        if let Err(error) = removed.and_then(|()| remove_marks(&layout)) {
            tracing::warn!(%error, "remains of the pool stay in '{}', which has left it", dir.display());
        }
    }
}

fn remove_what_is_empty(layout: &Layout) {
    if !matches!(layout.inspect(true), Ok(false))
        || tombstone::read(layout).is_ok_and(|mark| mark != Mark::Absent)
    {
        return;
    }
    for folder in folders(layout) {
        let _ = fs::remove_dir(folder);
    }
    if !layout.objects().exists() {
        let _ = remove_marks(layout);
    }
}

fn unless_absent(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
