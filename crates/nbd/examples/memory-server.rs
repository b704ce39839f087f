//! Serves one disk in memory: what the door alone can do, for measuring.
//!
//! `cargo run --release -p stonefold-nbd --example memory-server -- unix:///tmp/nbd.sock 1073741824`; with a third
//! argument of 1, nothing is cached and every request waits once. A fourth and a fifth name a certificate and its key, for TLS.

#[path = "../tests/door/memory.rs"]
#[allow(dead_code, reason = "shared with the tests")]
mod memory;

use std::sync::atomic::Ordering::Relaxed;
use stonefold_env::{Env, SystemWorld};
use stonefold_nbd::{Listener, Server, Tls, TlsMode};
use stonefold_tls::{Acceptor, Files};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, size, more @ ..] = arguments.as_slice() else {
        return Err("give an address, a size in bytes, how many times each request waits (0), a certificate and a key".into());
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let exports = memory::MemoryExports::default();
    let disk = exports.create("disk", size.parse()?);
    disk.fill();
    disk.polls_to_wait.store(more.first().map_or(Ok(0), |waits| waits.parse())?, Relaxed);
    runtime.block_on(async {
        let env = Env::new(SystemWorld::new(tokio::runtime::Handle::current(), 1)?);
        let mut listener = Listener::bind(&address.parse()?).await?;
        if let [_, certificate, key] = more {
            let files = Files { certificate: certificate.into(), key: key.into() };
            listener = listener
                .with_tls(Tls { acceptor: Acceptor::new(&files, None, &env)?, mode: TlsMode::Require });
        }
        println!("ready {}", listener.address());
        let server = Server::new(env, exports);
        server.serve(listener, std::future::pending()).await;
        Ok(())
    })
}
