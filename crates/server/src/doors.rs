//! The NBD doors of one server: taken first, opened when the store is, and named as clients name them.

use futures::future::join_all;
use stonefold_nbd::{Address, Exports, Listener, Server};
use stonefold_types::Result;
use tokio::sync::watch;

/// An open door: its address, with the port that was really taken.
pub(crate) type Door = Address;

/// The URI of a door, to which clients add a name.
pub(crate) fn door_uri(door: &Door) -> String {
    match door {
        Address::Tcp { host, port } => format!("nbd://{}:{port}", bracketed(host)),
        Address::Unix(path) => format!("nbd+unix:///?socket={}", escaped(&path.to_string_lossy())),
    }
}

/// The URI of one export behind a door.
pub(crate) fn export_uri(door: &Door, export: &str) -> String {
    match door {
        Address::Tcp { host, port } => format!("nbd://{}:{port}/{export}", bracketed(host)),
        Address::Unix(path) => format!("nbd+unix:///{export}?socket={}", escaped(&path.to_string_lossy())),
    }
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
    /// Takes every address, or none.
    pub(crate) async fn bind(addresses: &[Address]) -> Result<Doors> {
        let mut listeners = Vec::new();
        for address in addresses {
            listeners.push(Listener::bind(address).await?);
        }
        Ok(Doors(listeners))
    }

    /// Where they are.
    pub(crate) fn addresses(&self) -> Vec<Door> {
        self.0.iter().map(|listener| listener.address().clone()).collect()
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
        let tcp: Door = "tcp://127.0.0.1:10809".parse().unwrap();
        let unix: Door = "unix:///run/a b.sock".parse().unwrap();
        assert_eq!(export_uri(&tcp, "web@monday"), "nbd://127.0.0.1:10809/web@monday");
        assert_eq!(export_uri(&unix, "web"), "nbd+unix:///web?socket=/run/a%20b.sock");
        assert_eq!(export_uri(&"tcp://[::1]:1".parse().unwrap(), "web"), "nbd://[::1]:1/web");
        assert_eq!(door_uri(&unix), "nbd+unix:///?socket=/run/a%20b.sock");
    }
}
