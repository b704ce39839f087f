//! Commands that ask for what is not there or cannot be.

use super::says;
use anyhow::{Context, ensure};
use std::fs;
use std::time::Duration;
use stonefold_dice::noise;
use stonefold_e2e::gateway::in_a_place;
use stonefold_guest::time::Deadline;

#[test]
fn what_is_not_there_or_cannot_be_is_refused_by_name() {
    in_a_place(|place| {
        let gateway = place.start(&[])?;
        place.ok("disk create web --size 64M")?;
        place.ok("snapshot create web --name monday")?;
        let before = (place.json("disk ls")?, place.json("snapshot ls")?);
        fs::write(place.path("text.img"), noise(1, 100_000))?;
        fs::write(place.path("torn.qcow2"), b"QFI\xfb\0\0\0\x03 and then nothing")?;
        let (text, torn) = (place.text("text.img"), place.text("torn.qcow2"));
        for (line, status, words) in [
            ("disk show wbe".to_owned(), 1, &["wbe", "does not exist"][..]),
            ("disk resize none 1G".into(), 1, &["none"]),
            ("disk rm none".into(), 1, &["none"]),
            ("disk create web --size 1G".into(), 1, &["web", "exists already"]),
            ("snapshot create web --name monday".into(), 1, &["web@monday", "exists already"]),
            ("snapshot rm web@tuesday".into(), 1, &["web@tuesday"]),
            ("snapshot rm none@monday".into(), 1, &["none"]),
            ("clone web@tuesday new".into(), 1, &["web@tuesday"]),
            ("clone web@monday web".into(), 1, &["web", "exists already"]),
            ("disk rm web".into(), 1, &["web", "snapshot"]),
            ("disk create new --size 0".into(), 1, &["size"]),
            ("disk create new --size 4097".into(), 1, &["4K"]),
            ("disk create new --size 1000T".into(), 1, &["16T"]),
            ("disk resize web 1M".into(), 1, &["--shrink"]),
            (format!("disk import new {text}"), 1, &["text.img", "image"]),
            (format!("disk import new {torn}"), 1, &["torn.qcow2"]),
            ("disk import new /nowhere/x.img".into(), 1, &["/nowhere/x.img"]),
            (format!("disk export none {}", place.text("out.img")), 1, &["none"]),
            ("disk export web /nowhere/out.img".into(), 1, &["/nowhere"]),
        ] {
            let error = place.fails(&line, status).context(line.clone())?;
            says(&error, words).context(line)?;
        }
        for line in [
            "disk create new",
            "disk create new --size 12x",
            "disk create a/b --size 1G",
            "clone web new",
            "nonsense",
        ] {
            let error = place.fails(line, 2).context(line)?;
            ensure!(error.contains("error:"), "{line}: {error}");
        }
        let refused = place.connect("none").err().context("an unknown export was opened")?;
        ensure!(format!("{refused:#}").contains("none"), "{refused:#}");
        ensure!(before == (place.json("disk ls")?, place.json("snapshot ls")?), "something has changed");
        gateway.stop()
    });
}

/// *Past bug*: `disk rm a nope b` removed a, and told only of nope.
#[test]
fn of_several_none_is_removed_when_one_cannot_be() {
    in_a_place(|place| {
        let gateway = place.start(&[])?;
        for disk in ["a", "b", "c"] {
            place.ok(&format!("disk create {disk} --size 8M"))?;
            place.ok(&format!("snapshot create {disk} --name s"))?;
        }
        let used = place.connect("c")?;
        let before = (place.json("disk ls")?, place.json("snapshot ls")?);
        for (line, word) in [
            ("disk rm a nope b --snapshots", "nope"),
            ("disk rm a b", "--snapshots"),
            ("disk rm a c --snapshots", "in use by 1 client"),
            ("snapshot rm a@s a@nope", "a@nope"),
        ] {
            says(&place.fails(line, 1)?, &[word]).context(line)?;
            ensure!(
                before == (place.json("disk ls")?, place.json("snapshot ls")?),
                "{line} removed something"
            );
        }
        drop(used);
        // Named twice, the second cannot be: what is gone is told all the same.
        let done = place.run("snapshot rm a@s a@s --json")?;
        ensure!(done.status.code() == Some(1) && done.stderr.contains("a@s"), "{}", done.stderr);
        let told: serde_json::Value = serde_json::from_str(&done.stdout)?;
        ensure!(told["removed"] == serde_json::json!(["a@s"]), "{told}");
        let told = place.json("disk rm a b --snapshots")?;
        ensure!(told["removed"] == serde_json::json!(["a", "b"]), "{told}");
        gateway.stop()
    });
}

/// Who is told that a disk is in use is told by whom.
#[test]
fn a_disk_in_use_says_by_whom() {
    in_a_place(|place| {
        let gateway = place.start(&[])?;
        place.ok("disk create web --size 8M")?;
        place.ok("snapshot create web --name s")?;
        let me = format!("process {} (", std::process::id());
        let writer = place.connect("web")?;
        let reader = place.connect("web@s")?;
        for line in ["disk rm web --snapshots", "rollback web@s"] {
            says(&place.fails(line, 1)?, &["web", "in use by", &me])?;
        }
        says(&place.fails("snapshot rm web@s", 1)?, &["snapshot 'web@s' is in use by 1 client", &me])?;
        let shown = place.json("disk show web")?;
        let connections = shown["connections"].as_array().context("they are listed")?;
        let exports: Vec<_> = connections.iter().filter_map(|one| one["export"].as_str()).collect();
        ensure!(shown["clients"] == 1 && exports == ["web", "web@s"], "{shown}");
        ensure!(
            connections.iter().all(|one| one["peer"].as_str().is_some_and(|peer| peer.starts_with(&me))),
            "{shown}"
        );
        ensure!(
            connections.iter().all(|one| one["since"].as_str().is_some_and(|since| since.starts_with("20"))),
            "{shown}"
        );
        ensure!(place.ok("disk show web")?.contains(&me));
        drop((writer, reader));
        let deadline = Deadline::after(Duration::from_secs(10));
        while place.json("disk show web")?["connections"].as_array().is_some_and(|all| !all.is_empty()) {
            ensure!(!deadline.passed(), "whoever has left is listed still");
            std::thread::sleep(Duration::from_millis(20));
        }
        place.ok("disk rm web --snapshots")?;
        gateway.stop()
    });
}
