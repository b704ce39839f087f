//! The disk of a QEMU whose processors never run, as an NBD export: what a client of that asks goes through the QEMU's virtio-blk, as if its guest had
//! asked. So what runs on the host stands in a guest's place, and meets what a guest meets in QEMU, without an emulated processor.
//! What is to be done at given instants is asked of the same disk by `bench/protect/driver.py`; here it is tens of thousands of requests a second, of which
//! Python does 15,000.

mod device;
mod export;
mod memory;
mod wire;

use anyhow::{Context, Result};
use clap::Parser;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use stonefold_types::Size;

/// A QEMU's virtio disk as an NBD export.
#[derive(Parser)]
struct Arguments {
    /// The socket of its test protocol.
    #[arg(long)]
    test: PathBuf,
    /// The file of its memory.
    #[arg(long)]
    memory: PathBuf,
    /// How much that is.
    #[arg(long)]
    memory_bytes: Size,
    /// The Unix socket to listen on.
    #[arg(long)]
    socket: PathBuf,
    /// The disk's size.
    #[arg(long)]
    size: Size,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let memory_bytes = usize::try_from(arguments.memory_bytes.0)?;
    let memory = memory::Memory::open(&arguments.memory, memory_bytes)?;
    let wire = wire::Wire::open(&arguments.test)?;
    let mut device = device::Device::begin(wire, memory, memory_bytes, export::LARGEST)?;
    let listener =
        UnixListener::bind(&arguments.socket).with_context(|| format!("{}", arguments.socket.display()))?;
    loop {
        let (mut client, _) = listener.accept()?;
        // One that goes before it has chosen is nobody's concern.
        if matches!(export::negotiate(&mut client, arguments.size.0), Ok(true)) {
            export::Session::new(client, &mut device).serve()?;
        }
    }
}
