//! The lab recovers a database from points of a disk of ours.
//!
//! *Promise*: snapshots that are taken while a database works come back as clones with what was acknowledged until then, at once, and leave
//! nothing behind. *Method*: `stonefold lab run` of a profile with a chain of three points, on a disk of a real server, with a real
//! PostgreSQL on an ext4 on its export.

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use stonefold_e2e::binary::stonefold;
use stonefold_e2e::gateway::in_a_place;
use stonefold_guest::process;
use stonefold_needs::{Need, there_is};

/// Loading and three steps, beside other tests.
const RUN_MAX: Duration = Duration::from_secs(400);

const PROFILE: &str = "
title = 'a shop'
about = 'for this test'
[database]
warehouses = 1
buffers = '32M'
users = [2]
warm_up = '1s'
sample = '6s'
[settings]
max_wal_size = '256MB'
[chain]
changes = 2
users = 2
between = '1s'
recover = [0, 2]
";

#[test]
fn a_database_comes_back_from_snapshots_with_what_was_acknowledged() {
    if !there_is(Need::Loop, "a database on an export that is recovered from snapshots") {
        return;
    }
    in_a_place(|place| {
        let server = place.start(&[])?;
        place.ok("disk create db --size 2G")?;
        fs::write(place.path("shop.toml"), PROFILE)?;
        let mut command = Command::new(stonefold()?);
        command
            .args(["lab", "run", &place.text("shop.toml"), "--json", "--target", "stonefold:db", "--api"])
            .arg(place.api());
        let done = process::run(&mut command, RUN_MAX)?;
        let why = || format!("{}\n{}\n{}", done.stdout, done.stderr, place.last_words());
        let answer: serde_json::Value = serde_json::from_str(&done.stdout).with_context(why)?;
        let points = answer["chain"]["points"].as_array().with_context(why)?;
        ensure!(points.len() == 2 && answer["chain"]["kept"] == 3, "{}", why());
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
        let told = |name: &str| {
            let of_name = gates.clone().filter(|gate| gate["name"] == name);
            of_name.map(|gate| gate["state"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
        };
        for name in ["acknowledged orders", "acknowledged payments", "page checksums"] {
            let states = told(name);
            ensure!(
                states.len() == 3 && states.iter().all(|state| *state == states[0]),
                "{name}: {states:?}"
            );
            ensure!(states[0].eq_ignore_ascii_case("pass"), "{name}: {states:?}");
        }
        let left = (place.json("disk ls")?, place.json("snapshot ls")?);
        let many = |list: &serde_json::Value| list.as_array().map(Vec::len);
        ensure!(many(&left.0) == Some(1) && many(&left.1) == Some(0), "{left:?}");
        server.stop()
    });
}
