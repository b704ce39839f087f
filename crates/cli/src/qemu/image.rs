//! What an image is, looked at before anything is made of it.

use super::{Qemu, Source, last_words};
use serde::Deserialize;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::process::Command;
use stonefold_protect::check_whole;
use stonefold_types::{Error, Kind, Result};

/// An image that can be imported.
#[derive(Debug)]
pub(crate) struct Image {
    /// Its format, as QEMU calls it.
    pub(crate) format: String,
    /// Its size as a guest sees it.
    pub(crate) virtual_bytes: u64,
    /// Bytes to read from it, as far as is known.
    pub(crate) data_bytes: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Info {
    format: String,
    virtual_size: u64,
    actual_size: Option<u64>,
    full_backing_filename: Option<String>,
    #[serde(default)]
    encrypted: bool,
}

/// What people download images packed in: (first bytes, at which offset, what it is, how to unpack it).
const PACKED: &[(&[u8], usize, &str, &str)] = &[
    (b"\x1f\x8b", 0, "compressed with gzip", "unpack it first: gunzip FILE"),
    (b"\xfd7zXZ\0", 0, "compressed with xz", "unpack it first: unxz FILE"),
    (b"BZh", 0, "compressed with bzip2", "unpack it first: bunzip2 FILE"),
    (b"\x28\xb5\x2f\xfd", 0, "compressed with zstd", "unpack it first: unzstd FILE"),
    (b"PK\x03\x04", 0, "a zip archive", "unpack it first: unzip FILE"),
    (b"7z\xbc\xaf\x27\x1c", 0, "a 7z archive", "unpack it first: 7z x FILE"),
    (
        b"ustar",
        257,
        "a tar archive (an OVA is one)",
        "unpack it first: tar -xf FILE; then import the image that was in it",
    ),
];

/// A raw image is whole sectors; other files seldom are.
const SECTOR_BYTES: u64 = 512;

impl Qemu {
    /// Looks at an image; `format` when the user knows better than its content tells.
    pub(crate) fn inspect(&self, source: &Source, format: Option<&str>) -> Result<Image> {
        if let Source::File(path) = source {
            refuse_what_is_no_file(path)?;
            if format.is_none() {
                refuse_what_is_packed(path)?;
            }
        }
        let format = format.or_else(|| fixed_vhd(source));
        let info = info(source, format)?;
        if info.encrypted {
            let what = format!("'{source}' is encrypted");
            return Err(Error::new(Kind::Unsupported, what).remedy("decrypt it first, with qemu-img convert"));
        }
        if format.is_none() && info.format == "raw" && matches!(source, Source::File(_)) {
            refuse_what_is_no_image(source, &info)?;
        }
        if let Some(base) = &info.full_backing_filename {
            refuse_a_missing_base(source, base)?;
            // The user should know what is read: an image from a stranger can name any file of this machine.
            eprintln!("note: '{source}' is built on '{base}', whose content is imported with it");
        }
        if info.virtual_size == 0 {
            let what = format!("'{source}' is empty");
            return Err(Error::new(Kind::Invalid, what).remedy("name an image with something in it"));
        }
        if let Source::File(path) = source {
            check_whole(path, &info.format)?;
        }
        let virtual_bytes = info.virtual_size;
        let data_bytes = info.actual_size.unwrap_or(virtual_bytes).clamp(1, virtual_bytes);
        Ok(Image { format: info.format, virtual_bytes, data_bytes })
    }
}

fn info(source: &Source, format: Option<&str>) -> Result<Info> {
    let mut command = Command::new("qemu-img");
    command.args(["info", "--output=json"]);
    source.read_by(&mut command, format);
    let output = command.output().map_err(|e| Error::io("running qemu-img info", e))?;
    if !output.status.success() {
        let what = format!("'{source}' cannot be read as a disk image: {}", last_words(&output.stderr));
        return Err(Error::new(Kind::Invalid, what).remedy(match source {
            Source::File(_) => "check that the file is whole; --format says which format it has",
            Source::Nbd(_) | Source::Tls(..) => {
                "check that the server runs and offers that export: nbdinfo --list nbd://HOST"
            }
        }));
    }
    serde_json::from_slice(&output.stdout).map_err(|e| {
        Error::new(Kind::Unsupported, format!("qemu-img info told something strange of '{source}': {e}"))
    })
}

fn refuse_what_is_no_file(path: &Path) -> Result<()> {
    let shown = path.display();
    let meta = std::fs::metadata(path).map_err(|e| {
        Error::io(format!("'{shown}' cannot be read"), e).remedy("name an image file, or an nbd:// URI")
    })?;
    if meta.is_dir() {
        let what = format!("'{shown}' is a folder");
        return Err(Error::new(Kind::Invalid, what).remedy("name the image file in it"));
    }
    // Reading a pipe would wait for a writer, and reading a character device might never end.
    if !meta.is_file() && !meta.file_type().is_block_device() {
        let what = format!("'{shown}' is neither a file nor a block device");
        return Err(Error::new(Kind::Invalid, what).remedy("name an image file, or an nbd:// URI"));
    }
    Ok(())
}

/// A VHD of fixed size is the disk's bytes and a footer behind them, which QEMU takes for part of a raw image.
fn fixed_vhd(source: &Source) -> Option<&'static str> {
    let Source::File(path) = source else { return None };
    let mut file = std::fs::File::open(path).ok()?;
    let mut footer = [0; VHD_COOKIE.len()];
    file.seek(SeekFrom::End(-(SECTOR_BYTES as i64))).ok()?;
    file.read_exact(&mut footer).ok()?;
    (&footer == VHD_COOKIE).then_some("vpc")
}

