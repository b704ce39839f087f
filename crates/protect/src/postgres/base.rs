//! A base backup, made ready to be started wherever it is mounted.
//!
//! *Promise*: what is started from it ends its recovery by itself, archives nothing where its original does, waits for no standby of that one, and
//! needs nothing of the machine that it was on but a PostgreSQL of its version, and what its own settings name (libraries, files that are included).

use super::client::{Client, Tablespace, Told, said, tool};
use super::wal::Segment;
use crate::Source;
use crate::image::aside;
use crate::tree::remove_left;
use std::fs::{self, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use stonefold_types::{Error, Kind, Result, Size};
use tempfile::TempDir;

/// The user that Debian's, Ubuntu's and Fedora's packages run it as.
const USER: &str = "postgres";
/// What it is told when it is started from a point, behind all that it was told before.
const SETTINGS: &str = "\n# Of the backup: WAL is restored from the disk that is mounted beside this folder, and none is archived.\n\
    restore_command = 'cp \"../wal/%f\" \"%p\"'\n\
    recovery_target_timeline = 'latest'\n\
    recovery_target_action = 'promote'\n\
    recovery_end_command = ''\narchive_cleanup_command = ''\nrecovery_min_apply_delay = 0\n\
    archive_mode = 'off'\n\
    primary_conninfo = ''\n\
    primary_slot_name = ''\n\
    synchronous_standby_names = ''\n\
    listen_addresses = 'localhost'\nssl = 'off'\nexternal_pid_file = ''\n";
const README: &str = "A base backup of a PostgreSQL cluster. Mount the disk 'wal' of the same point at ./wal, see that all of it is its user's, and\n\
    start it as that one:\n\n    chown -R postgres: .\n    pg_ctl -D ./data start\n\n\
    It recovers to the moment of the point. To end earlier: -o \"-c recovery_target_time='2026-11-26 10:00:00+00'\"\n";
/// Where a cluster's packages keep its configuration elsewhere: nobody who is not on this machine may do anything without being told who he is.
const ACCESS: &str = "# The original's lies outside its data directory, and was not copied.\n\
    local all all peer\nhost all all 127.0.0.1/32 scram-sha-256\nhost all all ::1/128 scram-sha-256\n";
/// Paths of the original's machine, and what two clusters cannot both have.
const NOT_KEPT: &str = "'config_file', 'data_directory', 'hba_file', 'ident_file', 'external_pid_file', 'unix_socket_directories', \
    'listen_addresses', 'port', 'ssl', 'ssl_cert_file', 'ssl_key_file', 'ssl_ca_file', 'ssl_crl_file', 'ssl_crl_dir', \
    'ssl_dh_params_file', 'krb_server_keyfile', 'stats_temp_directory', 'archive_command', 'archive_library', 'archive_cleanup_command', \
    'restore_command', 'recovery_end_command', 'cluster_name', 'log_directory', 'logging_collector'";

/// A base backup, in a folder that goes with this.
pub(super) struct Base {
    folder: TempDir,
    /// The WAL segment from which on it is to be recovered.
    pub(super) began: Segment,
}

impl Base {
    /// What is to be the root of the disk.
    pub(super) fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }
}

/// Takes one.
///
/// # Errors
/// [`Kind::NoSpace`] where it and its image have no room; what pg_basebackup says.
pub(super) async fn take(client: &Client, source: &Source, scratch: &Path, told: &Told) -> Result<Base> {
    let (in_scratch, bytes, added) = (scratch.to_owned(), told.bytes.unwrap_or(0), source.added);
    let folder = aside(move || prepare(&in_scratch, bytes, added)).await??;
    let root = folder.path().join("root");
    let mut command = tool("pg_basebackup");
    command.args(["--no-password", "--checkpoint", "fast", "--wal-method", "fetch", "--label", "stonefold"]);
    command.args(["--dbname", &client.reached()]).arg("--pgdata").arg(root.join("data"));
    for tablespace in &told.tablespaces {
        command.arg("--tablespace-mapping").arg(mapping(&root, tablespace));
    }
    said(command, "pg_basebackup").await?;
    let settings = configuration(client, &root).await?;
    let numbers = told.tablespaces();
    let began = aside(move || settle(&root, &numbers, &settings)).await??;
    Ok(Base { folder, began })
}

