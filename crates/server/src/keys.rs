//! Where the master key comes from: a file, a passphrase, a command that asks a key service.
//!
//! *Promises*: what is read is zeroed in memory when it is no longer needed, and is never logged or told in an error. *Never*: keeps a key on
//! a disk.

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use stonefold_store::{Keys, MasterKey, Secret, export};
use stonefold_types::{Error, Kind, Result};
use zeroize::{Zeroize, Zeroizing};

/// The longest file of a key or a passphrase, in bytes; whatever is longer was named by mistake. Recovery keys of many domains fit.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Where the keys come from; nothing need be said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeySource {
    /// A file with the master key: 32 bytes as they are, in hex or in base64.
    pub key_file: Option<PathBuf>,
    /// A file with a passphrase, from which the master key is made.
    pub passphrase_file: Option<PathBuf>,
    /// A command whose output is the master key, as a file would hold it.
    pub key_command: Option<String>,
    /// Files with keys of domains as `domain export-key` told them.
    pub recovery_keys: Vec<PathBuf>,
}

impl KeySource {
    /// Reads them.
    pub fn read(&self) -> Result<Keys> {
        let mut recovery = Vec::new();
        for path in &self.recovery_keys {
            let bytes = read_file(path)?;
            let text = std::str::from_utf8(&bytes).unwrap_or("?");
            let keys = export::decode(text).map_err(|e| e.context(format!("file '{}'", path.display())))?;
            recovery.extend(keys);
        }
        Ok(Keys { master: self.master()?, recovery })
    }

    /// Reads the master key, if one is named.
    pub fn master(&self) -> Result<Option<MasterKey>> {
        match (&self.key_file, &self.passphrase_file, &self.key_command) {
            (None, None, None) => Ok(None),
            (Some(path), None, None) => {
                let found = key_of(&read_file(path)?);
                found
                    .map(|key| Some(MasterKey::Key(key)))
                    .ok_or_else(|| no_key(&format!("file '{}'", path.display())))
            }
            (None, Some(path), None) => passphrase(path).map(Some),
            (None, None, Some(command)) => {
                let found = key_of(&run(command)?);
                let what = "what the key command prints";
                found.map(|key| Some(MasterKey::Key(key))).ok_or_else(|| no_key(what))
            }
            _ => Err(Error::new(Kind::Invalid, "several master keys are named")
                .remedy("name one of --key-file, --passphrase-file and --key-command")),
        }
    }
}

fn no_key(what: &str) -> Error {
    Error::new(Kind::Invalid, format!("{what} is no key"))
        .remedy("it takes 32 bytes, as they are, in hex or in base64; 'openssl rand -hex 32' makes one")
}

fn read_file(path: &Path) -> Result<Zeroizing<Vec<u8>>> {
    let what = || format!("file '{}' cannot be read", path.display());
    let wrong = |e| Error::io(what(), e).remedy("name a readable file");
    let file = std::fs::File::open(path).map_err(wrong)?;
    let meta = file.metadata().map_err(wrong)?;
    if meta.is_file() && meta.permissions().mode() & 0o077 != 0 {
        tracing::warn!("file '{}' holds a key, and others may read it: chmod 600 it", path.display());
    }
    read_all(file, meta.len()).map_err(wrong)
}

/// In one allocation where the length is known, so that no copy is left behind.
fn read_all(from: impl Read, bytes: u64) -> std::io::Result<Zeroizing<Vec<u8>>> {
    let mut all = Zeroizing::new(Vec::with_capacity(bytes.clamp(4096, FILE_BYTES_MAX) as usize + 1));
    from.take(FILE_BYTES_MAX).read_to_end(&mut all)?;
    Ok(all)
}

fn passphrase(path: &Path) -> Result<MasterKey> {
    let mut bytes = read_file(path)?;
    // Editors and `echo` put it there, and nobody means it.
    let len = bytes.trim_ascii_end().len();
    bytes.truncate(len);
    if bytes.is_empty() {
        let what = format!("file '{}' holds no passphrase", path.display());
        return Err(Error::new(Kind::Invalid, what).remedy("write one into it"));
    }
    Ok(MasterKey::Passphrase(Arc::new(bytes)))
}

