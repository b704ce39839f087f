//! `stonefold point files …` and `stonefold point mount …`: what is in the disks of a point.

mod appliance;
mod fetched;
mod layout;
mod listing;
mod mounted;

use crate::context::Context;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::qemu::{Qemu, Served, reachable};
use appliance::Appliance;
use clap::{Args, Subcommand};
use fetched::Place;
use indicatif::ProgressBar;
use layout::Layout;
use serde_json::json;
use std::ffi::OsStr;
use std::fs::Permissions;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use stonefold_api::{Client, Point};
use stonefold_types::{Error, Kind, Name, PointName};
use tempfile::TempDir;

/// List and fetch files in the disks of a point
///
/// The disks are read in a small machine that libguestfs starts for it and that nothing else can reach, which takes some seconds. ext4, XFS,
/// Btrfs, NTFS and FAT are read, on partitions, LVM and RAID. Paths are those of the operating system on the disks: what it mounts at /home
/// is at /home.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    stonefold point files web-nightly@20261123T184005Z ls\n  \
    stonefold point files web-nightly@20261123T184005Z ls /etc\n  \
    stonefold point files web-nightly@20261123T184005Z get /etc/nginx --to /tmp\n  \
    stonefold point files web-nightly@20261123T184005Z get /home --archive home.tar")]
pub(crate) struct PointFiles {
    /// The point
    #[arg(value_name = "SOURCE@TIME")]
    point: PointName,
    #[command(subcommand)]
    what: Files,
}

#[derive(Subcommand)]
enum Files {
    /// List a folder; without a path, the file systems
    Ls {
        /// The folder, from the root: /etc
        path: Option<PathBuf>,
        #[command(flatten)]
        reached: Reached,
    },
    /// Fetch a file, or a folder with all that is in it
    ///
    /// It appears whole or not at all, and replaces nothing. Modes and times are kept; owners, setuid bits and devices are not, as nobody
    /// here need be who he is in the guest: --archive keeps all of it.
    Get {
        /// The file or the folder, from the root: /etc/fstab
        path: PathBuf,
        /// The folder to put it in
        #[arg(long, value_name = "DIR", default_value = ".")]
        to: PathBuf,
        /// Make a tar archive of a folder instead, with owners, devices, extended attributes, ACLs and labels
        #[arg(long, value_name = "FILE", conflicts_with = "to")]
        archive: Option<PathBuf>,
        #[command(flatten)]
        reached: Reached,
    },
}

/// Show the files of a point in a folder, read-only
///
/// As long as this command runs: Ctrl-C, or 'umount DIR', ends it. See 'stonefold point files --help' for what is read, and how.
#[derive(Args)]
#[command(after_help = "Example:\n  stonefold point mount web-nightly@20261123T184005Z /mnt")]
pub(crate) struct PointMount {
    /// The point
    #[arg(value_name = "SOURCE@TIME")]
    point: PointName,
    /// An empty folder
    dir: PathBuf,
    #[command(flatten)]
    reached: Reached,
}

/// Which of the disks' contents, and how the server's door is reached.
#[derive(Args)]
struct Reached {
    /// This file system alone, by its name in 'ls' without a path: paths are then from its own root
    #[arg(long, value_name = "NAME")]
    file_system: Option<String>,
    /// A folder with ca-cert.pem, and client-cert.pem and client-key.pem where the server wants them: for doors with TLS
    #[arg(long, value_name = "DIR")]
    tls_certificates: Option<PathBuf>,
}

impl PointFiles {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        let client = context.client()?;
        match self.what {
            Files::Ls { path: None, reached } => list_systems(context, &client, &self.point, &reached),
            Files::Ls { path: Some(path), reached } => list(context, &client, &self.point, &path, &reached),
            Files::Get { path, to, archive, reached } => {
                let (path, whole) = (from_root(&path)?, self.point.source.to_string());
                let place = match &archive {
                    Some(file) => new_archive(file)?,
                    None => Place::new(&to, fetched::name_of(path, &whole))?,
                };
                let interrupt = Interrupt::catch()?;
                let counts = entered(&client, &self.point, &reached, &interrupt)
                    .and_then(|appliance| match archive {
                        Some(_) => fetched::archive(appliance, path, &place),
                        None => fetched::fetch(appliance, path, &place),
                    })
                    .map_err(|e| e.context(of(&self.point)))?;
                let answer = json!({ "point": self.point, "to": place.path, "counts": counts });
                context.answer(&answer, || fetched::text(&counts, &place.path))
            }
        }
    }
}

