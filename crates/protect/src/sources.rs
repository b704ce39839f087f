//! Sources: what is protected.

use crate::boots::Boot;
use crate::catalog::{self, Entry, Unknown};
use crate::clones::check_no_disk;
use crate::domain_backup::DomainBackup;
use crate::fleece::Fleece;
use crate::hypervisor::AgentPlace;
use crate::machines::Machine;
use crate::nbd::Address;
use crate::number::DiskNumber;
use crate::postgres::Cluster;
use crate::ssh::SshMachine;
use crate::tree::Folder;
use crate::{Protection, image, runs::Run};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use stonefold_env::WallNanos;
use stonefold_types::{Error, Kind, Name, Result};

/// The document of a source, `sources/NAME`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// Unique in the pool.
    pub name: Name,
    /// What it is.
    pub of: SourceOf,
    /// The numbers of the disks that it is copied to, by what its points call them, each from before that is made; none of a machine, of which
    /// nothing is copied.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) numbers: BTreeMap<Name, DiskNumber>,
    /// That of the one disk, where an earlier server has made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    number: Option<DiskNumber>,
    /// Trusted time, nanoseconds since 1970.
    pub added: WallNanos,
    #[serde(flatten)]
    pub(crate) unknown: Unknown,
}

/// What is protected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SourceOf {
    /// A machine whose disks are ours.
    Machine(Name),
    /// What an NBD server exports.
    Nbd(NbdExport),
    /// An image file.
    Image(ImageFile),
    /// The guest of a running QEMU.
    Qmp(QemuGuest),
    /// A domain of libvirt's.
    Libvirt(LibvirtDomain),
    /// A folder.
    Dir(Folder),
    /// A PostgreSQL cluster.
    Postgres(Cluster),
    /// A machine that is reached by SSH.
    Ssh(SshMachine),
    /// A source of another pool, which sends its points.
    Replica(ReplicaOf),
}

/// The pool that sends the points of a source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaOf {
    /// The pool's number: 32 hexadecimal digits.
    pub pool: String,
    #[serde(flatten)]
    pub(crate) unknown: Unknown,
}

impl ReplicaOf {
    /// Of the pool of this number.
    pub(crate) fn new(pool: [u8; 16]) -> Self {
        ReplicaOf { pool: pool.iter().map(|byte| format!("{byte:02x}")).collect(), unknown: Unknown::new() }
    }
}

/// An export of an NBD server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "WrittenExport", into = "WrittenExport")]
pub struct NbdExport {
    /// Its URI.
    pub uri: String,
    /// A dirty bitmap that the server offers with it, by its name: it has marked all that has changed since the last point, and maybe more.
    pub bitmap: Option<String>,
}

/// As it is stored: one without a bitmap by its URI alone, as servers wrote it that knew none.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum WrittenExport {
    Uri(String),
    WithBitmap { uri: String, bitmap: String },
}

impl From<WrittenExport> for NbdExport {
    fn from(written: WrittenExport) -> Self {
        match written {
            WrittenExport::Uri(uri) => NbdExport { uri, bitmap: None },
            WrittenExport::WithBitmap { uri, bitmap } => NbdExport { uri, bitmap: Some(bitmap) },
        }
    }
}

impl From<NbdExport> for WrittenExport {
    fn from(NbdExport { uri, bitmap }: NbdExport) -> Self {
        match bitmap {
            None => WrittenExport::Uri(uri),
            Some(bitmap) => WrittenExport::WithBitmap { uri, bitmap },
        }
    }
}

impl From<&str> for NbdExport {
    fn from(uri: &str) -> Self {
        NbdExport { uri: uri.to_owned(), bitmap: None }
    }
}

impl NbdExport {
    fn check(&self) -> Result<()> {
        self.uri.parse::<Address>()?;
        let is_name =
            |name: &String| !name.is_empty() && name.len() <= 1023 && !name.contains(char::is_control);
        match self.bitmap.as_ref().filter(|name| !is_name(name)) {
            None => Ok(()),
            Some(name) => {
                let what = format!("'{}' is no name of a bitmap", name.escape_debug());
                Err(Error::new(Kind::Invalid, what)
                    .remedy("write what stands behind 'qemu:dirty-bitmap:' in 'nbdinfo --list'"))
            }
        }
    }
}

