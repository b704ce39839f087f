//! PostgreSQL clusters, by their own replication: a base backup of the data directory now and then, and all WAL since.
//!
//! *A point* is two disks with a file system (ext4) each. On `data` are `data`, the data directory as it was copied, and `wal`, an empty folder; on `wal`
//! are the WAL segments from the one on in which that copy began, up to the point's moment. With the second mounted at the first one's `wal` the
//! cluster starts by itself: it restores from there, and ends its recovery with the last record, or wherever it is told to.
//! So each point is all that it takes to go to any moment between the end of its base and itself. *A run* receives WAL, and takes
//! a new base only where it has to, or where replaying would take long: from then on the next runs read none of the data directory again.
//!
//! *Order*: a replication slot, which keeps what has not been received; WAL, into a folder that stays from run to run until a point has it; a base, where one is wanted, and
//! WAL up to its end and after it; images of both; then the run goes on as any that copies. *Never*: drops WAL that no point has while the cluster goes on with it; makes a point whose WAL has a gap; believes that
//! another cluster at the same address, or the same one gone back in time, is the one that was there. Where the cluster has not kept what would follow, what was received
//! and is in no point goes, and the run says so.
//!
//! The tools are PostgreSQL's own: psql, pg_basebackup and pg_receivewal. Its manual, chapters 26.3 (continuous archiving) and 55.4 (the replication protocol), says what they promise.

mod base;
mod client;
mod wal;

use crate::catalog::Unknown;
use crate::copying::{Copying, Reading};
use crate::image::{self, aside};
use crate::origin::{Origin, Snapshot};
use crate::tree::{self, Folder};
use crate::{Point, Protection, Source};
use client::{Client, Told};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;
use stonefold_env::WallNanos;
use stonefold_types::{Error, ExportName, Kind, Name, Result, Size};
use wal::{Archive, Lsn, Segment};

/// What a point calls the disk with the data directory, and that with the WAL.
const DATA: &str = "data";
const WAL: &str = "wal";
/// How long the server that reads an image may say nothing.
const PATIENCE: Duration = Duration::from_secs(60);
/// A new base is taken once there is more WAL since the last than an eighth of its disk, which is twice what it holds, and than this: some minutes of replay.
const WAL_BYTES_MIN: u64 = 1 << 30;

/// What a gap means.
const LOST: &str = "moments between the last point and the end of this base cannot be brought back";

/// A PostgreSQL cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster {
    /// Where it is: a connection URI of libpq's, without a password.
    pub url: String,
    /// Where WAL is kept between runs, and images are made, from the root on; where none is named a service's own folder, or `/var/tmp`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scratch: Option<PathBuf>,
    #[serde(flatten)]
    pub(crate) unknown: Unknown,
}

/// What a point has of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Database {
    /// The cluster's own number, which its copies share.
    pub system: String,
    /// Its version, as in 150004.
    pub version: u32,
    /// The WAL segment in which its base begins.
    pub(crate) base_wal: Segment,
    /// Up to where it has WAL.
    pub(crate) flushed: Lsn,
    /// The folders beside its data directory, by their numbers in it, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) tablespaces: Vec<String>,
    /// The earliest moment that it can be brought back to, by the cluster's clock, nanoseconds since 1970: the end of its base.
    pub since: WallNanos,
    /// The latest, likewise: its own.
    pub until: WallNanos,
    #[serde(flatten)]
    pub(crate) unknown: Unknown,
}

/// A cluster that can be read.
pub(crate) struct Dumped {
    pub(crate) disks: Vec<Reading>,
    pub(crate) database: Database,
    /// What it takes to read it.
    pub(crate) images: Vec<(image::Served, tree::Made)>,
}

impl Cluster {
    /// One at a URI.
    pub fn new(url: String, scratch: Option<PathBuf>) -> Self {
        Cluster { url, scratch, unknown: Unknown::new() }
    }

    /// What its points call their disks.
    pub(crate) fn targets() -> [Name; 2] {
        [DATA, WAL].map(|name| Name::new(name).expect("letters make a name"))
    }

