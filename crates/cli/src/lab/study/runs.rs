//! Studies that run several profiles, on one target or on each of two.

use super::{About, Study, answer, other};
use crate::context::Context;
use crate::failure::Failure;
use crate::lab::load::Load;
use crate::lab::run::Run;
use crate::lab::system::Declared;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use stonefold_lab::bundle;
use stonefold_lab::oltp;
use stonefold_lab::study::{self, ArmRuns, Study as Report};
use stonefold_lab::verdict::{self, Verdict};

/// The folders of two arms, in that of a study.
const FOLDERS: [&str; 2] = ["a", "b"];

/// What is measured by itself.
struct Side<'a> {
    targets: &'a [String],
    system: Option<&'a Path>,
    /// Its folder in that of the study, where there are two.
    folder: Option<&'static str>,
    to: Option<&'a String>,
    recovery: Option<&'a PathBuf>,
}

impl Study {
    /// Each profile once, on one target or on each of two.
    pub(super) fn run_each(
        &self,
        context: &Context,
        study: &Report,
        cores: f64,
    ) -> Result<ExitCode, Failure> {
        let mut arms = Vec::new();
        for side in self.sides() {
            let arm = self.run_side(context, study, &side)?;
            let is_ended = arm.runs.last().is_some_and(|(bundle, _)| bundle.run.cut_short);
            arms.push(arm);
            if is_ended {
                break;
            }
        }
        tell(context, study, &arms, cores)
    }

    fn sides(&self) -> Vec<Side<'_>> {
        let of_two = |number: usize, (targets, system), one_keeps_its_own: bool| Side {
            targets,
            system,
            folder: Some(FOLDERS[number]),
            to: self.to.get(number),
            recovery: match &self.recovery[..] {
                // A disk of a server keeps points by itself, and those commands are of another storage.
                [_] if one_keeps_its_own && is_disk(targets) => None,
                [both] => Some(both),
                each => each.get(number),
            },
        };
        match self.arms.two() {
            Some([a, b]) => {
                let one_keeps_its_own = is_disk(a.0) != is_disk(b.0);
                vec![of_two(0, a, one_keeps_its_own), of_two(1, b, one_keeps_its_own)]
            }
            None => vec![Side {
                targets: &self.target,
                system: None,
                folder: None,
                to: self.to.first(),
                recovery: self.recovery.first(),
            }],
        }
    }

    /// What is wrong with what is to be measured, and what to do, of a study whose arms are runs of their own.
    pub(super) fn check_sides(&self) -> Option<(String, &'static str)> {
        let (sides, targets) = (if self.arms.two().is_some() { 2 } else { 1 }, !self.target.is_empty());
        let wrong = |what: &str, remedy| Some((what.to_owned(), remedy));
        match sides {
            1 if self.arms.are_given() => {
                wrong("runs each arm once, by itself", "name two with --a and --b, and no --arms")
            }
            1 if !targets => wrong(
                "measures a target, or two one after the other",
                "name it with --target, two with --a and --b, or what was kept with --from",
            ),
            _ if !self.to.is_empty() && self.to.len() != sides => {
                wrong("moves the disk of each arm to a place of its own", "say --to once for each")
            }
            _ if self.recovery.len() > sides => {
                wrong("has fewer arms than --recovery", "say it once for each")
            }
            _ => None,
        }
    }

    fn run_side(&self, context: &Context, study: &Report, side: &Side<'_>) -> Result<ArmRuns, Failure> {
        let mut arm = ArmRuns { name: side.targets.join(" and "), runs: Vec::new() };
        let folder =
            self.out.as_ref().map(|dir| side.folder.map_or_else(|| dir.clone(), |name| dir.join(name)));
        for name in study.runs(self.ops.is_some()) {
            let database = oltp::Profile::shipped().find(|profile| profile.name == *name);
            let moves = database.as_ref().is_some_and(|database| database.migration.is_some());
            if moves && side.to.is_none() {
                eprintln!("{name} is left out: nobody has said where to with --to");
                continue;
            }
            let recovers = database.is_some_and(|database| database.chain.is_some());
            let out = folder.as_ref().map(|dir| dir.join(name));
            let run = Run {
                to: side.to.cloned().filter(|_| moves),
                recovery: side.recovery.cloned().filter(|_| recovers),
                beside: self.beside.iter().filter(|_| recovers).cloned().collect(),
                ops: self.ops.clone(),
                tiles: self.tiles,
                scale: self.scale,
                price: self.price.clone(),
                declared: Declared::of(side.system),
                ..Run::plain(
                    Load::plain(name, self.quick, out, self.size, self.destroy_data),
                    side.targets.to_vec(),
                )
            };
            arm.runs.push(run.measure(context)?);
            if arm.runs.last().is_some_and(|(bundle, _)| bundle.run.cut_short) {
                break;
            }
        }
        Ok(arm)
    }
}