/// The guest of a QEMU that runs on the server's machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "WrittenGuest", into = "WrittenGuest")]
pub struct QemuGuest {
    /// Its QMP socket: a path from the root on.
    pub socket: PathBuf,
    /// Where its guest agent is reached, where that was told.
    pub agent: Option<AgentPlace>,
}

/// As it is stored: a guest of which no agent is known by its socket alone, as servers wrote it that knew none.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum WrittenGuest {
    Socket(PathBuf),
    WithAgent { socket: PathBuf, agent: AgentPlace },
}

impl From<WrittenGuest> for QemuGuest {
    fn from(written: WrittenGuest) -> Self {
        match written {
            WrittenGuest::Socket(socket) => QemuGuest { socket, agent: None },
            WrittenGuest::WithAgent { socket, agent } => QemuGuest { socket, agent: Some(agent) },
        }
    }
}

impl From<QemuGuest> for WrittenGuest {
    fn from(guest: QemuGuest) -> Self {
        let QemuGuest { socket, agent } = guest;
        match agent {
            None => WrittenGuest::Socket(socket),
            Some(agent) => WrittenGuest::WithAgent { socket, agent },
        }
    }
}

impl QemuGuest {
    fn check(&self) -> Result<()> {
        if !self.socket.is_absolute() {
            let what = format!("'{}' is no path from the root on", self.socket.display());
            return Err(
                Error::new(Kind::Invalid, what).remedy("name the guest's QMP socket from the root on")
            );
        }
        match &self.agent {
            Some(AgentPlace::Libvirt(_)) => {
                let what = "a guest of libvirt's is backed up by libvirt";
                Err(Error::new(Kind::Invalid, what).remedy("add it by its libvirt and its domain"))
            }
            Some(AgentPlace::Socket(_)) | None => Ok(()),
        }
    }
}

/// A domain of a libvirt on the server's machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LibvirtDomain {
    /// The libvirt.
    pub uri: String,
    /// The domain's name or UUID.
    pub domain: String,
    /// Where libvirt keeps what the guest overwrites while it is read, from the root on; beside each image where none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scratch: Option<PathBuf>,
}

impl LibvirtDomain {
    fn check(&self) -> Result<()> {
        let refused = |what: String, remedy: &str| Err(Error::new(Kind::Invalid, what).remedy(remedy));
        // Between the driver and the path stands the host.
        let is_local = self
            .uri
            .split_once("://")
            .is_some_and(|(driver, rest)| rest.starts_with('/') && ["qemu", "qemu+unix"].contains(&driver));
        if !is_local {
            let what = format!("'{}' is no libvirt of this machine with QEMU", self.uri);
            return refused(what, "write qemu:///system, and run the server where the domain runs");
        }
        let domain = &self.domain;
        if domain.is_empty() || domain.starts_with('-') || domain.contains(char::is_control) {
            let what = format!("'{}' is no name of a domain", domain.escape_debug());
            return refused(what, "name it by its UUID");
        }
        match self.scratch.as_ref().filter(|folder| !folder.is_absolute()) {
            None => Ok(()),
            Some(folder) => {
                let what = format!("'{}' is no path from the root on", folder.display());
                refused(what, "name the folder from the root on")
            }
        }
    }
}

/// An image file of the server's machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageFile {
    /// From the root on.
    pub path: String,
    /// As QEMU calls it. Once it is known it is never guessed again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
}

impl SourceOf {
    /// The machine, where it is one of ours.
    pub fn machine(&self) -> Option<&Name> {
        match self {
            SourceOf::Machine(machine) => Some(machine),
            SourceOf::Nbd(_)
            | SourceOf::Image(_)
            | SourceOf::Qmp(_)
            | SourceOf::Libvirt(_)
            | SourceOf::Dir(_)
            | SourceOf::Postgres(_)
            | SourceOf::Ssh(_)
            | SourceOf::Replica(_) => None,
        }
    }

