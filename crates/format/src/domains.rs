//! The domains of a pool and their wrapped keys, object `domains`. Absent while there is only the predefined one.
//!
//! Body, version 1:
//! ```text
//! next id 2 · master: 0 none yet, or 1 a key, or 2 a passphrase: then salt 16 · iterations 4
//! count 2, then each: id 2 · name text · created 8 · compression 1+1 · dedupe 1 · protection 1 · keys: count 2, each:
//!                     version 4 · created 8 · wrapped key 60
//! ```
//! `protection`: 0 plain, 1 sealed, 2 shredded. Only a sealed domain has keys, in ascending order: the newest seals, the older ones
//! open what they have sealed. Ids are never used twice; 0 is the predefined domain `default`, plain for good. Wrapped keys are
//! drawn in [`crate::seal`]. All in one document, so that wrapping everything under another master key is one swap.

use crate::document::{self, DocumentKind};
use crate::seal::WRAPPED_BYTES;
use crate::wire::{Reader, Writer};
use stonefold_types::{Compression, Name, Result};

const VERSION: u16 = 1;
/// Domains of one pool: a tenant each on a large host. The document stays under 3 MiB with all keys of all of them.
pub const DOMAINS_MAX: usize = 1000;
/// Versions of a domain's key: one a quarter for eight years.
pub const KEYS_MAX: usize = 32;
/// The name of the predefined domain.
pub const DEFAULT_NAME: &str = "default";

/// The document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domains {
    /// What the next domain gets.
    pub next_id: u16,
    /// What the keys are wrapped with.
    pub master: Master,
    /// In the order in which they were made; the predefined one is the first.
    pub list: Vec<Domain>,
}

/// What the keys are wrapped with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Master {
    /// No key was made yet.
    None,
    /// A key from a file or a command.
    Key,
    /// What a passphrase gives.
    Passphrase {
        /// Made at random.
        salt: [u8; 16],
        /// Rounds of PBKDF2, at least one.
        iterations: u32,
    },
}

/// One domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    /// What disks and segments name.
    pub id: u16,
    /// Unique in the pool.
    pub name: Name,
    /// Nanoseconds since 1970.
    pub created: u64,
    /// What new disks in it get where nothing else is said.
    pub compression: Compression,
    /// The same.
    pub dedupe: bool,
    /// Whether and with what its data is sealed.
    pub protection: Protection,
}

/// Whether and with what a domain's data is sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Protection {
    /// It is not.
    Plain,
    /// With the last of these.
    Sealed(Vec<WrappedKey>),
    /// Its keys are gone for good, and so is its data.
    Shredded,
}

/// One version of a domain's key, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrappedKey {
    /// Counts from 1.
    pub version: u32,
    /// Nanoseconds since 1970.
    pub created: u64,
    /// Drawn in [`crate::seal`].
    pub wrapped: [u8; WRAPPED_BYTES],
}

impl Default for Domains {
    fn default() -> Self {
        let predefined = Domain {
            id: 0,
            name: DEFAULT_NAME.parse().expect("letters make a name"),
            created: 0,
            compression: Compression::default(),
            dedupe: true,
            protection: Protection::Plain,
        };
        Domains { next_id: 1, master: Master::None, list: vec![predefined] }
    }
}

impl Domains {
    /// The document's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        body.u16(self.next_id);
        match self.master {
            Master::None => body.u8(0),
            Master::Key => body.u8(1),
            Master::Passphrase { salt, iterations } => {
                body.u8(2);
                body.put(&salt);
                body.u32(iterations);
            }
        }
        body.u16(self.list.len().try_into().expect("no more than DOMAINS_MAX"));
        self.list.iter().for_each(|domain| domain.put(&mut body));
        document::seal(DocumentKind::Domains, VERSION, &body)
    }

    /// Reads the document.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let (_, body) = document::open(bytes, DocumentKind::Domains, VERSION)?;
        let mut reader = Reader::new(body, "the domains' record");
        let next_id = reader.u16()?;
        let master = match reader.u8()? {
            0 => Master::None,
            1 => Master::Key,
            2 => Master::Passphrase { salt: reader.id()?, iterations: reader.u32()? },
            other => return Err(reader.malformed(&format!("master key {other}"))),
        };
        let count = usize::from(reader.u16()?);
        if count > DOMAINS_MAX {
            return Err(reader.malformed("there are too many"));
        }
        let list = (0..count).map(|_| Domain::read(&mut reader)).collect::<Result<_>>()?;
        reader.end()?;
        Ok(Domains { next_id, master, list })
    }
}

