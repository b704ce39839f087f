//! Small documents that are changed whole, by compare-and-swap.

use bytes::Bytes;
use stonefold_engine::{Engine, Key, Version};
use stonefold_types::{Kind, Result};

/// A document's bytes and the version to swap; nothing where there is none.
pub(crate) async fn stored(engine: &dyn Engine, key: &Key) -> Result<Option<(Bytes, Version)>> {
    match engine.get(key).await {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == Kind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Stores `bytes` in place of the version that is expected, or where nothing is. Returns the new version, and nothing where another change
/// came first.
///
/// # Errors
/// What the engine says where nothing was stored, or nobody can tell: an error does not say whether it happened, what is stored does.
pub(crate) async fn swap(
    engine: &dyn Engine,
    key: &Key,
    bytes: Bytes,
    expected: Option<&Version>,
) -> Result<Option<Version>> {
    let put = match expected {
        Some(expected) => engine.put_if(key, bytes.clone(), expected).await,
        None => engine.put_new(key, bytes.clone()).await,
    };
    match put {
        Ok(version) => Ok(Some(version)),
        // Whatever is stored now: the same bytes may be another's, who counted the same step.
        Err(error) if matches!(error.kind(), Kind::Conflict | Kind::AlreadyExists) => Ok(None),
        Err(error) => match stored(engine, key).await {
            Ok(Some((found, version))) if found == bytes => Ok(Some(version)),
            _ => Err(error),
        },
    }
}
