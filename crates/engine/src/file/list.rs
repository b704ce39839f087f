//! Listing objects in the order of their keys.
//!
//! The folders are not in that order, so a page costs a look at every name of its kind (about 1 µs each): ask for
//! large pages.

use super::header::payload_len;
use super::layout::Layout;
use super::member::{Member, file_error};
use crate::{Key, Listed};
use std::collections::{BinaryHeap, HashMap};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use stonefold_types::Result;

impl Member {
    /// One page of a listing of what is named here, durable or not yet.
    pub(super) async fn list(
        self: &Arc<Self>,
        prefix: &str,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Vec<Listed>> {
        if limit == 0 {
            return Ok(Vec::new());
        }
        let (layout, prefix, after) = (self.layout.clone(), prefix.to_string(), after.cloned());
        let listed = self.io.blocking(move || {
            let objects = layout.objects();
            page(&layout, &prefix, after, limit).map_err(|e| file_error("listing", &objects, e))
        });
        listed.await
    }

    /// The objects of one part of the names, and their lengths.
    pub(super) async fn survey(&self, part: u64) -> Result<HashMap<Key, u64>> {
        self.survey_folders(Some(format!("{part:02x}"))).await
    }

    /// All objects there are, and their lengths.
    pub(super) async fn survey_all(&self) -> Result<HashMap<Key, u64>> {
        self.survey_folders(None).await
    }

    async fn survey_folders(&self, only: Option<String>) -> Result<HashMap<Key, u64>> {
        let layout = self.layout.clone();
        let surveyed = self.io.blocking(move || {
            let mut found = HashMap::new();
            let walked = for_each(&layout.objects(), &mut |kind, kind_path| {
                for_each(kind_path, &mut |bucket_name, bucket| {
                    if only.as_deref().is_some_and(|only| only != bucket_name) {
                        return Ok(());
                    }
                    for_each(bucket, &mut |name, path| {
                        match (Layout::key(kind, name), fs::metadata(path)) {
                            (Some(key), Ok(metadata)) => {
                                found.insert(key, payload_len(metadata.len()).unwrap_or(0));
                            }
                            // A stranger, or deleted since it was seen.
                            (None, _) => {}
                            (_, Err(e)) if e.kind() == ErrorKind::NotFound => {}
                            (_, Err(e)) => return Err(e),
                        }
                        Ok(())
                    })
                })
            });
            walked.map(|()| found).map_err(|e| file_error("listing", &layout.objects(), e))
        });
        surveyed.await
    }
}

fn page(layout: &Layout, prefix: &str, after: Option<Key>, limit: usize) -> io::Result<Vec<Listed>> {
    let mut listed: Vec<Listed> = Vec::new();
    let mut after = after;
    loop {
        let want = limit - listed.len();
        let keys = first_keys(layout, prefix, after.as_ref(), want)?;
        let full = keys.len() == want;
        after = keys.last().cloned();
        for key in keys {
            let Ok(place) = layout.place(&key) else { continue };
            match fs::metadata(&place.file) {
                Ok(metadata) => {
                    let bytes = payload_len(metadata.len()).unwrap_or(0);
                    listed.push(Listed { key, bytes });
                }
                // Deleted since it was seen.
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
        // A page that ends early would look like the end of the listing.
        if !full || listed.len() == limit {
            return Ok(listed);
        }
    }
}

/// The `limit` smallest keys that begin with `prefix` and lie behind `after`.
fn first_keys(layout: &Layout, prefix: &str, after: Option<&Key>, limit: usize) -> io::Result<Vec<Key>> {
    let mut smallest: BinaryHeap<Key> = BinaryHeap::new();
    let whole_kind = prefix.split_once('/').map(|(kind, _)| kind);
    for_each(&layout.objects(), &mut |kind, kind_path| {
        let wanted = match whole_kind {
            Some(wanted) => kind == wanted,
            // A prefix without a slash may also be the beginning of a key that has one part.
            None => kind == "+" || kind.starts_with(prefix),
        };
        if !wanted {
            return Ok(());
        }
        for_each(kind_path, &mut |_, bucket| {
            for_each(bucket, &mut |name, _| {
                let Some(key) = Layout::key(kind, name) else { return Ok(()) };
                let fits = key.as_str().starts_with(prefix) && after.is_none_or(|after| key > *after);
                if fits && (smallest.len() < limit || smallest.peek().is_some_and(|largest| key < *largest)) {
                    if smallest.len() == limit {
                        smallest.pop();
                    }
                    smallest.push(key);
                }
                Ok(())
            })
        })
    })?;
    Ok(smallest.into_sorted_vec())
}

/// Calls `see` with the name and path of each entry of a folder; an absent folder has none.
fn for_each(folder: &Path, see: &mut dyn FnMut(&str, &Path) -> io::Result<()>) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    for entry in entries {
        let entry = entry?;
        if let Some(name) = entry.file_name().to_str() {
            see(name, &entry.path())?;
        }
    }
    Ok(())
}
