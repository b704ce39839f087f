//! A policy's archive in an object store, of real servers.
//!
//! *Promise*: what an archive is to get is there, whole, by itself and soon, though the server is killed while it sends; with the first pool gone a server that
//! has the store alone brings its points back, and serves them. *Method*: moto's S3 server, a disk of noise, a policy of each minute whose archive keeps two
//! points, `kill -9` once something is there, the first pool taken away.

use std::fs;
use std::time::Duration;

use anyhow::ensure;
use stonefold_dice::noise;
use stonefold_e2e::gateway::{Place, in_a_place};
use stonefold_e2e::replicas::{contents, names, until, wait_until_sent};
use stonefold_e2e::tools::run;
use stonefold_guest::time::Stopwatch;
use stonefold_object_store::Server;

const MIB: usize = 1 << 20;
/// A lease that nobody renews is watched for so long at least, and at most with all that an opening does.
const TAKEN_MIN: Duration = Duration::from_secs(30);
const TAKEN_MAX: Duration = Duration::from_secs(120);
const RECOVERED_MAX: Duration = Duration::from_secs(30);

#[test]
fn points_come_back_from_an_object_store_when_the_pool_is_gone() {
    let store = Server::start(&[]);
    in_a_place(|place| {
        let (first, second) = (noise(1, 64 * MIB), noise(2, MIB));
        fs::write(place.path("web.raw"), &first)?;
        let server = place.start(&[])?;
        place.ok(&format!("disk import web {}", place.text("web.raw")))?;
        place.ok("machine add web --disk web")?;
        place.ok("source add web --machine web")?;
        let url = store.url("archive");
        place.ok(&format!("policy create often --every 1m --archive {url} --archive-keep last=2"))?;
        place.ok("policy apply often web")?;
        until(place, "nothing is sent", || {
            Ok(if store.has("archive/objects/segment/") { Ok(()) } else { Err("no segment") })
        })?;
        server.kill();

        let server = place.start(&[])?;
        let policy = wait_until_sent(place, 1)?;
        ensure!(policy["replicas"][0]["archive"] == true, "{policy}");
        let metric = "stonefold_archive_behind_points{policy=\"often\",source=\"web\"}";
        // A point of the next minute may have come meanwhile.
        until(place, metric, || Ok(if place.metric(metric)? == 0 { Ok(()) } else { Err("not 0") }))?;
        let mut connection = place.connect("web")?;
        connection.write(5 << 20, &second)?;
        connection.flush()?;
        drop(connection);
        wait_until_sent(place, names(&place.json("point ls web")?).len() + 1)?;
        place.ok("policy pause often")?;
        place.ok("policy replicate often")?;
        let shown = place.ok("policy show often")?;
        ensure!(shown.contains("archives to") && shown.contains("keeps last=2"), "{shown}");
        let made = names(&place.json("point ls web")?);
        server.stop()?;
        fs::rename(place.path("pool"), place.path("gone"))?;

        let there = Place::new()?.with_url(&url);
        let server = there.start(&[])?;
        let kept = names(&there.json("point ls web")?);
        // One that came just before the pause was sent after it, when nothing goes.
        ensure!((2..=3).contains(&kept.len()) && made.ends_with(&kept), "{kept:?} of {made:?}");
        let newest = &kept[kept.len() - 1];
        let mut wanted = first.clone();
        wanted[5 * MIB..][..MIB].copy_from_slice(&second);
        let began = Stopwatch::start();
        there.ok(&format!("recover {newest} --as back"))?;
        ensure!(began.elapsed() < RECOVERED_MAX, "recovered after {:?}", began.elapsed());
        ensure!(contents(&there, "back.vda")? == wanted, "{newest} came back as something else");
        // It is a pool like any other: written to, checked, killed, and opened again by the next server of this machine without waiting.
        let mut connection = there.connect("back.vda")?;
        connection.write(0, &second)?;
        connection.flush()?;
        drop(connection);
        there.ok("pool check")?;
        server.kill();
        let server = there.start(&[])?;
        wanted[..MIB].copy_from_slice(&second);
        ensure!(contents(&there, "back.vda")? == wanted, "what was flushed to the store is not there");
        server.stop()
    });
}

/// A store that cannot hold a pool, and keys that are not good, are told where the policy is looked at; nothing is lost by it.
#[test]
fn a_store_that_will_not_do_is_told() {
    let store = Server::start(&["--deaf", "if-match"]);
    in_a_place(|place| {
        let server = place.start(&[])?;
        place.ok("disk create web --size 64M")?;
        place.ok("machine add web --disk web")?;
        place.ok("source add web --machine web")?;
        for (wrong, why) in [
            ("memory:", "URL of a pool"),
            ("s3://me:secret@bucket/x", "keys do not belong into a URL"),
            ("s3://bucket?colour=red", "unknown parameter"),
        ] {
            let refused = place.fails(&format!("policy create often --every 1m --archive {wrong}"), 1)?;
            ensure!(refused.contains(why), "{wrong}: {refused}");
        }
        let url = store.url("deaf");
        let refused = place
            .fails(&format!("policy create often --every 1m --archive {url} --archive-keep daily"), 2)?;
        ensure!(refused.contains("which points stay"), "{refused}");
        ensure!(place.json("policy ls")?.as_array().is_some_and(Vec::is_empty), "a policy is left");
        place.ok(&format!("policy create often --every 1m --archive {url} --archive-keep last=2"))?;
        place.ok("policy apply often web")?;
        let failed = until(place, "nobody has tried", || {
            let policy = place.json("policy show often")?;
            let failed = policy["replicas"][0]["failed"].as_str().map(str::to_owned);
            Ok(failed.ok_or(policy))
        })?;
        ensure!(failed.contains("If-Match") && failed.contains("cannot hold a pool"), "{failed}");
        server.stop()
    });
}

/// A server that stands still for longer than its lease, and does not know: another takes the pool once it has watched for long enough, and what the
/// first one's clients still write is refused and not in the pool.
#[test]
fn a_server_that_stands_still_loses_the_pool() {
    let store = Server::start(&[]);
    in_a_place(|place| {
        let (url, block) = (store.url("taken"), |byte: u8| vec![byte; 4096]);
        let here = Place::new()?.with_url(&url);
        let first = here.start(&[])?;
        here.ok("disk create web --size 16M")?;
        let mut client = here.connect("web")?;
        client.write(0, &block(1))?;
        client.flush()?;
        let signal = |what: &str| run("kill", &[what, &first.pid().to_string()]);
        signal("-STOP")?;
        let there = Place::new()?.with_url(&url);
        let second = there.begin(&[])?.ready_within(TAKEN_MAX)?;
        ensure!(second.ready_after > TAKEN_MIN, "taken after {:?}", second.ready_after);
        let mut other = there.connect("web")?;
        ensure!(other.read(0, 4096)? == block(1), "what was flushed is not there");
        other.write(0, &block(2))?;
        other.flush()?;
        signal("-CONT")?;
        let late = client.write(0, &block(3)).and_then(|()| client.flush());
        ensure!(late.is_err(), "a server that has lost the pool has made a write durable");
        until(place, "it is not told", || {
            Ok(if here.log().contains("was taken over by") { Ok(()) } else { Err(here.last_words()) })
        })?;
        ensure!(here.fails("disk create more --size 1M", 1)?.contains("taken over"), "it goes on");
        first.kill();
        there.ok("pool check")?;
        drop(other);
        second.stop()?;
        let again = there.start(&[])?;
        ensure!(there.connect("web")?.read(0, 4096)? == block(2), "another's write is in the pool");
        again.stop()
    });
}
