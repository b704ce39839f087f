//! Emptying a directory that has left its pool.

use super::layout::Layout;
use super::member::{Member, file_error};
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use stonefold_types::Result;

impl Member {
    /// Removes all that the pool made in this directory; the directory itself stays. What was cut short goes on when it
    /// is called again.
    pub(super) async fn empty(self: &Arc<Self>) -> Result<()> {
        let layout = self.layout.clone();
        let emptied = self.io.blocking(move || {
            let folders = [layout.objects(), layout.journals(), layout.spares(), layout.temporary()];
            let removed = folders.iter().try_for_each(|folder| unless_absent(fs::remove_dir_all(folder)));
            removed.and_then(|()| remove_marks(&layout)).map_err(|e| file_error("emptying", &layout.root, e))
        });
        emptied.await
    }
}

/// What says that it is a pool's. The mark goes first: without it nobody takes what else is there for a pool's.
fn remove_marks(layout: &Layout) -> io::Result<()> {
    let [first, second] = layout.rosters();
    let marks = [layout.pool(), first, second, layout.lock()];
    marks.iter().try_for_each(|file| unless_absent(fs::remove_file(file)))?;
    fs::File::open(&layout.root)?.sync_all()
}

/// Removes what a crash may have left of an emptying, as far as nothing lies in it. What cannot be removed harms nobody.
pub(super) fn remove_remains(dir: &Path) {
    let layout = Layout { root: dir.to_path_buf() };
    if !matches!(layout.inspect(true), Ok(false)) {
        return;
    }
    for folder in [layout.objects(), layout.journals(), layout.spares(), layout.temporary()] {
        let _ = fs::remove_dir(folder);
    }
    if !layout.objects().exists() {
        let _ = remove_marks(&layout);
    }
}

fn unless_absent(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
