//! Volumes that take the size of their target.

use crate::profile::Profile;
use crate::target::{TargetSpec, look};
use stonefold_types::Result;

/// Of a quick run volumes are never larger than the profile says: it is to be short.
const QUICK_MAX: f64 = 1.0;
/// Room that is left, as a share: sizes are rounded to whole blocks.
const LEFT: f64 = 1e-6;

/// A profile with its volumes in proportion to what the targets hold: one for each volume, or one for all. Targets that
/// become as large as they need to be leave it as it is.
///
/// # Errors
/// What is wrong with a target, or that one is too small for the profile's I/Os.
pub fn fit(profile: Profile, quick: bool, targets: &[TargetSpec]) -> Result<Profile> {
    let sizes = targets.iter().map(|target| Ok(look(target)?.bytes)).collect::<Result<Vec<_>>>()?;
    let wanted: Vec<u64> = profile.workload(quick).volumes.iter().map(|volume| volume.bytes).collect();
    let scale = scale(&wanted, &sizes).map(|scale| if quick { scale.min(QUICK_MAX) } else { scale });
    match scale {
        Some(scale) if scale != 1.0 => profile.scaled(scale),
        _ => Ok(profile),
    }
}

/// How many times the sizes that are wanted fit; nothing where no target has a size of its own.
fn scale(wanted: &[u64], sizes: &[Option<u64>]) -> Option<f64> {
    let fits = |has: &Option<u64>, wanted: u64| Some((*has)? as f64 * (1.0 - LEFT) / wanted.max(1) as f64);
    let each: Vec<f64> = match sizes {
        [one] => fits(one, wanted.iter().sum()).into_iter().collect(),
        many => many.iter().zip(wanted).filter_map(|(has, wanted)| fits(has, *wanted)).collect(),
    };
    each.into_iter().min_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tightest_target_says_how_large_all_become() {
        assert_eq!(scale(&[64, 8], &[None]), None);
        assert!((scale(&[64, 8], &[Some(36)]).unwrap() - 0.5).abs() < 1e-3);
        assert!((scale(&[64, 8], &[Some(64), Some(2)]).unwrap() - 0.25).abs() < 1e-3);
        assert!((scale(&[64, 8], &[Some(640), None]).unwrap() - 10.0).abs() < 1e-3);
    }

    #[test]
    fn a_small_export_is_filled_and_no_more() {
        let mail = crate::profile::shipped::find("mail").unwrap();
        let scale = scale(&[mail.bytes(false)], &[Some(36 << 30)]).unwrap();
        let scaled = mail.clone().scaled(scale).unwrap();
        assert!(scaled.bytes(false) <= 36 << 30 && scaled.bytes(false) > (36 << 30) - (1 << 20));
        assert!(mail.scaled(1e-9).is_err());
    }
}
