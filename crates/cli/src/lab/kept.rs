//! Where what was measured goes: where it was told to, from point to point and as a whole, or else where there is room for it.
//!
//! *Never*: is what took hours lost because of where it was to go.

use super::load::Load;
use std::path::Path;
use stonefold_lab::bundle::{self, Bundle, Run as Record};
use stonefold_lab::measure::{Point, Reins};
use stonefold_types::Error;

impl Load {
    /// Keeps what was measured where it was told to, or else, since it took its time, among what is temporary.
    pub(super) fn keep(&self, run: Record, profile: String, points: Vec<Point>) -> Bundle {
        let mut bundle = Bundle { run, profile, points, hash: String::new() };
        let Some(dir) = &self.out else { return bundle };
        let saved = |dir: &Path| bundle::save(dir, &bundle.run, &bundle.profile, &bundle.points);
        bundle.hash = saved(dir).unwrap_or_else(|error| {
            let other =
                tempfile::Builder::new().prefix("stonefold-lab-").tempdir().map(tempfile::TempDir::keep).ok();
            let hash = other.as_ref().and_then(|other| saved(other).ok());
            // Once: a run is kept once.
            let _ = self.elsewhere.set((other.filter(|_| hash.is_some()), error));
            hash.unwrap_or_default()
        });
        bundle
    }

    /// Where what was measured is.
    pub(super) fn kept_in(&self) -> Option<&Path> {
        match self.elsewhere.get() {
            Some((other, _)) => other.as_deref(),
            None => self.out.as_deref(),
        }
    }

    /// Fails where it is not where it was to be.
    pub(super) fn check_kept(&self) -> Result<(), Error> {
        let (Some((other, why)), Some(dir)) = (self.elsewhere.get(), &self.out) else { return Ok(()) };
        let what = format!("what was measured is not in '{}': {}", dir.display(), why.what());
        let error = Error::new(why.kind(), what);
        Err(match other {
            Some(other) => error.remedy(format!("it is in '{}': take it from there", other.display())),
            None => error.remedy("nothing is left of it but what was printed"),
        })
    }

    /// Has what is measured be kept from point to point: a run that is cut off leaves what it had.
    pub(super) fn keep_each(&self, reins: &Reins, run: Record, profile: String) {
        let Some(dir) = self.out.clone() else { return };
        let run = Record { cut_short: true, ..run };
        let mut is_told = false;
        reins.kept_by(move |points| {
            let saved = bundle::save_unfinished(&dir, &run, &profile, points);
            if let (Err(error), false) = (saved, is_told) {
                eprintln!("what is measured is not kept from point to point: {error}");
                is_told = true;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a folder that takes nothing any more at the end does not take what was measured with it.
    #[test]
    fn what_cannot_go_where_it_was_to_is_somewhere_else() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out");
        let record = || Record { format: Record::FORMAT, ..Record::default() };
        let load = Load::plain("ab", true, Some(out.clone()), None, false);
        load.keep(record(), "title = 1".to_owned(), Vec::new());
        assert!(load.kept_in() == Some(&out) && load.check_kept().is_ok());

        // Somebody has put a file there meanwhile.
        std::fs::remove_dir_all(&out).unwrap();
        std::fs::write(&out, "x").unwrap();
        let load = Load::plain("ab", true, Some(out.clone()), None, false);
        let bundle = load.keep(record(), "title = 1".to_owned(), Vec::new());
        let other = load.kept_in().unwrap().to_owned();
        assert!(other != out && bundle::load(&other).unwrap().hash == bundle.hash);
        let error = load.check_kept().unwrap_err();
        assert!(error.to_string().contains(&out.display().to_string()), "{error}");
        assert!(error.remedy_text().unwrap().contains(&other.display().to_string()));
        std::fs::remove_dir_all(other).unwrap();
    }
}
