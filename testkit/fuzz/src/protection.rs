//! What protection reads: domains of libvirt's, QEMU's arguments, signs of life, places.

use crate::Target;
use stonefold_protect::domain::{Domain, Identity, Network, Reach, recovered};
use stonefold_protect::{AgentPlace, Hardware, Home, Sign, Where};
use stonefold_types::{ExportName, Name};

/// The readers.
pub fn targets() -> Vec<Target> {
    let target = |name, seeds, read| Target { name, seeds, read, bytes_max: 1 << 20 };
    vec![
        target("libvirt's domains", domains, read_domain),
        target("QEMU's arguments", arguments, read_arguments),
        target("signs of life", signs, read_sign),
        target("places of machines", places, read_place),
    ]
}

fn texts(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

fn domains() -> Vec<Vec<u8>> {
    texts(&[
        "<domain type='kvm'><name>web</name><uuid>11111111-1111-4111-8111-111111111111</uuid><memory unit='GiB'>2</memory>\
         <os firmware='efi'><type machine='q35'>hvm</type><nvram template='/t'>/n</nvram></os><devices>\
         <disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='/a'/><target dev='vda' bus='virtio'/></disk>\
         <disk type='file' device='cdrom'><target dev='sda'/></disk><interface type='network'><mac address='52:54:00:00:00:01'/>\
         <source network='default'/><target dev='vnet0'/></interface><graphics type='vnc' port='5900'/><hostdev/></devices></domain>",
        "<?xml version='1.0'?><domain><name>a&amp;b</name><devices/></domain>",
    ])
}

fn identity(disks: &[&str]) -> Identity {
    let name = |text: &str| Name::new(text).expect("a name");
    Identity {
        name: name("again"),
        uuid: [7; 16],
        macs: [9; 32],
        network: Network::Named("a<b".to_owned()),
        reach: Reach::Socket("/run/'s".to_owned()),
        exports: disks.iter().map(|disk| ((*disk).to_owned(), ExportName::Disk(name("again.vda")))).collect(),
    }
}

fn read_domain(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let Ok(domain) = Domain::parse(&text) else { return };
    let targets: Vec<&str> = domain.disks.iter().map(|disk| disk.target.as_str()).collect();
    let Ok(made) = recovered(&text, &identity(&targets)) else { return };
    let again = Domain::parse(&made.xml).unwrap_or_else(|error| panic!("{error} in {}", made.xml));
    assert_eq!(again.name, "again");
    assert_eq!(again.disks.len(), domain.disks.len());
    let of_the_original = |mac: &String| again.macs.contains(mac);
    assert!(!domain.macs.iter().filter(|mac| mac.len() == 17).any(of_the_original), "{}", made.xml);
}

fn arguments() -> Vec<Vec<u8>> {
    texts(&[
        "-name web -uuid 1 -enable-kvm -M q35,accel=kvm -m 1G -vnc :1 -netdev user,id=n -device 'virtio-net-pci,netdev=n,mac=52:54:00:00:00:01'",
        "qemu-system-x86_64 -m 2G \\\n -smp 2 -nographic -drive \"if=pflash,file=/a b\"",
    ])
}

/// As the API takes them: what is kept is what was given.
fn read_arguments(bytes: &[u8]) {
    let hardware = Hardware::QemuArgs(String::from_utf8_lossy(bytes).into_owned());
    if hardware.check().is_ok() {
        let (made, _) = hardware.of_copy(&identity(&[])).expect("what was taken is copied");
        assert!(made.check().is_ok(), "{}", made.text());
        assert!(made.text().contains("-name again"), "{}", made.text());
    }
}

fn signs() -> Vec<Vec<u8>> {
    texts(&[
        "agent",
        "port:22",
        "console:login: *$",
        "cmd:systemctl is-system-running",
        "console:[a-z]{2,3}(x|y)+",
    ])
}

fn read_sign(bytes: &[u8]) {
    if let Ok(sign) = String::from_utf8_lossy(bytes).parse::<Sign>() {
        assert_eq!(sign.to_string().parse(), Ok(sign));
    }
}

fn places() -> Vec<Vec<u8>> {
    texts(&[
        "qemu",
        "libvirt:qemu:///system",
        "file:/srv/web.img",
        "nbd://h:1/x",
        "nbd+unix:///x?socket=/s",
        "unix:/run/agent.sock",
    ])
}

fn read_place(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(place) = text.parse::<Where>() {
        assert_eq!(place.to_string().parse(), Ok(place));
    }
    if let Ok(agent) = text.parse::<AgentPlace>() {
        assert_eq!(agent.to_string().parse::<AgentPlace>().ok(), Some(agent));
    }
    if let Ok(Home::File(path)) = text.parse::<Home>() {
        assert!(path.is_absolute(), "{}", path.display());
    }
}
