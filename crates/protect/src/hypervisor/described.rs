//! What a machine is made of, as arguments of QEMU: as they were given, derived from a domain of libvirt's, or made up.

use super::words::{Word, Words};
use crate::domain::{self, Identity, Network};
use stonefold_types::Result;

/// What the host of a machine sees to by itself: none of it can be kept from the original's.
const OF_THE_HOST: &[&str] = &[
    "accel",
    "chroot",
    "D",
    "daemonize",
    "display",
    "enable-kvm",
    "incoming",
    "loadvm",
    "mon",
    "monitor",
    "nographic",
    "pidfile",
    "qmp",
    "qmp-pretty",
    "runas",
    "run-with",
    "S",
    "sandbox",
    "serial",
    "spice",
    "vnc",
];
/// Of those what somebody would miss.
const MISSED: &[&str] = &["spice", "vnc", "serial"];
const OF_THE_NETWORK: &[&str] = &["net", "netdev", "nic"];
/// The guest agent's channel, as every guest knows it.
pub(super) const AGENT: &str = "org.qemu.guest_agent.0";

/// Fails where arguments cannot be read.
pub(crate) fn check(text: &str) -> Result<()> {
    Words::parse(text).map(drop)
}

/// The arguments of a machine that is brought back, by a new identity, and what of the original it lacks, in words.
///
/// # Errors
/// [`stonefold_types::Kind::Invalid`] where they cannot be read.
pub(crate) fn recovered(text: &str, identity: &Identity) -> Result<(String, Vec<String>)> {
    let mut words = Words::parse(text)?;
    let mut notes = Vec::new();
    words.take_all(&["name", "uuid"]);
    words.push("name", identity.name.to_string());
    words.push("uuid", domain::uuid_text(identity.uuid));
    let gone = words.take_all(OF_THE_HOST);
    for word in gone.iter().filter(|word| MISSED.contains(&word.option.as_str())) {
        notes.push(format!("left out: -{} {}", word.option, word.value));
    }
    words.each(|word| {
        if ["machine", "M"].contains(&word.option.as_str()) {
            word.drop_property("accel");
        }
    });
    take_agent(&mut words);
    if matches!(identity.network, Network::Named(_)) {
        notes.push("a network by its name is libvirt's: QEMU's arguments keep theirs".to_owned());
    }
    match identity.network {
        Network::Isolated => isolate(&mut words),
        _ => new_macs(&mut words, identity),
    }
    Ok((words.text(), notes))
}

/// The original's channel to the guest agent leads to its own host's socket.
fn take_agent(words: &mut Words) {
    let of_agent = |word: &Word| word.option == "device" && word.property("name") == Some(AGENT);
    for port in words.take(of_agent) {
        let id = port.property("chardev").unwrap_or_default().to_owned();
        words.take(|word| word.option == "chardev" && word.property("id") == Some(&id));
    }
}

fn isolate(words: &mut Words) {
    words.take(|word| {
        OF_THE_NETWORK.contains(&word.option.as_str())
            || word.option == "device" && word.property("netdev").is_some()
    });
    words.push("nic", "none");
}

fn new_macs(words: &mut Words, identity: &Identity) {
    let mut number = 0;
    words.each(|word| {
        for name in ["mac", "macaddr"] {
            if word.property(name).is_some() {
                word.replace_property(name, &domain::mac(&identity.macs, number));
                number += 1;
            }
        }
    });
}

/// Arguments for what libvirt describes: what plain QEMU needs to boot the same disks.
pub(super) fn of_domain(xml: &str) -> Result<(Words, Vec<String>)> {
    let machine = domain::Machine::parse(xml)?;
    let mut words = Words::default();
    let mut notes = Vec::new();
    words.push("name", machine.name);
    if let Some(uuid) = machine.uuid {
        words.push("uuid", uuid);
    }
    words.push("machine", machine.chipset);
    words.push("m", format!("{}M", machine.memory_mib));
    words.push("smp", machine.processors.to_string());
    if machine.efi {
        match FIRMWARE.iter().find(|path| std::path::Path::new(path).exists()) {
            Some(path) => words.push("drive", format!("if=pflash,format=raw,unit=0,readonly=on,file={path}")),
            None => {
                notes.push("it boots by UEFI, and this host has no firmware for it: install ovmf".to_owned())
            }
        }
    }
    for mac in &machine.macs {
        words.push("nic", format!("user,model=virtio-net-pci,mac={mac}"));
    }
    match machine.macs.is_empty() {
        true => words.push("nic", "none"),
        false => notes
            .push("its network is QEMU's own, behind this host: libvirt's networks are libvirt's".to_owned()),
    }
    Ok((words, notes))
}

