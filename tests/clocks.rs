//! What a server's wall clock does to what it keeps: the real server, under a clock that leaps.
//!
//! *Promise*: no leap of the clock opens a lock or has anything expire, while the server runs or between two starts, until an admin has confirmed it; then
//! the schedule goes on from there. Two thousand points of one policy are listed, planned and thinned out as two are.

use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use stonefold_e2e::clocks::set_clock;
use stonefold_e2e::gateway::{Gateway, Place, in_a_place};
use stonefold_e2e::tools::run;
use stonefold_guest::time::{Deadline, Stopwatch};

const DAY: i64 = 24 * 60;
const QUARTER: i64 = 15;
const POINTS: u64 = 2000;
const KEPT: u64 = 7;
const PATIENCE: Duration = Duration::from_secs(60);
/// Of whatever goes through all points once.
const ALL_MAX: Duration = Duration::from_secs(20);
/// By when what became due by a change of a policy has begun.
const LOOKED_AT: Duration = Duration::from_millis(500);
const LOOK_EVERY: Duration = Duration::from_millis(5);

fn points(place: &Place) -> Result<Vec<Value>> {
    place.json("point ls")?.as_array().cloned().context("'point ls' lists")
}

/// A server with a machine of one small disk, which a policy has a point made of each quarter of an hour; and where its clock stands: so that no
/// slot begins but by a leap.
fn begin(place: &Place, words: &str) -> Result<(Gateway, i64)> {
    let begins = -since_a_quarter()?;
    set_clock(place, begins)?;
    let server = place.start(&[])?;
    place.ok("disk create web --size 16M")?;
    place.ok("machine add web --disk web")?;
    place.ok("source add web --machine web")?;
    place.ok(&format!("policy create often --every 15m {words}"))?;
    place.ok("policy apply often web")?;
    Ok((server, begins))
}

/// Until the policy has taken the snapshots of so many points, of which it keeps all.
fn until_made(place: &Place, wanted: u64) -> Result<()> {
    let patience = Deadline::after(PATIENCE);
    while place.metric("stonefold_pool_snapshots")? < wanted {
        ensure!(!patience.passed(), "point {wanted} is not begun: {}", place.last_words());
        sleep(LOOK_EVERY);
    }
    Ok(())
}

/// Until so many points are listed, and gives them: a point is written after its snapshots, and goes after them.
fn until_listed(place: &Place, wanted: u64) -> Result<Vec<Value>> {
    let patience = Deadline::after(PATIENCE);
    loop {
        let listed = points(place)?;
        if listed.len() as u64 == wanted {
            return Ok(listed);
        }
        ensure!(!patience.passed(), "{} points, not {wanted}: {}", listed.len(), place.last_words());
        sleep(LOOK_EVERY);
    }
}

/// How many minutes ago the last quarter of an hour began: a clock that is so much behind is a quarter away from the next.
fn since_a_quarter() -> Result<i64> {
    let seconds: i64 = run("date", &["-u", "+%s"])?.trim().parse()?;
    Ok(seconds / 60 % QUARTER)
}

fn confirm(place: &Place) -> Result<()> {
    let answer = place.asked("POST", "/v1/pool/confirm-time")?;
    ensure!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    Ok(())
}