impl PointMount {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        let client = context.client()?;
        let folder = mounted::folder(&self.dir)?;
        let interrupt = Interrupt::catch()?;
        let appliance = entered(&client, &self.point, &self.reached, &interrupt);
        let appliance = appliance.map_err(|e| e.context(of(&self.point)))?;
        let answer = json!({ "point": self.point, "at": folder });
        let tell = || {
            let text = || format!("{} is at '{}' until Ctrl-C or 'umount'\n", self.point, folder.display());
            context.answer(&answer, text).map_err(Failure::into_error)
        };
        Ok(mounted::show(appliance, &folder, &interrupt, tell)?)
    }
}

fn list_systems(
    context: &Context,
    client: &Client,
    point: &PointName,
    reached: &Reached,
) -> Result<(), Failure> {
    if reached.file_system.is_some() {
        let error = Error::new(Kind::Invalid, "--file-system says where a path is, and no path is given");
        return Err(Failure::Misuse(error.remedy("write a path, / for all")));
    }
    let interrupt = Interrupt::catch()?;
    let found = open(client, point, reached, &interrupt)
        .and_then(|(mut appliance, disks)| Layout::find(&mut appliance, &disks))
        .map_err(|e| e.context(of(point)))?;
    context.answer(&found, || found.text())
}

fn list(
    context: &Context,
    client: &Client,
    point: &PointName,
    path: &Path,
    reached: &Reached,
) -> Result<(), Failure> {
    let path = from_root(path)?;
    let interrupt = Interrupt::catch()?;
    let entries = entered(client, point, reached, &interrupt)
        .and_then(|mut appliance| listing::list(&mut appliance, path))
        .map_err(|e| e.context(of(point)))?;
    context.answer(&entries, || listing::table(&entries))
}

fn of(point: &PointName) -> String {
    format!("files of point '{point}'")
}

fn from_root(path: &Path) -> Result<&[u8], Failure> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.starts_with(b"/") {
        return Ok(bytes);
    }
    let error = Error::new(Kind::Invalid, format!("'{}' does not say where it is", path.display()));
    Err(Failure::Misuse(
        error.remedy("write the path from the root, as /etc/fstab; on a Windows disk C:\\Users is /Users"),
    ))
}

fn new_archive(file: &Path) -> Result<Place, Error> {
    let folder = file.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    let name = file.file_name().ok_or_else(|| {
        Error::new(Kind::Invalid, format!("'{}' is no name for a file", file.display()))
            .remedy("name a new file")
    })?;
    Place::new(folder, name)
}

/// A machine with the point's file systems, put together.
fn entered<'a>(
    client: &Client,
    point: &PointName,
    reached: &Reached,
    interrupt: &'a Interrupt,
) -> Result<Appliance<'a>, Error> {
    let (mut appliance, disks) = open(client, point, reached, interrupt)?;
    layout::enter(&mut appliance, &disks, reached.file_system.as_deref())?;
    Ok(appliance)
}

/// A machine with the point's disks, and what the machine that was taken calls these.
fn open<'a>(
    client: &Client,
    point: &PointName,
    reached: &Reached,
    interrupt: &'a Interrupt,
) -> Result<(Appliance<'a>, Vec<Name>), Error> {
    let found = client.point(point)?;
    let qemu = Qemu::find()?;
    let mut builder = tempfile::Builder::new();
    let folder = builder.prefix("stonefold-").permissions(Permissions::from_mode(0o700)).tempdir();
    let folder = folder.map_err(|e| Error::io("making a temporary folder", e))?;
    let served = serve(client, &qemu, &found, reached, &folder)?;
    let names = found.disks.iter().filter(|disk| !disk.missing).map(|disk| disk.target.clone()).collect();
    // Nothing of it is seen where nobody looks.
    let spinner = ProgressBar::new_spinner().with_message("starting a small machine that reads the disks");
    spinner.enable_steady_tick(Duration::from_millis(200));
    let appliance = Appliance::start(served, folder, interrupt)?;
    spinner.finish_and_clear();
    Ok((appliance, names))
}

fn serve(
    client: &Client,
    qemu: &Qemu,
    point: &Point,
    reached: &Reached,
    folder: &TempDir,
) -> Result<Vec<Served>, Error> {
    let mut served = Vec::new();
    for (number, disk) in point.disks.iter().enumerate() {
        if disk.missing {
            eprintln!("note: the snapshot of disk '{}' was removed; what was on it is missing", disk.target);
            continue;
        }
        let snapshot = client.snapshot(&disk.snapshot.parse()?)?;
        let door = reachable(&snapshot.uris, client.url(), reached.tls_certificates.as_deref())?;
        let socket = folder.path().join(OsStr::new(&format!("{number}.sock")));
        served.push(qemu.serve(&door, &socket).map_err(|e| e.context(format!("disk '{}'", disk.target)))?);
    }
    if served.is_empty() {
        let what = format!("no disk of point '{}' is left", point.name);
        return Err(Error::new(Kind::NotFound, what).remedy("'stonefold point ls' shows others"));
    }
    Ok(served)
}