    /// Looks at what can be known beforehand; it need not run yet.
    pub(crate) fn check(&self) -> Result<()> {
        let refused = |what: String, remedy: &str| Err(Error::new(Kind::Invalid, what).remedy(remedy));
        let shown = without_password(&self.url);
        let Some((scheme, rest)) = self.url.split_once("://") else {
            return refused(format!("'{shown}' is no URI"), "write postgresql://USER@HOST, as psql takes it");
        };
        if !["postgresql", "postgres"].contains(&scheme)
            || rest.contains(|c: char| c.is_control() || c == ' ')
        {
            let what = format!("'{shown}' is no connection URI of PostgreSQL's");
            return refused(what, "write postgresql://USER@HOST, as psql takes it");
        }
        if shown != self.url {
            let what = format!("the URI '{shown}' had a password in it, which would stand in the catalog");
            let remedy = "put it into the .pgpass of the server's user, or name a file of that kind with passfile=/PATH";
            return refused(what, remedy);
        }
        match self.scratch.as_ref().filter(|folder| !folder.is_absolute()) {
            None => Ok(()),
            Some(folder) => {
                let what = format!("'{}' is no path from the root on", folder.display());
                refused(what, "name the folder from the root on")
            }
        }
    }

    /// Kept between runs: a service's `/var/tmp` may be its own, and go when it stops.
    fn scratch(&self) -> PathBuf {
        let state = || std::env::var_os("STATE_DIRECTORY").map(PathBuf::from).filter(|path| path.is_dir());
        self.scratch.clone().or_else(state).unwrap_or_else(|| Path::new(tree::SCRATCH).to_owned())
    }

    fn client(&self, source: &Source) -> Client {
        // Of the source alone: it is added at one moment.
        Client { url: self.url.clone(), slot: format!("stonefold_{:x}", source.added) }
    }

    fn archive(&self, source: &Source) -> Archive {
        Archive { folder: self.scratch().join(format!("stonefold-wal-{:x}", source.added)) }
    }

    /// Removes what a server that was killed has left of a source, but for the WAL that was received.
    async fn sweep(&self, source: &Source) -> Result<()> {
        let (scratch, added) = (self.scratch(), source.added);
        let sweep = move || {
            for what in ["wal", "base", "tree"] {
                tree::remove_left(&scratch, &format!("stonefold-{what}-{added:x}-"));
            }
        };
        aside(sweep).await
    }
}

/// A URI with stars where it has a password. What lies before the first `@` of its host is told apart as libpq does (conninfo_uri_parse_options).
fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return "***".to_owned() };
    let (user, rest) = match rest.find(['@', '/']).filter(|at| rest[*at..].starts_with('@')) {
        Some(at) => rest.split_at(at),
        None => ("", rest),
    };
    let user = user.split_once(':').map_or(user.to_owned(), |(user, _)| format!("{user}:***"));
    let (place, query) = rest.split_at(rest.find('?').unwrap_or(rest.len()));
    let is_secret = |key: &str| ["password", "secret", "%"].iter().any(|part| key.contains(part));
    let of = |word: &str| match word.split_once('=') {
        Some((key, _)) if is_secret(key) => format!("{key}=***"),
        _ => word.to_owned(),
    };
    let query: Vec<String> = query.split('&').map(of).collect();
    format!("{scheme}://{user}{place}{}", query.join("&"))
}

/// The base of a point that is to be.
struct Based {
    data: Origin,
    /// What it is read from, where it is new.
    image: Option<(image::Served, tree::Made)>,
    /// What the cluster said when WAL was received, up to its end at least.
    told: Told,
    database: Database,
}

impl Protection {
    /// Receives what a cluster has written since the last run, and takes a base of it where one is wanted; both as disks to be copied.
    pub(crate) async fn dump(&self, copying: &Copying, of: &Cluster, last: Option<&Point>) -> Result<Dumped> {
        let source = &copying.source;
        let (client, archive) = (of.client(source), of.archive(source));
        of.sweep(source).await?;
        let known = last.and_then(|point| Some((point.database.as_ref()?, point)));
        let (told, gap) =
            self.receive_wal(copying, (&client, &archive), known.map(|(known, _)| known)).await?;
        let kept = match known {
            Some((known, last)) => {
                let why = match gap {
                    None => self.wants_base(copying, known, last, (&archive, &told)).await?,
                    gap => gap,
                };
                if let Some(why) = &why {
                    copying.live.note(format!("a new base was taken: {why}"));
                }
                why.is_none().then_some((known, last))
            }
            None => None,
        };
        let Based { data, image, told, database } = match kept {
            Some((known, last)) => {
                let database = Database {
                    version: told.version,
                    until: told.at(),
                    flushed: told.flushed,
                    ..known.clone()
                };
                Based { data: self.base_of(last).await?, image: None, told, database }
            }
            None => self.new_base(source, of, (&client, &archive), told).await?,
        };
        if !archive.reaches(&database.base_wal, told.segment_bytes).await? {
            let what = "the WAL that was received has a gap";
            return Err(Error::new(Kind::Io, what).remedy("run it again: it begins with a new base"));
        }
        let (wal, wal_image) = self.wal_disk(source, of, &archive).await?;
        let [data_target, wal_target] = Cluster::targets();
        let reading = |target, from| Reading { target, from, whole: None };
        let disks = vec![reading(data_target, data), reading(wal_target, wal)];
        Ok(Dumped { disks, database, images: image.into_iter().chain([wal_image]).collect() })
    }

