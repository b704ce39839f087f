//! `stonefold disk export`.

use crate::context::Context;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::qemu::{Copy, Door, Qemu, reachable};
use clap::{Args, ValueEnum};
use serde_json::json;
use std::fs::File;
use std::path::{Path, PathBuf};
use stonefold_api::Client;
use stonefold_types::{Error, ExportName, Kind, Result, Size};

/// Copy a disk or a snapshot to an image file
///
/// The file appears whole or not at all. Export a snapshot when clients are connected: a disk that is written while
/// it is copied is not of one instant.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    stonefold disk export web@monday web.qcow2\n  \
    stonefold disk export web /mnt/usb/web.img --format raw --force")]
pub(crate) struct Export {
    /// The disk or the snapshot
    #[arg(value_name = "NAME[@SNAP]")]
    export: ExportName,
    /// The file to make
    file: PathBuf,
    /// The file's format: raw (the bytes as they are, sparse), qcow2 (QEMU) or vmdk (VMware)
    /// [default: by the file's ending, else raw]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Replace the file if it exists
    #[arg(long)]
    force: bool,
    /// A folder with ca-cert.pem, and client-cert.pem and client-key.pem where the server wants them: for doors with TLS
    #[arg(long, value_name = "DIR")]
    tls_certificates: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Format {
    Raw,
    Qcow2,
    Vmdk,
}

impl Format {
    fn name(self) -> &'static str {
        match self {
            Format::Raw => "raw",
            Format::Qcow2 => "qcow2",
            Format::Vmdk => "vmdk",
        }
    }

    fn of_ending(file: &Path) -> Self {
        match file.extension().and_then(|ending| ending.to_str()).map(str::to_ascii_lowercase).as_deref() {
            Some("qcow2") => Format::Qcow2,
            Some("vmdk") => Format::Vmdk,
            _ => Format::Raw,
        }
    }
}

/// What is to be copied: where it is, its size, its data.
struct From {
    door: Door,
    size_bytes: u64,
    data_bytes: u64,
}

impl Export {
    pub(crate) fn run(self, context: &Context) -> std::result::Result<(), Failure> {
        let client = context.client()?;
        let format = self.format.unwrap_or_else(|| Format::of_ending(&self.file));
        self.refuse_to_overwrite()?;
        let qemu = Qemu::find()?;
        let from = self.find(&client)?;
        let interrupt = Interrupt::catch()?;
        let partial = Partial::beside(&self.file)?;
        let message = format!("exporting {} of '{}'", Size(from.size_bytes), self.export);
        let copy = Copy { message, data_bytes: from.data_bytes, interrupt: &interrupt };
        let copied = qemu.save(&from.door, format.name(), &partial.0, &copy);
        let seconds = copied
            .and_then(|seconds| interrupt.check().map(|()| seconds))
            .and_then(|seconds| partial.become_file(&self.file, self.force).map(|()| seconds))
            .map_err(|e| e.context(format!("exporting '{}' to '{}'", self.export, self.file.display())))?;
        let file = self.file.display().to_string();
        let answer = json!({ "export": self.export.to_string(), "file": file, "format": format.name(), "size_bytes": from.size_bytes });
        context.answer(&answer, || {
            format!("{} exported to '{file}' ({} format) in {seconds:.1} s\n", self.export, format.name())
        })
    }

    fn refuse_to_overwrite(&self) -> Result<()> {
        let Ok(meta) = std::fs::symlink_metadata(&self.file) else { return Ok(()) };
        if meta.is_dir() {
            let what = format!("'{}' is a folder", self.file.display());
            return Err(Error::new(Kind::Invalid, what).remedy("name the file to make in it"));
        }
        if self.force { Ok(()) } else { Err(exists(&self.file)) }
    }

    fn find(&self, client: &Client) -> Result<From> {
        let (uris, size_bytes, data_bytes) = match &self.export {
            ExportName::Disk(name) => {
                let disk = client.disk(name)?;
                if disk.clients > 0 {
                    eprintln!(
                        "note: a client is connected to '{name}'; if it writes meanwhile, the file is not of one \
                         instant ('stonefold snapshot create {name}', then export that)"
                    );
                }
                (disk.uris, disk.size_bytes, disk.mapped_bytes)
            }
            ExportName::Snapshot(name) => {
                let snapshot = client.snapshot(name)?;
                (snapshot.uris, snapshot.size_bytes, snapshot.size_bytes)
            }
        };
        let door = reachable(&uris, client.url(), self.tls_certificates.as_deref())?;
        Ok(From { door, size_bytes, data_bytes })
    }
}

fn exists(file: &Path) -> Error {
    Error::new(Kind::AlreadyExists, format!("file '{}' exists already", file.display()))
        .remedy("choose another, or replace it with --force")
}

/// The file while it is made, beside its later place; taken away unless it became the file.
struct Partial(PathBuf);

impl Partial {
    fn beside(file: &Path) -> Result<Self> {
        let name = file.file_name().ok_or_else(|| {
            Error::new(Kind::Invalid, format!("'{}' names no file", file.display()))
                .remedy("name the file to make")
        })?;
        let hidden = format!(".{}.partial-{}", name.to_string_lossy(), std::process::id());
        let path = file.with_file_name(hidden);
        // Made here so that a folder that cannot be written is told in our words, before any copying.
        File::create_new(&path).map_err(|e| {
            let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
            Error::io(format!("cannot make a file in '{}'", folder.display()), e)
                .remedy("name a file in a folder that exists and that you may write to")
        })?;
        Ok(Partial(path))
    }

    /// Makes it durable and gives it its name.
    fn become_file(&self, file: &Path, force: bool) -> Result<()> {
        let sync = |path: &Path| File::open(path).and_then(|opened| opened.sync_all());
        sync(&self.0).map_err(|e| Error::io("making the file durable", e))?;
        if !force && std::fs::symlink_metadata(file).is_ok() {
            return Err(exists(file));
        }
        std::fs::rename(&self.0, file).map_err(|e| Error::io("giving the file its name", e))?;
        let folder = file.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        sync(folder).map_err(|e| Error::io("making the file's name durable", e))
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // Absent when it became the file.
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ending_tells_the_format() {
        for (file, format) in
            [("a.qcow2", Format::Qcow2), ("a.VMDK", Format::Vmdk), ("a.img", Format::Raw), ("a", Format::Raw)]
        {
            assert_eq!(Format::of_ending(Path::new(file)), format, "{file}");
        }
    }

    #[test]
    fn a_partial_file_becomes_the_file_or_goes() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("out.img");
        let left = || std::fs::read_dir(folder.path()).unwrap().count();
        drop(Partial::beside(&file).unwrap());
        assert_eq!(left(), 0);
        Partial::beside(&file).unwrap().become_file(&file, false).unwrap();
        assert!(file.exists());
        let again = Partial::beside(&file).unwrap().become_file(&file, false).unwrap_err();
        assert_eq!((again.kind(), left()), (Kind::AlreadyExists, 1));
        Partial::beside(&file).unwrap().become_file(&file, true).unwrap();
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let error = Partial::beside(Path::new("/nowhere/at/all.img")).err().unwrap();
        assert!(error.what().contains("'/nowhere/at'"), "{error}");
    }
}