/// What may follow from runs of which each arm has one: nothing of how they differ.
fn of_arms(worst: Option<Verdict>, arms: usize) -> Verdict {
    match worst {
        Some(Verdict::Pass) if arms > 1 => Verdict::Inconclusive,
        worst => worst.unwrap_or(Verdict::Inconclusive),
    }
}

/// Whether it is a disk of a server, which has points of its own.
fn is_disk(targets: &[String]) -> bool {
    targets.iter().all(|target| target.starts_with("stonefold:"))
}

/// What earlier runs have kept: a folder for each arm, or that of both.
pub(super) fn read(
    context: &Context,
    study: &Report,
    dirs: &[PathBuf],
    cores: f64,
) -> Result<ExitCode, Failure> {
    let both = |dir: &Path| FOLDERS.map(|name| dir.join(name));
    let dirs = dirs.iter().flat_map(|dir| match both(dir) {
        both if both.iter().all(|dir| dir.is_dir()) => both.to_vec(),
        _ => vec![dir.clone()],
    });
    let arms = dirs.map(|dir| read_arm(study, &dir)).collect::<Result<Vec<_>, _>>()?;
    tell(context, study, &arms, cores)
}

/// The runs of an arm: a folder that the study has kept, with one in it for each profile, or a run of one of these.
fn read_arm(study: &Report, dir: &Path) -> Result<ArmRuns, Failure> {
    let profiles = || study.load.profiles().iter().chain(&study.with_operations);
    let inside: Vec<PathBuf> =
        profiles().map(|profile| dir.join(profile)).filter(|dir| dir.is_dir()).collect();
    let dirs = if inside.is_empty() { vec![dir.to_owned()] } else { inside };
    let mut arm = ArmRuns { name: dir.display().to_string(), runs: Vec::new() };
    for dir in dirs {
        let bundle = bundle::load(&dir)?;
        if !profiles().any(|profile| *profile == bundle.run.profile) {
            return Err(other(study, &dir, &bundle.run.profile));
        }
        let summary = verdict::summarise(&bundle)?;
        arm.runs.push((bundle, summary));
    }
    Ok(arm)
}

fn tell(context: &Context, study: &Report, arms: &[ArmRuns], cores: f64) -> Result<ExitCode, Failure> {
    let found = study::of_runs(study, arms, cores);
    let runs = || arms.iter().flat_map(|arm| &arm.runs);
    let again: Vec<&str> = runs().map(|(bundle, _)| bundle.run.reproduce.as_str()).collect();
    let again = again.join("; ");
    let about = About {
        quick: runs().any(|(bundle, _)| bundle.run.quick),
        locked: runs().all(|(bundle, _)| bundle.run.locked),
        again: &again,
    };
    let worst = runs().map(|(_, summary)| summary.verdict).max_by_key(|verdict| verdict.status());
    answer(context, study, &found, &about, of_arms(worst, arms.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Words {
        #[command(flatten)]
        study: Study,
    }

    /// Goal: two arms that ran once each are no comparison, however well they ran.
    #[test]
    fn nothing_follows_from_one_run_of_each_arm() {
        assert_eq!(of_arms(Some(Verdict::Pass), 1), Verdict::Pass);
        assert_eq!(of_arms(Some(Verdict::Pass), 2), Verdict::Inconclusive);
        assert_eq!(of_arms(Some(Verdict::Invalid), 2), Verdict::Invalid);
        assert_eq!(of_arms(None, 0), Verdict::Inconclusive);
    }

    /// Goal: commands that keep the points of one storage never keep those of another.
    #[test]
    fn commands_that_keep_points_are_of_the_arm_that_needs_them() {
        let kept = |a: &str, b: &str, files: &[&str]| {
            let mut words = vec!["study", "recovery", "--a", a, "--b", b];
            files.iter().for_each(|file| words.extend(["--recovery", file]));
            let words = Words::parse_from(words);
            let of =
                |side: &Side<'_>| side.recovery.map_or("-".to_owned(), |path| path.display().to_string());
            words.study.sides().iter().map(of).collect::<Vec<_>>().join(" ")
        };
        let theirs = "nbd://theirs/db";
        assert_eq!(kept("stonefold:db", theirs, &["x"]), "- x");
        assert_eq!(kept(theirs, "stonefold:db", &["x"]), "x -");
        assert_eq!(kept("stonefold:db", "stonefold:other", &["x"]), "x x");
        assert_eq!(kept(theirs, "nbd://others/db", &["x"]), "x x");
        assert_eq!(kept("stonefold:db", theirs, &["x", "y"]), "x y");
        assert_eq!(kept("stonefold:db", theirs, &[]), "- -");
    }
}
