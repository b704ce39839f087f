//! Machines, points and recoveries by a real server that is killed in their midst.
//!
//! *Promise*: whatever the server is killed in, a backup ends in a point that is whole or in none, a recovery and a discard are whole or have
//! not been, nothing is left over, and each point gives back what its machine held then. *Method*: the command line against `stonefold
//! serve` on files; SIGKILL at a moment that dice choose, from before the first step to after the last.

use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use stonefold_dice::Dice;
use stonefold_e2e::binary::stonefold;
use stonefold_e2e::gateway::{Gateway, Place, in_a_place};
use stonefold_e2e::runs::until_made_again;
use stonefold_e2e::tools::{Beside, run};

const ROUNDS: u8 = 30;
/// On a machine at rest twice what a command takes on files, its own start with it; on a busy one about as long.
const MOMENT_MAX_US: u64 = 32_000;
const BLOCK: usize = 4096;
const COPY_ROUNDS: u8 = 15;
/// What a copy of the image takes on a machine at rest, with a program that serves it and starts first.
const COPY_MOMENT_MAX_US: u64 = 250_000;
const MADE_AGAIN_MAX: Duration = Duration::from_secs(60);
const IMAGE_BYTES: usize = 8 << 20;
const DISCARD: &str = "recover stop again --discard";

#[test]
fn a_server_that_is_killed_leaves_whole_points_and_nothing_besides() {
    in_a_place(|place| {
        let mut dice = Dice::new(20_261_124);
        let mut server = place.start(&[])?;
        for disk in ["root", "data"] {
            place.ok(&format!("disk create {disk} --size 64M"))?;
        }
        place.ok("machine add web --disk root,data")?;
        place.ok("source add nightly --machine web")?;
        let mut told = 0;
        for round in 1..=ROUNDS {
            write(place, round)?;
            let (done, again) = cut(place, server, "backup run nightly", &mut dice)?;
            server = again;
            told += usize::from(done);
            let points = sound(place)?;
            ensure!(points.len() >= told, "{told} points were told of, and {} are there", points.len());
            let Some((point, _)) = points.last() else { continue };
            for line in [format!("recover {point} --as again"), DISCARD.to_owned()] {
                server = cut(place, server, &line, &mut dice)?.1;
                // First, because it waits until what was cut off is ended.
                let wanted = if list(place, "recover ls")?.is_empty() { 2 } else { 4 };
                let disks = list(place, "disk ls")?.len();
                ensure!(disks == wanted, "{disks} disks, not {wanted}, after '{line}' was cut off");
            }
            if !list(place, "recover ls")?.is_empty() {
                place.ok(DISCARD)?;
            }
        }
        let points = sound(place)?;
        for (point, generation) in &points {
            place.ok(&format!("recover {point} --as again"))?;
            ensure!(generation_of(place, "again.vda")? == *generation, "{point}");
            ensure!(generation_of(place, "again.vdb")? == *generation, "{point}");
            place.ok(DISCARD)?;
        }
        println!("{} points after {ROUNDS} kills, of which {told} were told of", points.len());
        let checked = place.json("pool check")?;
        ensure!(checked["problems"] == serde_json::json!([]), "{checked}");
        server.stop()
    });
}

