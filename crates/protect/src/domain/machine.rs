//! What of a domain a plain QEMU has to know to boot the same disks.

use super::{child, disks, interfaces, no_domain, parse};
use roxmltree::Node;
use stonefold_types::Result;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Machine {
    /// As libvirt knows it.
    pub(crate) name: String,
    /// Nothing where it is left to libvirt.
    pub(crate) uuid: Option<String>,
    /// In MiB.
    pub(crate) memory_mib: u64,
    /// How many.
    pub(crate) processors: u64,
    /// `q35` or `pc`.
    pub(crate) chipset: &'static str,
    /// Whether it boots by UEFI.
    pub(crate) efi: bool,
    /// Of its network cards whose cable is in.
    pub(crate) macs: Vec<String>,
    /// Of its disks by their targets: what they hang on (`virtio`, `scsi`, `sata`, `ide`), where that is said.
    pub(crate) buses: Vec<(String, String)>,
}

impl Machine {
    /// Reads a description.
    ///
    /// # Errors
    /// [`stonefold_types::Kind::Invalid`] where it is none, or says nothing of its memory.
    pub(crate) fn parse(xml: &str) -> Result<Machine> {
        let document = parse(xml)?;
        let root = document.root_element();
        let text = |name: &str| child(root, name).and_then(|node| node.text()).map(str::trim);
        let memory_mib =
            child(root, "memory").and_then(mebibytes).ok_or_else(|| no_domain("it has no memory"))?;
        let os = child(root, "os");
        let kind =
            os.and_then(|os| child(os, "type")).and_then(|kind| kind.attribute("machine")).unwrap_or("");
        let is_efi = |os: Node<'_, '_>| {
            os.attribute("firmware") == Some("efi")
                || child(os, "loader").is_some_and(|loader| loader.attribute("type") == Some("pflash"))
        };
        let plugged = |node: &Node<'_, '_>| {
            child(*node, "link").is_none_or(|link| link.attribute("state") != Some("down"))
        };
        let mac = |node: Node<'_, '_>| child(node, "mac")?.attribute("address").map(str::to_owned);
        let bus = |node: Node<'_, '_>| {
            let target = child(node, "target")?;
            Some((target.attribute("dev")?.to_owned(), target.attribute("bus")?.to_owned()))
        };
        Ok(Machine {
            name: text("name").unwrap_or("machine").to_owned(),
            uuid: text("uuid").map(str::to_owned),
            memory_mib,
            processors: text("vcpu").and_then(|count| count.parse().ok()).unwrap_or(1),
            chipset: if kind.contains("q35") { "q35" } else { "pc" },
            efi: os.is_some_and(is_efi),
            macs: interfaces(root).filter(plugged).filter_map(mac).collect(),
            buses: disks(root).filter_map(bus).collect(),
        })
    }
}

/// An amount of memory, rounded up; KiB where no unit is named.
fn mebibytes(node: Node<'_, '_>) -> Option<u64> {
    let amount: u64 = node.text()?.trim().parse().ok()?;
    let unit = match node.attribute("unit").unwrap_or("KiB") {
        "b" | "bytes" => 1,
        "KB" => 1000,
        "k" | "KiB" => 1 << 10,
        "MB" => 1_000_000,
        "M" | "MiB" => 1 << 20,
        "GB" => 1_000_000_000,
        "G" | "GiB" => 1 << 30,
        _ => return None,
    };
    amount.checked_mul(unit).map(|bytes| bytes.div_ceil(1 << 20).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_plain_qemu_needs_is_found() {
        let xml = "<domain><name>w</name><memory unit='GiB'>2</memory><os firmware='efi'><type machine='pc-i440fx-7.2'>hvm\
            </type></os><devices><disk><target dev='sda' bus='scsi'/></disk></devices></domain>";
        let machine = Machine::parse(xml).unwrap();
        assert_eq!(
            (machine.memory_mib, machine.processors, machine.chipset, machine.efi),
            (2048, 1, "pc", true)
        );
        assert_eq!(machine.buses, [("sda".to_owned(), "scsi".to_owned())]);
        assert!(machine.uuid.is_none() && machine.macs.is_empty());
        for wrong in ["<domain/>", "<domain><memory unit='x'>1</memory></domain>", "<x/>"] {
            assert!(Machine::parse(wrong).is_err(), "{wrong}");
        }
    }
}
