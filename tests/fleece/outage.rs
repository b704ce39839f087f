//! A server that dies or hangs in the midst of a backup, and the guest that goes on.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::ensure;
use stonefold_e2e::gateway::in_a_place;
use stonefold_e2e::runs::until_made_again;
use stonefold_e2e::tools::run;
use stonefold_guest::time::Deadline;

use super::guest::Guest;
use super::{BLOCK, MIB, PATIENCE, is_as_the_images, nothing_is_left, reads_ahead, server};

/// Goal: a guest whose backup dies with its server writes on without an error, loses nothing, and is backed up again; nothing of the dead one stays.
#[test]
fn a_guest_outlives_the_server_that_backs_it_up() {
    in_a_place(|place| {
        Guest::make_images(place)?;
        let (guest, mut monitor) = Guest::start(place)?;
        let mut running = server(place)?;
        monitor.write("root", 0, 48 * MIB, 3)?;
        monitor.write("data", 0, 48 * MIB, 3)?;
        place.json("backup run mail")?;
        for (round, is_cut) in [(0, false), (1, true), (2, false), (3, true)] {
            // In the midst: it is read ahead, or its filters are there.
            for drive in ["root", "data"] {
                monitor.write(drive, 0, 48 * MIB, 10 + round)?;
            }
            let mut backup = Command::new(stonefold_e2e::binary::stonefold()?);
            backup
                .args(["--api", &place.api(), "backup", "run", "mail"])
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            let mut backup = backup.spawn()?;
            let patience = Deadline::after(PATIENCE);
            while !monitor.has_marks("ahead-0")?
                || is_cut && !monitor.ours()?.iter().any(|node| node.contains("cbw"))
            {
                ensure!(!patience.passed(), "no backup came to it");
            }
            sleep(Duration::from_millis(u64::from(round) * 40));
            running.kill();
            let _ = backup.wait()?;
            let patience = Deadline::after(Duration::from_secs(20));
            for at in 0..20 {
                monitor.write("root", at * MIB, BLOCK, 100 + round)?;
            }
            ensure!(!patience.passed(), "the guest waited for its backup");
            // A write that failed is told to nobody but QEMU's own output: what is in the image counts.
            for at in 0..20 {
                let mut held = [0; BLOCK as usize];
                File::open(place.path("a.raw"))?.read_exact_at(&mut held, at * MIB)?;
                ensure!(
                    held == [100 + round; BLOCK as usize],
                    "round {round}: the guest's write at {at}M failed"
                );
            }
            ensure!(monitor.is_running()?, "the guest stands still");
            running = place.start(&[])?;
            until_made_again(place, "mail", PATIENCE)?;
            let patience = Deadline::after(PATIENCE);
            while !monitor.ours()?.is_empty()
                || monitor.has_exports()?
                || place.json("disk ls")?.as_array().is_none_or(|disks| disks.len() > 2)
            {
                ensure!(!patience.passed(), "round {round}: {:?} is left", monitor.ours()?);
                sleep(Duration::from_millis(50));
            }
            let run = place.json("backup run mail")?;
            is_as_the_images(place, &mut monitor, &run)?;
            nothing_is_left(place, &mut monitor)?;
        }
        // A guest that has gone takes its part with it.
        guest.quit(monitor)?;
        let said = place.fails("backup run mail", 1)?;
        ensure!(said.contains("QEMU at") && said.contains("qmp.sock"), "{said}");
        running.stop()
    });
}

/// Goal: a server that hangs in the midst of a backup keeps a guest's write waiting for some seconds, once; that backup makes no point, and the next does.
#[test]
fn a_server_that_hangs_holds_a_guest_up_for_seconds() {
    in_a_place(|place| {
        Guest::make_images(place)?;
        let (_guest, mut monitor) = Guest::start(place)?;
        // What is left to the cut takes seconds to read: the server hangs before it has read what the guest then overwrites.
        let server = place.start(&["--machines", &place.text("machines"), "--copy-bandwidth", "30M"])?;
        place.ok(&format!("source add mail --qmp {}", place.text("qmp.sock")))?;
        for drive in ["root", "data"] {
            monitor.write(drive, 0, 56 * MIB, 3)?;
        }
        let mut backup = Command::new(stonefold_e2e::binary::stonefold()?);
        backup.args(["--api", &place.api(), "backup", "run", "mail"]);
        let mut backup = backup.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        reads_ahead(&mut monitor, "ahead-0")?;
        // So much that another pass ahead would gain nothing.
        for drive in ["root", "data"] {
            monitor.write(drive, 0, 56 * MIB, 4)?;
        }
        let patience = Deadline::after(PATIENCE);
        while !monitor.ours()?.iter().any(|node| node.contains("look-1")) {
            ensure!(!patience.passed(), "no cut was made");
        }
        run("kill", &["-STOP", &server.pid().to_string()])?;
        let (some, many) =
            (Deadline::after(Duration::from_secs(2)), Deadline::after(Duration::from_secs(15)));
        for at in 0..40 {
            monitor.write("root", at * MIB, BLOCK, 9)?;
        }
        let (was_held_up, was_for_long) = (some.passed(), many.passed());
        run("kill", &["-CONT", &server.pid().to_string()])?;
        ensure!(was_held_up, "a server that hangs for a moment ends the backup");
        ensure!(!was_for_long, "the guest waited for its backup");
        ensure!(!backup.wait()?.success(), "a point was made of a cut that was broken");
        let run = place.json("backup run mail")?;
        is_as_the_images(place, &mut monitor, &run)?;
        nothing_is_left(place, &mut monitor)?;
        server.stop()
    });
}
