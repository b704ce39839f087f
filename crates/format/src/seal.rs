//! Sealing: AES-256-GCM, and where each key comes from.
//!
//! ```text
//! master key 32 ── HKDF(salt pool id, "stonefold 1 wrap") ──────────────── wraps data keys; nonce at random
//! passphrase ── PBKDF2-HMAC-SHA256(salt 16, iterations) ── master key
//! data key 32, at random, one for each version of a domain's key
//!  ├─ HKDF(salt seed 32, "stonefold 1 segment" · segment 8 · generation 1) ─ frames of one form; nonce first slot
//!  └─ HKDF(salt seed 32, "stonefold 1 journal" · incarnation 16) ────────── records of one journal; nonce lsn
//! wrapped key = nonce 12 · sealed data key 32 · tag 16       bound to: pool id 16 · domain id 2 · version 4
//! ```
//! A key that seals much is made for one physical object, from randomness that only this object has: so a nonce can be a
//! position, and no crash, copy or restored pool makes the same key seal two things at one nonce. Wrapping keys seal little,
//! under nonces at random. HKDF is with SHA-256; integers are little-endian; a nonce is 4 zero bytes and 8 of the position.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Salt};
use ring::pbkdf2;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use zeroize::Zeroizing;

use crate::entry::SegmentId;

/// Bytes by which sealing makes something longer.
pub const TAG_BYTES: usize = 16;
/// Bytes of a key.
pub const KEY_BYTES: usize = 32;
/// Bytes of a wrapped key.
pub const WRAPPED_BYTES: usize = NONCE_LEN + KEY_BYTES + TAG_BYTES;

/// A key from which others are made. Clones share its memory, which is zeroed when the last is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<Zeroizing<[u8; KEY_BYTES]>>);

impl Secret {
    /// The caller zeroes what it made this from.
    pub fn new(bytes: &[u8; KEY_BYTES]) -> Self {
        Secret(Arc::new(Zeroizing::new(*bytes)))
    }

    /// From what people remember: slow on purpose, so that guessing is, too.
    pub fn of_passphrase(passphrase: &[u8], salt: &[u8; 16], iterations: NonZeroU32) -> Self {
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, iterations, salt, passphrase, &mut *key);
        Secret(Arc::new(key))
    }

    /// Its bytes, for whoever derives from them or hands them out on purpose.
    pub fn expose(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    fn derive(&self, salt: &[u8], info: &[&[u8]]) -> SealKey {
        let key = Salt::new(HKDF_SHA256, salt).extract(&self.0[..]);
        let derived = key.expand(info, &AES_256_GCM).expect("one key is not too long");
        SealKey(LessSafeKey::new(UnboundKey::from(derived)))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// One version of a domain's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataKey {
    /// Counts from 1; 0 stands for "not sealed" wherever a version is stored.
    pub version: u32,
    /// The key.
    pub secret: Secret,
}

/// What seals and opens the parts of one object.
pub struct SealKey(LessSafeKey);

impl fmt::Debug for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealKey(…)")
    }
}

impl SealKey {
    /// Of one physical form of a segment, whose header has `seed`.
    pub fn of_segment(data: &Secret, seed: &[u8; 32], segment: SegmentId, generation: u8) -> Self {
        data.derive(seed, &[b"stonefold 1 segment", &segment.0.to_le_bytes(), &[generation]])
    }

    /// Of one journal, whose chunks have `seed`.
    pub fn of_journal(data: &Secret, seed: &[u8; 32], incarnation: &[u8; 16]) -> Self {
        data.derive(seed, &[b"stonefold 1 journal", incarnation])
    }

    /// Seals `text` in place and returns the tag. A key seals at one position once.
    pub fn seal(&self, position: u64, bound: &[u8], text: &mut [u8]) -> [u8; TAG_BYTES] {
        self.seal_at(nonce(position), bound, text)
    }

    fn seal_at(&self, nonce: [u8; NONCE_LEN], bound: &[u8], text: &mut [u8]) -> [u8; TAG_BYTES] {
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = self.0.seal_in_place_separate_tag(nonce, Aad::from(bound), text);
        tag.expect("nothing of ours is too long to be sealed").as_ref().try_into().expect("16 bytes")
    }

    /// Opens `sealed`, which ends with its tag; `None` unless every byte and what it is bound to are as they were sealed.
    pub fn open(&self, position: u64, bound: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        let mut text = sealed.to_vec();
        let len = self.open_in_place(nonce(position), bound, &mut text)?;
        text.truncate(len);
        Some(text)
    }

    fn open_in_place(&self, nonce: [u8; NONCE_LEN], bound: &[u8], sealed: &mut [u8]) -> Option<usize> {
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.0.open_in_place(nonce, Aad::from(bound), sealed).ok().map(|text| text.len())
    }
}

fn nonce(position: u64) -> [u8; NONCE_LEN] {
    let mut nonce = [0; NONCE_LEN];
    nonce[NONCE_LEN - 8..].copy_from_slice(&position.to_le_bytes());
    nonce
}

/// What the data keys of one pool are wrapped with.
pub struct WrappingKey {
    key: SealKey,
    pool: [u8; 16],
}

