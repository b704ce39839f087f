//! A machine as libvirt describes it, and the description of one that is brought back from it.
//!
//! *Promises*: what is not understood survives: a description is changed by cutting and pasting at the places of the parsed text, and every
//! other byte stays. *Never*: leaves in the copy what two machines cannot have at once (name, UUID, MAC addresses, sockets, the files of the
//! original's disks), without saying that it was left out.
//!
//! The format is libvirt's domain XML (<https://libvirt.org/formatdomain.html>).

mod edits;
mod limited;
mod machine;
mod reach;

pub(crate) use limited::limited;
pub(crate) use machine::Machine;
pub(crate) use reach::RECONNECT_DELAY_S;
pub use reach::Reach;

use edits::Edits;
use roxmltree::{Document, Node};
use stonefold_types::{Error, ExportName, Kind, Name, Result};

/// A description larger than this is none: libvirt's own limit of what it sends is 4 MiB for a whole message.
const BYTES_MAX: usize = 4 << 20;
/// The namespace of what libvirt passes on to QEMU.
const QEMU: &str = "http://libvirt.org/schemas/domain/qemu/1.0";

/// What of a domain a backup has to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    /// As libvirt knows it.
    pub name: String,
    /// Nothing where it is left to libvirt.
    pub uuid: Option<String>,
    /// Those that hold data: no CD-ROMs, no floppies.
    pub disks: Vec<DomainDisk>,
    /// MAC addresses, in order.
    pub macs: Vec<String>,
}

impl Domain {
    /// By what libvirt finds it: its UUID, or its name where that is left to libvirt.
    pub(crate) fn known_as(self) -> String {
        self.uuid.unwrap_or(self.name)
    }
}

/// A disk of a domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainDisk {
    /// As the guest sees it, unique in its machine: `vda`.
    pub target: String,
    /// Its image's format: `raw`, `qcow2`.
    pub format: String,
    /// Where it lies: a file, a block device, or a network source in words. Nothing where the description does not say.
    pub source: Option<String>,
    /// That is the path of an image file.
    pub is_file: bool,
    /// Never written by the guest.
    pub read_only: bool,
}

/// Where the network of a machine that is brought back goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Network {
    /// Where the original's goes.
    Same,
    /// To this network of libvirt's.
    Named(String),
    /// Nowhere: every cable is pulled.
    Isolated,
}

/// What a machine that is brought back has of its own.
#[derive(Clone, Debug)]
pub struct Identity {
    /// A name that no other has.
    pub name: Name,
    /// 16 random bytes.
    pub uuid: [u8; 16],
    /// Random bytes, of which its MAC addresses are made.
    pub macs: [u8; 32],
    /// Where its network goes.
    pub network: Network,
    /// Where the server is reached, and of each disk, by its target, the export that serves it.
    pub reach: Reach,
    /// See `reach`.
    pub exports: Vec<(String, ExportName)>,
}

/// The description of a machine that is brought back, and what of the original it lacks, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// For `virsh define` or `create`.
    pub xml: String,
    /// What two machines cannot have at once and was left out.
    pub left_out: Vec<String>,
}

impl Domain {
    /// Reads a description.
    ///
    /// # Errors
    /// [`Kind::Invalid`] where it is none.
    pub fn parse(xml: &str) -> Result<Domain> {
        let document = parse(xml)?;
        let root = document.root_element();
        let text =
            |name: &str| child(root, name).and_then(|node| node.text()).map(|text| text.trim().to_owned());
        let name = text("name").filter(|name| !name.is_empty()).ok_or_else(|| no_domain("it has no name"))?;
        let disks: Vec<DomainDisk> = disks(root).filter_map(disk_of).collect();
        for (at, disk) in disks.iter().enumerate() {
            if disks[..at].iter().any(|other| other.target == disk.target) {
                return Err(no_domain(&format!("two of its disks are '{}'", disk.target)));
            }
        }
        let macs =
            interfaces(root).filter_map(|node| child(node, "mac")?.attribute("address").map(str::to_owned));
        Ok(Domain { name, uuid: text("uuid"), disks, macs: macs.collect() })
    }
}

