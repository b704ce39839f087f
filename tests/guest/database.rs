//! A database in a real Debian on somebody else's storage: what its points hold, whichever one is brought back.
//!
//! *Promise*: of a full point and 24 after it, made while pgbench writes, each holds what was committed by then, and comes back as a machine whose
//! PostgreSQL recovers when it is started and whose tables sum up, also once all others were removed in no order; one is moved home while pgbench writes to it. The server is killed in the midst of a
//! backup, of three recoveries, and of the move.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use stonefold_dice::Dice;
use stonefold_e2e::agent::Agent;
use stonefold_e2e::gateway::{Gateway, Place};
use stonefold_e2e::machines;
use stonefold_e2e::replicas::names;
use stonefold_e2e::runs::until_made_again;
use stonefold_guest::time::Deadline;

use super::{LOGIN_MAX, SHELL_MAX, is_sound};

/// After the full one, each of what has changed.
const INCREMENTS: usize = 24;
/// Of those, beside the full one.
const BROUGHT_BACK: [usize; 2] = [12, 24];
/// Of the order in which the other points are removed.
const SEED: u64 = 25;
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Far less than the disk holds, and more than pgbench changes between two points.
const CHANGED_MAX: u64 = 256 << 20;
/// A part of what the first backup takes.
const READING: Duration = Duration::from_millis(500);

/// Whatever its version.
const START: &str = "set -- $(pg_lsclusters -h) && pg_ctlcluster $1 $2 start";
const LOADED: &str = "su postgres -c 'pgbench -i -q postgres'";
const WORK: &str = "su postgres -c 'pgbench -n -c 2 -T 3600 postgres' >/root/pgbench.log 2>&1 </dev/null &";
/// What each transaction adds to all four, and how many there were.
const SUMS: &str = "su postgres -c \"psql -At -F ' ' -c '\
    SELECT (SELECT sum(abalance) FROM pgbench_accounts), (SELECT sum(bbalance) FROM pgbench_branches), \
    (SELECT sum(tbalance) FROM pgbench_tellers), (SELECT coalesce(sum(delta), 0) FROM pgbench_history), (SELECT count(*) FROM pgbench_history)' postgres\"";

/// How many transactions the tables hold, all of whose sums are one.
fn transactions(agent: &Agent) -> Result<u64> {
    let said = agent.run(SUMS, SHELL_MAX)?;
    let told: Vec<i64> =
        said.split(' ').map(str::parse).collect::<Result<_, _>>().with_context(|| said.clone())?;
    let [accounts, branches, tellers, history, count] = told[..] else {
        anyhow::bail!("the sums are not five: {said}");
    };
    ensure!(
        accounts == history && branches == history && tellers == history,
        "the tables do not sum up: {said}"
    );
    Ok(count.try_into()?)
}

/// A point, and how many transactions there were before it was made and after.
struct Kept {
    point: String,
    between: (u64, u64),
}

/// Of a machine in this folder whose disk is no disk of ours; `serve` starts the server anew.
pub(crate) fn comes_back_from_any_point(
    place: &Place,
    folder: &str,
    server: Gateway,
    serve: impl Fn() -> Result<Gateway>,
) -> Result<Gateway> {
    let agent = Agent::greet(&Path::new(folder).join("agent.sock"), LOGIN_MAX)?;
    for command in [START, LOADED, WORK] {
        agent.run(command, LOGIN_MAX)?;
    }
    place.ok(&format!("source add shop --qmp {folder}/qmp.sock --agent unix:{folder}/agent.sock"))?;
    let before = transactions(&agent)?;
    let server = dies_in_a_backup(place, server, &serve)?;
    let kept = keep(place, &agent, before)?;

    // The machine is lost, and its disk with it.
    let pid = fs::read_to_string(Path::new(folder).join("pid"))?;
    ensure!(
        Command::new("kill").arg("-9").arg(pid.trim()).status()?.success(),
        "the machine has gone already"
    );
    let (server, machines) = all_at_once(place, &kept, server, &serve)?;
    for (kept, machine) in kept.iter().zip(&machines) {
        machine.run(START, LOGIN_MAX)?;
        let found = transactions(machine)?;
        let (before, after) = kept.between;
        ensure!((before..=after).contains(&found), "{} holds {found} of {before} to {after}", kept.point);
    }
    place.ok("recover stop back0 --discard")?;
    place.ok("recover stop back1 --discard")?;
    goes_home(place, "back2", &machines[2], server, &serve)
}

