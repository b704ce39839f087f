//! Classes of service: what a disk is promised, and what it is denied, when disks compete.

use crate::{Error, Kind, Result};

/// What a class says of *each* disk in it: two disks of a class have two reservations, two limits, two shares.
///
/// An *operation* is a request of up to [`OPERATION_BYTES`]; a longer one counts once for each part of that size that it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QosFigures {
    /// Operations a second that it gets before anything is shared out; 0 for none.
    pub min_iops: u64,
    /// Bytes a second that it gets before anything is shared out; 0 for none.
    pub min_bytes: u64,
    /// Operations a second that it never exceeds.
    pub max_iops: Option<u64>,
    /// Bytes a second that it never exceeds.
    pub max_bytes: Option<u64>,
    /// Its part of what is shared out, in proportion to the shares of the others that compete.
    pub share: u32,
}

/// The longest request that counts as one operation, in bytes: longer ones cost the engine time by their length.
pub const OPERATION_BYTES: u64 = 64 << 10;
/// The largest share; the smallest is 1. More than a thousand to one nobody could measure.
pub const SHARE_MAX: u32 = 1000;
/// The largest figure a second: far beyond any machine, and small enough that no arithmetic overflows.
const RATE_MAX: u64 = 1 << 50;

/// The class of a disk for which none is chosen.
pub const QOS_DEFAULT: &str = "production";

/// The classes that every pool has, highest first. They can be changed, and not removed. None has a limit: what would be a
/// sensible one depends on the machine. Reservations are small, so that a hundred disks' still fit one device.
pub const QOS_PREDEFINED: [(&str, QosFigures); 4] = [
    ("critical", QosFigures { min_iops: 500, ..of_share(800) }),
    (QOS_DEFAULT, QosFigures { min_iops: 50, ..of_share(400) }),
    ("test", of_share(100)),
    ("backup-target", of_share(50)),
];

/// The classes of the pool's own work, which no disk can have.
pub const QOS_BACKGROUND: [(&str, QosFigures); 2] = [
    // Enough that the journal does not fill up under clients that a network of 1 Gbit/s brings in a third of; when it fills all
    // the same, the fold is let go faster whatever its share.
    ("fold", QosFigures { min_bytes: 32 << 20, ..of_share(400) }),
    // A segment or two in two seconds, so that space comes back in the end on a pool that never rests.
    ("reclaim", QosFigures { min_bytes: 8 << 20, ..of_share(50) }),
];

const fn of_share(share: u32) -> QosFigures {
    QosFigures { min_iops: 0, min_bytes: 0, max_iops: None, max_bytes: None, share }
}

impl Default for QosFigures {
    fn default() -> Self {
        of_share(100)
    }
}

impl QosFigures {
    /// How many operations a request counts as.
    pub fn operations(bytes: u64) -> u64 {
        bytes.div_ceil(OPERATION_BYTES).max(1)
    }

    /// Whether it limits anything.
    pub fn is_limited(&self) -> bool {
        self.max_iops.is_some() || self.max_bytes.is_some()
    }

    /// Fails with [`Kind::Invalid`] unless the figures make sense together.
    pub fn check(&self) -> Result<()> {
        let wrong = |what: String, remedy: &str| Err(Error::new(Kind::Invalid, what).remedy(remedy));
        if !(1..=SHARE_MAX).contains(&self.share) {
            return wrong(format!("{} is no share", self.share), "choose one from 1 to 1000");
        }
        for (what, min, max) in
            [("iops", self.min_iops, self.max_iops), ("bytes", self.min_bytes, self.max_bytes)]
        {
            if max == Some(0) {
                let what = format!("a limit of 0 {what} a second would stop the disk for good");
                return wrong(what, "choose at least 1, or no limit");
            }
            if min.max(max.unwrap_or(0)) > RATE_MAX {
                return wrong(
                    format!("that many {what} a second is more than can be counted"),
                    "choose less",
                );
            }
            if max.is_some_and(|max| max < min) {
                let max = max.unwrap_or(0);
                let what = format!("a reservation of {min} {what} a second exceeds the limit of {max}");
                return wrong(what, "raise the limit, or lower the reservation");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_no_sense_is_refused() {
        let all = QOS_PREDEFINED.iter().chain(&QOS_BACKGROUND);
        assert!(all.map(|(_, figures)| figures.check()).all(|checked| checked.is_ok()));
        let base = QosFigures::default();
        for bad in [
            QosFigures { share: 0, ..base },
            QosFigures { share: SHARE_MAX + 1, ..base },
            QosFigures { max_iops: Some(0), ..base },
            QosFigures { min_iops: 10, max_iops: Some(9), ..base },
            QosFigures { min_bytes: RATE_MAX + 1, ..base },
        ] {
            assert_eq!(bad.check().unwrap_err().kind(), Kind::Invalid, "{bad:?}");
        }
    }

    #[test]
    fn a_long_request_counts_as_several_operations() {
        for (bytes, operations) in [(0, 1), (1, 1), (65536, 1), (65537, 2), (1 << 20, 16)] {
            assert_eq!(QosFigures::operations(bytes), operations, "{bytes}");
        }
    }
}
