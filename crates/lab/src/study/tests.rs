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

/// Every figure that a study looks for can be found in a run of its profile, and every published figure is one that the report has.
#[test]
fn shipped_studies_look_for_what_their_profiles_make() {
    for study in all() {
        let profile = shipped::find(&study.profile).unwrap();
        let points = points_of(&profile);
        let streams: Vec<&str> = profile.full.streams.iter().map(|stream| stream.name.as_str()).collect();
        for cell in study.tables.iter().flat_map(|table| &table.rows).flat_map(|row| &row.cells) {
            let point = match &cell.here {
                Here::Nowhere => continue,
                Here::Point { point, figure, .. } => {
                    assert!(compute::requirement(figure).is_some(), "{}: {figure} is no figure", study.name);
                    let stream = figure.split_once(':').map(|(stream, _)| stream);
                    assert!(
                        stream.is_none_or(|stream| streams.contains(&stream)),
                        "{}: {figure}",
                        study.name
                    );
                    point
                }
                Here::Ratio { point, .. } | Here::Spread { point } => point,
            };
            assert!(points.contains(point), "{}: '{point}' is none of {points:?}", study.name);
        }
    }
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