#[test]
fn a_clock_that_leaps_unlocks_nothing_and_has_nothing_expire() {
    in_a_place(|place| {
        let (server, begins) = begin(place, "--keep last=1 --lock 1d")?;
        set_clock(place, begins + QUARTER)?;
        confirm(place)?;
        let listed = until_listed(place, 1)?;
        let locked = listed[0]["name"].as_str().context("a point has a name")?.to_owned();
        let stays = |when: &str| -> Result<()> {
            let said = place.fails(&format!("point rm {locked}"), 1)?;
            ensure!(said.contains("is locked until") && said.contains("confirm-time"), "{when}: {said}");
            let status = place.json("pool status")?;
            ensure!(status["time"]["in_doubt"] == true, "{when}: {status}");
            // Nor does anything become due by it, whenever that is looked at.
            place.ok("policy set often --keep last=1")?;
            sleep(LOOKED_AT);
            let all = points(place)?;
            ensure!(all.len() == 1, "{when}: {all:?}");
            ensure!(
                place.ok("policy plan often")?.contains("confirm-time"),
                "{when}: the plan does not say it"
            );
            Ok(())
        };
        set_clock(place, 60 * DAY)?;
        stays("while the server runs")?;
        server.stop()?;
        let server = place.start(&[])?;
        stays("after a stop and a start")?;
        server.kill();
        let server = place.start(&[])?;
        stays("after a kill and a start")?;

        // One that is behind is not believed either, and nothing is made twice by it.
        set_clock(place, -60 * DAY)?;
        let said = place.fails(&format!("point rm {locked}"), 1)?;
        ensure!(said.contains("is locked until"), "{said}");
        server.stop()?;
        let server = place.start(&[])?;
        let said = place.fails(&format!("point rm {locked}"), 1)?;
        ensure!(said.contains("is locked until"), "{said}");
        place.ok("policy set often --keep last=1")?;
        sleep(LOOKED_AT);
        ensure!(points(place)?.len() == 1, "a point was made of a slot that was over");

        // An admin has looked at it: one run catches up, and the point that is locked no more gives way to its.
        set_clock(place, 60 * DAY)?;
        place.ok("pool confirm-time")?;
        let patience = Deadline::after(PATIENCE);
        while points(place)?.iter().any(|point| point["name"] == locked.as_str()) {
            ensure!(!patience.passed(), "it is still there: {}", place.last_words());
            sleep(Duration::from_millis(50));
        }
        ensure!(points(place)?.len() == 1, "more than one run caught up");
        server.stop()
    });
}

#[test]
fn two_thousand_points_of_one_policy() {
    in_a_place(|place| {
        let (server, begins) = begin(place, "")?;
        for number in 1..=POINTS {
            if number % 100 == 0 {
                let mut client = place.connect("web")?;
                client.write(number % 4096 * 4096, &[number as u8; 4096])?;
                client.flush()?;
            }
            set_clock(place, begins + number as i64 * QUARTER)?;
            confirm(place)?;
            until_made(place, number)?;
        }
        until_listed(place, POINTS)?;
        server.kill();
        let started = Stopwatch::start();
        let server = place.start(&[])?;
        println!("started after {:?}", started.elapsed());
        let timed = |line: &str| -> Result<Value> {
            let since = Stopwatch::start();
            let told = place.json_within(line, ALL_MAX)?;
            println!("{line}: {:?}", since.elapsed());
            Ok(told)
        };
        ensure!(timed("point ls")?.as_array().map(Vec::len) == Some(POINTS as usize));
        place.ok(&format!("policy set often --keep last={KEPT}"))?;
        let plan = timed("policy plan often --dry-run")?;
        let judged = plan["points"].as_array().context("a plan has points")?;
        let going = judged.iter().filter(|point| point["verdict"] == "goes").count() as u64;
        ensure!(going == POINTS - KEPT, "{going} of {} points are to go", judged.len());

        set_clock(place, begins + (POINTS as i64 + 1) * QUARTER)?;
        confirm(place)?;
        let since = Stopwatch::start();
        let patience = Deadline::after(PATIENCE * 2);
        while place.metric("stonefold_pool_snapshots")? != KEPT {
            ensure!(!patience.passed(), "what is not kept stays: {}", place.last_words());
            sleep(Duration::from_millis(100));
        }
        println!("{} points removed in {:?}", POINTS + 1 - KEPT, since.elapsed());
        until_listed(place, KEPT)?;
        let checked = place.json("pool check")?;
        ensure!(checked["problems"] == serde_json::json!([]), "{checked}");
        server.stop()
    });
}
