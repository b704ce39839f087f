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
    // Hardware that nearly every system of a real machine knows how to start from; one made for a virtual one may be lacking there.
    let bus = if disks.len() <= SATA_MAX { "sata" } else { "virtio" };
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
        <devices>\n{disks}<interface type='network'><mac address='52:54:00:00:00:01'/><source network='default'/><model type='e1000e'/></interface>\n\
        <console type='pty'/>\n<graphics type='vnc'/>\n<video><model type='vga'/></video>\n\
        <channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>\n</devices>\n</domain>\n"
    )))
}

#[cfg(test)]
mod tests {
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
}
