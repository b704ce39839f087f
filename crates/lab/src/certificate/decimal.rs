//! Decimal numbers, exact: sums of money are no binary fractions.

use std::fmt;
use std::str::FromStr;
use stonefold_types::{Error, Kind, Result};

/// Digits before and behind the point at most: products of three stay within 38.
const DIGITS_MAX: usize = 12;

/// `digits` divided by 10^`places`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decimal {
    digits: i128,
    places: u32,
}

impl Decimal {
    pub(super) const ZERO: Decimal = Decimal { digits: 0, places: 0 };

    pub(super) fn whole(number: u64) -> Self {
        Decimal { digits: i128::from(number), places: 0 }
    }

    pub(super) fn is_zero(self) -> bool {
        self.digits == 0
    }

    fn with_places(self, places: u32) -> i128 {
        self.digits * 10i128.pow(places - self.places)
    }

    pub(super) fn plus(self, other: Decimal) -> Self {
        let places = self.places.max(other.places);
        Decimal { digits: self.with_places(places) + other.with_places(places), places }
    }

    pub(super) fn times(self, other: Decimal) -> Self {
        Decimal { digits: self.digits * other.digits, places: self.places + other.places }
    }

    /// Without so many percent of itself.
    pub(super) fn less_percent(self, percent: Decimal) -> Self {
        let left = Decimal { digits: -percent.digits, places: percent.places }.plus(Decimal::whole(100));
        let all = self.times(left);
        Decimal { digits: all.digits, places: all.places + 2 }
    }

    /// To so many places, halves away from zero, as money is.
    pub(super) fn rounded(self, places: u32) -> Self {
        if places >= self.places {
            return Decimal { digits: self.with_places(places), places };
        }
        Decimal { digits: divided(self.digits, 10i128.pow(self.places - places)), places }
    }

    /// Divided by what is above 0, to so many places.
    pub(super) fn per(self, other: Decimal, places: u32) -> Self {
        let digits = self.digits * 10i128.pow(places + other.places);
        Decimal { digits: divided(digits, other.digits * 10i128.pow(self.places)), places }
    }

    pub(super) fn same(self, other: Decimal) -> bool {
        let places = self.places.max(other.places);
        self.with_places(places) == other.with_places(places)
    }
}

/// Halves away from zero.
fn divided(digits: i128, by: i128) -> i128 {
    (digits.abs() + by / 2) / by * digits.signum()
}

impl FromStr for Decimal {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            Error::new(Kind::Invalid, format!("'{text}' is no decimal number from 0 up"))
                .remedy("write it as in \"1234.50\", with up to 12 digits and without separators")
        };
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let fits = !whole.is_empty() && whole.len() <= DIGITS_MAX && fraction.len() <= DIGITS_MAX / 2;
        if !fits || !digits(whole) || !digits(fraction) || text.ends_with('.') {
            return Err(wrong());
        }
        let digits = format!("{whole}{fraction}").parse().map_err(|_| wrong())?;
        Ok(Decimal { digits, places: fraction.len() as u32 })
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.digits < 0 { "-" } else { "" };
        let text = format!("{:0>width$}", self.digits.abs(), width = self.places as usize + 1);
        let (whole, fraction) = text.split_at(text.len() - self.places as usize);
        match fraction {
            "" => write!(f, "{sign}{whole}"),
            fraction => write!(f, "{sign}{whole}.{fraction}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decimal(text: &str) -> Decimal {
        text.parse().unwrap()
    }

    #[test]
    fn money_is_exact() {
        // In binary fractions 0.1 and 0.2 are not 0.3.
        assert!(decimal("0.1").plus(decimal("0.2")).same(decimal("0.30")));
        assert_eq!(
            decimal("3").times(decimal("19.99")).less_percent(decimal("12.5")).rounded(2).to_string(),
            "52.47"
        );
        assert_eq!(decimal("225000.00").per(Decimal::whole(480), 2).to_string(), "468.75");
        assert_eq!(decimal("0.005").rounded(2).to_string(), "0.01");
        assert_eq!(decimal("100").less_percent(decimal("100")).rounded(2).to_string(), "0.00");
        for bad in ["", ".5", "5.", "-1", "1,000", "1e3", "9999999999999", "0.1234567", "1.2.3"] {
            assert!(bad.parse::<Decimal>().is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn cents_add_up(cents in prop::collection::vec(0u64..10_000_000, 0..50)) {
            let sum = cents.iter().fold(Decimal::ZERO, |sum, cents| {
                sum.plus(decimal(&format!("{}.{:02}", cents / 100, cents % 100)))
            });
            let whole: u64 = cents.iter().sum();
            prop_assert_eq!(sum.rounded(2).to_string(), format!("{}.{:02}", whole / 100, whole % 100));
        }
    }
}