fn prepare(scratch: &Path, bytes: u64, added: u64) -> Result<TempDir> {
    let left = format!("stonefold-base-{added:x}-");
    remove_left(scratch, &left);
    let told = rustix::fs::statvfs(scratch)
        .map_err(|e| Error::io(format!("scratch folder '{}'", scratch.display()), e.into()))?;
    let (room, needed) = (told.f_bavail.saturating_mul(told.f_frsize), bytes.saturating_mul(2));
    if room < needed {
        let what = format!(
            "{} are left in '{}', and a base backup with its image takes {}",
            Size(room),
            scratch.display(),
            Size(needed)
        );
        return Err(Error::new(Kind::NoSpace, what)
            .remedy("make room there, or add the source with --scratch and another folder"));
    }
    let failed = |e| Error::io(format!("making a folder in '{}'", scratch.display()), e);
    let mut builder = tempfile::Builder::new();
    let folder = builder
        .prefix(&left)
        .permissions(Permissions::from_mode(0o700))
        .tempdir_in(scratch)
        .map_err(failed)?;
    let root = folder.path().join("root");
    for new in [root.clone(), root.join("wal")] {
        fs::create_dir(&new)
            .and_then(|()| fs::set_permissions(&new, Permissions::from_mode(0o755)))
            .map_err(failed)?;
    }
    Ok(folder)
}

/// Where a tablespace is put, as pg_basebackup takes it.
fn mapping(root: &Path, tablespace: &Tablespace) -> String {
    let put = root.join("tablespaces").join(&tablespace.number);
    let escaped = |path: &str| path.replace('=', "\\=");
    format!("{}={}", escaped(&tablespace.location), escaped(&put.to_string_lossy()))
}

/// What the cluster was told beside what lies in its data directory: all, where its configuration lies elsewhere.
async fn configuration(client: &Client, root: &Path) -> Result<String> {
    let path = root.join("data/postgresql.conf");
    let has_file = aside(move || path.exists()).await?;
    let sources = if has_file { "'command line'" } else { "'configuration file', 'command line'" };
    // Quotes are doubled, and so are backslashes, which such a file takes for the beginning of something.
    let query = format!(
        "select name || ' = ' || chr(39) || replace(replace(current_setting(name), chr(92), repeat(chr(92), 2)), chr(39), repeat(chr(39), 2)) || chr(39) \
         from pg_settings where source in ({sources}) and context <> 'internal' and name not like 'recovery_target%' and name not in ({NOT_KEPT}) order by name"
    );
    let said = client.query(&[&query]).await?;
    Ok(String::from_utf8_lossy(&said).into_owned())
}

/// Makes it ready, and returns where its WAL begins.
fn settle(root: &Path, tablespaces: &[String], configuration: &str) -> Result<Segment> {
    let data = root.join("data");
    check_tablespaces(&data.join("pg_tblspc"), tablespaces)?;
    let label = fs::read_to_string(data.join("backup_label")).map_err(|e| unread(&data, e))?;
    let began = began(&label)?;
    let write = || -> std::io::Result<()> {
        for name in ["postgresql.conf", "postgresql.auto.conf"] {
            forget_targets(&data.join(name))?;
        }
        for (name, text) in [("postgresql.conf", ""), ("pg_hba.conf", ACCESS), ("pg_ident.conf", "")] {
            if !data.join(name).exists() {
                fs::write(data.join(name), text)?;
            }
        }
        OpenOptions::new()
            .append(true)
            .create(true)
            .open(data.join("postgresql.auto.conf"))?
            .write_all(format!("\n{configuration}{SETTINGS}").as_bytes())?;
        fs::write(data.join("recovery.signal"), "")?;
        match fs::remove_file(data.join("standby.signal")) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        for number in tablespaces {
            let link = data.join("pg_tblspc").join(number);
            fs::remove_file(&link)?;
            // Wherever it is mounted.
            std::os::unix::fs::symlink(format!("../../tablespaces/{number}"), &link)?;
        }
        fs::write(root.join("README"), README)
    };
    write().map_err(|e| unread(&data, e))?;
    own(root)?;
    Ok(began)
}

/// Takes out where an earlier recovery was to end: two such settings are refused, and one is the user's to give.
fn forget_targets(path: &Path) -> std::io::Result<()> {
    let Ok(text) = fs::read(path) else { return Ok(()) };
    let is_target = |line: &[u8]| line.trim_ascii_start().starts_with(b"recovery_target");
    let kept: Vec<&[u8]> =
        text.split_inclusive(|byte| *byte == b'\n').filter(|line| !is_target(line)).collect();
    fs::write(path, kept.concat())
}

