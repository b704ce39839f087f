//! What a machine of any hardware becomes when it is brought back: a virtual one, described for libvirt, from which plain QEMU is started, too.

use super::facts::Facts;
use crate::Hardware;
use crate::domain::escaped;
use stonefold_types::{Error, Kind, Name, Result};

/// What it has of memory and processors at most: it is to start on whatever host is there, where more is given to it.
const MEMORY_MIB_MAX: u64 = 4096;
const PROCESSORS_MAX: u64 = 4;
/// Disks that a SATA controller of QEMU's has room for.
const SATA_MAX: usize = 6;

/// A description of it.
///
/// # Errors
/// [`Kind::Unsupported`] of what is no PC.
pub(super) fn machine(facts: &Facts, name: &Name, disks: &[Name]) -> Result<Hardware> {
    if facts.architecture != "x86_64" {
        let what = format!("its processor is '{}'", facts.architecture);
        return Err(
            Error::new(Kind::Unsupported, what).remedy("describe the machine that is started with its disks")
        );
    }
    let memory = (facts.memory_kib / 1024).clamp(512, MEMORY_MIB_MAX);
    let processors = facts.processors.clamp(1, PROCESSORS_MAX);
    let firmware = if facts.efi { " firmware='efi'" } else { "" };
    // Hardware that nearly every system of a real machine knows how to start from. That of a virtual one may know nothing else than its own kind.
    let is_virtual = is_virtual(facts);
    let bus = if disks.len() <= SATA_MAX && !is_virtual { "sata" } else { "virtio" };
    let card = if is_virtual { "virtio" } else { "e1000e" };
    let disk = |target: &Name| {
        format!(
            "<disk type='file' device='disk'><driver name='qemu' type='raw'/><target dev='{target}' bus='{bus}'/></disk>\n"
        )
    };
    let disks: String = disks.iter().map(disk).collect();
    let name = escaped(name.as_str());
    Ok(Hardware::Libvirt(format!(
        "<domain type='kvm'>\n<name>{name}</name>\n<memory unit='MiB'>{memory}</memory>\n<vcpu>{processors}</vcpu>\n\
        <os{firmware}><type arch='x86_64' machine='q35'>hvm</type></os>\n<features><acpi/><apic/></features>\n<cpu mode='host-model'/>\n\
        <devices>\n{disks}<interface type='network'><mac address='52:54:00:00:00:01'/><source network='default'/><model type='{card}'/></interface>\n\
        <console type='pty'/>\n<graphics type='vnc'/>\n<video><model type='vga'/></video>\n\
        <channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>\n</devices>\n</domain>\n"
    )))
}

/// Whether its disks are virtio's, as the kernel names these, and none is of another kind.
fn is_virtual(facts: &Facts) -> bool {
    let has = |kind: &str| facts.blocks.iter().any(|block| block.name.starts_with(kind));
    has("vd") && !["sd", "hd", "nvme"].into_iter().any(has)
}

#[cfg(test)]
mod tests {
    use super::super::facts::Block;
    use super::*;
    use crate::domain::Machine;

    #[test]
    fn a_real_machine_becomes_a_virtual_one() {
        let facts = |architecture: &str, efi| Facts {
            architecture: architecture.to_owned(),
            processors: 64,
            memory_kib: 1 << 30,
            efi,
            ..Facts::default()
        };
        let name = |text| Name::new(text).unwrap();
        let made = machine(&facts("x86_64", true), &name("web"), &[name("vda"), name("vdb")]).unwrap();
        assert_eq!(made.check().unwrap().unwrap(), ["vda", "vdb"]);
        let read = Machine::parse(made.text()).unwrap();
        assert_eq!((read.memory_mib, read.processors, read.chipset, read.efi), (4096, 4, "q35", true));
        assert!(read.buses.iter().all(|(_, bus)| bus == "sata") && read.macs.len() == 1);
        let old = machine(&facts("x86_64", false), &name("web"), &[name("vda")]).unwrap();
        assert!(!Machine::parse(old.text()).unwrap().efi);
        assert!(machine(&facts("aarch64", true), &name("web"), &[]).is_err());
    }

    /// Goal: a virtual machine gets back the kind of disks and card that it had. *Past bug*: SATA, of which the kernels that are made for clouds know nothing.
    #[test]
    fn a_virtual_machine_keeps_its_kind_of_disks() {
        let told = |names: &[&str]| {
            let block = |name: &&str| Block {
                name: (*name).to_owned(),
                number: (252, 0),
                bytes: 1 << 30,
                part_of: None,
                mapped: None,
                slaves: Vec::new(),
            };
            Facts {
                architecture: "x86_64".to_owned(),
                blocks: names.iter().map(block).collect(),
                ..Facts::default()
            }
        };
        let name = |text| Name::new(text).unwrap();
        for (names, bus, card) in [
            (&["vda", "vda1", "dm-0"][..], "virtio", "virtio"),
            (&["sda", "vdb"], "sata", "e1000e"),
            (&["nvme0n1"], "sata", "e1000e"),
        ] {
            let made = machine(&told(names), &name("web"), &[name("vda")]).unwrap();
            let read = Machine::parse(made.text()).unwrap();
            assert!(read.buses.iter().all(|(_, of)| of == bus), "{names:?}: {:?}", read.buses);
            assert!(made.text().contains(&format!("<model type='{card}'/>")), "{names:?}: {}", made.text());
        }
    }
}