/// The description of a machine that is brought back from one.
///
/// # Errors
/// [`Kind::Invalid`] where it is no description, or has a disk of which no export is named.
pub fn recovered(xml: &str, identity: &Identity) -> Result<Recovered> {
    let document = parse(xml)?;
    let root = document.root_element();
    let mut edits = Edits::new(xml);
    let name = child(root, "name").ok_or_else(|| no_domain("it has no name"))?;
    edits.replace(name.range(), format!("<name>{}</name>", identity.name));
    let uuid = uuid_text(identity.uuid);
    if let Some(node) = child(root, "uuid") {
        edits.replace(node.range(), format!("<uuid>{uuid}</uuid>"));
    }
    // What firmware tells the guest has to agree with it.
    let entries = root.descendants().filter(|node| node.has_tag_name("entry"));
    for entry in entries.filter(|node| node.attribute("name") == Some("uuid")) {
        edits.replace(entry.range(), format!("<entry name='uuid'>{uuid}</entry>"));
    }
    // A guest that runs on is told that it is another one now.
    if let Some(node) = child(root, "genid") {
        edits.replace(node.range(), "<genid/>".to_owned());
    }
    for (number, node) in interfaces(root).enumerate() {
        edit_interface(&mut edits, node, number, identity);
    }
    for node in disks(root) {
        edit_disk(&mut edits, node, identity)?;
    }
    let mut left_out: Vec<String> =
        child(root, "devices").map_or_else(Vec::new, |devices| leave_out(&mut edits, devices));
    left_out.extend(child(root, "os").and_then(|os| new_firmware(&mut edits, os)));
    // What it says to QEMU past libvirt may name anything.
    for node in root.children().filter(|node| node.has_tag_name((QEMU, "commandline"))) {
        left_out.extend(own_commandline(xml, &mut edits, node));
    }
    Ok(Recovered { xml: edits.apply(), left_out })
}

fn parse(xml: &str) -> Result<Document<'_>> {
    if xml.len() > BYTES_MAX {
        return Err(no_domain("it is larger than any is"));
    }
    // Entities of a document's own are what hostile ones are made of; libvirt writes none.
    let document = Document::parse(xml).map_err(|error| no_domain(&error.to_string()))?;
    match document.root_element().has_tag_name("domain") {
        true => Ok(document),
        false => Err(no_domain("its root is not <domain>")),
    }
}

fn no_domain(why: &str) -> Error {
    Error::new(Kind::Invalid, format!("this describes no machine of libvirt: {why}"))
        .remedy("give what 'virsh dumpxml --inactive DOMAIN' prints")
}

fn child<'a, 'i>(node: Node<'a, 'i>, name: &str) -> Option<Node<'a, 'i>> {
    node.children().find(|child| child.has_tag_name(name))
}

fn devices<'a, 'i>(root: Node<'a, 'i>, name: &'static str) -> impl Iterator<Item = Node<'a, 'i>> {
    let devices = root.children().filter(|node| node.has_tag_name("devices"));
    devices.flat_map(|node| node.children()).filter(move |node| node.has_tag_name(name))
}

fn interfaces<'a, 'i>(root: Node<'a, 'i>) -> impl Iterator<Item = Node<'a, 'i>> {
    devices(root, "interface")
}

/// Those that hold data. Without a word of what it is, a disk is one.
fn disks<'a, 'i>(root: Node<'a, 'i>) -> impl Iterator<Item = Node<'a, 'i>> {
    let holds = |node: &Node<'_, '_>| matches!(node.attribute("device"), None | Some("disk" | "lun"));
    devices(root, "disk").filter(holds)
}

fn disk_of(node: Node<'_, '_>) -> Option<DomainDisk> {
    let target = child(node, "target")?.attribute("dev")?.to_owned();
    let format =
        child(node, "driver").and_then(|driver| driver.attribute("type")).unwrap_or("raw").to_owned();
    let source = child(node, "source").and_then(|source| {
        let path = ["file", "dev", "dir"].iter().find_map(|name| source.attribute(*name));
        let network =
            || Some(format!("{}:{}", source.attribute("protocol")?, source.attribute("name").unwrap_or("")));
        let volume = || Some(format!("{}/{}", source.attribute("pool")?, source.attribute("volume")?));
        path.map(str::to_owned).or_else(network).or_else(volume)
    });
    let is_file = child(node, "source").is_some_and(|source| source.attribute("file").is_some());
    Some(DomainDisk { target, format, source, is_file, read_only: child(node, "readonly").is_some() })
}

