//! A trace's places on a target of another size.
//!
//! *Promises*: what comes out lies within the region, on its alignment, and is no longer than an I/O may be; the same place always goes to the
//! same place. Places begin lower and end higher where they lie between two multiples of the alignment.
//!
//! | | where a place goes |
//! |---|---|
//! | the region is as large as the device, or larger | where it was |
//! | smaller, [`Mode::Scale`] | its mebibyte, of so many, to that of so few by the rule of three; within it where it was: what was hot stays hot and what was one behind the other stays so, and several mebibytes share one |
//! | smaller, [`Mode::Wrap`] | what lies beyond the region begins at its front again |

use super::{Op, Record};
use serde::{Deserialize, Serialize};
use stonefold_types::{Error, Kind, Result};

/// What is moved as one piece when a device is scaled, in bytes.
const EXTENT_BYTES: u64 = 1 << 20;
/// The longest trim or zeroing, in bytes: longer ones are cut. A request's length has 32 bits.
const CONTROL_BYTES_MAX: u64 = 1 << 30;

/// What becomes of places beyond a region that is smaller than the device was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// The device is shrunk, in pieces of a mebibyte.
    Scale,
    /// They begin at the front again.
    Wrap,
}

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    device: u64,
    region: u64,
    align: u64,
    io_bytes_max: u64,
    mode: Mode,
}

impl Fit {
    /// From a device of some bytes to a region of others; `align` and `io_bytes_max` are the target's.
    ///
    /// # Errors
    /// [`Kind::Invalid`] when the region has not room for two requests, of a mebibyte or of the alignment.
    pub fn new(device: u64, region: u64, align: u64, io_bytes_max: u64, mode: Mode) -> Result<Self> {
        let align = align.max(512);
        let region = region / align * align;
        if region < 2 * align.max(EXTENT_BYTES) {
            let what = format!("{region} bytes for a trace's device are too few");
            return Err(Error::new(Kind::Invalid, what).remedy("name a larger target, or fewer tiles"));
        }
        let io_bytes_max = io_bytes_max.min(region) / align * align;
        Ok(Fit { device, region, align, io_bytes_max, mode })
    }

    /// Bytes of the region.
    pub fn region(&self) -> u64 {
        self.region
    }

    /// Whether every place stays where it was.
    pub fn is_as_it_was(&self) -> bool {
        self.region >= self.device
    }

    /// Where a request goes, and its bytes. A flush has neither.
    pub fn place(&self, record: &Record) -> (u64, u64) {
        if record.op == Op::Flush {
            return (0, 0);
        }
        let (start, end) = self.aligned(record);
        let most = match record.op {
            Op::Trim | Op::Zero => CONTROL_BYTES_MAX.min(self.region) / self.align * self.align,
            _ => self.io_bytes_max,
        };
        let bytes = (end - start).clamp(self.align, most);
        let start = match (self.is_as_it_was(), self.mode) {
            (true, _) => start,
            (_, Mode::Wrap) => start % self.region,
            (_, Mode::Scale) => {
                let (of, into) = (self.device.div_ceil(EXTENT_BYTES), self.region / EXTENT_BYTES);
                let extent = u128::from(start / EXTENT_BYTES) * u128::from(into) / u128::from(of);
                extent as u64 * EXTENT_BYTES + start % EXTENT_BYTES
            }
        };
        (start.min(self.region - bytes) / self.align * self.align, bytes)
    }

    /// Whether a request is asked for with another length than it had: it did not begin and end on the alignment, or is longer than one may be.
    pub fn alters(&self, record: &Record) -> bool {
        record.op != Op::Flush && self.place(record).1 != record.bytes
    }

    fn aligned(&self, record: &Record) -> (u64, u64) {
        let end = record.offset + record.bytes;
        (record.offset / self.align * self.align, end.next_multiple_of(self.align))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(op: Op, offset: u64, bytes: u64) -> Record {
        Record { at: 0, op, fua: false, queue: 0, offset, bytes, took: None }
    }

    fn fit(device: u64, region: u64, mode: Mode) -> Fit {
        Fit::new(device, region, 512, 32 << 20, mode).unwrap()
    }

    #[test]
    fn a_device_is_kept_scaled_or_wrapped() {
        let same = fit(1 << 30, 2 << 30, Mode::Scale);
        assert_eq!(same.place(&at(Op::Read, 900 << 20, 4096)), (900 << 20, 4096));
        let half = fit(1 << 30, 512 << 20, Mode::Scale);
        // Two mebibytes share one; within it a run stays a run.
        for (offset, place) in
            [(0, 0), (1 << 20, 0), (800 << 20, 400 << 20), ((800 << 20) + 4096, (400 << 20) + 4096)]
        {
            assert_eq!(half.place(&at(Op::Write, offset, 4096)), (place, 4096));
        }
        let wrapped = fit(1 << 30, 512 << 20, Mode::Wrap);
        assert_eq!(wrapped.place(&at(Op::Write, 800 << 20, 4096)), (288 << 20, 4096));
        assert_eq!(wrapped.place(&at(Op::Write, (512 << 20) - 4096, 8192)), ((512 << 20) - 8192, 8192));
        assert!(Fit::new(1 << 30, 1 << 20, 512, 1 << 20, Mode::Wrap).is_err());
    }

    #[test]
    fn bytes_between_two_sectors_take_both_and_long_ones_are_cut() {
        let fit = fit(1 << 30, 1 << 30, Mode::Scale);
        assert_eq!(fit.place(&at(Op::Write, 700, 100)), (512, 512));
        assert_eq!(fit.place(&at(Op::Write, 1000, 100)), (512, 1024));
        assert_eq!(fit.place(&at(Op::Read, 0, 64 << 20)), (0, 32 << 20));
        assert_eq!(fit.place(&at(Op::Trim, 0, 64 << 20)), (0, 64 << 20));
        assert_eq!(fit.place(&at(Op::Flush, 0, 0)), (0, 0));
        assert!(fit.alters(&at(Op::Write, 700, 100)) && !fit.alters(&at(Op::Write, 512, 512)));
    }

    proptest! {
        #[test]
        fn every_request_lies_in_its_region(device in 1u64..1 << 40, region in 2u64 << 20..1 << 40, offset in 0u64..1 << 41, bytes in 0u64..1 << 33,
                                            align in prop::sample::select(vec![512u64, 4096, 65536]), op in prop::sample::select(Op::ALL.to_vec()),
                                            mode in prop::sample::select(vec![Mode::Scale, Mode::Wrap])) {
            let fit = Fit::new(device, region, align, 1 << 20, mode).unwrap();
            let (start, length) = fit.place(&at(op, offset, bytes));
            prop_assert!(start + length <= region && start % align == 0 && length % align == 0);
            prop_assert!(op == Op::Flush || length > 0);
        }
    }
}
