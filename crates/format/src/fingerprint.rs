//! What a block is known by.
//!
//! The first 128 bits of keyed BLAKE3 over its 4 KiB. Equal fingerprints under one key are taken for equal blocks: among 2^40
//! blocks (4 PiB) a chance meeting has odds of one in 2^49, and without the key none can be made on purpose.
//! The key is derived from what the dedupe scope shares, so that fingerprints of two scopes say nothing about each other.

use stonefold_types::BLOCK_BYTES;

/// Bytes of a fingerprint.
pub const FINGERPRINT_BYTES: usize = 16;

/// One fingerprint in this many is a *sample*: kept in memory for the whole pool, to find the neighbourhood of a duplicate.
pub const SAMPLE_ONE_IN: u64 = 64;

/// What a block is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint {
    /// The first 64 bits.
    pub low: u64,
    /// The next 64 bits.
    pub high: u64,
}

/// Makes fingerprints of one scope.
#[derive(Clone)]
pub struct FingerprintKey([u8; 32]);

impl FingerprintKey {
    /// The key of the scope that shares `secret`.
    pub fn derive(secret: &[u8]) -> Self {
        FingerprintKey(blake3::derive_key("stonefold 2026-11 block fingerprint", secret))
    }

    /// The fingerprint of one block.
    pub fn of(&self, block: &[u8]) -> Fingerprint {
        debug_assert_eq!(block.len(), BLOCK_BYTES);
        let hash = blake3::keyed_hash(&self.0, block);
        Fingerprint::decode(hash.as_bytes().first_chunk().expect("a hash has 32 bytes"))
    }
}

impl Fingerprint {
    /// Whether it is one of the samples.
    pub fn is_sample(&self) -> bool {
        self.low % SAMPLE_ONE_IN == 0
    }

    /// Its 16 bytes.
    pub fn encode(&self) -> [u8; FINGERPRINT_BYTES] {
        let mut bytes = [0; FINGERPRINT_BYTES];
        bytes[..8].copy_from_slice(&self.low.to_le_bytes());
        bytes[8..].copy_from_slice(&self.high.to_le_bytes());
        bytes
    }

    /// From its 16 bytes.
    pub fn decode(bytes: &[u8; FINGERPRINT_BYTES]) -> Self {
        let half = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        Fingerprint { low: half(0), high: half(8) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depends_on_every_byte_and_on_the_key() {
        let (key, other) = (FingerprintKey::derive(b"a"), FingerprintKey::derive(b"b"));
        let mut block = vec![7; BLOCK_BYTES];
        let first = key.of(&block);
        assert_eq!(Fingerprint::decode(&first.encode()), first);
        assert_ne!(other.of(&block), first);
        block[BLOCK_BYTES - 1] ^= 1;
        assert_ne!(key.of(&block), first);
    }
}