    /// Receives WAL. Returns what the cluster says then, and why what was there before is not gone on with, where it is not.
    async fn receive_wal(
        &self,
        copying: &Copying,
        (client, archive): (&Client, &Archive),
        known: Option<&Database>,
    ) -> Result<(Told, Option<String>)> {
        let told = client.ask().await?;
        let full = copying.live.full;
        let mut gap = None;
        match known {
            Some(known) if known.system != told.system && !full => {
                let what = format!(
                    "the cluster is another than the last point has: its number is {}, and was {}",
                    told.system, known.system
                );
                return Err(Error::new(Kind::Conflict, what).remedy(
                    "add it as a source of its own; where it has taken the place of that one, run it with --full",
                ));
            }
            Some(known) if known.system != told.system => {
                gap = Some("it was asked for, of another cluster".to_owned());
            }
            Some(known) if told.flushed < known.flushed => {
                let (was, is) = (known.flushed, told.flushed);
                gap = Some(format!("the cluster has gone back in time, from {was} to {is}; {LOST}"));
            }
            _ => {}
        }
        if gap.is_some() {
            archive.clear().await?;
        }
        archive.begin(known.filter(|_| gap.is_none()).map(|known| &known.base_wal)).await?;
        let lost = client.keep(told.slot.as_ref(), archive).await?;
        let other = archive.receive(&self.env, client, &told).await?;
        // It may have received more than was asked for: what lies in that is known by now.
        let Told { tablespaces, .. } = client.ask().await?;
        Ok((Told { tablespaces, ..told }, gap.or(lost).or(other)))
    }

    /// All received WAL, as an image that is served.
    async fn wal_disk(
        &self,
        source: &Source,
        of: &Cluster,
        archive: &Archive,
    ) -> Result<(Origin, (image::Served, tree::Made))> {
        let [_, target] = Cluster::targets();
        let staged = archive.staged().await?;
        let folder = Folder { path: staged.path().join("root"), scratch: Some(of.scratch()) };
        let made = folder.image(&self.image_of(source, &target, false)?).await;
        let made = made.map_err(|e| e.context("the received WAL"))?;
        let (from, served) =
            image::connect(&self.env, &made.image.to_string_lossy(), "raw", PATIENCE).await?;
        Ok((Origin::Export(from), (served, made)))
    }

    /// Why the base of the last point is not to be gone on with; nothing where it is.
    async fn wants_base(
        &self,
        copying: &Copying,
        known: &Database,
        last: &Point,
        (archive, told): (&Archive, &Told),
    ) -> Result<Option<String>> {
        let [data, wal] = Cluster::targets();
        let of_point = |target: &Name| last.disks.iter().find(|disk| disk.target == *target);
        let (Some(data), Some(_)) = (of_point(&data), of_point(&wal)) else {
            return Ok(Some("the last point does not have it".to_owned()));
        };
        if !archive.reaches(&known.base_wal, told.segment_bytes).await? {
            let folder = archive.folder.display();
            return Ok(Some(format!("WAL since the last one is missing in '{folder}'; {LOST}")));
        }
        let full = copying.live.full;
        let (wal, most) = (archive.bytes().await?, WAL_BYTES_MIN.max(data.size_bytes / 8));
        let why = if told.tablespaces() != known.tablespaces {
            return Ok(Some(format!("the cluster has other tablespaces; {LOST}")));
        } else if full {
            "it was asked for".to_owned()
        } else if wal > most {
            format!("{} of WAL have come since the last one", Size(wal))
        } else {
            return Ok(None);
        };
        Ok(Some(format!(
            "{why}; moments between point '{}' and its end are on that point's data disk with this one's wal disk",
            last.name
        )))
    }

