//! Points in another pool, of real servers.
//!
//! *Promise*: what a policy has made is in the other pool, whole, by itself and soon; a server that is killed while it sends goes on; with the first pool gone
//! another server brings the points back from there. *Method*: a disk of noise, a policy of each minute, `kill -9` once the other pool is begun, the first
//! pool taken away.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use stonefold_dice::noise;
use stonefold_e2e::clocks::set_clock;
use stonefold_e2e::gateway::{Place, in_a_place};
use stonefold_e2e::replicas::{SENT_MAX, contents, names, wait_until_sent};
use stonefold_guest::time::Deadline;

/// By when all that was written is folded, and what that left over is given back.
const FOLDED_MAX: Duration = Duration::from_secs(60);
const MIB: usize = 1 << 20;
const LOOK_EVERY: Duration = Duration::from_millis(100);

fn is_begun(pool: &Path) -> bool {
    pool.join("objects").exists() || fs::read_dir(pool).is_ok_and(|mut inside| inside.next().is_some())
}

#[test]
fn points_come_back_from_the_other_pool_when_this_one_is_gone() {
    in_a_place(|place| {
        let other = place.path("other");
        let (first, second) = (noise(1, 96 * MIB), noise(2, MIB));
        fs::write(place.path("web.raw"), &first)?;
        let server = place.start(&[])?;
        place.ok(&format!("disk import web {}", place.text("web.raw")))?;
        place.ok("machine add web --disk web")?;
        place.ok("source add web --machine web")?;
        place.ok(&format!("policy create often --every 1m --replicate file://{}", other.display()))?;
        place.ok("policy apply often web")?;
        let deadline = Deadline::after(SENT_MAX);
        while !is_begun(&other) {
            ensure!(!deadline.passed(), "nothing is sent: {}", place.last_words());
            std::thread::sleep(Duration::from_millis(20));
        }
        // In the midst of it, wherever that is.
        std::thread::sleep(Duration::from_millis(300));
        server.kill();

        let server = place.start(&[])?;
        wait_until_sent(place, 1)?;
        let metrics = place.metric("stonefold_replication_behind_points{policy=\"often\",source=\"web\"}")?;
        ensure!(metrics == 0, "{metrics}");
        // The next ones are told from the last.
        let mut connection = place.connect("web")?;
        connection.write(5 << 20, &second)?;
        connection.flush()?;
        drop(connection);
        let points = place.json("point ls web")?.as_array().map_or(0, Vec::len);
        wait_until_sent(place, points + 1)?;
        place.ok("policy pause often")?;
        place.ok("policy replicate often")?;
        ensure!(place.ok("policy replicate often")?.contains("nothing to send"), "something was left");
        let sent = place.json("point ls web")?;
        server.stop()?;
        fs::rename(place.path("pool"), place.path("gone"))?;

        let there = Place::new()?.with_pool(&other);
        let server = there.start(&[])?;
        let found = there.json("point ls web")?;
        let of = |list: &serde_json::Value| -> Vec<(String, String)> {
            let all = list.as_array().into_iter().flatten();
            all.map(|point| (point["name"].to_string(), point["taken"].to_string())).collect()
        };
        ensure!(of(&found) == of(&sent), "{found} for {sent}");
        let runs = there.json("backup ls")?;
        let written = |run: &serde_json::Value| run["copied"]["written_bytes"].as_u64().unwrap_or(0);
        let of_second: Vec<u64> =
            runs.as_array().into_iter().flatten().map(written).filter(|bytes| *bytes > 0).collect();
        ensure!(of_second.last() == Some(&(MIB as u64)), "{runs}");
        let mut newest = first.clone();
        newest[5 * MIB..][..MIB].copy_from_slice(&second);
        let names: Vec<String> =
            of(&found).into_iter().map(|(name, _)| name.trim_matches('"').to_owned()).collect();
        for (at, (name, wanted)) in
            [(&names[0], &first), (&names[names.len() - 1], &newest)].into_iter().enumerate()
        {
            there.ok(&format!("recover {name} --as back{at}"))?;
            ensure!(
                contents(&there, &format!("back{at}.vda"))? == *wanted,
                "{name} came back as something else"
            );
        }
        there.ok("pool check")?;
        let refused = there.fails("backup run web", 1)?;
        ensure!(refused.contains("sent by another pool"), "{refused}");
        ensure!(there.ok("source ls")?.contains("a replica of pool"), "{}", there.ok("source ls")?);
        server.stop()
    });
}

