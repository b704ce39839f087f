//! `stonefold disk export`.

mod target;

use crate::context::Context;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::qemu::{Copy, Door, Format, Hole, Qemu, Saved, reachable};
use crate::table::count;
use clap::Args;
use serde_json::json;
use std::path::PathBuf;
use stonefold_api::Client;
use stonefold_types::{Error, ExportName, Kind, Result, Size};
use target::Target;

/// Copy a disk or a snapshot to an image file, or over a block device
///
/// A file appears whole or not at all. Export a snapshot when clients are connected: a disk that is written while
/// it is copied is not of one instant.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    stonefold disk export web@monday web.qcow2\n  \
    stonefold disk export web /mnt/usb/web.img --format raw --force\n  \
    stonefold disk export web /dev/sdx --force\n  \
    stonefold disk export web rescued.img --salvage")]
pub(crate) struct Export {
    /// The disk or the snapshot
    #[arg(value_name = "NAME[@SNAP]")]
    export: ExportName,
    /// The file to make, or a block device to write over
    file: PathBuf,
    /// The file's format: raw (the bytes as they are, sparse), qcow2 (QEMU), vmdk (VMware), vhdx (Hyper-V), vdi
    /// (VirtualBox) or vhd (Hyper-V and others, up to 2040G) [default: by the file's ending, else raw]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Replace the file if it exists, or write over the block device
    #[arg(long)]
    force: bool,
    /// A folder with ca-cert.pem, and client-cert.pem and client-key.pem where the server wants them: for doors with TLS
    #[arg(long, value_name = "DIR")]
    tls_certificates: Option<PathBuf>,
    /// Go on where the disk is damaged: what cannot be read becomes zeros, and is listed; the exit status is then 1
    #[arg(long)]
    salvage: bool,
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
        target::refuse(&self.file, self.force)?;
        let format = self.format.map_or_else(|| Format::of_ending(&self.file), Ok)?;
        if self.file.as_os_str() == "-" {
            let error = Error::new(Kind::Invalid, "an image is not written to stdout");
            return Err(Failure::Misuse(error.remedy("name a file; one of this name is './-'")));
        }
        let qemu = Qemu::find()?;
        let from = self.find(&client)?;
        let interrupt = Interrupt::catch()?;
        let saved = self
            .copy(&qemu, &from, format, &interrupt)
            .map_err(|e| self.with_the_server_s_words(&client, e))
            .map_err(|e| e.context(format!("exporting '{}' to '{}'", self.export, self.file.display())))?;
        self.answer(context, &from, format, &saved)?;
        self.tell_holes(&saved.holes)
    }

    fn copy(&self, qemu: &Qemu, from: &From, format: Format, interrupt: &Interrupt) -> Result<Saved> {
        let target = Target::ready(&self.file, self.force, from.size_bytes)?;
        if target.is_device() && format != Format::Raw {
            let what = format!("a block device is written as it is, and not in the {} format", format.name());
            return Err(Error::new(Kind::Invalid, what).remedy("say --format raw"));
        }
        let message = format!("exporting {} of '{}'", Size(from.size_bytes), self.export);
        let copy = Copy { message, data_bytes: from.data_bytes, interrupt };
        let saved = match target.is_device() {
            true => qemu
                .save_to_device(&from.door, target.path(), self.salvage, &copy)
                .map_err(|error| error.context("the device is half written"))?,
            false => qemu.save(&from.door, format, target.path(), self.salvage, &copy)?,
        };
        interrupt.check()?;
        target.finish()?;
        Ok(saved)
    }

    /// NBD has a number for what failed, and qemu-img no more than that: the server knows the place and the segment.
    fn with_the_server_s_words(&self, client: &Client, error: Error) -> Error {
        if error.kind() != Kind::Corrupt {
            return error;
        }
        let export = self.export.to_string();
        let met = client
            .pool()
            .ok()
            .and_then(|pool| pool.damaged_reads.into_iter().find(|reads| reads.export == export));
        met.map_or(error.clone(), |reads| {
            let remedy = error.remedy_text().unwrap_or_default().to_owned();
            Error::new(Kind::Corrupt, reads.what).remedy(remedy)
        })
    }

    fn answer(
        &self,
        context: &Context,
        from: &From,
        format: Format,
        saved: &Saved,
    ) -> std::result::Result<(), Failure> {
        let file = self.file.display().to_string();
        let holes: Vec<_> = saved
            .holes
            .iter()
            .map(|hole| json!({ "offset": hole.start, "bytes": hole.end - hole.start }))
            .collect();
        let answer = json!({
            "export": self.export.to_string(),
            "file": file,
            "format": format.name(),
            "size_bytes": from.size_bytes,
            "unreadable": holes,
        });
        context.answer(&answer, || {
            let seconds = saved.seconds;
            let mut text = format!(
                "{} exported to '{file}' ({} format) in {seconds:.1} s\n",
                self.export,
                format.name()
            );
            for Hole { start, end } in &saved.holes {
                text.push_str(&format!(
                    "  zeros from {start} for {} bytes: they cannot be read\n",
                    end - start
                ));
            }
            text
        })
    }

    /// A file with holes was wanted, and yet is no success.
    fn tell_holes(&self, holes: &[Hole]) -> std::result::Result<(), Failure> {
        let bytes: u64 = holes.iter().map(|hole| hole.end - hole.start).sum();
        if bytes == 0 {
            return Ok(());
        }
        let what = format!(
            "{bytes} bytes of '{}' in {} cannot be read, and are zeros in '{}'",
            self.export,
            count(holes.len() as u64, "range"),
            self.file.display()
        );
        Err(Error::new(Kind::Corrupt, what).remedy("take these ranges from a backup").into())
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
                let data_bytes = disk.data_bytes();
                (disk.uris, disk.size_bytes, data_bytes)
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
