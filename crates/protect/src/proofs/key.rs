//! The key that a pool's proofs are signed with: Ed25519 (RFC 8032), by ring.
//!
//! It is made with the first proof and lies in the pool, `keys/proofs`. So a signature says: a server of this pool made this record, and nobody has changed
//! it since who could not read the pool. Who can read the place itself can sign, too.

use crate::Protection;
use crate::catalog::{self, Entry, Unknown};
use crate::clones::hexadecimal;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use serde::{Deserialize, Serialize};
use stonefold_types::{Error, Kind, Result};

const KEY: &str = "proofs";

/// The document of a key.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Stored {
    name: String,
    /// The secret of RFC 8032, section 5.1.5, in hex.
    seed: String,
    #[serde(flatten)]
    unknown: Unknown,
}

impl Entry for Stored {
    const FAMILY: &'static str = "keys";
    const NOUN: &'static str = "key";
    const LISTED_BY: &'static str = "stonefold point ls";

    fn key(&self) -> String {
        self.name.clone()
    }
}

/// A key that signs.
pub(super) struct Key(Ed25519KeyPair);

impl Key {
    pub(super) fn of_seed(seed: &[u8]) -> Result<Key> {
        let wrong = |_| Error::new(Kind::Corrupt, "the key of the pool's proofs is no key");
        Ed25519KeyPair::from_seed_unchecked(seed).map(Key).map_err(wrong)
    }

    /// The public half, in hex.
    pub(super) fn public(&self) -> String {
        hexadecimal(self.0.public_key().as_ref())
    }

    /// In hex.
    pub(super) fn sign(&self, message: &[u8]) -> String {
        hexadecimal(self.0.sign(message).as_ref())
    }
}

/// The pool's, which is made where there is none yet.
pub(super) async fn of_pool(protection: &Protection) -> Result<Key> {
    let made = Stored {
        name: KEY.to_owned(),
        seed: hexadecimal(&protection.env.random::<32>()),
        unknown: Unknown::new(),
    };
    match catalog::put_new(&protection.store, &made).await {
        // Or another proof has just made it.
        Err(error) if error.kind() == Kind::AlreadyExists => {}
        put => put?,
    }
    let stored: Stored = catalog::get(&protection.store, KEY).await?;
    Key::of_seed(&bytes(&stored.seed).unwrap_or_default())
}

/// The public half of the pool's, in hex; nothing where it has none yet.
pub(super) async fn public_of_pool(protection: &Protection) -> Result<Option<String>> {
    let stored: Option<Stored> = catalog::find(&protection.store, KEY).await?;
    let key = stored.map(|stored| Key::of_seed(&bytes(&stored.seed).unwrap_or_default())).transpose()?;
    Ok(key.map(|key| key.public()))
}

/// Whether a message was signed by who has the key to this public one.
pub(super) fn is_signed(public: &str, message: &[u8], signature: &str) -> bool {
    let (Some(public), Some(signature)) = (bytes(public), bytes(signature)) else { return false };
    UnparsedPublicKey::new(&ED25519, public).verify(message, &signature).is_ok()
}

fn bytes(hex: &str) -> Option<Vec<u8>> {
    let digits = hex.as_bytes().chunks(2);
    hex.is_ascii().then(|| {
        let byte = |pair: &[u8]| {
            u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok().filter(|_| pair.len() == 2)
        };
        digits.map(byte).collect::<Option<Vec<u8>>>()
    })?
}