fn run(command: &str) -> Result<Zeroizing<Vec<u8>>> {
    let failed = |why: String| {
        Error::new(Kind::Invalid, format!("the key command failed: {why}"))
            .remedy("run it by hand, as the user that the server runs as")
    };
    let mut shell = Command::new("/bin/sh");
    let started = shell.args(["-c", command]).stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut child = started.map_err(|e| failed(e.to_string()))?;
    let read = read_all(child.stdout.take().expect("it is piped"), 0);
    let status = child.wait().map_err(|e| failed(e.to_string()))?;
    if !status.success() {
        return Err(failed(status.to_string()));
    }
    read.map_err(|e| failed(e.to_string()))
}

/// A key from 32 bytes as they are, or from text.
pub(crate) fn key_of(bytes: &[u8]) -> Option<Secret> {
    if let Ok(raw) = bytes.try_into() {
        return Some(Secret::new(raw));
    }
    let text = std::str::from_utf8(bytes).ok()?.trim();
    if let Some(key) = export::of_hex::<32>(text) {
        return Some(Secret::new(&key));
    }
    of_base64(text).map(|key| Secret::new(&key))
}

/// 32 bytes from 43 digits of base64, and the sign behind them that fills up.
fn of_base64(text: &str) -> Option<Zeroizing<[u8; 32]>> {
    let digits = text.strip_suffix('=').unwrap_or(text).as_bytes();
    if digits.len() != 43 {
        return None;
    }
    let (mut key, mut at) = (Zeroizing::new([0; 32]), 0);
    let (mut bits, mut held) = (0u32, 0);
    for digit in digits {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            key[at] = (bits >> held) as u8;
            at += 1;
        }
    }
    // The last digit's spare bits say nothing; where they are set, something else was meant.
    let spare = bits & 3;
    bits.zeroize();
    (spare == 0).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        file
    }

    #[test]
    fn a_key_is_read_as_it_is_in_hex_and_in_base64() {
        let key: Vec<u8> = (0..32).map(|at| at * 7 + 3).collect();
        let expected = Secret::new(key[..].try_into().unwrap());
        let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        let base64 = "AwoRGB8mLTQ7QklQV15lbHN6gYiPlp2kq7K5wMfO1dw=";
        for text in
            [&key[..], hex.as_bytes(), format!(" {}\n", hex.to_uppercase()).as_bytes(), base64.as_bytes()]
        {
            assert_eq!(key_of(text).as_ref(), Some(&expected), "{}", String::from_utf8_lossy(text));
        }
        for text in [&key[1..], b"", &hex.as_bytes()[2..], b"AwoRGB8mLTQ7QklQV15lbHN6gYiPlp2kq7K5wMfO1dx="] {
            assert!(key_of(text).is_none(), "{}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn each_source_gives_its_key_and_two_are_refused() {
        let hex = "ab".repeat(32);
        let key = |source: KeySource| match source.master().unwrap() {
            Some(MasterKey::Key(key)) => key,
            other => panic!("{other:?}"),
        };
        let in_file = file(hex.as_bytes());
        let by_file = KeySource { key_file: Some(in_file.path().into()), ..KeySource::default() };
        let by_command = KeySource { key_command: Some(format!("echo {hex}")), ..KeySource::default() };
        assert_eq!(key(by_file.clone()), key(by_command.clone()));
        let both = KeySource { key_command: by_command.key_command, ..by_file };
        assert_eq!(both.master().unwrap_err().kind(), Kind::Invalid);
        let phrase = file(b"correct horse\n");
        let source = KeySource { passphrase_file: Some(phrase.path().into()), ..KeySource::default() };
        let Some(MasterKey::Passphrase(found)) = source.master().unwrap() else { panic!("no passphrase") };
        assert_eq!(&found[..], b"correct horse");
        assert!(KeySource::default().master().unwrap().is_none());
        for command in ["exit 3", "echo short"] {
            let source = KeySource { key_command: Some(command.into()), ..KeySource::default() };
            assert_eq!(source.master().unwrap_err().kind(), Kind::Invalid, "{command}");
        }
    }
}