/// *Promise*: the same of a backup that copies: each point is one generation of its image, whole; a run that was cut off has failed, and is made
/// again by the next server.
#[test]
fn a_server_that_is_killed_while_it_copies_leaves_whole_points() {
    in_a_place(|place| {
        let mut dice = Dice::new(20_261_125);
        let mut server = place.start(&[])?;
        let image = place.path("image");
        let generation = |round: u8| std::fs::write(&image, vec![round; IMAGE_BYTES]);
        generation(1)?;
        place.ok(&format!("source add golden --image {} --format raw", image.display()))?;
        let mut told = 0;
        for round in 1..=COPY_ROUNDS {
            generation(round)?;
            let (done, again) =
                cut_within(COPY_MOMENT_MAX_US, place, server, "backup run golden", &mut dice)?;
            server = again;
            until_made_again(place, "golden", MADE_AGAIN_MAX)?;
            told += usize::from(done);
            let points = list(place, "point ls")?;
            ensure!(points.len() >= told, "{told} points were told of, and {} are there", points.len());
            let mut runs = list(place, "backup ls")?.into_iter();
            let is_told = |run: &Value| {
                run["note"].as_str().is_some_and(|note| note.contains("the next one makes it again"))
            };
            ensure!(
                runs.all(|run| run["state"] == "done" || run["state"] == "failed" && is_told(&run)),
                "a run is under way, or failed for itself"
            );
            ensure!(list(place, "snapshot ls")?.len() == points.len(), "leftovers");
            for point in points {
                ensure!(point["state"] == "whole", "{point}");
                let export = point["disks"][0]["snapshot"].as_str().context("a snapshot")?;
                let held = place.connect(export)?.read(0, IMAGE_BYTES)?;
                ensure!(
                    held[0] > 0 && held.iter().all(|byte| *byte == held[0]),
                    "{point} has two generations"
                );
            }
        }
        generation(COPY_ROUNDS + 1)?;
        place.ok("backup run golden")?;
        let points = list(place, "point ls")?;
        let newest = points.last().and_then(|point| point["disks"][0]["snapshot"].as_str()).context("one")?;
        ensure!(place.connect(newest)?.read(0, 1)? == [COPY_ROUNDS + 1], "the newest is another generation");
        println!("{} points after {COPY_ROUNDS} kills, of which {told} were told of", points.len());
        let checked = place.json("pool check")?;
        ensure!(checked["problems"] == serde_json::json!([]), "{checked}");
        server.stop()
    });
}

/// *Promise*: of an export whose server offers a dirty bitmap only what that has marked is read, and points are what the export held all the same; a bitmap
/// that was cleared meanwhile is not believed.
#[test]
fn a_server_s_bitmap_says_what_is_read() {
    in_a_place(|place| {
        let (image, socket) = (place.text("image.qcow2"), place.text("image.sock"));
        run("qemu-img", &["create", "-q", "-f", "qcow2", &image, "64M"])?;
        let put = |what: &str| run("qemu-io", &["-f", "qcow2", "-c", what, &image]);
        put("write -P 1 0 16M")?;
        run("qemu-img", &["bitmap", "--add", &image, "b0"])?;
        let exported = |words: &str| {
            let words: Vec<&str> = words.split(' ').chain(["--socket", &socket, &image]).collect();
            Beside::start("qemu-nbd", &words, || std::path::Path::new(&socket).exists())
        };
        let of_b0 = "--persistent --read-only --format qcow2 --bitmap b0";
        let server = place.start(&[])?;
        place.ok(&format!("source add db --nbd nbd+unix:///?socket={socket} --bitmap b0"))?;
        let back_up = || -> Result<(Value, String)> {
            let export = exported(of_b0)?;
            let done = place.json("backup run db");
            drop(export);
            std::fs::remove_file(&socket).ok();
            let done = done?;
            let point = done["name"].as_str().context("a run has a name")?.to_owned();
            let stamp = point.split_once('@').context("a point has a time")?.1;
            let held = place.connect(&format!("db.vda@{stamp}"))?.read_all(0, 64 << 20)?;
            let raw = place.text("compared");
            run("qemu-img", &["convert", "-f", "qcow2", "-O", "raw", &image, &raw])?;
            ensure!(std::fs::read(&raw)? == held, "{point} is not what the image held");
            Ok((done["copied"].clone(), point))
        };
        let read = |copied: &Value| copied["read_bytes"].as_u64();
        let (first, _) = back_up()?;
        ensure!(read(&first) == Some(16 << 20), "{first}");
        put("write -P 2 1M 128k")?;
        let (second, _) = back_up()?;
        // What is marked, and what is looked at all the same.
        ensure!(read(&second) <= Some((128 << 10) + ((64 * 64) << 10)), "{second}");
        ensure!(
            second["written_bytes"] == 128 << 10 && second["notes"].as_array().is_none_or(Vec::is_empty),
            "{second}"
        );
        // Somebody clears it, and so what was written before it is not told.
        put("write -P 3 0 12M")?;
        run("qemu-img", &["bitmap", "--clear", &image, "b0"])?;
        let (third, _) = back_up()?;
        ensure!(third["notes"].to_string().contains("had not marked all"), "{third}");
        ensure!(third["written_bytes"] == 12 << 20, "{third}");
        // It is lost, and another is there: everything is compared, and that is said; whoever has all read asks for none.
        put("write -P 4 20M 1M")?;
        run("qemu-img", &["bitmap", "--remove", &image, "b0"])?;
        run("qemu-img", &["bitmap", "--add", &image, "b1"])?;
        // By a server that goes when its first client does, as qemu-nbd is unless it is told otherwise.
        let of_b1 = "--read-only --format qcow2 --bitmap b1";
        let export = exported(of_b1)?;
        let lost = place.json("backup run db")?;
        let notes = lost["copied"]["notes"].to_string();
        ensure!(notes.contains("qemu:dirty-bitmap:b0") && notes.contains("all of disk"), "{lost}");
        ensure!(lost["copied"]["written_bytes"] == 1 << 20, "{lost}");
        export.ended()?;
        std::fs::remove_file(&socket).ok();
        let export = exported(of_b1)?;
        let full = place.json("backup run db --full")?;
        ensure!(full["copied"]["notes"].as_array().is_none_or(Vec::is_empty), "{full}");
        export.ended()?;
        server.stop()
    });
}

