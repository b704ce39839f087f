//! Both ends of a disk that is moved: as QEMU and its programs open them, and whether they are alike.

use super::home::Home;
use crate::nbd::{Address, Client, Place};
use serde_json::{Value, json};
use std::future::Future;
use std::time::Duration;
use stonefold_env::Env;
use stonefold_types::{Error, Kind, Name, Result};
use tokio::process::Command;

/// How long a server may take to let one more client in.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// A new place, without what lies in it.
pub(super) fn place(home: &Home) -> Result<Value> {
    match home {
        Home::File(path) => Ok(json!({ "driver": "file", "filename": path })),
        Home::Nbd(uri) => export(&uri.parse()?),
    }
}

/// What there is to say of an export that is reached by TLS.
pub(super) fn by_tls(export: &str) -> Error {
    Error::new(
        Kind::Unsupported,
        format!("export '{export}' is reached by TLS, by which no machine is moved"),
    )
    .remedy("name a door without TLS or a Unix socket, or tunnel it")
}

/// An export.
pub(super) fn export(Address { place, export }: &Address) -> Result<Value> {
    let server = match place {
        Place::Tcp(host, port) => json!({ "type": "inet", "host": host, "port": port.to_string() }),
        Place::Unix(path) => json!({ "type": "unix", "path": path }),
        Place::Tls(..) => return Err(by_tls(export)),
    };
    Ok(json!({ "driver": "nbd", "server": server, "export": export }))
}

/// Fails where an export lets nobody in beside the machine: who compares would wait for ever, and the guest would stand still for as long.
pub(super) async fn check_reached(env: &Env, address: &Address) -> Result<()> {
    let reached = Client::connect(env, address, None, PATIENCE).await;
    reached.map(drop).map_err(|error| {
        error
            .context(format!("reading '{}', to compare it", address.export))
            .remedy("have its server let two clients in (qemu-nbd --shared=2), or begin without --verify")
    })
}

/// What comes of comparisons, unless they are given up before.
pub(super) async fn unless(
    given_up: impl Future<Output = Error>,
    compared: impl Future<Output = Result<()>>,
) -> Result<()> {
    tokio::select! {
        why = given_up => Err(why),
        done = compared => done,
    }
}

/// Reads both ends of a disk, while nothing is written; `ends` are for qemu-img.
pub(super) async fn compare(target: &Name, ends: &[&str]) -> Result<()> {
    let mut command = Command::new("qemu-img");
    command.args(["compare", "-q", "-U"]).args(ends).kill_on_drop(true);
    let output = command
        .output()
        .await
        .map_err(|e| Error::io("running qemu-img", e).remedy("install qemu-utils where the server runs"))?;
    match output.status.code() {
        Some(0) => Ok(()),
        Some(1) => {
            let what = format!("the new disk '{target}' is not like the old one");
            Err(Error::new(Kind::Corrupt, what)
                .remedy("the machine goes on with the old one: look at the new place"))
        }
        _ => {
            let says = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Err(Error::new(Kind::Io, format!("disk '{target}' could not be compared: {says}"))
                .remedy("see that the server's user may read both ends, or begin without --verify"))
        }
    }
}
