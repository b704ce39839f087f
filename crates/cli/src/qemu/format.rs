//! The formats that a disk is exported in.

use clap::ValueEnum;
use std::path::Path;
use stonefold_types::{Error, Kind, Result};

/// A format that qemu-img writes.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub(crate) enum Format {
    Raw,
    Qcow2,
    Vmdk,
    Vhdx,
    Vdi,
    #[value(name = "vhd", alias = "vpc")]
    Vhd,
}

/// Endings that promise what is not written here: a file of raw bytes under such a name would mislead whoever gets it.
const OTHERS: &[&str] = &["qcow", "qed", "ova", "ovf", "iso", "dmg", "gz", "xz", "bz2", "zst", "zip", "7z"];

impl Format {
    /// As people call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Format::Vhd => "vhd",
            other => other.of_qemu(),
        }
    }

    /// As QEMU calls it.
    pub(super) fn of_qemu(self) -> &'static str {
        match self {
            Format::Raw => "raw",
            Format::Qcow2 => "qcow2",
            Format::Vmdk => "vmdk",
            Format::Vhdx => "vhdx",
            Format::Vdi => "vdi",
            Format::Vhd => "vpc",
        }
    }

    /// The format that a file's ending tells; raw where it tells none.
    pub(crate) fn of_ending(file: &Path) -> Result<Self> {
        let ending = file.extension().and_then(|ending| ending.to_str()).map(str::to_ascii_lowercase);
        let Some(ending) = ending else { return Ok(Format::Raw) };
        if let Ok(format) = Format::from_str(&ending, true) {
            return Ok(format);
        }
        if OTHERS.contains(&ending.as_str()) {
            let what = format!("'{}': images of the kind .{ending} cannot be made", file.display());
            let remedy = "name a file that ends in .raw, .qcow2, .vmdk, .vhdx, .vdi or .vhd, or say --format";
            return Err(Error::new(Kind::Invalid, what).remedy(remedy));
        }
        Ok(Format::Raw)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ending_tells_the_format_and_never_a_wrong_one() {
        for (file, format) in [
            ("a.qcow2", Format::Qcow2),
            ("a.VMDK", Format::Vmdk),
            ("a.vhdx", Format::Vhdx),
            ("a.vdi", Format::Vdi),
            ("a.vhd", Format::Vhd),
            ("a.vpc", Format::Vhd),
            ("a.img", Format::Raw),
            ("a", Format::Raw),
        ] {
            assert_eq!(Format::of_ending(Path::new(file)).unwrap(), format, "{file}");
        }
        for file in ["a.ova", "a.img.gz", "a.QED"] {
            assert_eq!(Format::of_ending(Path::new(file)).unwrap_err().kind(), Kind::Invalid, "{file}");
        }
    }
}
