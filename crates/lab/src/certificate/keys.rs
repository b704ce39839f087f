//! Keys and signatures: Ed25519 (RFC 8032), by ring.
//!
//! A key's file, which only its owner may read:
//!
//! ```text
//! stonefold certificate key 1: keep it secret
//! seed   64 digits of hex: the secret of RFC 8032, section 5.1.5
//! public 64 digits of hex
//! ```

use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use stonefold_types::{Error, Kind, Result};

/// Digits of a public key.
pub const PUBLIC_KEY_HEX: usize = 64;
const HEAD: &str = "stonefold certificate key 1: keep it secret";

/// A key that signs.
pub struct Key(Ed25519KeyPair);

impl Key {
    /// Makes one of a seed that nobody can guess, in a file that is new and that only its owner may read.
    ///
    /// # Errors
    /// [`Kind::AlreadyExists`] where the file is there; what the file system says.
    pub fn make(path: &Path, seed: [u8; 32]) -> Result<Self> {
        let key = Key::of_seed(&seed, path)?;
        let failed = |e| Error::io(format!("writing the key '{}'", path.display()), e);
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(|e| {
                failed(e).remedy("name a file that does not exist yet; a key is never written over")
            })?;
        let text = format!("{HEAD}\nseed   {}\npublic {}\n", hex(&seed), key.public());
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
        Ok(key)
    }

    /// Reads one.
    ///
    /// # Errors
    /// [`Kind::Denied`] where others may read the file, too; [`Kind::Invalid`] where it is no key.
    pub fn load(path: &Path) -> Result<Self> {
        let failed = |e| {
            Error::io(format!("reading the key '{}'", path.display()), e)
                .remedy("make one by 'stonefold lab certify --new-key FILE'")
        };
        let mode = std::fs::metadata(path).map_err(failed)?.permissions().mode();
        if mode & 0o077 != 0 {
            let what = format!("others may read the key '{}' (mode {:03o})", path.display(), mode & 0o777);
            return Err(
                Error::new(Kind::Denied, what).remedy("chmod 600 it, and make a new one if it was read")
            );
        }
        let text = std::fs::read_to_string(path).map_err(failed)?;
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            bytes(line.trim())
        };
        let seed = field("seed ").and_then(|seed| <[u8; 32]>::try_from(seed).ok());
        let seed = seed.filter(|_| text.starts_with(HEAD)).ok_or_else(|| wrong(path))?;
        let key = Key::of_seed(&seed, path)?;
        match field("public ").is_some_and(|public| hex(&public) == key.public()) {
            true => Ok(key),
            false => Err(wrong(path)),
        }
    }

    fn of_seed(seed: &[u8; 32], path: &Path) -> Result<Self> {
        Ed25519KeyPair::from_seed_unchecked(seed).map(Key).map_err(|_| wrong(path))
    }

    /// The public half, in hex.
    pub fn public(&self) -> String {
        hex(self.0.public_key().as_ref())
    }

    pub(super) fn sign(&self, message: &[u8]) -> String {
        hex(self.0.sign(message).as_ref())
    }
}

fn wrong(path: &Path) -> Error {
    Error::new(Kind::Invalid, format!("'{}' is no key of certificates", path.display()))
        .remedy("make one with --new-key FILE")
}

/// Whether a key, in hex, has signed this.
pub(super) fn is_signed(public: &str, message: &[u8], signature: &str) -> bool {
    let (Some(public), Some(signature)) = (bytes(public), bytes(signature)) else { return false };
    UnparsedPublicKey::new(&ED25519, public).verify(message, &signature).is_ok()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(hex: &str) -> Option<Vec<u8>> {
    if hex.len() % 2 != 0 || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8032, section 7.1, test 2.
    #[test]
    fn signatures_are_those_of_the_standard() {
        let seed = bytes("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb").unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let key = Key::make(&path, seed.try_into().unwrap()).unwrap();
        assert_eq!(key.public(), "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c");
        let signature = "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da\
            085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00";
        assert_eq!(key.sign(&[0x72]), signature);
        assert!(
            is_signed(&key.public(), &[0x72], signature) && !is_signed(&key.public(), &[0x73], signature)
        );
        assert_eq!(Key::load(&path).unwrap().public(), key.public());
    }

    #[test]
    fn a_key_is_for_its_owner_and_never_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        Key::make(&path, [7; 32]).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(Key::make(&path, [8; 32]).err().unwrap().kind(), Kind::AlreadyExists);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replacen("seed   07", "seed   08", 1)).unwrap();
        assert_eq!(Key::load(&path).err().unwrap().kind(), Kind::Invalid, "its halves do not fit");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(Key::load(&path).err().unwrap().kind(), Kind::Denied);
    }
}
