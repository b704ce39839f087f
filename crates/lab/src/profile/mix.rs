//! Mixes of a stream: several sizes, or alignments, each with its share.

use serde::Deserialize;
use std::collections::BTreeMap;
use stonefold_types::Size;

/// How far all shares may be from 100% together: of thirds, say.
const SHARES_APART_MAX: f64 = 0.5;

/// What addresses divide by: one for all I/Os, or several with their shares.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "an alignment is one for all, as in \"4K\", or several with their shares, as in { \"4K\" = 70, \"512\" = 30 }"
)]
pub(super) enum AlignWords {
    One(String),
    Mix(BTreeMap<String, f64>),
}

impl AlignWords {
    /// Bytes and percent of each; none where each I/O is aligned to its own size.
    ///
    /// # Errors
    /// What is wrong with a size or with the shares.
    pub(super) fn check(&self) -> Result<Vec<(u64, f64)>, String> {
        match self {
            AlignWords::One(text) => Ok(match size(text)? {
                0 => Vec::new(),
                align => vec![(align, 100.0)],
            }),
            AlignWords::Mix(words) => mix(words, "alignments"),
        }
    }
}

/// Bytes and percent of each; `of` says of what they are.
///
/// # Errors
/// What is wrong with a size or with the shares.
pub(super) fn mix(words: &BTreeMap<String, f64>, of: &str) -> Result<Vec<(u64, f64)>, String> {
    let each =
        words.iter().map(|(bytes, share)| Ok((size(bytes)?, *share))).collect::<Result<_, String>>()?;
    // The sum of none is -0.0, which nobody would write.
    let sum = 0.0 + words.values().sum::<f64>();
    match (sum - 100.0).abs() > SHARES_APART_MAX {
        true => Err(format!("the shares of its {of} are {sum}% together, and not 100")),
        false => Ok(each),
    }
}

fn size(text: &str) -> Result<u64, String> {
    text.parse::<Size>().map(|size| size.0).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::Profile;
    use crate::workload::Stream;

    /// A profile of one stream that is aligned so, and how much of it goes to a place by chance.
    fn read(align: &str, random: u32) -> stonefold_types::Result<Profile> {
        Profile::parse(
            "x",
            &format!(
                "title = 't'\nabout = 'a'\n[[volume]]\nname = 'v'\nsize = '64M'\nquick = '1M'\n\
                 [[stream]]\nname = 's'\nvolume = 'v'\nread = 50\nrandom = {random}\nsizes = {{ '4K' = 100 }}\n{align}\n\
                 outstanding = 2\n[[step]]\nname = 'parts'\nfootprints = [10, 100]\n"
            ),
        )
    }

    fn stream(align: &str) -> Stream {
        read(align, 100).unwrap().full.streams[0].clone()
    }

    #[test]
    fn alignments_are_written_as_sizes_are() {
        let mixed = stream("align = { '4K' = 62.5, '512' = 30, '64K' = 7.5 }");
        assert_eq!(mixed.alignments, [(4096, 62.5), (512, 30.0), (65536, 7.5)]);
        assert!(mixed.mixes_alignments());
    }

    /// Goal: one value is what it was, and so is a mix in which only one has a share.
    #[test]
    fn one_alignment_for_all_is_no_mix() {
        let plain = stream("align = '64K'");
        assert_eq!(plain.alignments, [(65536, 100.0)]);
        assert!(!plain.mixes_alignments());
        assert_eq!(stream("align = { '64K' = 100 }"), plain);
        assert!(!stream("align = { '64K' = 100, '512' = 0 }").mixes_alignments());
        // Each by its own size.
        assert_eq!((stream("align = '0'"), stream("").alignments), (stream(""), Vec::new()));
        assert!(read("align = '4K'", 0).is_ok());
    }

    #[test]
    fn what_is_no_mix_of_alignments_is_refused() {
        for (align, says) in [
            (
                "align = { '4K' = 60, '512' = 60 }",
                "stream 's': the shares of its alignments are 120% together, and not 100",
            ),
            ("align = { '4K' = 60 }", "alignments are 60% together"),
            ("align = {}", "alignments are 0% together"),
            ("align = { '4K' = 160, '512' = -60 }", "the share -60 of I/Os aligned to 512 bytes"),
            ("align = { '4K' = 50, '1000' = 50 }", "aligned to 1000 bytes; multiples of 512 can be"),
            ("align = { '4K' = 50, '0' = 50 }", "aligned to 0 bytes"),
            ("align = { '4K' = 50, '4096' = 50 }", "aligned to 4096 bytes twice"),
            ("align = { '4K' = 50, 'page' = 50 }", "page"),
            ("align = { '4K' = 'most' }", "one for all, as in \"4K\", or several"),
            ("align = 4096", "one for all, as in \"4K\", or several"),
            ("align = '1000'", "aligned to 1000 bytes; multiples of 512 can be"),
            // The quick volume has no room for an I/O at a multiple of that but its beginning; its second half none.
            ("align = { '4K' = 50, '1M' = 50 }\nzone = [50, 100]", "at a multiple of 1048576 does not fit"),
            // All of it has, and a tenth has not.
            (
                "align = { '4K' = 50, '512K' = 50 }\nzone = [50, 100]",
                "step 'parts', on 10% of each volume: stream 's': an I/O of 4096",
            ),
        ] {
            let error = read(align, 100).map(|_| align).unwrap_err().to_string();
            assert!(error.contains(says), "{align}: {error}");
        }
        let in_order = read("align = { '4K' = 50, '512' = 50 }", 0).unwrap_err().to_string();
        assert!(in_order.contains("follow on one another and none is drawn"), "{in_order}");
        assert!(read("align = { '4K' = 50, '512' = 50 }", 1).is_ok());
    }

    /// Goal: a volume that is made smaller has room for each alignment, too.
    #[test]
    fn a_volume_that_becomes_too_small_is_refused() {
        let profile = read("align = { '4K' = 50, '64K' = 50 }\nzone = [50, 100]", 100).unwrap();
        let refused = profile.clone().changed(Some(64 << 10), None).unwrap_err().to_string();
        assert!(refused.contains("at a multiple of 65536 does not fit"), "{refused}");
        assert!(profile.clone().scaled(0.05).is_err());
        profile.changed(Some(128 << 20), None).unwrap();
    }
}
