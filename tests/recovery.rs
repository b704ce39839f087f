//! The lab recovers a database from points of a disk of ours.
//!
//! *Promise*: snapshots, and points of backups, that are made while a database works come back as clones with what was acknowledged until then
//! and nothing later, at once, and leave nothing behind. *Method*: `stonefold lab run` of a profile with a chain of points, on a disk of a
//! real server, with a real PostgreSQL on an ext4 on its export; once the lab keeps snapshots by itself, once points are made, recovered and
//! removed by the commands that people use: a full one and 24 after it.

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use stonefold_e2e::binary::stonefold;
use stonefold_e2e::gateway::{Place, in_a_place};
use stonefold_guest::process;
use stonefold_needs::{Need, there_is};

/// Loading and three steps, beside other tests.
const RUN_MAX: Duration = Duration::from_secs(400);

/// With a chain of so many changes, and these points of it recovered.
fn profile(changes: u32, between: &str, recover: &str) -> String {
    let head = "
title = 'a shop'
about = 'for this test'
[database]
warehouses = 1
buffers = '32M'
users = [2]
warm_up = '1s'
sample = '5s'
[settings]
max_wal_size = '256MB'
[chain]
users = 2
";
    format!("{head}changes = {changes}\nbetween = '{between}'\nrecover = {recover}\n")
}

#[test]
fn a_database_comes_back_from_snapshots_with_what_was_acknowledged() {
    if !there_is(Need::Loop, "a database on an export that is recovered from snapshots") {
        return;
    }
    in_a_place(|place| {
        let server = place.start(&[])?;
        place.ok("disk create db --size 2G")?;
        comes_back(place, "stonefold:db", &profile(2, "1s", "[0, 2]"), &[])?;
        nothing_is_left(place)?;
        server.stop()
    });
}

/// The points of a policy's chain, as a published comparison has them: the full one, the first after it, the middle and the last.
#[test]
fn a_database_comes_back_from_any_point_of_25() {
    if !there_is(Need::Loop, "a database on an export that is recovered from points") {
        return;
    }
    in_a_place(|place| {
        let server = place.start(&[])?;
        place.ok("disk create db --size 2G")?;
        place.ok("machine add shop --disk db")?;
        place.ok("source add shop --machine shop")?;
        let (ours, folder) = (stonefold()?.display().to_string(), place.text("points"));
        fs::create_dir(&folder)?;
        let commands = format!(
            r#"
keep = '''{ours} backup run shop --json | sed -n 's/.*"name": *"\([^"]*\)".*/\1/p' | grep @ | head -1 > {folder}/$STONEFOLD_LAB_POINT'''
recover = '''{ours} recover $(cat {folder}/$STONEFOLD_LAB_POINT) --as back >&2 && echo 'nbd+unix:///back.vda?socket={socket}''''
discard = "{ours} recover stop back --discard"
forget = "{ours} point rm $(cat {folder}/$STONEFOLD_LAB_POINT)"
"#,
            socket = place.text("nbd.sock"),
        );
        fs::write(place.path("keeper.toml"), commands)?;
        let target = place.uri("db");
        let by = ["--recovery", &place.text("keeper.toml")];
        comes_back(place, &target, &profile(24, "1s", "[0, 1, 12, 24]"), &by)?;
        ensure!(fs::read_dir(&folder)?.count() == 25, "not every point has its name");
        let points = place.json("point ls")?;
        ensure!(points.as_array().is_some_and(Vec::is_empty), "points are left: {points}");
        place.ok("source rm shop")?;
        place.ok("machine rm shop")?;
        nothing_is_left(place)?;
        server.stop()
    });
}

/// The lab runs it, and every database that came back has what was acknowledged until its point, and no more.
fn comes_back(place: &Place, target: &str, profile: &str, more: &[&str]) -> Result<()> {
    fs::write(place.path("shop.toml"), profile)?;
    let mut command = Command::new(stonefold()?);
    command.args(["lab", "run", &place.text("shop.toml"), "--json", "--target", target]).args(more);
    let done = process::run(command.env("STONEFOLD_API", place.api()), RUN_MAX)?;
    let why = || format!("{}\n{}\n{}", done.stdout, done.stderr, place.last_words());
    let answer: serde_json::Value = serde_json::from_str(&done.stdout).with_context(why)?;
    let points = answer["chain"]["points"].as_array().with_context(why)?;
    let asked = profile.rsplit_once("recover = ").map_or(0, |(_, list)| list.split(',').count());
    ensure!(points.len() == asked, "{}", why());
    ensure!(answer["chain"]["complaints"].as_array().is_some_and(Vec::is_empty), "{}", why());
    for point in points {
        ensure!(point["first"].as_f64() > point["recovered"].as_f64(), "{point}");
        println!(
            "{}: a disk after {} s, an order after {} s",
            point["name"], point["recovered"], point["first"]
        );
    }
    let judged = answer["summary"]["points"].as_array().with_context(why)?;
    let gates = judged.iter().flat_map(|point| point["gates"].as_array().into_iter().flatten());
    for name in ["acknowledged orders", "acknowledged payments", "page checksums"] {
        let states: Vec<&str> = gates
            .clone()
            .filter(|gate| gate["name"] == name)
            .map(|gate| gate["state"].as_str().unwrap_or_default())
            .collect();
        // The native one is judged, too.
        let pass = states.iter().all(|state| state.eq_ignore_ascii_case("pass"));
        ensure!(pass && states.len() == asked + 1, "{name}: {states:?}");
    }
    Ok(())
}

/// But the disk that the database was on.
fn nothing_is_left(place: &Place) -> Result<()> {
    let left = (place.json("disk ls")?, place.json("snapshot ls")?);
    let many = |list: &serde_json::Value| list.as_array().map(Vec::len);
    ensure!(many(&left.0) == Some(1) && many(&left.1) == Some(0), "{left:?}");
    Ok(())
}
