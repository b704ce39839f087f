use super::*;
use crate::bundle::Bundle;
use crate::profile::{Profile, StepKind, shipped};

/// Points that a profile makes, by their names.
fn points_of(profile: &Profile) -> Vec<String> {
    let of_step = |step: &crate::profile::Step| -> Vec<String> {
        match &step.kind {
            StepKind::Footprints(parts) => parts
                .iter()
                .map(|part| format!("{}, {:.0}% of each volume", step.name, part * 100.0))
                .collect(),
            _ => vec![step.name.clone()],
        }
    };
    profile.steps.iter().flat_map(of_step).collect()
}

/// Points and streams that the profiles of a study make, of those that run no database and no tiles.
fn made(study: &Study) -> (Vec<String>, Vec<String>) {
    let profiles = study.load.profiles().iter().filter_map(|name| shipped::find(name).ok());
    let (mut points, mut streams) = (Vec::new(), Vec::new());
    for profile in profiles {
        points.extend(points_of(&profile));
        streams.extend(profile.full.streams.iter().map(|stream| stream.name.clone()));
    }
    (points, streams)
}

/// What a study's databases recover, by name.
fn recovered(study: &Study) -> Vec<String> {
    let profiles =
        crate::oltp::Profile::shipped().filter(|profile| study.load.profiles().contains(&profile.name));
    let chains = profiles.filter_map(|profile| profile.chain);
    chains.flat_map(|chain| chain.recover).map(crate::oltp::chain::name_of).collect()
}

/// Every figure that a study looks for can be found in a run of its profiles.
#[test]
fn shipped_studies_look_for_what_their_profiles_make() {
    for study in all() {
        let ((points, streams), recovered) = (made(&study), recovered(&study));
        for cell in study.tables.iter().flat_map(|table| &table.rows).flat_map(|row| &row.cells) {
            let point = match &cell.here {
                Here::Nowhere => continue,
                Here::Named { name, .. } => {
                    match name.split('.').collect::<Vec<_>>()[..] {
                        ["chain", point, _] => {
                            assert!(
                                ["native", "keep"].contains(&point)
                                    || recovered.iter().any(|one| one == point),
                                "{name}"
                            );
                        }
                        ["phase" | "cpu", step, _] => {
                            assert!(points.iter().any(|point| point == step), "{name}")
                        }
                        _ => {}
                    }
                    continue;
                }
                Here::Point { point, figure, .. } => {
                    assert!(compute::requirement(figure).is_some(), "{}: {figure} is no figure", study.name);
                    let stream = figure.split_once(':').map(|(stream, _)| stream);
                    let known = |stream: &str| {
                        let of_several = format!("{stream}-");
                        streams.iter().any(|one| one == stream || one.starts_with(&of_several))
                    };
                    assert!(stream.is_none_or(known), "{}: {figure}", study.name);
                    point
                }
                Here::Ratio { point, .. } | Here::Spread { point } => point,
            };
            assert!(points.contains(point), "{}: '{point}' is none of {points:?}", study.name);
        }
    }
}

/// Goal: a study of several runs takes each figure from the run that has it, each arm's from its own, and says where there is none.
#[test]
fn runs_of_arms_fill_their_columns() {
    use crate::oltp::chain::{ChainRecord, tests::chain};
    use crate::verdict::{Summary, Verdict};
    let text = SHIPPED.iter().find(|(name, _)| *name == "recovery").unwrap().1;
    // The record that tests share recovers the full point and the 2nd.
    let study = Study::parse("recovery", &text.replace("24th", "2nd")).unwrap();
    let arm = |name: &str, verdict, change: fn(&mut ChainRecord)| {
        let (mut record, points) = chain();
        change(&mut record);
        let run = crate::bundle::Run { chain: Some(record), ..Default::default() };
        let bundle = Bundle { run, profile: String::new(), points, hash: String::new() };
        let summary = Summary { verdict, points: Vec::new(), required: Vec::new(), beside: Vec::new() };
        ArmRuns { name: name.into(), runs: vec![(bundle, summary)] }
    };
    let arms = [
        arm("one", Verdict::Pass, |_| {}),
        arm("other", Verdict::Invalid, |record| {
            record.recoveries.iter_mut().for_each(|one| one.first += 10.0)
        }),
    ];
    let found = of_runs(&study, &arms, 2.0);
    let table = |title: &str| found.tables.iter().find(|table| table.title.starts_with(title)).unwrap();
    let first = &table("from the command to the first order").rows;
    assert_eq!(first[1].figures, [Some(0.6), Some(10.6)], "of the full point");
    assert_eq!(first[3].told, ["1.6", "11.6 (void)"], "of the 2nd");
    assert_eq!(
        table("how long the backup took").rows[1].figures,
        [Some(0.3), Some(0.3)],
        "of the full point"
    );
    assert_eq!(table("how long the backup took").rows[0].told, ["5100", "5280"]);
    assert_eq!(table("the way home").rows[1].told, ["-", "-"], "nothing was moved");
    assert_eq!(table("the way home").rows[0].told, ["77.0", "499"]);
    let users = &table("users at the plateau").rows;
    assert_eq!((users[0].told[0].as_str(), users[1].told[0].as_str()), ("21", "10"));
    assert_eq!(found.arms, ["one", "other"]);
}