impl Domain {
    fn put(&self, body: &mut Vec<u8>) {
        body.u16(self.id);
        body.text(self.name.as_str());
        body.u64(self.created);
        put_compression(body, self.compression);
        body.u8(self.dedupe.into());
        let (protection, keys) = match &self.protection {
            Protection::Plain => (0, &[][..]),
            Protection::Sealed(keys) => (1, &keys[..]),
            Protection::Shredded => (2, &[][..]),
        };
        body.u8(protection);
        body.u16(keys.len().try_into().expect("no more than KEYS_MAX"));
        for key in keys {
            body.u32(key.version);
            body.u64(key.created);
            body.put(&key.wrapped);
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let (id, name, created) = (reader.u16()?, Name::new(reader.text()?)?, reader.u64()?);
        let (compression, dedupe) = (compression(reader)?, reader.u8()? != 0);
        let (protection, count) = (reader.u8()?, usize::from(reader.u16()?));
        if count > KEYS_MAX {
            return Err(reader.malformed("a domain has too many keys"));
        }
        let key = |_| {
            let (version, created) = (reader.u32()?, reader.u64()?);
            let wrapped = reader.bytes(WRAPPED_BYTES)?.try_into().expect("as many as asked for");
            Ok(WrappedKey { version, created, wrapped })
        };
        let keys = (0..count).map(key).collect::<Result<Vec<_>>>()?;
        let protection = match (protection, keys.is_empty()) {
            (0, true) => Protection::Plain,
            (1, false) => Protection::Sealed(keys),
            (2, true) => Protection::Shredded,
            _ => return Err(reader.malformed("a domain's protection and its keys contradict each other")),
        };
        Ok(Domain { id, name, created, compression, dedupe, protection })
    }
}

/// How settings are compressed, in two bytes: 0 not, 1 LZ4, 2 Zstandard; then its level.
pub(crate) fn put_compression(body: &mut Vec<u8>, compression: Compression) {
    let (codec, level) = match compression {
        Compression::None => (0, 0),
        Compression::Lz4 => (1, 0),
        Compression::Zstd(level) => (2, level),
    };
    body.u8(codec);
    body.u8(level);
}

/// Reads what [`put_compression`] wrote.
pub(crate) fn compression(reader: &mut Reader<'_>) -> Result<Compression> {
    match (reader.u8()?, reader.u8()?) {
        (0, _) => Ok(Compression::None),
        (1, _) => Ok(Compression::Lz4),
        (2, level) => Ok(Compression::Zstd(level)),
        (other, _) => Err(reader.malformed(&format!("compression {other}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn a_pools_domains() -> Domains {
        let mut domains = Domains {
            next_id: 9,
            master: Master::Passphrase { salt: [3; 16], iterations: 7 },
            ..Domains::default()
        };
        let key = |version| WrappedKey { version, created: 5, wrapped: [version as u8; WRAPPED_BYTES] };
        for (id, protection) in [(4, Protection::Sealed(vec![key(1), key(2)])), (8, Protection::Shredded)] {
            domains.list.push(Domain {
                id,
                name: format!("tenant-{id}").parse().unwrap(),
                created: 6,
                compression: Compression::Zstd(3),
                dedupe: false,
                protection,
            });
        }
        domains
    }

    #[test]
    fn comes_back() {
        for domains in [Domains::default(), a_pools_domains()] {
            assert_eq!(Domains::decode(&domains.encode()).unwrap(), domains);
        }
    }

    proptest! {
        /// Damage that a checksum made anew hides makes an error at worst.
        #[test]
        fn noise_never_panics(at in any::<prop::sample::Index>(), byte: u8, noise in proptest::collection::vec(any::<u8>(), 0..300)) {
            let sound = a_pools_domains().encode();
            let (_, body) = document::open(&sound, DocumentKind::Domains, VERSION).unwrap();
            let mut body = body.to_vec();
            let at = at.index(body.len());
            body[at] = byte;
            for body in [&body, &noise] {
                let _ = Domains::decode(&document::seal(DocumentKind::Domains, VERSION, body));
            }
            prop_assert!(Domains::decode(&noise).is_err());
        }
    }
}