/// Fails where there are others than were known when it began: they lie where nobody wanted them.
fn check_tablespaces(links: &Path, known: &[String]) -> Result<()> {
    for entry in fs::read_dir(links).map_err(|e| unread(links, e))? {
        let entry = entry.map_err(|e| unread(links, e))?;
        let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
        if is_link && !known.iter().any(|one| entry.file_name() == one.as_str()) {
            let at = fs::read_link(entry.path()).unwrap_or_default();
            let what = format!(
                "a tablespace was made while the base was taken, and a copy of it lies in '{}'",
                at.display()
            );
            return Err(Error::new(Kind::Conflict, what).remedy("remove that copy, and run it again"));
        }
    }
    Ok(())
}

/// Has it be its user's, where the server may say so and there is one of that name.
pub(super) fn own(root: &Path) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let mut command = std::process::Command::new("chown");
    command.args(["--recursive", "--no-dereference", &format!("{USER}:"), "--"]).arg(root).env("LC_ALL", "C");
    let output = command.output().map_err(|e| Error::io("running chown", e))?;
    if !output.status.success() && !String::from_utf8_lossy(&output.stderr).contains("invalid") {
        let what = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(Error::new(Kind::Io, format!("the base backup's owner: {what}")));
    }
    Ok(())
}

/// The segment that a backup's label says it begins in: `START WAL LOCATION: 0/2000028 (file 000000010000000000000002)`.
fn began(label: &str) -> Result<Segment> {
    let line = label.lines().find(|line| line.starts_with("START WAL LOCATION:"));
    let name = line.and_then(|line| line.split_once("(file ")?.1.strip_suffix(')'));
    name.and_then(|name| Segment::try_from(name.to_owned()).ok())
        .ok_or_else(|| Error::new(Kind::Io, "the base backup does not say where its WAL begins"))
}

fn unread(path: &Path, error: std::io::Error) -> Error {
    Error::io(format!("the base backup in '{}'", path.display()), error)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LABEL: &str =
        "START WAL LOCATION: 0/2000028 (file 000000010000000000000002)\nCHECKPOINT LOCATION: 0/2000060\n";

    #[test]
    fn a_label_says_where_its_wal_begins() {
        assert_eq!(String::from(began(LABEL).unwrap()), "000000010000000000000002");
        assert!(began("CHECKPOINT LOCATION: 0/2000060\n").is_err());
        assert!(began("START WAL LOCATION: 0/2000028 (file ../../etc/passwd)\n").is_err());
    }

    #[test]
    fn it_is_made_ready_to_be_started_anywhere() {
        let place = tempfile::tempdir().unwrap();
        let data = place.path().join("data");
        fs::create_dir_all(data.join("pg_tblspc")).unwrap();
        std::os::unix::fs::symlink("/srv/scratch/tablespaces/16400", data.join("pg_tblspc/16400")).unwrap();
        fs::write(data.join("backup_label"), LABEL).unwrap();
        fs::write(data.join("standby.signal"), "").unwrap();
        fs::write(data.join("postgresql.auto.conf"), "archive_mode = 'on'\n recovery_target_time = 'x'")
            .unwrap();
        assert_eq!(settle(place.path(), &[], "").unwrap_err().kind(), Kind::Conflict);
        settle(place.path(), &["16400".to_owned()], "shared_buffers = '1GB'\n").unwrap();
        let read = |name: &str| fs::read_to_string(data.join(name)).unwrap();
        let told = read("postgresql.auto.conf");
        assert!(
            told.starts_with("archive_mode = 'on'\n") && told.contains("\narchive_mode = 'off'\n"),
            "{told}"
        );
        assert!(!told.contains("'x'"), "{told}");
        assert!(told.contains("\nshared_buffers = '1GB'\n") && read("postgresql.conf").is_empty());
        assert!(data.join("recovery.signal").exists() && !data.join("standby.signal").exists());
        assert!(read("pg_hba.conf").contains("peer"));
        assert_eq!(
            fs::read_link(data.join("pg_tblspc/16400")).unwrap(),
            Path::new("../../tablespaces/16400")
        );
    }

    #[test]
    fn paths_with_equals_signs_are_mapped() {
        let tablespace = Tablespace { number: "16400".to_owned(), location: "/srv/a=b".to_owned() };
        assert_eq!(mapping(Path::new("/tmp/x"), &tablespace), "/srv/a\\=b=/tmp/x/tablespaces/16400");
    }
}