#[test]
fn what_is_relative_is_told_so() {
    let text = SHIPPED.iter().find(|(name, _)| *name == "storage-nodes").unwrap().1;
    let study = Study::parse("x", text).unwrap();
    let arm = |name: &str, reads: u64| {
        let mut point = crate::measure::tests::point(reads);
        point.step = "mixed".into();
        point.loads[0].name = "db".into();
        let bundle = Bundle {
            run: Default::default(),
            profile: String::new(),
            points: vec![point],
            hash: String::new(),
        };
        let verdict = crate::verdict::Verdict::Pass;
        let summary =
            crate::verdict::Summary { verdict, points: Vec::new(), required: Vec::new(), beside: Vec::new() };
        ArmRuns { name: name.into(), runs: vec![(bundle, summary)] }
    };
    let found = of_runs(&study, &[arm("four", 1000), arm("eight", 3000)], 2.0);
    assert_eq!(found.tables[0].rows[1].figures, [Some(1.0), Some(3.0)]);
}

/// Goal: a step that is timed in pieces, as a copy to several volumes, is told as all of them.
#[test]
fn a_phase_is_all_pieces_of_its_step() {
    use crate::measure::{TaskKind, TaskRecord};
    let piece = |label: &str, seconds: f64| {
        let mut point = crate::measure::tests::point(1000);
        (point.step, point.label, point.seconds) = ("duplicate".into(), label.into(), seconds);
        let what = "db-1 to another".into();
        point.task = Some(TaskRecord { kind: TaskKind::Copy, what, bytes: 1 << 30 });
        point
    };
    let points = vec![piece("to db-2", 1.0), piece("to db-3", 3.0)];
    let bundle = Bundle { run: Default::default(), profile: String::new(), points, hash: String::new() };
    assert_eq!(named::of(&bundle, "phase.duplicate.seconds"), Some(4.0));
    assert_eq!(named::of(&bundle, "phase.duplicate.rate"), Some(f64::from(1 << 29)));
    assert_eq!(named::of(&bundle, "phase.checksum.seconds"), None);
}

/// Goal: the processors of both arms stand beside those that were published, as shares, and are left out where a bundle does not tell of how many.
#[test]
fn processors_are_told_as_shares() {
    let study = find("filesystems").unwrap();
    let run = |of: Option<u32>| {
        let mut point = crate::measure::tests::point(1000);
        point.step = "mixed".into();
        point.machine_cpu = Some(crate::machine::Busy { min: 1.0, mean: 2.0, max: 3.0, of, stolen: 0.0 });
        Bundle { run: Default::default(), profile: String::new(), points: vec![point], hash: String::new() }
    };
    let share = |of: Option<u32>| {
        ["min", "mean", "max"].map(|name| named::of(&run(of), &format!("cpu.mixed.{name}")))
    };
    assert_eq!(share(Some(4)), [Some(0.25), Some(0.5), Some(0.75)]);
    assert_eq!(share(None), [None; 3]);
    let table = study.tables.iter().find(|table| table.title.starts_with("processors")).unwrap();
    assert_eq!(
        table.rows[0].cells.iter().map(|cell| cell.published).collect::<Vec<_>>(),
        [Some(39.9), Some(39.7)]
    );
}

/// Goal: a study with operations runs them where they are given, and without them what it always ran.
#[test]
fn operations_take_the_place_of_what_is_run_without_them() {
    let study = find("tiles").unwrap();
    assert_eq!(
        (study.runs(false), study.runs(true)),
        (&["vm-tile".to_owned()][..], &["vm-ops".to_owned()][..])
    );
    assert_eq!(find("sqlio").unwrap().runs(true), ["sqlio"]);
    let text = SHIPPED.iter().find(|(name, _)| *name == "storage-nodes").unwrap().1;
    let two = text.replace("runs = [\"mail\"]", "runs = [\"mail\", \"oltp\"]\nwith_operations = \"vm-ops\"");
    assert!(Study::parse("x", &two).unwrap_err().to_string().contains("single one"));
}

