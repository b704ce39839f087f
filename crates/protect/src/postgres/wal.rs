//! WAL that was received, in a folder that stays from run to run.
//!
//! A segment's file is named by its timeline, and by its place in two parts, eight hexadecimal digits each (XLogFileName in xlog_internal.h); the one
//! that is not full yet ends in `.partial`, and has zeros behind what was received. Histories of timelines lie beside them.

use super::LOST;
use super::base::own;
use super::client::{AGAIN, Client, TRIES_MAX, Told, is_active, said, tool};
use crate::image::aside;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::fs::{DirBuilder, Permissions};
use std::io::Read;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use stonefold_env::Env;
use stonefold_types::{Error, Kind, Result};
use tempfile::TempDir;

const PARTIAL: &str = ".partial";

/// A place in a cluster's WAL, in bytes from its beginning on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Lsn(pub(super) u64);

impl TryFrom<String> for Lsn {
    type Error = String;

    fn try_from(text: String) -> std::result::Result<Self, String> {
        let parts = text.split_once('/').and_then(|(high, low)| {
            let of = |part: &str| u32::from_str_radix(part, 16).ok().map(u64::from);
            Some(of(high)? << 32 | of(low)?)
        });
        parts.map(Lsn).ok_or_else(|| format!("'{text}' is no place in WAL"))
    }
}

impl From<Lsn> for String {
    fn from(place: Lsn) -> String {
        place.to_string()
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:X}/{:X}", self.0 >> 32, self.0 & 0xffff_ffff)
    }
}

/// The name of a segment's file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Segment(String);

impl TryFrom<String> for Segment {
    type Error = String;

    fn try_from(name: String) -> std::result::Result<Self, String> {
        let is_digit = |b: u8| b.is_ascii_digit() || (b'A'..=b'F').contains(&b);
        let is_one = name.len() == 24 && name.bytes().all(is_digit);
        if is_one { Ok(Segment(name)) } else { Err(format!("'{name}' is no WAL segment")) }
    }
}

impl From<Segment> for String {
    fn from(segment: Segment) -> String {
        segment.0
    }
}

impl Segment {
    /// Its place, whatever its timeline.
    fn place(&self) -> (u64, u64) {
        let part = |from: usize| u64::from_str_radix(&self.0[from..from + 8], 16).unwrap_or_default();
        (part(8), part(16))
    }

    /// The same as one number, of segments of so many bytes.
    fn number(&self, bytes: u64) -> u64 {
        let (high, low) = self.place();
        high * ((1 << 32) / bytes.max(1)) + low
    }
}

/// A file of the folder.
struct Received {
    segment: Segment,
    path: PathBuf,
    bytes: u64,
}

/// The folder.
pub(super) struct Archive {
    pub(super) folder: PathBuf,
}

impl Archive {
    /// Has the folder be there, without what lies before a segment: a point has it.
    pub(super) async fn begin(&self, from: Option<&Segment>) -> Result<()> {
        let (folder, from) = (self.folder.clone(), from.cloned());
        let begin = move || {
            make(&folder)?;
            let Some(from) = from else { return Ok(()) };
            for old in received(&folder)?.iter().filter(|one| one.segment.place() < from.place()) {
                std::fs::remove_file(&old.path).map_err(|e| unread(&old.path, e))?;
            }
            Ok(())
        };
        aside(begin).await?
    }

    /// Empties it for good.
    pub(super) async fn clear(&self) -> Result<()> {
        let folder = self.folder.clone();
        let clear = move || {
            if !folder.exists() {
                return Ok(());
            }
            // At once: one that comes after it begins with an empty one, whatever becomes of this.
            let going = beside(&folder, "going")?;
            std::fs::rename(&folder, going.path().join("wal")).map_err(|e| unread(&folder, e))
        };
        aside(clear).await?
    }

    /// Receives what the cluster has, durably; what was received before is gone on from. Where that cannot be, it goes, and why is told.
    pub(super) async fn receive(&self, env: &Env, client: &Client, told: &Told) -> Result<Option<String>> {
        let folder = self.folder.clone();
        let bytes = told.segment_bytes;
        let before = aside(move || last_partial(&folder, bytes)).await??;
        let why = match self.receive_now(env, client, told.flushed).await {
            // Somebody took files out of the folder, and the cluster does not have what would follow on those that are left.
            Err(error) if error.what().contains("has already been removed") => {
                format!("what was received does not go on ({}); {LOST}", error.what())
            }
            Err(error) => return Err(error),
            Ok(()) => {
                let is_still = match before {
                    Some(before) => aside(move || before.is_still()).await??,
                    None => true,
                };
                if is_still {
                    return Ok(None);
                }
                format!("the cluster has gone back in time; {LOST}")
            }
        };
        self.clear().await?;
        self.begin(None).await?;
        self.receive_now(env, client, told.flushed).await?;
        Ok(Some(why))
    }

    async fn receive_now(&self, env: &Env, client: &Client, until: Lsn) -> Result<()> {
        // It ends once it has received more than up to there.
        let last = Lsn(until.0.saturating_sub(1)).to_string();
        let mut tries = 1;
        loop {
            let mut command = tool("pg_receivewal");
            command.args(["--no-password", "--no-loop", "--status-interval", "1", "--slot", &client.slot]);
            command.args(["--endpos", &last, "--dbname", &client.reached()]);
            command.arg("--directory").arg(&self.folder);
            match said(command, "pg_receivewal").await {
                // By one of an earlier run that was killed, which the cluster has not noticed yet.
                Err(error) if is_active(&error) && tries < TRIES_MAX => env.sleep(AGAIN).await,
                done => return done.map(drop),
            }
            tries += 1;
        }
    }

