//! Disks that were made for clients of this machine, behind a door that others reach.

use anyhow::{Context, Result, ensure};
use stonefold_e2e::gateway::{Place, in_a_place};

/// The lines of the log that warn of acknowledged writes, of the servers that were started since `before` bytes of it.
fn warnings(place: &Place, before: usize) -> Result<Vec<String>> {
    let log = place.log();
    let since = log.get(before..).context("a log only grows")?;
    Ok(since
        .lines()
        .filter(|line| line.contains("acknowledged before they are durable"))
        .map(str::to_owned)
        .collect())
}

/// *Goal*: who opens a server to the network is told once, at each start, which disks may lose what a client of another machine believes to
/// be kept, until they are changed or it is said that it is meant so.
#[test]
fn disks_made_on_loopback_are_named_when_the_server_listens_on_the_network() {
    in_a_place(|place| {
        let gateway = place.start(&[])?;
        place.ok("disk create web --size 8M")?;
        place.ok("disk create db --size 8M")?;
        place.ok("disk create safe --size 8M --durability ack")?;
        gateway.stop()?;
        ensure!(warnings(place, 0)?.is_empty(), "nobody else reaches it: {}", place.log());

        let open = ["--nbd", "tcp://0.0.0.0:0"];
        let before = place.log().len();
        let gateway = place.start(&open)?;
        let told = warnings(place, before)?;
        let one = told.first().context("it is told")?;
        let words = ["WARN", "'db', 'web'.", "stonefold disk set NAME --durability ack", "tcp://0.0.0.0"];
        ensure!(told.len() == 1 && words.iter().all(|word| one.contains(word)), "{told:?}");
        ensure!(!one.contains("safe"), "{one}");
        // What it says is what helps; and a disk that is made now has it from the beginning.
        place.ok("disk set web --durability ack")?;
        place.ok("disk create new --size 8M")?;
        gateway.stop()?;
        let before = place.log().len();
        let gateway = place.start(&open)?;
        let told = warnings(place, before)?;
        ensure!(told.len() == 1 && told[0].contains("on: 'db'."), "{told:?}");
        gateway.stop()?;

        let before = place.log().len();
        let gateway = place.start(&[&open[..], &["--durability", "flush"]].concat())?;
        ensure!(warnings(place, before)?.is_empty(), "it was said to be meant so: {}", place.log());
        gateway.stop()
    });
}