impl WrappingKey {
    /// Of the pool with this id.
    pub fn new(master: &Secret, pool: [u8; 16]) -> Self {
        WrappingKey { key: master.derive(&pool, &[b"stonefold 1 wrap"]), pool }
    }

    fn bound(&self, domain: u16, version: u32) -> Vec<u8> {
        [&self.pool[..], &domain.to_le_bytes(), &version.to_le_bytes()].concat()
    }

    /// Wraps a data key under a nonce that chance made.
    pub fn wrap(&self, domain: u16, data: &DataKey, nonce: [u8; NONCE_LEN]) -> [u8; WRAPPED_BYTES] {
        let mut wrapped = [0; WRAPPED_BYTES];
        let (front, rest) = wrapped.split_at_mut(NONCE_LEN);
        front.copy_from_slice(&nonce);
        let (key, tag) = rest.split_at_mut(KEY_BYTES);
        key.copy_from_slice(data.secret.expose());
        tag.copy_from_slice(&self.key.seal_at(nonce, &self.bound(domain, data.version), key));
        wrapped
    }

    /// The data key; `None` when it was wrapped under another key, or as another's.
    pub fn unwrap(&self, domain: u16, version: u32, wrapped: &[u8; WRAPPED_BYTES]) -> Option<DataKey> {
        let (nonce, sealed) = wrapped.split_first_chunk().expect("it begins with its nonce");
        let mut text = Zeroizing::new([0; KEY_BYTES + TAG_BYTES]);
        text.copy_from_slice(sealed);
        self.key.open_in_place(*nonce, &self.bound(domain, version), &mut *text)?;
        let secret = Secret::new(text.first_chunk().expect("a key and its tag"));
        Some(DataKey { version, secret })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn secret(byte: u8) -> Secret {
        Secret::new(&[byte; KEY_BYTES])
    }

    proptest! {
        /// Goal: what was sealed opens at its own position, in its own object, under its own key, unchanged; else not at all.
        #[test]
        fn opens_only_as_it_was_sealed(text in proptest::collection::vec(any::<u8>(), 0..300), position: u64, flip: prop::sample::Index) {
            let key = SealKey::of_segment(&secret(1), &[2; 32], SegmentId(3), 4);
            let mut sealed = text.clone();
            let tag = key.seal(position, b"here", &mut sealed);
            sealed.extend(tag);
            prop_assert_eq!(key.open(position, b"here", &sealed), Some(text));
            prop_assert!(key.open(position ^ 1, b"here", &sealed).is_none(), "another position");
            prop_assert!(key.open(position, b"there", &sealed).is_none(), "bound to another place");
            let others = [
                SealKey::of_segment(&secret(9), &[2; 32], SegmentId(3), 4),
                SealKey::of_segment(&secret(1), &[9; 32], SegmentId(3), 4),
                SealKey::of_segment(&secret(1), &[2; 32], SegmentId(9), 4),
                SealKey::of_segment(&secret(1), &[2; 32], SegmentId(3), 9),
                SealKey::of_journal(&secret(1), &[2; 32], &[3; 16]),
            ];
            prop_assert!(others.iter().all(|other| other.open(position, b"here", &sealed).is_none()));
            let bit = flip.index(sealed.len() * 8);
            sealed[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(key.open(position, b"here", &sealed).is_none(), "a flipped bit");
        }

        #[test]
        fn noise_is_refused(noise in proptest::collection::vec(any::<u8>(), 0..100)) {
            prop_assert!(SealKey::of_journal(&secret(1), &[2; 32], &[3; 16]).open(0, &[], &noise).is_none());
        }
    }

    #[test]
    fn a_data_key_is_unwrapped_only_by_its_master_in_its_place() {
        let data = DataKey { version: 3, secret: secret(7) };
        let wrapping = WrappingKey::new(&secret(1), [5; 16]);
        let wrapped = wrapping.wrap(2, &data, [6; 12]);
        assert_eq!(wrapping.unwrap(2, 3, &wrapped), Some(data));
        assert!(wrapping.unwrap(2, 4, &wrapped).is_none(), "another version");
        assert!(wrapping.unwrap(1, 3, &wrapped).is_none(), "another domain");
        assert!(WrappingKey::new(&secret(1), [6; 16]).unwrap(2, 3, &wrapped).is_none(), "another pool");
        assert!(WrappingKey::new(&secret(2), [5; 16]).unwrap(2, 3, &wrapped).is_none(), "another master");
        for at in 0..WRAPPED_BYTES {
            let mut damaged = wrapped;
            damaged[at] ^= 1;
            assert!(wrapping.unwrap(2, 3, &damaged).is_none(), "byte {at}");
        }
    }

    /// Goal: neither the salt, nor a round, nor a letter is left out.
    #[test]
    fn a_passphrase_gives_a_key_that_depends_on_all_of_it() {
        let rounds = |n| NonZeroU32::new(n).unwrap();
        let mut salt = [0; 16];
        salt[..4].copy_from_slice(b"salt");
        let key = Secret::of_passphrase(b"password", &salt, rounds(2));
        assert_ne!(key, Secret::of_passphrase(b"password", &salt, rounds(3)));
        assert_ne!(key, Secret::of_passphrase(b"passwore", &salt, rounds(2)));
        assert_eq!(format!("{key:?}"), "Secret(…)", "secrets are not shown");
    }
}
