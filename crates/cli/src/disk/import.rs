//! `stonefold disk import`.

use super::{Policy, made_text, wanted};
use crate::context::Context;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::qemu::{Copy, Image, Qemu, Source, reachable};
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;
use stonefold_api::{Client, Disk};
use stonefold_types::{BLOCK_BYTES, Kind, Name, Result, Size};

/// Make a disk from an image file or another NBD server
///
/// Reads raw, qcow2, vmdk, vhdx, vdi and vpc files, and NBD servers by URI, through qemu-img. What is sparse stays
/// sparse. If it fails or is stopped, the half-made disk is removed; one that cannot be, because the server has died, is
/// named.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    stonefold disk import web debian-12-generic-amd64.qcow2\n  \
    stonefold disk import old-server server.vmdk --compression zstd:3\n  \
    stonefold disk import copy nbd://backup-host/web")]
pub(crate) struct Import {
    /// The new disk's name
    name: Name,
    /// An image file, or an nbd://, nbds:// or nbd+unix:// URI
    source: Source,
    /// The source's format; needed only where it cannot be told from the content [default: found out]
    #[arg(long, value_name = "FORMAT", value_parser = ["raw", "qcow2", "vmdk", "vhdx", "vdi", "vpc"])]
    format: Option<String>,
    /// A folder with ca-cert.pem, and client-cert.pem and client-key.pem where a server wants them: for doors with TLS,
    /// the server's own and that of an nbds:// source
    #[arg(long, value_name = "DIR")]
    tls_certificates: Option<PathBuf>,
    #[command(flatten)]
    policy: Policy,
}

/// How long a door may take to see that the copying client has gone, after which the half-made disk can be removed.
const RELEASE_MAX: Duration = Duration::from_secs(5);

impl Import {
    pub(crate) fn run(mut self, context: &Context) -> std::result::Result<(), Failure> {
        self.source = self.source.with_tls(self.tls_certificates.as_deref())?;
        let client = context.client()?;
        let qemu = Qemu::find()?;
        let image = qemu.inspect(&self.source, self.format.as_deref())?;
        let interrupt = Interrupt::catch()?;
        // The last block may be part of the image only; a disk has whole blocks.
        let size_bytes = image.virtual_bytes.next_multiple_of(BLOCK_BYTES as u64);
        let made = client.create_disk(&wanted(self.name.clone(), size_bytes, &self.policy))?;
        let copied = self.fill(&client, &qemu, &image, &made, &interrupt);
        let (disk, seconds) = copied.map_err(|error| {
            let gone = take_away(&client, &self.name);
            let error = error.context(format!("importing '{}' as disk '{}'", self.source, self.name));
            match gone {
                Ok(()) => error,
                Err(why) => {
                    error.remedy(format!("remove the half-made disk '{}' yourself ({why})", self.name))
                }
            }
        })?;
        context.answer(&disk, || {
            let how = format!("imported in {seconds:.1} s ({} format)", image.format);
            made_text(&disk, &how)
        })
    }

    /// Copies the image into the disk and makes it durable.
    fn fill(
        &self,
        client: &Client,
        qemu: &Qemu,
        image: &Image,
        made: &Disk,
        interrupt: &Interrupt,
    ) -> Result<(Disk, f64)> {
        let uri = reachable(&made.uris, client.url(), self.tls_certificates.as_deref())?;
        let message = format!("importing {} into '{}'", Size(image.virtual_bytes), self.name);
        let copy = Copy { message, data_bytes: image.data_bytes, interrupt };
        let seconds = qemu.fill(&self.source, image, &uri, &copy)?;
        interrupt.check()?;
        // The copying client flushed, too; this is the answer that counts, from the server itself.
        client.flush_disk(&self.name)?;
        Ok((client.disk(&self.name)?, seconds))
    }
}

/// Removes a half-made disk, once the door has let go of the client that filled it.
fn take_away(client: &Client, name: &Name) -> Result<()> {
    const STEP: Duration = Duration::from_millis(100);
    let mut waited = Duration::ZERO;
    loop {
        match client.remove_disk(name, false) {
            Err(error) if error.kind() == Kind::Busy && waited < RELEASE_MAX => std::thread::sleep(STEP),
            done => return done,
        }
        waited += STEP;
    }
}