/// The first backup's server dies while it reads; the next one makes it again.
fn dies_in_a_backup(place: &Place, server: Gateway, serve: impl Fn() -> Result<Gateway>) -> Result<Gateway> {
    let mut backup = Command::new(stonefold_e2e::binary::stonefold()?);
    backup.args(["--api", &place.api(), "backup", "run", "shop"]).stdout(Stdio::null()).stderr(Stdio::null());
    let mut backup = backup.spawn()?;
    wait_until("no backup came to it", || {
        let runs = place.json("backup ls")?;
        let is_it = |run: &Value| {
            run["state"] == "running" && run["name"].as_str().is_some_and(|name| name.starts_with("shop@"))
        };
        Ok(runs.as_array().is_some_and(|runs| runs.iter().any(is_it)))
    })?;
    sleep(READING);
    server.kill();
    ensure!(!backup.wait()?.success(), "a backup outlived its server");
    let server = serve()?;
    until_made_again(place, "shop", LOGIN_MAX)?;
    Ok(server)
}

/// All points, and of those that are to come back what they hold; the others go, in no order. `before`: transactions before the full one was begun.
fn keep(place: &Place, agent: &Agent, before: u64) -> Result<Vec<Kept>> {
    // What was made again.
    let mut full = names(&place.json("point ls shop")?);
    let point = full.pop().context("no point")?;
    ensure!(full.is_empty(), "beside {point}: {full:?}");
    let (mut kept, mut others) = (vec![Kept { point, between: (before, transactions(agent)?) }], Vec::new());
    for number in 1..=INCREMENTS {
        let is_counted = BROUGHT_BACK.contains(&number);
        let before = if is_counted { transactions(agent)? } else { 0 };
        let run = place.json_within("backup run shop --consistent app", LOGIN_MAX)?;
        ensure!(run["state"] == "done", "{run}");
        let read = run["copied"]["read_bytes"].as_u64().with_context(|| format!("no bytes in {run}"))?;
        ensure!(read < CHANGED_MAX, "not what has changed alone: {run}");
        let point = run["name"].as_str().context("a run has a name")?.to_owned();
        if !is_counted {
            others.push(point);
        } else {
            kept.push(Kept { point, between: (before, transactions(agent)?) });
        }
    }
    ensure!(
        kept[0].between.1 < kept[1].between.0 && kept[1].between.1 < kept[2].between.0,
        "pgbench stands still"
    );
    let mut dice = Dice::new(SEED);
    while !others.is_empty() {
        let point = others.swap_remove(dice.index(others.len()));
        place.ok(&format!("point rm {point}"))?;
    }
    let left = place.json("point ls shop")?;
    ensure!(left.as_array().is_some_and(|left| left.len() == kept.len()), "{left}");
    Ok(kept)
}

/// Three machines by the names back0 to back2, whose server dies while they boot.
fn all_at_once(
    place: &Place,
    kept: &[Kept],
    server: Gateway,
    serve: impl Fn() -> Result<Gateway>,
) -> Result<(Gateway, Vec<Agent>)> {
    let mut folders = Vec::new();
    for (number, kept) in kept.iter().enumerate() {
        let made =
            place.json(&format!("recover {} --as back{number} --to qemu --network isolated", kept.point))?;
        let folder = made["recovery"]["started"]["folder"].as_str().context("a machine has a folder")?;
        folders.push(folder.to_owned());
    }
    server.kill();
    let server = serve()?;
    let greet = |folder: &String| Agent::greet(&Path::new(folder).join("agent.sock"), LOGIN_MAX);
    let machines = folders.iter().map(greet).collect::<Result<_>>()?;
    Ok((server, machines))
}

/// Moved to a file while pgbench writes to it, and the server dies in the midst.
fn goes_home(
    place: &Place,
    name: &str,
    machine: &Agent,
    server: Gateway,
    serve: impl Fn() -> Result<Gateway>,
) -> Result<Gateway> {
    machine.run(WORK, SHELL_MAX)?;
    let before = transactions(machine)?;
    let (folder, home) = (machines::folder(place, name)?, place.text("shop.qcow2"));
    place.ok(&format!("migrate {name} --to file:{home} --format qcow2 --no-wait"))?;
    let moved = |state: &'static str, least: u64| {
        move || {
            let all = place.json("migrate ls")?;
            let found = all.as_array().and_then(|all| all.iter().find(|one| one["name"] == name));
            let found = found.with_context(|| format!("no migration of {name}: {all}"))?;
            ensure!(found["state"] == "copying" || found["state"] == state, "{found}");
            Ok(found["state"] == state && found["disks"][0]["done_bytes"].as_u64() > Some(least))
        }
    };
    wait_until("nothing was moved", moved("copying", 32 << 20))?;
    server.kill();
    let server = serve()?;
    wait_until("it was not moved", moved("done", 0))?;
    let after = transactions(machine)?;
    ensure!(after > before, "pgbench stands still: {before}, then {after}");
    place.ok(&format!("recover stop {name} --discard"))?;
    // Its new disk has all, without the old one.
    ensure!(transactions(machine)? >= after, "transactions are gone");
    is_sound(&folder, &home)?;
    Ok(server)
}

fn wait_until(otherwise: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Deadline::after(LOGIN_MAX);
    while !is_so()? {
        ensure!(!deadline.passed(), "{otherwise} within {} s", LOGIN_MAX.as_secs());
        sleep(LOOK_EVERY);
    }
    Ok(())
}
