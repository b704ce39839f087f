//! The profiles that the lab brings.

use super::Profile;
use stonefold_types::{Error, Kind, Result};

/// Each with its file.
const SHIPPED: &[(&str, &str)] = &[
    ("corners", include_str!("../../profiles/corners.toml")),
    ("sqlio", include_str!("../../profiles/sqlio.toml")),
    ("fileserver", include_str!("../../profiles/fileserver.toml")),
    ("poltp", include_str!("../../profiles/poltp.toml")),
    ("ab", include_str!("../../profiles/ab.toml")),
    ("ladder", include_str!("../../profiles/ladder.toml")),
    ("mail", include_str!("../../profiles/mail.toml")),
    ("chaos", include_str!("../../profiles/chaos.toml")),
];

/// All of them.
pub fn all() -> impl Iterator<Item = Profile> {
    SHIPPED
        .iter()
        .map(|(name, text)| Profile::parse(name, text).expect("a shipped profile is right, as a test shows"))
}

/// One by its name.
///
/// # Errors
/// [`Kind::NotFound`] with the names that there are.
pub fn find(name: &str) -> Result<Profile> {
    all().find(|profile| profile.name == name).ok_or_else(|| {
        let names: Vec<&str> = SHIPPED
            .iter()
            .map(|(name, _)| *name)
            .chain(["oltp", "migrate-live", "chain-recover", "vm-tile", "vm-ops"])
            .collect();
        Error::new(Kind::NotFound, format!("there is no profile '{name}'"))
            .remedy(format!("name one of {}, or a file that ends in .toml", names.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::StepKind;
    use std::time::Duration;

    #[test]
    fn every_shipped_profile_is_right() {
        for (name, text) in SHIPPED {
            let profile = Profile::parse(name, text).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert!(!profile.steps.is_empty() && !profile.source.is_empty(), "{name}");
            assert!(profile.duration(true) < profile.duration(false), "{name}");
        }
    }

    /// What the published methods say.
    #[test]
    fn mixes_have_the_means_that_are_published() {
        let mean = |name: &str, stream: usize| find(name).unwrap().full.streams[stream].mean_bytes();
        assert!((mean("fileserver", 0) - 11_346.0).abs() < 1.0, "{}", mean("fileserver", 0));
        let poltp = find("poltp").unwrap();
        assert!(
            (poltp.full.streams[0].sizes.iter().map(|(_, share)| share).sum::<f64>() - 100.0).abs() < 1e-9
        );
        let corners = find("corners").unwrap();
        assert!(corners.steps.iter().any(|step| matches!(step.kind, StepKind::Footprints(_))));
    }

    /// Goal: loads can be measured for longer, and never for less than the profile says.
    #[test]
    fn points_become_longer_and_never_shorter() {
        let poltp = find("poltp").unwrap();
        let (quick, full) = (poltp.times(true), poltp.times(false));
        let longer = poltp.clone().with_points(Duration::from_secs(60), true).unwrap();
        let times = longer.times(true);
        assert_eq!(
            (times.point, times.sample),
            (Duration::from_secs(60), quick.sample.max(Duration::from_secs(60)))
        );
        assert!(times.precondition >= quick.precondition.max(Duration::from_secs(15)));
        assert_eq!((longer.times(false), longer.least), (full, Some(Duration::from_secs(60))));
        assert!(longer.duration(true) > poltp.duration(true));
        let error = poltp.with_points(Duration::from_secs(5), true).unwrap_err().to_string();
        assert!(error.contains("already") && error.contains("leave --point out"), "{error}");
        // A load that is held is a point like others.
        let ab = find("ab").unwrap().with_points(Duration::from_secs(60), true).unwrap();
        assert_eq!(ab.times(true).sample, Duration::from_secs(60));
    }

    #[test]
    fn what_is_wrong_in_a_file_is_told() {
        let good = SHIPPED[3].1;
        assert!(Profile::parse("x", good).is_ok());
        for (from, to, says) in [
            ("read = 65", "raed = 65", "raed"),
            ("read = 65", "read = 165", "165%"),
            ("volume = \"db\"", "volume = \"dbx\"", "dbx"),
            ("outstanding = 8", "outstanding = 0", "outstanding"),
            ("outstanding = 8", "", "needs one of"),
            ("stream = \"db\"", "stream = \"nobody\"", "nobody"),
        ] {
            assert!(good.contains(from), "{from}");
            let error = Profile::parse("x", &good.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.contains(says), "{from} → {to}: {error}");
        }
    }
}
