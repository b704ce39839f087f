//! A domain's keys as a text, to be locked away: whoever has it reads the domain's data without the master key.
//!
//! One line for each version of the key; empty lines and those that begin with `#` are for people:
//! ```text
//! stonefold-domain-key-1 POOL-ID DOMAIN-ID VERSION KEY CHECK
//! ```
//! Pool id and key in hex, the other numbers in decimal; the check is XXH3-64 of what stands before it, in hex: it finds slips of whoever copies by hand.

use crate::seal::{DataKey, KEY_BYTES, Secret};
use std::fmt::Write;
use stonefold_types::{Error, Kind, Result};
use xxhash_rust::xxh3::xxh3_64;
use zeroize::Zeroizing;

const MAGIC: &str = "stonefold-domain-key-1";

/// One version of a domain's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportedKey {
    /// The pool's id.
    pub pool: [u8; 16],
    /// The domain's.
    pub domain: u16,
    /// The key.
    pub key: DataKey,
}

/// The text.
pub fn encode(keys: &[ExportedKey]) -> Zeroizing<String> {
    // Reserved, so that no copy is left behind when it grows.
    let mut text = Zeroizing::new(String::with_capacity(keys.len() * 200));
    for ExportedKey { pool, domain, key } in keys {
        let start = text.len();
        let _ = write!(text, "{MAGIC} ");
        put_hex(&mut text, pool);
        let _ = write!(text, " {domain} {} ", key.version);
        put_hex(&mut text, key.secret.expose());
        let check = xxh3_64(&text.as_bytes()[start..]);
        let _ = writeln!(text, " {check:016x}");
    }
    text
}

/// Reads the text.
pub fn decode(text: &str) -> Result<Vec<ExportedKey>> {
    let mut keys = Vec::new();
    for (at, line) in text.lines().map(str::trim).enumerate() {
        if !line.is_empty() && !line.starts_with('#') {
            keys.push(read(line).ok_or_else(|| wrong(at + 1))?);
        }
    }
    Ok(keys)
}

fn wrong(line: usize) -> Error {
    Error::new(Kind::Invalid, format!("line {line} is not a domain's key as 'domain export-key' told it"))
        .remedy("compare it with the original, letter by letter")
}

fn read(line: &str) -> Option<ExportedKey> {
    let (told, check) = line.rsplit_once(' ')?;
    if check != format!("{:016x}", xxh3_64(told.as_bytes())) {
        return None;
    }
    let mut words = told.strip_prefix(MAGIC)?.split_ascii_whitespace();
    let pool = *of_hex::<16>(words.next()?)?;
    let (domain, version) = (words.next()?.parse().ok()?, words.next()?.parse().ok().filter(|v| *v > 0)?);
    let secret = Secret::new(&*of_hex::<KEY_BYTES>(words.next()?)?);
    words.next().is_none().then_some(ExportedKey { pool, domain, key: DataKey { version, secret } })
}

fn put_hex(text: &mut String, bytes: &[u8]) {
    bytes.iter().for_each(|byte| {
        let _ = write!(text, "{byte:02x}");
    });
}

/// Bytes from as many pairs of hex digits.
pub fn of_hex<const N: usize>(text: &str) -> Option<Zeroizing<[u8; N]>> {
    let mut bytes = Zeroizing::new([0; N]);
    if text.len() != 2 * N || !text.is_ascii() {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        let digit = |at: usize| (text.as_bytes()[at] as char).to_digit(16);
        *byte = (digit(2 * at)? << 4 | digit(2 * at + 1)?) as u8;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn keys() -> Vec<ExportedKey> {
        let key = |version| DataKey { version, secret: Secret::new(&[version as u8; KEY_BYTES]) };
        (1..3).map(|version| ExportedKey { pool: [0xab; 16], domain: 7, key: key(version) }).collect()
    }

    #[test]
    fn comes_back_with_remarks_and_is_refused_with_slips() {
        let text = encode(&keys());
        assert_eq!(decode(&format!("# of my pool\n\n{}", *text)).unwrap(), keys());
        let line = text.lines().next().unwrap();
        for at in 0..line.len() {
            let mut slipped = line.as_bytes().to_vec();
            slipped[at] ^= 1;
            assert!(decode(&String::from_utf8(slipped).unwrap()).is_err(), "letter {at}");
        }
        assert_eq!(decode("# nothing").unwrap(), []);
    }

    proptest! {
        #[test]
        fn noise_is_refused(noise in "stonefold-domain-key-1 [0-9a-fé ]{0,100}") {
            prop_assert!(decode(&noise).is_err());
        }
    }
}
