//! Whether an image is whole: QEMU reads what lies beyond a file's end as zeros, so that of one that was cut short it makes holes without a word.

use super::{aside, last_words, missing};
use serde::Deserialize;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use stonefold_types::{Error, Kind, Result};

/// qemu-img check's exit statuses: it could not be looked at, it is not as it says it is; and those that say that all data is there: a leak is only space,
/// and raw has no check.
const FAILED: i32 = 1;
const CORRUPT: i32 = 2;
const CLEAN: i32 = 0;
const LEAKS: i32 = 3;
const NO_CHECK: i32 = 63;
/// What it says of what lies where the file has ended.
const BEYOND: &[&str] = &["outside image", "beyond", "past the end"];

/// One image of those that an image is built on.
#[derive(Deserialize)]
struct Link {
    filename: PathBuf,
    format: String,
    #[serde(default, rename = "dirty-flag")]
    dirty: bool,
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
    let text = String::from_utf8_lossy(&said);
    match output.status.code() {
        Some(CLEAN | LEAKS | NO_CHECK) => Ok(()),
        // Who reads it next is told of that.
        Some(FAILED) if text.contains("Is another process using the image") => Ok(()),
        // One that counts its clusters when it is opened next has not counted them after a crash: all of them are there.
        Some(CORRUPT) if !BEYOND.iter().any(|word| text.contains(word)) && is_uncounted(path, format) => {
            Ok(())
        }
        _ => Err(damaged(last_words(&said))),
    }
}

/// Whether a qcow2 image (`lazy_refcounts=on`) is marked to be counted anew.
fn is_uncounted(path: &Path, format: &str) -> bool {
    chain(path, format).is_ok_and(|chain| chain.first().is_some_and(|link| link.dirty))
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
    let meta = file.metadata()?;
    Ok(meta.is_file() && end > meta.len())
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

    /// Goal: what lacks its end is found by whatever is told of it, under whichever name, and what only has not been counted is read. *Past bug*: an
    /// error of a block was taken for a lock.
    #[test]
    fn a_large_one_that_was_cut_short_is_found_and_one_not_counted_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().join("a clock.qcow2");
        let name = at.to_str().unwrap();
        tool(&["create", "-q", "-f", "qcow2", "-o", "cluster_size=4k,lazy_refcounts=on", name, "64M"]);
        let write = |commands: &[&str]| {
            let mut io = Command::new("qemu-io");
            for command in commands {
                io.args(["-c", command]);
            }
            let _ = io.arg(name).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
        };
        // It is counted when it is closed.
        write(&["write -P 7 0 40M"]);
        check_whole(&at, "qcow2").unwrap();
        // And not where it is killed before.
        write(&["write -P 9 44M 64k", "flush", "sigraise 9"]);
        assert!(is_uncounted(&at, "qcow2"), "nothing is tried");
        check_whole(&at, "qcow2").unwrap();
        let file = std::fs::OpenOptions::new().write(true).open(&at).unwrap();
        file.set_len(20 << 20).unwrap();
        assert_eq!(check_whole(&at, "qcow2").unwrap_err().kind(), Kind::Corrupt);
    }
}
