//! Who is attached to a disk, for people: whoever is told that it is in use wants to know by whom.

use std::sync::Arc;
use stonefold_env::WallNanos;
use stonefold_types::{Error, ExportName, Kind};

/// Clients named in an error; more are counted.
const NAMED_MAX: usize = 3;

/// Who attaches in this process, to flush a disk or to warm a cache.
pub const OWN: &str = "the server itself";

/// A client that is attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// Where it comes from, in the words of the door that let it in: an address, or a process of this machine.
    pub peer: Arc<str>,
    /// Since when, in nanoseconds since 1970.
    pub since: WallNanos,
    /// The disk, or a snapshot of it.
    pub export: ExportName,
}

impl Client {
    /// Whether it can write, and is not this process.
    pub(crate) fn is_guest(&self) -> bool {
        matches!(self.export, ExportName::Disk(_)) && *self.peer != *OWN
    }
}

/// The clients of one disk and of its snapshots, in the order in which they came. Each of them lets go by itself.
#[derive(Default)]
pub(crate) struct Clients(Vec<Arc<Client>>);

impl Clients {
    pub(crate) fn add(&mut self, client: Client) -> Arc<Client> {
        let client = Arc::new(client);
        self.0.push(client.clone());
        client
    }

    pub(crate) fn remove(&mut self, client: &Arc<Client>) {
        self.0.retain(|other| !Arc::ptr_eq(other, client));
    }

    /// How many can write that are not this process.
    pub(crate) fn guests(&self) -> usize {
        self.0.iter().filter(|client| client.is_guest()).count()
    }

    /// How many can write.
    pub(crate) fn writers(&self) -> usize {
        self.0.iter().filter(|client| matches!(client.export, ExportName::Disk(_))).count()
    }

    pub(crate) fn all(&self) -> Vec<Client> {
        self.0.iter().map(|client| Client::clone(client)).collect()
    }

    /// Fails with `Busy` while one is attached to what fits; `what` is that, as in "disk 'web'".
    pub(crate) fn check_none(&self, what: &str, fits: impl Fn(&Client) -> bool) -> Result<(), Error> {
        let there: Vec<&Arc<Client>> = self.0.iter().filter(|client| fits(client)).collect();
        if there.is_empty() {
            return Ok(());
        }
        let mut names: Vec<&str> = there.iter().take(NAMED_MAX).map(|client| &*client.peer).collect();
        let more = format!("{} more", there.len().saturating_sub(NAMED_MAX));
        if there.len() > NAMED_MAX {
            names.push(&more);
        }
        let count = if there.len() == 1 { "1 client".to_owned() } else { format!("{} clients", there.len()) };
        let what = format!("{what} is in use by {count}: {}", names.join("; "));
        Err(Error::new(Kind::Busy, what)
            .remedy("disconnect them first; 'stonefold disk show' tells since when each is connected"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_fit_are_named_until_they_go() {
        let mut clients = Clients::default();
        let mut come = |peer: &str, export: &str| {
            clients.add(Client { peer: peer.into(), since: 1, export: export.parse().unwrap() })
        };
        let came: Vec<_> = [("a", "web"), ("b", "web@s"), ("c", "web"), ("d", "web"), ("d", "web")]
            .map(|(p, e)| come(p, e))
            .into();
        let is_disk = |client: &Client| matches!(client.export, ExportName::Disk(_));
        let told = |clients: &Clients, fits: fn(&Client) -> bool| {
            clients.check_none("disk 'web'", fits).err().map(|error| error.what())
        };
        assert_eq!(told(&clients, |_| true).unwrap(), "disk 'web' is in use by 5 clients: a; b; c; 2 more");
        assert_eq!(
            told(&clients, |client| matches!(client.export, ExportName::Snapshot(_))).unwrap(),
            "disk 'web' is in use by 1 client: b"
        );
        assert_eq!((clients.writers(), clients.all().len()), (4, 5));
        // Two of one name are two.
        came.iter()
            .filter(|client| client.peer.as_ref() != "b")
            .take(3)
            .for_each(|client| clients.remove(client));
        assert_eq!((clients.writers(), clients.all().len()), (1, 2));
        came.iter().for_each(|client| clients.remove(client));
        clients.check_none("disk 'web'", is_disk).unwrap();
    }
}