/// How the footer of a VHD begins, which is its last sector.
const VHD_COOKIE: &[u8; 8] = b"conectix";

/// The image that another was built on must be there, too.
fn refuse_a_missing_base(source: &Source, base: &str) -> Result<()> {
    let is_path = base.starts_with('/') || !base.contains(':');
    if !is_path || Path::new(base).exists() {
        return Ok(());
    }
    let what = format!("'{source}' is built on '{base}', which is not there");
    Err(Error::new(Kind::NotFound, what).remedy(
        "put that file there, or tell the image where it is now: qemu-img rebase -u -b BASE -F FORMAT FILE",
    ))
}

fn refuse_what_is_packed(path: &Path) -> Result<()> {
    let mut head = Vec::new();
    std::fs::File::open(path).and_then(|file| file.take(SECTOR_BYTES).read_to_end(&mut head)).map_err(
        |e| Error::io(format!("'{}' cannot be read", path.display()), e).remedy("check its permissions"),
    )?;
    let packed =
        PACKED.iter().find(|(magic, at, _, _)| head.get(*at..).is_some_and(|rest| rest.starts_with(magic)));
    match packed {
        Some((_, _, what, remedy)) => {
            let remedy = remedy.replace("FILE", &format!("'{}'", path.display()));
            Err(Error::new(Kind::Invalid, format!("'{}' is {what}", path.display())).remedy(remedy))
        }
        None => Ok(()),
    }
}

/// To QEMU every file is a raw image. One that is no whole number of sectors was hardly meant.
fn refuse_what_is_no_image(source: &Source, info: &Info) -> Result<()> {
    let Source::File(path) = source else { return Ok(()) };
    let length = std::fs::metadata(path).map_or(info.virtual_size, |meta| meta.len());
    if length % SECTOR_BYTES == 0 {
        return Ok(());
    }
    Err(Error::new(Kind::Invalid, format!("'{source}' is no disk image that qemu-img knows"))
        .remedy("if it holds a disk's bytes as they are, add --format raw"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(name: &str, content: &[u8]) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        refuse_what_is_packed(&path).unwrap_err().to_string()
    }

    #[test]
    fn what_must_be_unpacked_first_is_told_how() {
        assert!(refused("a.img.xz", b"\xfd7zXZ\0...").contains("unxz"));
        let mut ova = vec![0; 512];
        ova[257..262].copy_from_slice(b"ustar");
        assert!(refused("a.ova", &ova).contains("tar -xf"));
    }

    #[test]
    fn a_vhd_of_fixed_size_is_known_by_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fixed.vhd");
        let known = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            fixed_vhd(&Source::File(path.clone()))
        };
        let mut image = vec![0; 4096 + 512];
        assert_eq!(known(&image), None);
        image[4096..4104].copy_from_slice(VHD_COOKIE);
        assert_eq!(known(&image), Some("vpc"));
        assert_eq!(known(b"short"), None);
    }

    #[test]
    fn what_would_never_end_is_no_image() {
        let error = refuse_what_is_no_file(Path::new("/dev/zero")).unwrap_err();
        assert!(error.to_string().contains("neither a file nor a block device"), "{error}");
    }

    #[test]
    fn an_absent_file_is_named() {
        let error = refuse_what_is_no_file(Path::new("/nowhere/a.img")).unwrap_err();
        assert_eq!(error.kind(), Kind::NotFound);
        assert!(error.what().contains("/nowhere/a.img"));
    }
}
