//! Whether an image is whole: QEMU reads what lies beyond a file's end as zeros, so that of one that was cut short it makes holes without a word.

use super::{aside, last_words, missing};
use serde::Deserialize;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use stonefold_types::{Error, Kind, Result};

/// qemu-img check's exit statuses that say that all data is there: a leak is only space, and raw has no check.
const CLEAN: i32 = 0;
const LEAKS: i32 = 3;
const NO_CHECK: i32 = 63;

/// One image of those that an image is built on.
#[derive(Deserialize)]
struct Link {
    filename: PathBuf,
    format: String,
}

/// Fails where an image file is damaged, or lacks a part of what it says it has. Those that it is built on are not looked at. Blocks.
///
/// # Errors
/// [`Kind::Corrupt`] where it is; else where it could not be looked at. One that somebody has open is not, and is no error.
pub fn check_whole(path: &Path, format: &str) -> Result<()> {
    let damaged = |why: String| {
        Error::new(Kind::Corrupt, format!("'{}' is damaged or cut short: {why}", path.display()))
            .remedy("copy or download it again; 'qemu-img check' tells more")
    };
    if format == "vdi" && vdi_is_cut_short(path).unwrap_or(false) {
        return Err(damaged("blocks lie beyond its end".to_owned()));
    }
    // A path that begins with neither a slash nor a dot might be taken for one of QEMU's protocols.
    let named = if path.is_absolute() { path.to_owned() } else { Path::new(".").join(path) };
    let mut command = Command::new("qemu-img");
    command.args(["check", "-q", "-f", format]).arg(named).stdin(Stdio::null());
    let output = command.output().map_err(|e| missing("qemu-img", e))?;
    let said = [output.stdout, output.stderr].concat();
    match output.status.code() {
        Some(CLEAN | LEAKS | NO_CHECK) => Ok(()),
        // Who reads it next is told of that.
        _ if String::from_utf8_lossy(&said).contains("lock") => Ok(()),
        _ => Err(damaged(last_words(&said))),
    }
}

/// The same of an image and of all files that it is built on.
pub(crate) async fn check_chain(path: &str, format: &str) -> Result<()> {
    let (path, format) = (PathBuf::from(path), format.to_owned());
    aside(move || {
        let below = chain(&path, &format)?;
        check_whole(&path, &format)?;
        below.iter().skip(1).filter(|link| link.filename.is_absolute()).try_for_each(|link| {
            check_whole(&link.filename, &link.format)
                .map_err(|e| e.context(format!("image '{}' is built on", path.display())))
        })
    })
    .await?
}

/// The image, and what it is built on.
fn chain(path: &Path, format: &str) -> Result<Vec<Link>> {
    let mut command = Command::new("qemu-img");
    command
        .args(["info", "-U", "--backing-chain", "--output=json", "-f", format])
        .arg(path)
        .stdin(Stdio::null());
    let output = command.output().map_err(|e| missing("qemu-img", e))?;
    if !output.status.success() {
        let what = format!("image '{}' cannot be read: {}", path.display(), last_words(&output.stderr));
        return Err(
            Error::new(Kind::Io, what).remedy("look whether it and all that it is built on are there")
        );
    }
    serde_json::from_slice(&output.stdout).map_err(|e| {
        let what = format!("qemu-img told something strange of '{}': {e}", path.display());
        Error::new(Kind::Unsupported, what)
    })
}

/// Of vdi qemu-img checks no lengths. Its header, little-endian: at 0x158 where data begins, u32; at 0x178 bytes in a
/// block, u32; at 0x184 how many blocks have data, u32.
fn vdi_is_cut_short(path: &Path) -> std::io::Result<bool> {
    let mut header = [0; 0x188];
    let mut file = File::open(path)?;
    file.read_exact(&mut header)?;
    let field = |at: usize| u64::from(u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes")));
    let end = field(0x158).saturating_add(field(0x178).saturating_mul(field(0x184)));
    Ok(end > file.metadata()?.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(words: &[&str]) {
        assert!(
            Command::new("qemu-img").args(words).stdout(Stdio::null()).status().unwrap().success(),
            "{words:?}"
        );
    }

    /// Goal: of an image that lacks its end, or is built on one that does, nothing is read; of a whole one all is.
    #[tokio::test]
    async fn what_was_cut_short_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        let (raw, base, top) = (at("raw"), at("base.qcow2"), at("top.qcow2"));
        std::fs::write(&raw, vec![7; 4 << 20]).unwrap();
        tool(&["convert", "-f", "raw", "-O", "qcow2", &raw, &base]);
        tool(&["create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", &base, &top]);
        for (path, format) in [(&raw, "raw"), (&base, "qcow2"), (&top, "qcow2")] {
            check_chain(path, format).await.unwrap();
        }
        let file = std::fs::OpenOptions::new().write(true).open(&base).unwrap();
        file.set_len(2 << 20).unwrap();
        for (path, format) in [(&base, "qcow2"), (&top, "qcow2")] {
            let error = check_chain(path, format).await.unwrap_err();
            assert!(error.kind() == Kind::Corrupt && error.to_string().contains("base.qcow2"), "{error}");
        }
        std::fs::remove_file(&base).unwrap();
        assert!(check_chain(&top, "qcow2").await.unwrap_err().remedy_text().is_some());
    }
}
