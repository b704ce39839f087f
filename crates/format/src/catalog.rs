//! An entry of the catalog: what is known of a machine, a source, a policy, a point, a run. Objects below `catalog/`.
//!
//! Body, version 1: one JSON value (RFC 8259), UTF-8. What it says is for those who wrote it; the envelope tells whether it is whole, and a
//! reader keeps the fields that it does not know.

use crate::document::{self, DocumentKind};
use stonefold_types::{Error, Kind, Result};

const VERSION: u16 = 1;
/// The longest entry, in bytes: a machine's description with a thousand disks is a tenth of it.
pub const ENTRY_BYTES_MAX: usize = 4 << 20;

/// The document of an entry.
///
/// # Errors
/// [`Kind::Invalid`] where it is longer than [`ENTRY_BYTES_MAX`].
pub fn encode(text: &str) -> Result<Vec<u8>> {
    if text.len() > ENTRY_BYTES_MAX {
        let what =
            format!("an entry of the catalog of {} bytes is longer than {ENTRY_BYTES_MAX}", text.len());
        return Err(Error::new(Kind::Invalid, what));
    }
    Ok(document::seal(DocumentKind::Catalog, VERSION, text.as_bytes()))
}

/// Reads the document of an entry.
///
/// # Errors
/// [`Kind::Corrupt`], and [`Kind::Unsupported`] where a later version wrote it.
pub fn decode(bytes: &[u8]) -> Result<&str> {
    let (_, body) = document::open(bytes, DocumentKind::Catalog, VERSION)?;
    let wrong = |why: &str| Error::new(Kind::Corrupt, format!("the Catalog record {why}"));
    if body.len() > ENTRY_BYTES_MAX {
        return Err(wrong("is longer than one can be"));
    }
    std::str::from_utf8(body).map_err(|_| wrong("is no text"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_too_long_or_no_text_is_refused() {
        assert_eq!(encode(&"x".repeat(ENTRY_BYTES_MAX + 1)).unwrap_err().kind(), Kind::Invalid);
        let noise = document::seal(DocumentKind::Catalog, VERSION, &[0xff, 0xfe]);
        assert_eq!(decode(&noise).unwrap_err().kind(), Kind::Corrupt);
        let later = document::seal(DocumentKind::Catalog, VERSION + 1, b"{}");
        assert_eq!(decode(&later).unwrap_err().kind(), Kind::Unsupported);
    }

    proptest! {
        #[test]
        fn comes_back(text in ".{0,200}") {
            let bytes = encode(&text).unwrap();
            prop_assert_eq!(decode(&bytes).unwrap(), text);
        }

        #[test]
        fn noise_is_survived(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode(&bytes);
        }
    }
}