/// Firmware for UEFI, as distributions name it.
const FIRMWARE: &[&str] = &[
    "/usr/share/OVMF/OVMF_CODE_4M.fd",
    "/usr/share/OVMF/OVMF_CODE.fd",
    "/usr/share/edk2/ovmf/OVMF_CODE.fd",
    "/usr/share/edk2/x64/OVMF_CODE.4m.fd",
    "/usr/share/qemu/ovmf-x86_64-code.bin",
];

/// Arguments for a machine of which nothing is known but its disks.
pub(super) fn made_up(name: &str) -> (Words, Vec<String>) {
    let mut words = Words::default();
    words.push("name", name);
    words.push("machine", "q35");
    words.push("m", "2G");
    words.push("smp", "2");
    words.push("nic", "none");
    let note = "nothing is known of its hardware: it gets 2 GiB, two processors and no network".to_owned();
    (words, vec![note])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::Reach;
    use stonefold_types::Name;

    fn identity(network: Network) -> Identity {
        Identity {
            name: Name::new("again").unwrap(),
            uuid: [7; 16],
            macs: [1; 32],
            network,
            reach: Reach::Socket("/s".into()),
            exports: Vec::new(),
        }
    }

    const TEXT: &str = "-name web -uuid 1 -enable-kvm -M q35,accel=kvm -m 1G -vnc :1 -netdev user,id=n \
        -device virtio-net-pci,netdev=n,mac=52:54:00:00:00:01 -chardev socket,id=ga,path=/run/ga \
        -device virtio-serial-pci -device virtserialport,chardev=ga,name=org.qemu.guest_agent.0 -daemonize";

    #[test]
    fn a_copy_has_an_identity_of_its_own() {
        let (text, notes) = recovered(TEXT, &identity(Network::Same)).unwrap();
        for gone in ["web", "kvm", "vnc", "00:00:00:01", "/run/ga", "guest_agent", "daemonize"] {
            assert!(!text.contains(gone), "{gone} in {text}");
        }
        for kept in
            ["-m 1G", "-M q35", "virtio-net-pci,netdev=n,mac=52:54:00:", "-name again", "-uuid 07070707-"]
        {
            assert!(text.contains(kept), "no {kept} in {text}");
        }
        assert_eq!(notes, ["left out: -vnc :1"]);
    }

    #[test]
    fn an_isolated_one_has_no_network() {
        let (text, _) = recovered(TEXT, &identity(Network::Isolated)).unwrap();
        assert!(!text.contains("netdev") && text.contains("-nic none"), "{text}");
    }

    #[test]
    fn a_domain_of_libvirt_is_started_by_qemu() {
        let xml = "<domain type='kvm'><name>web</name><uuid>u</uuid><memory unit='KiB'>1048576</memory><vcpu>3</vcpu>\
            <os><type arch='x86_64' machine='pc-q35-7.2'>hvm</type></os><devices>\
            <interface type='network'><mac address='52:54:00:00:00:07'/></interface></devices></domain>";
        let (words, notes) = of_domain(xml).unwrap();
        let text = words.text();
        for word in ["-m 1024M", "-smp 3", "-machine q35", "mac=52:54:00:00:00:07", "-uuid u"] {
            assert!(text.contains(word), "no {word} in {text}");
        }
        assert_eq!(notes.len(), 1);
        let pulled = xml.replace("<mac", "<link state='down'/><mac");
        assert!(of_domain(&pulled).unwrap().0.text().contains("-nic none"));
    }
}