/// Runs a command, kills the server while it runs, and starts another. Whether the command told of its end before.
fn cut(place: &Place, server: Gateway, line: &str, dice: &mut Dice) -> Result<(bool, Gateway)> {
    cut_within(MOMENT_MAX_US, place, server, line, dice)
}

fn cut_within(
    moment_max_us: u64,
    place: &Place,
    server: Gateway,
    line: &str,
    dice: &mut Dice,
) -> Result<(bool, Gateway)> {
    let mut command = Command::new(stonefold()?);
    command.args(line.split_whitespace()).env("STONEFOLD_API", place.api());
    let mut command = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    sleep(Duration::from_micros(dice.number() % moment_max_us));
    server.kill();
    let done = command.wait()?.success();
    Ok((done, place.start(&[])?))
}

fn list(place: &Place, line: &str) -> Result<Vec<Value>> {
    place.json(line)?.as_array().cloned().with_context(|| format!("'{line}' lists"))
}

/// Both disks of the machine get a generation, durably.
fn write(place: &Place, generation: u8) -> Result<()> {
    for disk in ["root", "data"] {
        let mut client = place.connect(disk)?;
        client.write(0, &[generation; BLOCK])?;
        client.flush()?;
    }
    Ok(())
}

fn generation_of(place: &Place, export: &str) -> Result<u8> {
    let block = place.connect(export)?.read(0, BLOCK)?;
    ensure!(block.iter().all(|byte| *byte == block[0]), "'{export}' has two generations in one block");
    Ok(block[0])
}

/// All points with the generation that they hold: each whole, no run under way, and no snapshot that no point has.
fn sound(place: &Place) -> Result<Vec<(String, u8)>> {
    let points = list(place, "point ls")?;
    let runs = list(place, "backup ls")?;
    ensure!(runs.iter().all(|run| run["state"] != "running"), "{runs:?}");
    let done = runs.iter().filter(|run| run["state"] == "done").count();
    ensure!(done == points.len(), "{done} runs are done, and there are {} points", points.len());
    let snapshots = list(place, "snapshot ls")?;
    ensure!(snapshots.len() == 2 * points.len(), "leftovers: {snapshots:?}");
    let mut sound = Vec::new();
    for point in points {
        ensure!(point["state"] == "whole", "{point}");
        let export =
            |disk: usize| point["disks"][disk]["snapshot"].as_str().map(str::to_owned).context("a snapshot");
        let (root, data) = (generation_of(place, &export(0)?)?, generation_of(place, &export(1)?)?);
        ensure!(root == data, "{point} has generation {root} of one disk and {data} of the other");
        sound.push((point["name"].as_str().context("a name")?.to_owned(), root));
    }
    Ok(sound)
}