    /// The base of the last point, where it lies: what of our disk is not that any more is mended from there.
    async fn base_of(&self, last: &Point) -> Result<Origin> {
        let [target, _] = Cluster::targets();
        let disk = last.disks.iter().find(|disk| disk.target == target);
        let disk = disk.ok_or_else(|| Error::new(Kind::Conflict, "the last point has no base"))?;
        let attached =
            self.store.attach_for(&ExportName::Snapshot(last.snapshot_of(disk)), "backup".into())?;
        // It was opened by its name: it is the point's own.
        if !self.status_of(last.clone()).is_whole() {
            let what = format!("a snapshot of point '{}' was removed", last.name);
            return Err(Error::new(Kind::NotFound, what).remedy("run it again"));
        }
        Ok(Origin::Snapshot(Snapshot::new(attached, disk.size_bytes, Some(Vec::new()))))
    }

    async fn new_base(
        &self,
        source: &Source,
        of: &Cluster,
        (client, archive): (&Client, &Archive),
        told: Told,
    ) -> Result<Based> {
        let [target, _] = Cluster::targets();
        let base = base::take(client, source, &of.scratch(), &told).await?;
        let after = client.ask().await?;
        let folder = Folder { path: base.root(), scratch: Some(of.scratch()) };
        let made = folder.image(&self.image_of(source, &target, true)?).await;
        let made = made.map_err(|e| e.context("the base backup"))?;
        let (base_wal, tablespaces) = (base.began.clone(), told.tablespaces());
        // It takes as much room as the image.
        aside(move || drop(base)).await?;
        let (from, served) =
            image::connect(&self.env, &made.image.to_string_lossy(), "raw", PATIENCE).await?;
        let told = client.ask().await?;
        archive.receive(&self.env, client, &told).await?;
        if client.ask().await?.tablespaces() != tablespaces {
            // Replayed, it would be made where the original has it.
            let what = "a tablespace was made or removed while the base was taken";
            return Err(Error::new(Kind::Conflict, what).remedy("run it again"));
        }
        let database = Database {
            system: told.system.clone(),
            version: told.version,
            base_wal,
            flushed: told.flushed,
            tablespaces,
            since: after.at(),
            until: told.at(),
            unknown: Unknown::new(),
        };
        Ok(Based { data: Origin::Export(from), image: Some((served, made)), told, database })
    }

    /// Lets a cluster go whose source was removed: it keeps no WAL for us any more, and we none of it.
    pub(crate) async fn forget_cluster(&self, source: &Source, of: &Cluster) -> Result<()> {
        let client = of.client(source);
        let gone = client.let_go(&self.env).await;
        let (cleared, swept) = (of.archive(source).clear().await, of.sweep(source).await);
        let slot = &client.slot;
        gone.map_err(|e| {
            e.context(format!("the slot '{slot}' keeps WAL in the cluster until it is dropped"))
        })?;
        cleared.and(swept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_refused_and_never_told() {
        let of = |url: &str| Cluster::new(url.to_owned(), None).check();
        for good in [
            "postgresql://keeper@db.example",
            "postgres://keeper@db:5433/shop?sslmode=verify-full&passfile=/etc/stonefold/pgpass",
            "postgresql:///postgres?host=/run/postgresql&user=keeper",
            "postgresql://[::1]:5432/",
        ] {
            assert!(of(good).is_ok(), "{good}: {:?}", of(good));
        }
        for (bad, says) in [
            ("postgresql://keeper:hush@db", "postgresql://keeper:***@db"),
            ("postgresql:///?host=/run&password=hush&user=me", "password=***&user=me"),
            ("postgresql:///?password=hush", "?password=***"),
            ("http://db", "no connection URI"),
            ("host=db password=hush", "no URI"),
            ("postgresql://keeper:hu?sh@db", "postgresql://keeper:***@db"),
            ("postgresql:///?%70assword=hush", "=***"),
            ("postgresql://a b", "no connection URI"),
        ] {
            let error = of(bad).unwrap_err().to_string();
            assert!(error.contains(says) && !error.contains("hu"), "{bad}: {error}");
        }
        let scratch = Cluster::new("postgresql://db".to_owned(), Some("tmp".into()));
        assert!(scratch.check().unwrap_err().to_string().contains("from the root on"));
    }
}