/// What the other pool has already, from whomever, is sent to be compared, and not stored there again.
#[test]
fn what_the_other_pool_has_is_not_stored_again() {
    in_a_place(|place| {
        let other = place.path("other");
        let (known, new) = (noise(3, 32 * MIB), noise(4, 8 * MIB));
        let there = Place::new()?.with_pool(&other);
        let used = || -> Result<u64> {
            let server = there.start(&[])?;
            let patience = Deadline::after(FOLDED_MAX);
            let (mut before, mut same) = (0, 0);
            while same < 5 {
                let status = there.json("pool status")?;
                ensure!(!patience.passed(), "it is not all folded: {status}");
                let now = status["used_bytes"].as_u64().with_context(|| format!("{status}"))?;
                same = if now == before && status["journal_bytes"] == 0 { same + 1 } else { 0 };
                before = now;
                std::thread::sleep(Duration::from_millis(200));
            }
            server.stop()?;
            Ok(before)
        };
        let server = there.start(&[])?;
        fs::write(place.path("theirs.raw"), &known)?;
        there.ok(&format!("disk import theirs {}", place.text("theirs.raw")))?;
        server.stop()?;
        let before = used()?;

        set_clock(place, 0)?;
        let server = place.start(&[])?;
        fs::write(place.path("web.raw"), [&known[..], &new[..]].concat())?;
        place.ok(&format!("disk import web {}", place.text("web.raw")))?;
        place.ok("machine add web --disk web")?;
        place.ok("source add web --machine web")?;
        place.ok(&format!("policy create often --every 15m --replicate file://{}", other.display()))?;
        place.ok("policy apply often web")?;
        set_clock(place, 15)?;
        place.ok("pool confirm-time")?;
        wait_until_sent(place, 1)?;
        let name = names(&place.json("point ls web")?).pop().context("there is a point")?;
        server.stop()?;

        let more = used()?.saturating_sub(before);
        ensure!(more >= new.len() as u64, "{more} bytes for {} that cannot be reduced", new.len());
        // What is not recognized of the known part, and the tables.
        ensure!(more < (new.len() + known.len() / 8) as u64, "{more} bytes more for {} new ones", new.len());
        let server = there.start(&[])?;
        there.ok(&format!("recover {name} --as back"))?;
        ensure!(contents(&there, "back.vda")? == [known, new].concat(), "it came back as something else");
        server.stop()
    });
}

/// A pool that was there before and is not today, as one on a disk that is not mounted, is not made anew; and the server says what to do.
#[test]
fn a_disk_that_is_not_there_gets_no_new_pool() {
    in_a_place(|place| {
        let other = place.path("other");
        let server = place.start(&[])?;
        place.ok("disk create web --size 64M")?;
        place.ok("machine add web --disk web")?;
        place.ok("source add web --machine web")?;
        for wrong in ["memory:", "/srv/pool", "s4://bucket"] {
            let refused = place.fails(&format!("policy create often --every 1m --replicate {wrong}"), 1)?;
            ensure!(refused.contains("URL of a pool"), "{wrong}: {refused}");
        }
        ensure!(place.json("policy ls")?.as_array().is_some_and(Vec::is_empty), "a policy is left");
        place.ok(&format!("policy create often --every 1m --replicate file://{}", other.display()))?;
        place.ok("policy apply often web")?;
        wait_until_sent(place, 1)?;
        // Not while it is open.
        place.ok("policy pause often")?;
        place.ok("policy replicate often")?;
        fs::rename(&other, place.path("unplugged"))?;
        fs::create_dir(&other)?;
        place.ok("policy resume often")?;
        let deadline = Deadline::after(SENT_MAX);
        let policy = loop {
            let policy = place.json("policy show often")?;
            if policy["replicas"][0]["failed"].is_string() {
                break policy;
            }
            ensure!(!deadline.passed(), "nobody has tried: {policy}");
            std::thread::sleep(LOOK_EVERY);
        };
        ensure!(policy["replicas"][0]["failed"].to_string().contains("there is no pool"), "{policy}");
        let refused = place.fails("policy replicate often", 1)?;
        ensure!(refused.contains("mounted"), "{refused}");
        ensure!(fs::read_dir(&other)?.next().is_none(), "a pool was made");
        fs::remove_dir(&other)?;
        fs::rename(place.path("unplugged"), &other)?;
        ensure!(place.ok("policy replicate often")?.contains("sent web@"));
        place.ok("policy set often --replicate none")?;
        ensure!(place.fails("policy replicate often", 1)?.contains("names no other pool"));
        server.stop()
    });
}
