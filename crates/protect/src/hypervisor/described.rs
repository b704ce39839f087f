//! What a machine is made of, as arguments of QEMU: as they were given, derived from a domain of libvirt's, or made up.

use super::Forward;
use super::disk_devices;
use super::host_ends;
use super::words::{Word, Words};
use crate::domain::{self, Identity, Network};
use regex::Regex;
use std::borrow::Cow;
use std::sync::LazyLock;
use stonefold_types::{Error, Kind, Result};

const OF_THE_NETWORK: &[&str] = &["net", "netdev", "nic"];
/// What a machine is given by us has names that begin so, or is the guest's end of what has.
pub(super) const PREFIX: &str = "stonefold-";
const OWN: &[&str] = &["id", "node-name", "drive", "chardev", "bus"];

/// Fails where arguments cannot be read.
pub(crate) fn check(text: &str) -> Result<()> {
    Words::parse(text).map(drop)
}

/// A word of a command line without the secrets that are in it: whoever may look at a point sees what its machine was started with, and so does whoever has a
/// copy of it. A machine that is brought back needs none: its disks are exports.
fn without_secrets(word: Cow<'_, str>) -> Cow<'_, str> {
    static SECRETS: LazyLock<[(Regex, &str); 3]> = LazyLock::new(|| {
        let of = |pattern| Regex::new(pattern).expect("a pattern");
        [
            (of(r"(^|,)(data|password|passwd|key)=(?:[^,]|,,)*"), "$1$2="),
            (of(r#""(data|password|passwd|key)"\s*:\s*"(?:[^"\\]|\\.)*""#), r#""$1":"""#),
            (of(r"://[^/@,\s]*:[^/@,\s]*@"), "://"),
        ]
    });
    let mut text = word;
    for (pattern, left) in SECRETS.iter() {
        if pattern.is_match(&text) {
            text = Cow::Owned(pattern.replace_all(&text, *left).into_owned());
        }
    }
    text
}

/// The arguments that a running process was started with, its own name left out, and secrets.
///
/// # Errors
/// [`stonefold_types::Kind::Invalid`] where they cannot be read: they name an image without an option, say.
pub(crate) fn running(process: u32) -> Result<String> {
    let path = format!("/proc/{process}/cmdline");
    let told = std::fs::read(&path).map_err(|e| Error::io(format!("reading '{path}'"), e))?;
    let words: Vec<_> =
        told.split(|byte| *byte == 0).map(String::from_utf8_lossy).map(without_secrets).collect();
    // The last one is ended, too, and the first is the program.
    let words = words.get(1..words.len().saturating_sub(1)).unwrap_or_default();
    let text = shlex::try_join(words.iter().map(AsRef::as_ref));
    let text = text.map_err(|e| Error::new(Kind::Invalid, format!("what QEMU was started with: {e}")))?;
    Ok(Words::parse(&text)?.text())
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
    let targets: Vec<&str> = identity.exports.iter().map(|(target, _)| target.as_str()).collect();
    disk_devices::keep(&mut words, &targets);
    // What else the original was started with by us is given to the copy anew.
    let is_ours =
        |word: &Word| OWN.iter().any(|name| word.property(name).is_some_and(|is| is.starts_with(PREFIX)));
    let controllers = disk_devices::controllers(&words);
    let is_kept = |word: &Word| {
        let carries = || word.property("id").is_some_and(|id| controllers.iter().any(|one| one == id));
        disk_devices::is_of_disk(word) || word.option == "device" && carries()
    };
    words.take(|word| is_ours(word) && !is_kept(word));
    if identity.network == Network::Isolated {
        isolate(&mut words);
    }
    notes.extend(host_ends::take(&mut words, rustix::process::getuid().is_root()));
    if matches!(identity.network, Network::Named(_)) {
        notes.push("a network by its name is libvirt's: QEMU's arguments keep theirs".to_owned());
    }
    new_macs(&mut words, identity);
    Ok((words.text(), notes))
}

/// What of arguments that a domain passes on to QEMU a copy has, and what of them somebody would miss, in words.
pub(crate) fn passed_on(arguments: &[&str]) -> (Vec<String>, Vec<String>) {
    let text = shlex::try_join(arguments.iter().copied()).unwrap_or_default();
    let Ok(mut words) = Words::parse(&text) else {
        return (Vec::new(), vec!["left out: arguments of QEMU's own, which are not understood".to_owned()]);
    };
    let notes = host_ends::take(&mut words, rustix::process::getuid().is_root());
    (words.arguments(), notes)
}

/// Has a port of the guest's be reached from its host: by the network that it has, or by a card that leads nowhere else.
///
/// # Errors
/// [`Kind::Invalid`] where its network is none of QEMU's own.
pub(super) fn forward(words: &mut Words, forward: &Forward) -> Result<()> {
    let Forward { host, guest, alone } = forward;
    let leads = format!("tcp:127.0.0.1:{host}-:{guest}");
    let is_network = |word: &&Word| {
        OF_THE_NETWORK.contains(&word.option.as_str()) && !matches!(word.kind("type"), Some("none"))
    };
    if *alone || words.iter().find(is_network).is_none() {
        words.take_all(OF_THE_NETWORK);
        words.push("nic", format!("user,restrict=on,model=virtio-net-pci,hostfwd={leads}"));
        return Ok(());
    }
    let is_own = |word: &Word| is_network(&word) && word.kind("type") == Some("user");
    let own = words.iter().position(is_own).ok_or_else(|| {
        let what =
            format!("nobody here reaches port {guest} of the guest: its network is none of QEMU's own");
        Error::new(Kind::Invalid, what)
            .remedy("wait for agent, cmd:COMMAND or console:REGEX, or have it isolated")
    })?;
    // What there was of this kind led to the original.
    words[own].set_property("hostfwd", &leads);
    Ok(())
}

fn isolate(words: &mut Words) {
    let gone = words.take(|word| {
        OF_THE_NETWORK.contains(&word.option.as_str())
            || word.option == "device" && word.property("netdev").is_some()
    });
    host_ends::take_what_refers_to(words, gone);
    words.push("nic", "none");
}

/// A card without an address is given the same one by every QEMU.
fn new_macs(words: &mut Words, identity: &Identity) {
    let mut number = 0;
    words.each(|word| {
        let own = ["mac", "macaddr"].into_iter().find(|name| word.property(name).is_some());
        let Some(name) = own.or_else(|| card_without_address(word)) else { return };
        let mac = domain::mac(&identity.macs, number);
        word.set_property(name, &mac);
        number += 1;
    });
}

/// What its address would be called, of a network card that has none.
fn card_without_address(word: &Word) -> Option<&'static str> {
    let kind = word.kind("type").unwrap_or_default();
    match word.option.as_str() {
        "nic" if kind != "none" => Some("mac"),
        "net" if kind == "nic" => Some("macaddr"),
        "device" if word.property("netdev").is_some() => Some("mac"),
        _ => None,
    }
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
    fn a_card_without_an_address_gets_one_of_its_own() {
        let text =
            "-nic user -net nic,model=e1000 -net user -netdev user,id=n -device e1000,netdev=n -nic none";
        let own = Identity { macs: std::array::from_fn(|at| at as u8), ..identity(Network::Same) };
        let (text, _) = recovered(text, &own).unwrap();
        let macs: Vec<&str> = text
            .split_whitespace()
            .filter_map(|word| word.split_once("=52:54:00:"))
            .map(|(_, mac)| mac)
            .collect();
        assert_eq!(macs.len(), 3, "{text}");
        assert!(macs.iter().all(|mac| macs.iter().filter(|other| *other == mac).count() == 1), "{text}");
        assert!(text.ends_with("-nic none") || text.contains("-nic none "), "{text}");
    }

    #[test]
    fn of_a_machine_that_was_recovered_itself_nothing_of_ours_is_kept() {
        let text = "-m 1G -blockdev '{\"driver\":\"nbd\",\"node-name\":\"stonefold-disk0\"}' -device virtio-scsi-pci,id=stonefold-scsi0 \
            -device scsi-hd,bus=stonefold-scsi0.0,drive=stonefold-disk0,bootindex=1 -chardev file,id=stonefold-console,path=/c -serial chardev:stonefold-console \
            -chardev socket,id=stonefold-agent,path=/a -device virtio-serial-pci,id=stonefold-serial \
            -device virtserialport,bus=stonefold-serial.0,chardev=stonefold-agent,name=org.qemu.guest_agent.0 -device virtio-rng-pci \
            -blockdev '{\"driver\": \"file\", \"node-name\": \"other\", \"filename\": \"/i\"}' -device '{\"driver\":\"virtio-blk-pci\",\"drive\":\"other\"}'";
        let (text, _) = recovered(text, &identity(Network::Isolated)).unwrap();
        assert!(!text.contains("stonefold-") && !text.contains("other"), "{text}");
        assert!(text.contains("virtio-rng-pci") && text.contains("-m 1G"), "{text}");
    }

    #[test]
    fn of_a_machine_that_was_recovered_itself_a_disk_hangs_where_it_hung() {
        let text = "-m 1G -device virtio-scsi-pci,id=stonefold-scsi0 -device scsi-hd,bus=stonefold-scsi0.0,drive=stonefold-disk0,bootindex=1 \
            -device virtio-serial-pci,id=stonefold-serial";
        let exports = vec![("vda".to_owned(), "again.vda".parse().unwrap())];
        let (text, _) = recovered(text, &Identity { exports, ..identity(Network::Same) }).unwrap();
        assert!(
            text.contains("virtio-scsi-pci,id=stonefold-scsi0") && !text.contains("stonefold-serial"),
            "{text}"
        );
        assert!(text.contains("scsi-hd,bus=stonefold-scsi0.0,drive=stonefold-disk0,bootindex=1"), "{text}");
    }

    #[test]
    fn what_the_original_has_of_the_host_is_not_shared_with_it() {
        let text = "-m 1G -drive file=/srv/other.img,id=o,if=none -device virtio-blk-pci,drive=o -virtfs local,path=/srv,mount_tag=t \
            -device vfio-pci,host=01:00.0 -drive if=pflash,file=/code.fd,readonly=on -drive if=pflash,file=/vars.fd \
            -blockdev '{\"driver\": \"file\", \"read-only\": true, \"filename\": \"/iso\"}' -cdrom /iso";
        let (text, notes) = recovered(text, &identity(Network::Same)).unwrap();
        for gone in ["other.img", "drive=o", "virtfs", "vfio", "vars.fd"] {
            assert!(!text.contains(gone), "{gone} in {text}");
        }
        for kept in ["/code.fd", "/iso", "-cdrom", "-m 1G"] {
            assert!(text.contains(kept), "no {kept} in {text}");
        }
        assert_eq!(notes.len(), 4, "{notes:?}");
    }

    #[test]
    fn secrets_of_a_command_line_are_left_out() {
        let without = |word: &str| without_secrets(word.into()).into_owned();
        assert_eq!(without("secret,id=s0,data=hunter2,format=raw"), "secret,id=s0,data=,format=raw");
        assert_eq!(without("driver=rbd,key=AQ==,user=a"), "driver=rbd,key=,user=a");
        // A comma in a value is two, and a quotation mark has a stroke before it.
        assert_eq!(without("secret,data=hun,,ter2,id=s0"), "secret,data=,id=s0");
        assert_eq!(without(r#"{"data": "hun\"ter2", "id": "s0"}"#), r#"{"data":"", "id": "s0"}"#);
        assert_eq!(without("port=5900,password=x"), "port=5900,password=");
        assert_eq!(
            without(r#"{"qom-type": "secret", "id": "s0", "data" : "hunter2"}"#),
            r#"{"qom-type": "secret", "id": "s0", "data":""}"#
        );
        assert_eq!(without("file=https://me:hunter2@host/a.qcow2,id=d"), "file=https://host/a.qcow2,id=d");
        let plain = "driver=luks,key-secret=s0,file=/srv/data=1,user=me@host,file.path=nbd://host:10809/web";
        assert_eq!(without(plain), plain);
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
