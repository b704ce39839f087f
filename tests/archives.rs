//! A policy's archive in an object store, of real servers.
//!
//! *Promise*: what an archive is to get is there, whole, by itself and soon, though the server is killed while it sends; with the first pool gone a server that
//! has the store alone brings its points back, and serves them. *Method*: moto's S3 server, a disk of noise, a policy of each minute whose archive keeps two
//! points, `kill -9` once something is there, the first pool taken away.

use std::fs;
use std::time::Duration;

use anyhow::{Result, ensure};
use stonefold_dice::noise;
use stonefold_e2e::gateway::{Place, in_a_place};
use stonefold_guest::time::{Deadline, Stopwatch};
use stonefold_object_store::Server;

const MIB: usize = 1 << 20;
/// A minute until the policy's next run, the lease of a server that was killed, and what other tests need.
const SENT_MAX: Duration = Duration::from_secs(240);
const LOOK_EVERY: Duration = Duration::from_millis(100);
const RECOVERED_MAX: Duration = Duration::from_secs(30);

/// Until the archive has the newest of at least so many points.
fn wait_until_archived(place: &Place, points: usize) -> Result<()> {
    let deadline = Deadline::after(SENT_MAX);
    loop {
        let policy = place.json("policy show often")?;
        let replica = &policy["replicas"][0];
        let made = place.json("point ls web")?.as_array().map_or(0, Vec::len);
        if made >= points && replica["behind"] == 0 && replica["newest"].is_string() {
            ensure!(replica["archive"] == true, "{replica}");
            return Ok(());
        }
        ensure!(!deadline.passed(), "not archived: {policy}\n{}", place.last_words());
        std::thread::sleep(LOOK_EVERY);
    }
}

fn contents(place: &Place, disk: &str) -> Result<Vec<u8>> {
    place.ok(&format!("disk export {disk} {} --force", place.text("out.raw")))?;
    Ok(fs::read(place.path("out.raw"))?)
}

fn names(list: &serde_json::Value) -> Vec<String> {
    let all = list.as_array().into_iter().flatten();
    all.filter_map(|point| point["name"].as_str().map(str::to_owned)).collect()
}

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
        let deadline = Deadline::after(SENT_MAX);
        while !store.has("archive/objects/segment/") {
            ensure!(!deadline.passed(), "nothing is sent: {}", place.last_words());
            std::thread::sleep(Duration::from_millis(20));
        }
        server.kill();

        let server = place.start(&[])?;
        wait_until_archived(place, 1)?;
        let metric = "stonefold_archive_behind_points{policy=\"often\",source=\"web\"}";
        let deadline = Deadline::after(SENT_MAX);
        // A point of the next minute may have come meanwhile.
        while place.metric(metric)? != 0 {
            ensure!(!deadline.passed(), "{metric}");
            std::thread::sleep(LOOK_EVERY);
        }
        let mut connection = place.connect("web")?;
        connection.write(5 << 20, &second)?;
        connection.flush()?;
        drop(connection);
        wait_until_archived(place, names(&place.json("point ls web")?).len() + 1)?;
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
            .fails(&format!("policy create often --every 1m --archive {url} --archive-keep daily"), 1)?;
        ensure!(refused.contains("which points stay"), "{refused}");
        ensure!(place.json("policy ls")?.as_array().is_some_and(Vec::is_empty), "a policy is left");
        place.ok(&format!("policy create often --every 1m --archive {url} --archive-keep last=2"))?;
        place.ok("policy apply often web")?;
        let deadline = Deadline::after(SENT_MAX);
        loop {
            let policy = place.json("policy show often")?;
            if let Some(failed) = policy["replicas"][0]["failed"].as_str() {
                ensure!(failed.contains("If-Match") && failed.contains("cannot hold a pool"), "{failed}");
                break;
            }
            ensure!(!deadline.passed(), "nobody has tried: {policy}");
            std::thread::sleep(LOOK_EVERY);
        }
        server.stop()
    });
}