fn edit_disk(edits: &mut Edits<'_>, node: Node<'_, '_>, identity: &Identity) -> Result<()> {
    let Some(target) = child(node, "target").and_then(|target| target.attribute("dev")) else {
        return Ok(());
    };
    let export = identity.exports.iter().find(|(name, _)| name == target);
    let Some((_, export)) = export else {
        return Err(Error::new(Kind::Invalid, format!("the point has nothing of the disk '{target}'"))
            .remedy("recover a point of all disks, or take the disk out of the description"));
    };
    edits.set_attribute(node, "type", "network");
    let source = identity.reach.source_of(export);
    match child(node, "source") {
        Some(old) => edits.replace(old.range(), source),
        None => edits.insert_into(node, source),
    }
    // What is served is the disk itself, and trims are worth passing on.
    match child(node, "driver") {
        Some(driver) => {
            edits.set_attribute(driver, "type", "raw");
            edits.set_attribute(driver, "discard", "unmap");
        }
        None => edits.insert_into(node, "<driver name='qemu' type='raw' discard='unmap'/>".to_owned()),
    }
    // Chains, mirrors and locks of images belong to the original's files.
    for name in ["backingStore", "mirror", "encryption", "transient"] {
        if let Some(old) = child(node, name) {
            edits.replace(old.range(), String::new());
        }
    }
    Ok(())
}

fn edit_interface(edits: &mut Edits<'_>, node: Node<'_, '_>, number: usize, identity: &Identity) {
    let address = format!("<mac address='{}'/>", mac(&identity.macs, number));
    match child(node, "mac") {
        Some(old) => edits.replace(old.range(), address),
        None => edits.insert_into(node, address),
    }
    // The host's end is named anew.
    if let Some(old) = child(node, "target") {
        edits.replace(old.range(), String::new());
    }
    match &identity.network {
        Network::Same => {}
        Network::Named(network) => {
            edits.set_attribute(node, "type", "network");
            let source = format!("<source network='{}'/>", escaped(network));
            match child(node, "source") {
                Some(old) => edits.replace(old.range(), source),
                None => edits.insert_into(node, source),
            }
        }
        Network::Isolated => {
            let down = "<link state='down'/>".to_owned();
            match child(node, "link") {
                Some(old) => edits.replace(old.range(), down),
                None => edits.insert_into(node, down),
            }
        }
    }
}

/// Takes out what only one machine can have; returns what a user would miss.
fn leave_out(edits: &mut Edits<'_>, devices: Node<'_, '_>) -> Vec<String> {
    let mut left_out = Vec::new();
    for node in devices.children().filter(Node::is_element) {
        match node.tag_name().name() {
            "hostdev" => {
                left_out.push("a device of the host that was passed through".to_owned());
                edits.replace(node.range(), String::new());
            }
            "shmem" | "filesystem" => {
                left_out.push(format!("a share with the host (<{}>)", node.tag_name().name()));
                edits.replace(node.range(), String::new());
            }
            name
            @ ("audio" | "input" | "interface" | "memory" | "redirdev" | "rng" | "smartcard" | "tpm")
                if leads_to_host(node) =>
            {
                left_out.push(format!("what leads to the original's host (<{name}>)"));
                edits.replace(node.range(), String::new());
            }
            // Its port is the original's.
            "graphics" => {
                let listens = node.children().filter(|child| child.attribute("type") == Some("socket"));
                listens.for_each(|child| edits.replace(child.range(), String::new()));
                edits.set_attribute(node, "autoport", "yes");
                ["port", "tlsPort", "websocket", "socket"]
                    .iter()
                    .for_each(|name| edits.drop_attribute(node, name));
            }
            "channel" | "console" | "parallel" | "serial" => left_out.extend(own_end(edits, node)),
            _ => {}
        }
    }
    left_out
}

