//! What libvirt tells of a disk that is copied, and what it is told of the new place.
//!
//! <https://libvirt.org/formatdomain.html#hard-drives-floppy-disks-cdroms>: `<disk>` with a `<source>` and, while it is copied, a `<mirror>`, which has a
//! `<source>` of its own.

use super::super::MovedDisk;
use super::super::ends::by_tls;
use super::super::home::{Home, HomeFormat};
use crate::domain::escaped;
use crate::nbd::{Address, Place};
use roxmltree::{Document, Node};
use std::path::{Path, PathBuf};
use stonefold_types::{Error, Kind, Result};

/// NBD's port, where none is said.
const PORT: u16 = 10809;

/// Where a disk lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Lies {
    /// In a file.
    File(PathBuf),
    /// It is exported by a server.
    Export { address: Address, is_secret: bool },
    /// Anywhere else.
    Elsewhere,
}

/// A disk of a domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Told {
    /// What the guest reads.
    pub(super) lies: Lies,
    /// Where it is copied to, or committed.
    pub(super) copied_to: Option<Lies>,
    /// Both are alike, and stay so.
    pub(super) is_ready: bool,
}

impl Told {
    /// What a domain's description says of a disk.
    pub(super) fn of(description: &str, disk: &MovedDisk) -> Result<Told> {
        let unread =
            |why: String| Error::new(Kind::Io, format!("libvirt's description of the domain: {why}"));
        let document = Document::parse(description).map_err(|error| unread(error.to_string()))?;
        let devices = document.root_element().children().filter(|node| node.has_tag_name("devices"));
        let mut disks = devices.flat_map(|node| node.children()).filter(|node| node.has_tag_name("disk"));
        let is_it = |node: &Node<'_, '_>| {
            child(*node, "target").and_then(|target| target.attribute("dev")) == Some(disk.target.as_str())
        };
        let found = disks.find(is_it).ok_or_else(|| {
            unread(format!("it has no disk '{}' any more", disk.target)).remedy("begin another migration")
        })?;
        let mirror = child(found, "mirror");
        Ok(Told {
            lies: lies(found),
            copied_to: mirror.map(lies),
            is_ready: mirror.is_some_and(|mirror| mirror.attribute("ready") == Some("yes")),
        })
    }

    /// Whether it is being copied to that place.
    pub(super) fn is_copied_to(&self, home: &Home) -> bool {
        self.copied_to.as_ref().is_some_and(|lies| lies.is(home))
    }
}

impl Lies {
    /// Whether that is the place.
    pub(super) fn is(&self, home: &Home) -> bool {
        match (self, home) {
            (Lies::File(own), Home::File(path)) => own == path,
            (Lies::Export { address, .. }, Home::Nbd(uri)) => {
                uri.parse::<Address>().is_ok_and(|home| home == *address)
            }
            _ => false,
        }
    }
}

fn child<'a, 'i>(node: Node<'a, 'i>, name: &str) -> Option<Node<'a, 'i>> {
    node.children().find(|child| child.has_tag_name(name))
}

/// The source of a disk, or of a mirror.
fn lies(node: Node<'_, '_>) -> Lies {
    let Some(source) = child(node, "source") else { return Lies::Elsewhere };
    if let Some(path) = source.attribute("file") {
        return Lies::File(path.into());
    }
    match place(source).filter(|_| source.attribute("protocol") == Some("nbd")) {
        Some(place) => Lies::Export {
            address: Address { place, export: source.attribute("name").unwrap_or_default().to_owned() },
            is_secret: source.attribute("tls") == Some("yes"),
        },
        None => Lies::Elsewhere,
    }
}

fn place(source: Node<'_, '_>) -> Option<Place> {
    let host = child(source, "host")?;
    if host.attribute("transport") == Some("unix") {
        return Some(Place::Unix(host.attribute("socket")?.into()));
    }
    let port = host.attribute("port").map_or(Some(PORT), |port| port.parse().ok())?;
    Some(Place::Tcp(host.attribute("name")?.to_owned(), port))
}

