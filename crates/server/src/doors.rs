//! The NBD doors of one server: taken first, opened when the store is, and named as clients name them.

use crate::durability::is_open_to_the_network;
use futures::future::join_all;
use stonefold_nbd::{Address, Exports, Listener, Server, Tls, TlsMode};
use stonefold_protect::domain::Reach;
use stonefold_types::Result;
use tokio::sync::watch;

/// An open door.
#[derive(Clone)]
pub(crate) struct Door {
    /// With the port that was really taken.
    address: Address,
    /// Whether clients must use TLS.
    secret: bool,
}

/// The URI of a door, to which clients add a name.
pub(crate) fn door_uri(door: &Door) -> String {
    match &door.address {
        Address::Tcp { host, port } => format!("{}://{}:{port}", scheme(door), bracketed(host)),
        Address::Unix(path) => format!("nbd+unix:///?socket={}", escaped(&path.to_string_lossy())),
    }
}

/// The URI of one export behind a door.
pub(crate) fn export_uri(door: &Door, export: &str) -> String {
    match &door.address {
        Address::Tcp { host, port } => format!("{}://{}:{port}/{export}", scheme(door), bracketed(host)),
        Address::Unix(path) => format!("nbd+unix:///{export}?socket={}", escaped(&path.to_string_lossy())),
    }
}

/// Where a hypervisor on this machine finds its disks: a Unix socket where there is one, which is nobody else's; nothing without doors.
pub(crate) fn reach(doors: &[Door]) -> Option<Reach> {
    let of = |door: &Door| match &door.address {
        Address::Unix(path) => Reach::Socket(path.to_string_lossy().into_owned()),
        Address::Tcp { host, port } => Reach::Tcp { host: host.clone(), port: *port, secret: door.secret },
    };
    let is_socket = |door: &&Door| matches!(door.address, Address::Unix(_));
    doors.iter().find(is_socket).or(doors.first()).map(of)
}

/// Where TLS is only allowed, a client that was told of `nbds` could no longer do without.
fn scheme(door: &Door) -> &'static str {
    if door.secret { "nbds" } else { "nbd" }
}

fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

/// A path as a URI's query takes it.
fn escaped(path: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"/.-_~:@".contains(&b);
    path.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

/// Every address taken, nobody served yet.
pub(crate) struct Doors(Vec<Listener>);

impl Doors {
    /// Takes every address, or none. TLS is for those on TCP: a Unix socket is its owner's alone.
    pub(crate) async fn bind(addresses: &[Address], tls: Option<&Tls>) -> Result<Doors> {
        let mut listeners = Vec::new();
        for address in addresses {
            let listener = Listener::bind(address).await?;
            listeners.push(match (address, tls) {
                (Address::Tcp { .. }, Some(tls)) => listener.with_tls(tls.clone()),
                _ => listener,
            });
            if is_open_to_the_network(address) && tls.is_none() {
                tracing::warn!(%address, "this door is open to the network, without TLS; see --tls-cert");
            }
        }
        Ok(Doors(listeners))
    }

    /// Where they are.
    pub(crate) fn opened(&self) -> Vec<Door> {
        let door = |listener: &Listener| Door {
            address: listener.address().clone(),
            secret: listener.tls().is_some_and(|tls| tls.mode == TlsMode::Require),
        };
        self.0.iter().map(door).collect()
    }

    /// Serves until told to stop, and returns when the last client has gone.
    pub(crate) async fn serve<E: Exports>(self, server: &Server<E>, stop: watch::Receiver<bool>) {
        let told = |mut stop: watch::Receiver<bool>| async move {
            // A sender that is gone means stop, too.
            let _ = stop.wait_for(|stop| *stop).await;
        };
        join_all(self.0.into_iter().map(|listener| server.serve(listener, told(stop.clone())))).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_name_an_export_behind_each_kind_of_door() {
        let door = |address: &str, secret| Door { address: address.parse().unwrap(), secret };
        let tcp = door("tcp://127.0.0.1:10809", false);
        let unix = door("unix:///run/a b.sock", false);
        assert_eq!(export_uri(&tcp, "web@monday"), "nbd://127.0.0.1:10809/web@monday");
        assert_eq!(export_uri(&unix, "web"), "nbd+unix:///web?socket=/run/a%20b.sock");
        assert_eq!(export_uri(&door("tcp://[::1]:1", true), "web"), "nbds://[::1]:1/web");
        assert_eq!(door_uri(&unix), "nbd+unix:///?socket=/run/a%20b.sock");
        let here = Reach::Tcp { host: "127.0.0.1".into(), port: 10809, secret: false };
        assert_eq!(reach(std::slice::from_ref(&tcp)), Some(here));
        assert_eq!(reach(&[tcp, unix]), Some(Reach::Socket("/run/a b.sock".into())));
    }
}