    /// Whether all WAL is there from a segment on.
    pub(super) async fn reaches(&self, from: &Segment, segment_bytes: u64) -> Result<bool> {
        let (folder, from) = (self.folder.clone(), from.clone());
        let reaches = move || {
            let found = received(&folder)?;
            let numbers: BTreeSet<u64> = found.iter().map(|one| one.segment.number(segment_bytes)).collect();
            Ok(goes_on(&numbers, from.number(segment_bytes)))
        };
        aside(reaches).await?
    }

    /// How much it holds.
    pub(super) async fn bytes(&self) -> Result<u64> {
        let folder = self.folder.clone();
        aside(move || Ok(received(&folder)?.iter().map(|one| one.bytes).sum())).await?
    }

    /// A folder in which `root` has all of it as PostgreSQL asks for it, the last segment under the name that it will have.
    pub(super) async fn staged(&self) -> Result<TempDir> {
        let folder = self.folder.clone();
        let stage = move || {
            let staged = beside(&folder, "staged")?;
            let root = staged.path().join("root");
            DirBuilder::new().mode(0o755).create(&root).map_err(|e| unread(&root, e))?;
            for entry in std::fs::read_dir(&folder).map_err(|e| unread(&folder, e))? {
                let path = entry.map_err(|e| unread(&folder, e))?.path();
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                let name = name.strip_suffix(PARTIAL).unwrap_or(&name);
                std::fs::hard_link(&path, root.join(name)).map_err(|e| unread(&path, e))?;
            }
            own(&root)?;
            Ok(staged)
        };
        aside(stage).await?
    }
}

/// The last segment as far as it was received, to be held against what is received of it again: each time from its beginning on.
struct LastPartial {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl LastPartial {
    fn is_still(&self) -> Result<bool> {
        // It may be full now.
        let full = self.path.with_extension("");
        let path = if full.exists() { &full } else { &self.path };
        let mut now = vec![0; self.bytes.len()];
        let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut now));
        read.map_err(|e| unread(path, e))?;
        Ok(now == self.bytes)
    }
}

/// The segment that is not full, where there is one. What a receiver that was killed has not made whole is removed: the cluster still has it.
fn last_partial(folder: &Path, segment_bytes: u64) -> Result<Option<LastPartial>> {
    let mut last: Option<Received> = None;
    for one in received(folder)?.into_iter().filter(|one| one.path.extension().is_some()) {
        if one.bytes != segment_bytes {
            std::fs::remove_file(&one.path).map_err(|e| unread(&one.path, e))?;
        } else if last.as_ref().is_none_or(|last| last.segment.0 < one.segment.0) {
            last = Some(one);
        }
    }
    let Some(Received { path, .. }) = last else { return Ok(None) };
    let mut bytes = std::fs::read(&path).map_err(|e| unread(&path, e))?;
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    bytes.truncate(end);
    Ok(Some(LastPartial { path, bytes }))
}

/// A new folder for something of the archive's, beside it; it goes with what is returned.
fn beside(folder: &Path, what: &str) -> Result<TempDir> {
    let (scratch, name) = (folder.parent().unwrap_or(folder), folder.file_name().unwrap_or_default());
    let prefix = format!("{}-{what}-", name.to_string_lossy());
    let mut builder = tempfile::Builder::new();
    builder.prefix(&prefix).permissions(Permissions::from_mode(0o700));
    builder.tempdir_in(scratch).map_err(|e| unread(scratch, e))
}

/// Makes the folder, or sees that the one that is there is ours alone.
fn make(folder: &Path) -> Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
        made => {
            return made.map_err(|e| {
                Error::io(format!("making the folder '{}' for WAL", folder.display()), e)
                    .remedy("make the folder that it is in, or add the source with --scratch and another")
            });
        }
    }
    let meta = folder.symlink_metadata().map_err(|e| unread(folder, e))?;
    if meta.is_dir() && meta.uid() == rustix::process::geteuid().as_raw() && meta.mode() & 0o077 == 0 {
        return Ok(());
    }
    let what = format!("'{}' is where WAL is kept, and is not the server's alone", folder.display());
    Err(Error::new(Kind::Denied, what).remedy("remove it: the next run begins with a new base"))
}

/// What is in it, in no order.
fn received(folder: &Path) -> Result<Vec<Received>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(|e| unread(folder, e))? {
        let entry = entry.map_err(|e| unread(folder, e))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let name = name.strip_suffix(PARTIAL).unwrap_or(&name).to_owned();
        let Ok(segment) = Segment::try_from(name) else { continue };
        let bytes = entry.metadata().map_err(|e| unread(&entry.path(), e))?.len();
        found.push(Received { segment, path: entry.path(), bytes });
    }
    Ok(found)
}

/// Whether numbers go on without a gap from one of them on.
fn goes_on(numbers: &BTreeSet<u64>, from: u64) -> bool {
    numbers.range(from..).zip(from..).all(|(number, wanted)| *number == wanted) && numbers.contains(&from)
}

fn unread(path: &Path, error: std::io::Error) -> Error {
    Error::io(format!("'{}'", path.display()), error)
}

#[cfg(test)]
mod tests;