/// What follows from the published figures, as the reports' readers have reckoned it.
#[test]
fn published_figures_give_what_follows_from_them() {
    let first =
        |study: &str, table: usize, row: usize| find(study).unwrap().tables[table].rows[row].cells.clone();
    let per_core = |study: &str, cell: &Cell| cell.published.unwrap() / find(study).unwrap().cores.unwrap();
    assert_eq!(per_core("corners", &first("corners", 0, 0)[0]).round(), 2029.0);
    assert_eq!(per_core("sqlio", &first("sqlio", 0, 0)[0]).round(), 2975.0);
    assert_eq!(per_core("sqlio", &first("sqlio", 0, 0)[1]).round(), 1038.0);
    let rungs: Vec<f64> = first("ladder", 0, 0).iter().map(|cell| cell.published.unwrap()).collect();
    let (low, high) = rungs.iter().fold((f64::MAX, 0.0f64), |(low, high), it| (low.min(*it), high.max(*it)));
    assert!((high / low - first("ladder", 2, 0)[0].published.unwrap()).abs() < 0.001);
    let two = first("filesystems", 0, 0);
    let ratio = two[1].published.unwrap() / two[0].published.unwrap();
    assert!((ratio - first("filesystems", 1, 0)[0].published.unwrap()).abs() < 0.001, "{ratio}");
}

#[test]
fn what_is_wrong_in_a_file_is_told() {
    let good = SHIPPED[1].1;
    assert!(Study::parse("x", good).is_ok());
    for (from, to, says) in [
        ("profile = \"sqlio\"", "profil = \"sqlio\"", "profil"),
        ("published = [622]", "published = [622, 1]", "2 figures for 1 columns"),
        ("published = [622]", "published = [\"many\"]", "many"),
        ("cores = 80", "", "cores"),
        ("cores = 80", "cores = 80\narms = [\"one\"]", "one arm"),
        ("figure = \"write.bytes\"", "", "needs a figure"),
        ("figure = \"write.bytes\"", "figure = \"write.bytes\"\narm = 3", "no arm 3"),
        ("unit = \"MB/s\"", "unit = \"MiB/s\"", "MiB/s"),
        ("profile = \"sqlio\"", "profile = \"sqlio\"\nruns = [\"mail\"]", "a profile, or a list of runs"),
        ("figure = \"write.bytes\"", "figure = \"write.bytes\"\neach = \"chain.24th.tps\"", "enough"),
        (
            "points = [\"8K sequential write\"]\nfigure = \"write.bytes\"",
            "each = \"chain.24th.tps\"",
            "no figure 'chain.24th.tps'",
        ),
    ] {
        assert!(good.contains(from), "{from}");
        let error = Study::parse("x", &good.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(error.contains(says), "{from} → {to}: {error}");
    }
}

#[test]
fn figures_are_told_in_their_units() {
    assert_eq!(Unit::Iops.told(227_242.0), "227,242");
    assert_eq!(Unit::Iops.told(16.24), "16.2");
    assert_eq!(Unit::Milliseconds.told(Unit::Milliseconds.of(500_000.0)), "0.50");
    assert_eq!(Unit::Megabytes.told(Unit::Megabytes.of(622e6)), "622");
    assert_eq!(Unit::Ratio.told(1.0723), "1.072");
}

/// Goal: a figure of which nothing can be concluded says so in its table.
#[test]
fn a_void_figure_is_marked() {
    use crate::stats::gates::{Gate, Grade, State};
    use crate::verdict::{Judged, Summary, Verdict};
    let study = find("sqlio").unwrap();
    let Here::Point { point: name, .. } = &study.tables[0].rows[0].cells[0].here else { panic!("a point") };
    let mut point = crate::measure::tests::point(4000);
    point.step.clone_from(name);
    let run = crate::bundle::Run { targets: vec!["null:".into()], ..Default::default() };
    let bundle = Bundle { run, profile: String::new(), points: vec![point], hash: String::new() };
    let told = |grade: Grade| {
        let gates: Vec<Gate> = vec![Gate { name: "errors".into(), state: State::Pass, why: String::new() }];
        let judged =
            Judged { name: name.clone(), iops: 4000.0, steadiness: None, fidelity: Vec::new(), gates, grade };
        let summary = Summary {
            verdict: Verdict::Pass,
            points: vec![judged],
            required: Vec::new(),
            beside: Vec::new(),
        };
        of_run(&study, &bundle, &summary, 2.0).tables[0].rows[1].told[0].clone()
    };
    assert_eq!((told(Grade::E).as_str(), told(Grade::F).as_str()), ("4,000", "4,000 (void)"));
}