    /// Looked at as far as it can be told now what is wrong with it.
    async fn checked(self) -> Result<SourceOf> {
        match self {
            SourceOf::Machine(_) => Ok(self),
            SourceOf::Nbd(export) => export.check().map(|()| SourceOf::Nbd(export)),
            SourceOf::Image(ImageFile { path, format }) => {
                let format = Some(image::inspect(&path, format.as_deref()).await?);
                Ok(SourceOf::Image(ImageFile { path, format }))
            }
            SourceOf::Qmp(guest) => guest.check().map(|()| SourceOf::Qmp(guest)),
            SourceOf::Libvirt(of) => of.check().map(|()| SourceOf::Libvirt(of)),
            SourceOf::Dir(folder) => folder.check().await.map(|()| SourceOf::Dir(folder)),
            SourceOf::Postgres(cluster) => cluster.check().map(|()| SourceOf::Postgres(cluster)),
            SourceOf::Ssh(of) => of.check().map(|()| SourceOf::Ssh(of)),
            SourceOf::Replica(_) => {
                let error = Error::new(Kind::Invalid, "replicas are made by the pool that sends them");
                Err(error.remedy("there: stonefold policy create NAME … --replicate URL"))
            }
        }
    }
}

impl Source {
    /// The disks that it is copied to, whether they are made yet or not; none of a machine, and of a guest those that it had so far.
    pub fn disks(&self) -> Vec<Name> {
        let named = |target: &Name| copied_to(&self.name, target).ok();
        match self.of {
            SourceOf::Machine(_) => Vec::new(),
            SourceOf::Nbd(_) | SourceOf::Image(_) | SourceOf::Dir(_) => {
                named(&only_disk()).into_iter().collect()
            }
            SourceOf::Postgres(_) => Cluster::targets().iter().filter_map(named).collect(),
            SourceOf::Qmp(_) | SourceOf::Libvirt(_) | SourceOf::Ssh(_) | SourceOf::Replica(_) => {
                self.numbers.keys().filter_map(named).collect()
            }
        }
    }

    /// The number of a disk that it is copied to; nothing where none was made.
    pub(crate) fn number_of(&self, target: &Name) -> Option<DiskNumber> {
        self.numbers.get(target).copied().or(self.number.filter(|_| target.as_str() == COPIED_AS))
    }
}

/// The disk that one of a source's is copied to.
pub(crate) fn copied_to(source: &Name, target: &Name) -> Result<Name> {
    let named = Name::new(&format!("{source}.{target}"));
    named.map_err(|e| e.context(format!("the disk that source '{source}' is copied to")))
}

/// What a point calls the one disk of an image, an export or a folder.
pub(crate) fn only_disk() -> Name {
    Name::new(COPIED_AS).expect("letters make a name")
}

const COPIED_AS: &str = "vda";

impl Entry for Source {
    const FAMILY: &'static str = "sources";
    const NOUN: &'static str = "source";
    const LISTED_BY: &'static str = "stonefold source ls";

    fn key(&self) -> String {
        self.name.to_string()
    }
}

impl Source {
    /// Fails where its points are made elsewhere.
    pub(crate) fn check_is_no_replica(&self) -> Result<()> {
        match &self.of {
            SourceOf::Replica(_) => {
                let what = format!("the points of source '{}' are sent by another pool", self.name);
                Err(Error::new(Kind::Invalid, what).remedy("back it up where it is"))
            }
            _ => Ok(()),
        }
    }

    /// A replica of a pool's source, of which nothing is there yet.
    pub(crate) fn replica(name: Name, of: ReplicaOf, added: WallNanos) -> Source {
        let (numbers, number) = (BTreeMap::new(), None);
        Source { name, of: SourceOf::Replica(of), numbers, number, added, unknown: Unknown::new() }
    }
}

impl Protection {
    /// All sources, by name.
    pub async fn sources(&self) -> Result<Vec<Source>> {
        self.settle().await;
        catalog::all(&self.store, None).await
    }

    /// One source.
    pub async fn source(&self, name: &Name) -> Result<Source> {
        self.settle().await;
        catalog::get(&self.store, name.as_str()).await
    }

