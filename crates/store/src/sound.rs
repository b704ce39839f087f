//! Reading what proves itself: where one copy is damaged, from another.
//!
//! *Promises*: what is returned was decoded, and so verified; a damaged copy of it has been replaced if any other is sound, else the
//! error is that of the copy that was read first. *May be called by*: whoever reads objects that never change.

use bytes::Bytes;
use stonefold_engine::{Engine, Key};
use stonefold_types::{Kind, Result};

/// Decodes a part of an object. `read` is what some copy holds at `offset`.
pub(crate) async fn decode<T>(
    engine: &dyn Engine,
    key: &Key,
    offset: u64,
    read: &Bytes,
    decode: impl Fn(&[u8]) -> Result<T> + Send + Sync,
) -> Result<T> {
    let damage = match decode(read) {
        Err(error) if error.kind() == Kind::Corrupt => error,
        done => return done,
    };
    let sound = |bytes: &[u8]| decode(bytes).is_ok();
    match engine.repair(key, offset, read.len(), &sound).await? {
        Some(repaired) => {
            tracing::warn!("'{key}' was read from another copy, because in one {damage}");
            decode(&repaired.bytes)
        }
        None => Err(damage),
    }
}