/// The host's end of a character device is the original's: a terminal is in its place, or, of a channel, what libvirt chooses.
fn own_end(edits: &mut Edits<'_>, node: Node<'_, '_>) -> Option<String> {
    let (name, kind) = (node.tag_name().name(), node.attribute("type").unwrap_or("pty"));
    if ["null", "qemu-vdagent", "spicevmc"].contains(&kind) && child(node, "log").is_none() {
        return None;
    }
    for name in ["source", "log", "protocol"] {
        for child in node.children().filter(|child| child.has_tag_name(name)) {
            edits.replace(child.range(), String::new());
        }
    }
    match kind {
        // Of one that runs it names the terminal.
        "pty" => edits.drop_attribute(node, "tty"),
        "unix" if node.has_tag_name("channel") => {}
        _ => {
            edits.set_attribute(node, "type", "pty");
            return Some(format!("the host's end of a <{name}> ({kind}): it is a terminal of its own"));
        }
    }
    None
}

/// What is passed on to QEMU, without what leads to the original's host; what somebody would miss of that.
fn own_commandline(xml: &str, edits: &mut Edits<'_>, node: Node<'_, '_>) -> Vec<String> {
    let named = |name: &'static str| node.children().filter(move |child| child.has_tag_name((QEMU, name)));
    let arguments: Vec<&str> = named("arg").filter_map(|arg| arg.attribute("value")).collect();
    let (kept, notes) = crate::hypervisor::passed_on(&arguments);
    if kept != arguments {
        let prefix = node.lookup_prefix(QEMU).unwrap_or("qemu");
        let own: String =
            kept.iter().map(|arg| format!("<{prefix}:arg value='{}'/>", escaped(arg))).collect();
        let environment: String = named("env").map(|env| &xml[env.range()]).collect();
        edits.replace(
            node.range(),
            format!("<{prefix}:commandline>{own}{environment}</{prefix}:commandline>"),
        );
    }
    let bare = |note: String| note.strip_prefix("left out: ").map(str::to_owned).unwrap_or(note);
    notes.into_iter().map(bare).collect()
}

/// Whether a device of a kind that may be the guest's alone has a part of the original's host behind it.
fn leads_to_host(node: Node<'_, '_>) -> bool {
    let kind = node.attribute("type").or(node.attribute("model")).unwrap_or_default();
    let backend = || child(node, "backend");
    match node.tag_name().name() {
        "audio" => kind == "file",
        "input" => ["evdev", "passthrough"].contains(&kind),
        "interface" => ["vdpa", "vhostuser", "client", "server", "mcast", "udp", "hostdev"].contains(&kind),
        "memory" => ["nvdimm", "virtio-pmem"].contains(&node.attribute("model").unwrap_or_default()),
        "redirdev" => kind != "spicevmc",
        "rng" => backend().is_some_and(|backend| backend.attribute("model") == Some("egd")),
        "smartcard" => node.attribute("mode") != Some("passthrough") || kind != "spicevmc",
        "tpm" => backend().is_some_and(|backend| backend.attribute("type") != Some("emulator")),
        _ => false,
    }
}

/// UEFI's variables lie in a file that is the original's. libvirt makes one of the template where none is named.
fn new_firmware(edits: &mut Edits<'_>, os: Node<'_, '_>) -> Option<String> {
    let node = child(os, "nvram")?;
    let template = node.attribute("template").map(|path| format!("<nvram template='{}'/>", escaped(path)));
    edits.replace(node.range(), template.unwrap_or_default());
    Some("what the firmware remembered (UEFI variables): it begins as a new machine's".to_owned())
}

/// A locally administered unicast address (IEEE 802), in the range that QEMU's machines have by habit.
pub(crate) fn mac(random: &[u8; 32], number: usize) -> String {
    let byte = |at: usize| random[(number * 3 + at) % random.len()];
    // More interfaces than there is chance for still differ.
    format!("52:54:00:{:02x}:{:02x}:{:02x}", byte(0), byte(1), byte(2) ^ (number / 10) as u8)
}

/// Version 4 of RFC 9562.
pub(crate) fn uuid_text(mut random: [u8; 16]) -> String {
    random[6] = random[6] & 0x0f | 0x40;
    random[8] = random[8] & 0x3f | 0x80;
    let hex: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('\'', "&apos;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests;