    /// Adds a source. What is copied from elsewhere is not asked for yet; the name of the disk that it will be copied to must be free, where it
    /// is known.
    pub async fn add_source(&self, name: Name, of: SourceOf) -> Result<Source> {
        let of = of.checked().await?;
        self.change(async {
            if let Some(machine) = of.machine() {
                self.machine(machine).await?;
            }
            let added = self.store.time().trusted;
            let (numbers, number) = (BTreeMap::new(), None);
            let source = Source { name, of, numbers, number, added, unknown: Unknown::new() };
            if source.of.machine().is_none() {
                // Of a guest's disks nobody knows the names yet; none is much shorter.
                copied_to(&source.name, &only_disk())?;
            }
            for disk in source.disks() {
                let named = |e: Error| e.context(format!("source '{}' is copied to a disk", source.name));
                check_no_disk(&self.store, &disk).map_err(named)?;
            }
            catalog::put_new(&self.store, &source).await?;
            Ok(source)
        })
        .await
    }

    /// Removes a source; its points, the disk that it was copied to and the history of its runs stay. Returns how many points that are.
    pub async fn remove_source(&self, name: &Name) -> Result<usize> {
        let source = self.source(name).await?;
        let left = self.remove_source_now(name).await?;
        let forgotten = match &source.of {
            SourceOf::Qmp(guest) => self.forget_marks(&source, &guest.socket).await,
            SourceOf::Libvirt(of) => self.forget_checkpoints(&source, of).await,
            SourceOf::Postgres(of) => self.forget_cluster(&source, of).await,
            SourceOf::Machine(_)
            | SourceOf::Nbd(_)
            | SourceOf::Image(_)
            | SourceOf::Dir(_)
            | SourceOf::Ssh(_)
            | SourceOf::Replica(_) => Ok(()),
        };
        if let Err(error) = forgotten {
            tracing::warn!("what source '{name}' had its backups by stays there: {error}");
        }
        Ok(left)
    }

    async fn remove_source_now(&self, name: &Name) -> Result<usize> {
        self.change(async {
            self.check_no_run(name).await?;
            self.check_no_policy(name).await?;
            let fleece = catalog::find::<Fleece>(&self.store, name.as_str()).await?;
            let backup = catalog::find::<DomainBackup>(&self.store, name.as_str()).await?;
            if fleece.is_some() || backup.is_some() {
                let what = format!("a guest still has parts of a backup of source '{name}'");
                return Err(Error::new(Kind::Busy, what).remedy("wait a minute: they are taken out"));
            }
            catalog::remove::<Source>(&self.store, name.as_str()).await?;
            // Another of its name has other boots.
            catalog::remove::<Boot>(&self.store, name.as_str()).await?;
            Ok(catalog::keys::<crate::Point>(&self.store, Some(name.as_str())).await?.len())
        })
        .await
    }

    /// Fails while a source is of this machine.
    pub(crate) async fn check_no_source(&self, machine: &Machine) -> Result<()> {
        let sources = catalog::every::<Source>(&self.store).await?;
        let Some(source) = sources.iter().find(|source| source.of.machine() == Some(&machine.name)) else {
            return Ok(());
        };
        let what = format!("machine '{}' is protected as source '{}'", machine.name, source.name);
        let remedy = format!("remove that first: stonefold source rm {}; its points stay", source.name);
        Err(Error::new(Kind::Busy, what).remedy(remedy))
    }

    /// Fails while a run of a source is under way, or could not be ended yet.
    pub(crate) async fn check_no_run(&self, source: &Name) -> Result<()> {
        let newest = catalog::keys::<Run>(&self.store, Some(source.as_str())).await?.pop();
        let Some(key) = newest else { return Ok(()) };
        match self.readable::<Run>(&key).await? {
            Some(run) if self.copies.is_live(&run.name) => {
                let what = format!("run '{}' is under way", run.name);
                let remedy = format!("wait until it ends, or end it: stonefold backup cancel {}", run.name);
                Err(Error::new(Kind::Busy, what).remedy(remedy))
            }
            Some(run) if run.is_under_way() => {
                let what = format!("run '{}' could not be ended yet", run.name);
                Err(Error::new(Kind::Busy, what).remedy("the log says why; try again when that is mended"))
            }
            _ => Ok(()),
        }
    }
}