/// A new place, as libvirt is told of it.
pub(super) fn destination(home: &Home, format: HomeFormat) -> Result<String> {
    let path = |path: &Path| escaped(&path.to_string_lossy());
    let (kind, source) = match home {
        Home::File(file) => ("file", format!("<source file='{}'/>", path(file))),
        Home::Nbd(uri) => {
            let Address { place, export } = uri.parse()?;
            let host = match &place {
                Place::Unix(socket) => format!("transport='unix' socket='{}'", path(socket)),
                Place::Tcp(host, port) => format!("name='{}' port='{port}'", escaped(host)),
                Place::Tls(..) => return Err(by_tls(&export)),
            };
            let name = escaped(&export);
            ("network", format!("<source protocol='nbd' name='{name}'><host {host}/></source>"))
        }
    };
    Ok(format!("<disk type='{kind}'><driver name='qemu' type='{}'/>{source}</disk>", format.name()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machines::MachineDisk;
    use stonefold_types::Name;

    fn disk(target: &str, home: &str) -> MovedDisk {
        let name = |text: &str| Name::new(text).unwrap();
        let (target, disk) = (name(target), name(&format!("again.{target}")));
        MovedDisk::new(MachineDisk { target, disk }, home.parse().unwrap(), 1)
    }

    /// As libvirt 9.0 writes it.
    fn description(disks: &str) -> String {
        format!("<domain type='qemu' id='1'><name>again</name><devices>{disks}</devices></domain>")
    }

    const OLD: &str = "<driver name='qemu' type='raw' discard='unmap'/><source protocol='nbd' name='again.vda' index='1'>\
        <host transport='unix' socket='/run/nbd.sock'/></source>";

    #[test]
    fn a_disk_is_followed_from_its_old_place_to_the_new_one() {
        let moved = disk("vda", "file:/srv/a&b.qcow2");
        let target = "<target dev='vda' bus='virtio'/>";
        let told = |inner: &str| {
            let other = "<disk type='block'><source dev='/dev/x'/><target dev='vdb'/></disk>";
            Told::of(&description(&format!("{other}<disk type='network'>{inner}{target}</disk>")), &moved)
                .unwrap()
        };
        let before = told(OLD);
        let address = Address { place: Place::Unix("/run/nbd.sock".into()), export: "again.vda".into() };
        assert_eq!(before.lies, Lies::Export { address, is_secret: false });
        assert!(before.copied_to.is_none() && !before.is_copied_to(&moved.home));

        let mirror = |ready: &str, file: &str| {
            format!(
                "{OLD}<mirror type='file' file='{file}' format='qcow2' job='copy'{ready}><format type='qcow2'/>\
                <source file='{file}' index='2'/></mirror>"
            )
        };
        let copied = told(&mirror("", "/srv/a&amp;b.qcow2"));
        assert!(copied.is_copied_to(&moved.home) && !copied.is_ready && !copied.lies.is(&moved.home));
        assert!(told(&mirror(" ready='yes'", "/srv/a&amp;b.qcow2")).is_ready);
        // On its way over it is not to be asked again.
        assert!(!told(&mirror(" ready='pivot'", "/srv/a&amp;b.qcow2")).is_ready);
        let another = told(&mirror("", "/srv/other"));
        assert!(another.copied_to.is_some() && !another.is_copied_to(&moved.home));

        let after = told("<driver name='qemu' type='qcow2'/><source file='/srv/a&amp;b.qcow2' index='2'/>");
        assert!(after.lies.is(&moved.home) && after.copied_to.is_none());
        assert!(Told::of(&description(""), &moved).is_err());
        assert!(Told::of("no xml", &moved).is_err());
    }

    #[test]
    fn exports_are_places_too() {
        let of = |inner: &str| {
            let text = description(&format!("<disk>{inner}<target dev='vda'/></disk>"));
            Told::of(&text, &disk("vda", "nbd://nas/web")).unwrap().lies
        };
        let by_tcp =
            of("<source protocol='nbd' name='web' tls='yes'><host name='nas' port='10809'/></source>");
        assert!(by_tcp.is(&disk("vda", "nbd://nas/web").home));
        assert!(!by_tcp.is(&disk("vda", "nbd://nas:99/web").home));
        assert!(matches!(by_tcp, Lies::Export { is_secret: true, .. }));
        assert!(
            of("<source protocol='nbd' name='web'><host name='nas'/></source>").is(&disk(
                "vda",
                "nbd://nas/web"
            )
            .home)
        );
        for elsewhere in
            ["", "<source dev='/dev/x'/>", "<source protocol='rbd' name='p/i'><host name='h'/></source>"]
        {
            assert_eq!(of(elsewhere), Lies::Elsewhere, "{elsewhere}");
        }
    }

    /// Goal: what libvirt is told is what it tells later.
    #[test]
    fn what_libvirt_is_told_is_the_place() {
        for home in
            ["file:/srv/it's <a>", "nbd://nas/web", "nbd://[::1]:99/a", "nbd+unix:///w%26?socket=/run/s%20t"]
        {
            let moved = disk("vda", home);
            let told = destination(&moved.home, HomeFormat::Raw).unwrap();
            let told = told.replace("</disk>", "<target dev='vda'/></disk>");
            assert!(Told::of(&description(&told), &moved).unwrap().lies.is(&moved.home), "{told}");
        }
    }
}
