//! Names of objects in a pool.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// The name of an object: a few segments of `[A-Za-z0-9._-]` joined by `/`, as an object store or a folder takes it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<str>);

impl Key {
    /// Takes a key as written.
    ///
    /// # Panics
    /// When the text is no key: keys are made by code, never taken from input.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        let text = text.into();
        assert!(Self::is_valid(&text), "'{text}' is a key");
        Key(text)
    }

    /// Whether a text can be a key: no empty part, none of dots alone, only letters, digits, `.`, `_` and `-`.
    pub fn is_valid(text: &str) -> bool {
        let good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
        text.len() <= 512
            && text
                .split('/')
                .all(|part| !part.is_empty() && part.bytes().all(good) && !part.bytes().all(|b| b == b'.'))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Lets an ordered map of keys be searched by a prefix that is no key itself.
impl Borrow<str> for Key {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.0)
    }
}
