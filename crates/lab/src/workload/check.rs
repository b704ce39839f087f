//! What a stream may be, and on which volume it has room.

use super::{IO_BYTES_MAX, Load, Stream, Volume};
use crate::payload::SECTOR_BYTES;

impl Stream {
    /// Refuses what cannot be run on any volume, saying why.
    pub(super) fn check(&self) -> Result<(), String> {
        for (what, share) in [("read", self.read), ("random", self.random)] {
            if !(0.0..=1.0).contains(&share) {
                return Err(format!("{what} is {}%, not a share from 0 to 100%", share * 100.0));
            }
        }
        if !(0.0 <= self.zone.0 && self.zone.0 < self.zone.1 && self.zone.1 <= 1.0) {
            return Err(format!(
                "its zone from {}% to {}% is none",
                self.zone.0 * 100.0,
                self.zone.1 * 100.0
            ));
        }
        self.check_sizes()?;
        self.check_alignments()?;
        if let Some(spots) = self.hotspots {
            let shares = [spots.range, spots.share].iter().all(|share| (0.0..=1.0).contains(share));
            if spots.count == 0 || !shares || spots.range == 0.0 {
                return Err("hotspots need a count, a range above 0% and a share, each up to 100%".into());
            }
        }
        match self.load {
            Load::Closed { outstanding } if !(1..=4096).contains(&outstanding) => {
                Err(format!("{outstanding} outstanding I/Os; from 1 to 4096 can be"))
            }
            Load::Open { from, to, .. }
                if !(from.is_finite() && to.is_finite() && from >= 0.0 && to >= 0.0 && from + to > 0.0) =>
            {
                Err(format!("a rate from {from} to {to} I/Os a second is none"))
            }
            Load::Follow { ios, per, .. }
                if !(ios.is_finite() && per.is_finite() && ios > 0.0 && per > 0.0) =>
            {
                Err(format!("{ios} I/Os for each {per} is no ratio"))
            }
            _ => Ok(()),
        }
    }

    /// Refuses a volume that has no room for its largest I/O. With a mix of alignments it must have some at a multiple of each: what is drawn is kept,
    /// and not rounded to what fits.
    pub(crate) fn check_room(&self, volume: &Volume) -> Result<(), String> {
        let ((from, to), largest) = (self.span(volume), self.largest());
        if to.saturating_sub(from) < largest {
            return Err(format!(
                "an I/O of {largest} bytes does not fit into its zone of {} bytes of volume '{}'",
                to.saturating_sub(from),
                volume.name
            ));
        }
        if !self.mixes_alignments() {
            return Ok(());
        }
        let fits = |align: u64| {
            let end = from.checked_next_multiple_of(align).and_then(|first| first.checked_add(largest));
            end.is_some_and(|end| end <= to)
        };
        let drawn = self.alignments.iter().filter(|(_, weight)| *weight > 0.0);
        match drawn.map(|(align, _)| *align).find(|align| !fits(*align)) {
            None => Ok(()),
            Some(align) => Err(format!(
                "an I/O of {largest} bytes at a multiple of {align} does not fit into its zone, which goes from byte {from} to {to} of \
                 volume '{}'",
                volume.name
            )),
        }
    }

    fn check_sizes(&self) -> Result<(), String> {
        let sector = SECTOR_BYTES as u64;
        if !self.sizes.iter().any(|(_, weight)| *weight > 0.0) {
            return Err("no size of its I/Os has a share".into());
        }
        for (bytes, weight) in &self.sizes {
            if !weight.is_finite() || *weight < 0.0 {
                return Err(format!("the share {weight} of I/Os of {bytes} bytes is none"));
            }
            if *bytes == 0 || bytes % sector != 0 || *bytes > IO_BYTES_MAX {
                return Err(format!(
                    "an I/O of {bytes} bytes; multiples of {sector} up to {IO_BYTES_MAX} can be"
                ));
            }
        }
        Ok(())
    }

    fn check_alignments(&self) -> Result<(), String> {
        let sector = SECTOR_BYTES as u64;
        for (number, (align, weight)) in self.alignments.iter().enumerate() {
            if !weight.is_finite() || *weight < 0.0 {
                return Err(format!("the share {weight} of I/Os aligned to {align} bytes is none"));
            }
            if *align == 0 || align % sector != 0 {
                return Err(format!("it is aligned to {align} bytes; multiples of {sector} can be"));
            }
            if self.alignments[..number].iter().any(|(other, _)| other == align) {
                return Err(format!("it is aligned to {align} bytes twice; write both shares as one"));
            }
        }
        if !self.alignments.is_empty() && !self.alignments.iter().any(|(_, weight)| *weight > 0.0) {
            return Err("no alignment of its I/Os has a share".into());
        }
        if self.mixes_alignments() && self.random == 0.0 {
            return Err("its alignments are a mix, but its I/Os follow on one another and none is drawn; leave 'align' out, or let some \
                        go to a place by chance ('random')"
                .into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{reads, why};

    #[test]
    fn alignments_that_cannot_be_are_refused_by_name() {
        let of = |alignments: &[(u64, f64)]| why(|w| w.streams[0].alignments = alignments.to_vec());
        assert!(
            of(&[(4096, 50.0), (1000, 50.0)])
                .contains("stream 's': it is aligned to 1000 bytes; multiples of 512")
        );
        assert!(of(&[(1000, 100.0)]).contains("aligned to 1000"));
        assert!(of(&[(4096, 50.0), (0, 50.0)]).contains("aligned to 0 bytes"));
        assert!(of(&[(4096, 150.0), (512, -50.0)]).contains("share -50"));
        assert!(of(&[(4096, f64::NAN), (512, 50.0)]).contains("share NaN"));
        assert!(of(&[(4096, 50.0), (512, 20.0), (4096, 30.0)]).contains("4096 bytes twice"));
        assert!(of(&[(4096, 0.0), (512, 0.0)]).contains("no alignment"));
        assert!(
            why(|w| {
                w.streams[0].random = 0.0;
                w.streams[0].alignments = vec![(4096, 50.0), (512, 50.0)];
            })
            .contains("follow on one another")
        );
    }

    /// Goal: an alignment that is drawn can be kept anywhere that the stream may be; one for all is rounded to what fits, as ever.
    #[test]
    fn a_zone_has_room_for_each_alignment() {
        let mut workload = reads(1 << 20);
        let stream = &mut workload.streams[0];
        (stream.zone, stream.alignments) = ((0.3, 0.9), vec![(512, 50.0), (64 << 10, 50.0)]);
        assert!(workload.check().is_ok());
        // The first multiple after 30% is the volume's end.
        workload.streams[0].alignments[1].0 = 1 << 20;
        let refused = workload.check().unwrap_err().to_string();
        assert!(refused.contains("4096 bytes at a multiple of 1048576 does not fit"), "{refused}");
        workload.streams[0].alignments[1].0 = u64::MAX - 511;
        assert!(workload.check().is_err());
        // What has no share is not drawn.
        workload.streams[0].alignments[1].1 = 0.0;
        assert!(workload.check().is_ok());
        workload.streams[0].alignments = vec![(1 << 20, 100.0)];
        assert!(workload.check().is_ok());
    }
}
