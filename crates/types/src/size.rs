//! Sizes as people write them: `512M`, `20G`, `1T`, binary multiples.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A number of bytes. Reads `4096`, `512K`, `20G`, `1.5T` (K, M, G, T, P are powers of 1024; a trailing `B` or
/// `iB` is accepted); prints with the largest unit that loses nothing it shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Size(pub u64);

const UNITS: [(char, u32); 5] = [('P', 50), ('T', 40), ('G', 30), ('M', 20), ('K', 10)];

/// Why a text is not a size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseSizeError(String);

impl fmt::Display for ParseSizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' is not a size; write bytes or a number with K, M, G, T or P, as in 20G", self.0)
    }
}

impl std::error::Error for ParseSizeError {}

impl FromStr for Size {
    type Err = ParseSizeError;

    fn from_str(text: &str) -> Result<Self, ParseSizeError> {
        let wrong = || ParseSizeError(text.escape_debug().to_string());
        let upper = text.trim().to_ascii_uppercase();
        let bare = upper.strip_suffix("IB").or(upper.strip_suffix('B')).unwrap_or(&upper);
        let shift = UNITS.iter().find(|(unit, _)| bare.ends_with(*unit)).map_or(0, |(_, shift)| *shift);
        let digits = if shift == 0 { bare } else { &bare[..bare.len() - 1] };
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
            return Err(wrong());
        }
        match digits.split_once('.') {
            None => {
                digits.parse::<u64>().ok().and_then(|n| n.checked_mul(1 << shift)).map(Size).ok_or_else(wrong)
            }
            // Fractions only of a unit, and only ones that are whole bytes after rounding down.
            Some(_) if shift > 0 => {
                let value = digits.parse::<f64>().map_err(|_| wrong())? * (1u64 << shift) as f64;
                if value < u64::MAX as f64 { Ok(Size(value as u64)) } else { Err(wrong()) }
            }
            Some(_) => Err(wrong()),
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((unit, shift)) = UNITS.iter().find(|(_, shift)| self.0 >> shift > 0) else {
            return write!(f, "{}", self.0);
        };
        if self.0 % (1 << shift) == 0 {
            return write!(f, "{}{unit}", self.0 >> shift);
        }
        write!(f, "{:.1}{unit}", self.0 as f64 / (1u64 << shift) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_what_people_write() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("512M", 512 << 20),
            ("20g", 20 << 30),
            ("1.5T", 3 << 39),
            ("1KiB", 1024),
            ("2KB", 2048),
        ] {
            assert_eq!(text.parse::<Size>(), Ok(Size(bytes)), "{text}");
        }
        for bad in ["", "G", "-1G", "1.5", "1e3", "20 X", "99999999P", "1..5G"] {
            assert!(bad.parse::<Size>().is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn whole_units_print_and_read_back(n in 1u64..1024, shift in 0usize..5) {
            let size = Size(n << (shift * 10));
            prop_assert_eq!(size.to_string().parse::<Size>(), Ok(size));
        }
    }
}
