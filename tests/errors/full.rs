//! A place without room, whether the pool filled it or others did.

use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::time::Duration;
use stonefold_dice::noise;
use stonefold_e2e::gateway::{Place, in_a_place};
use stonefold_e2e::mounts::{Loop, Mount};
use stonefold_e2e::nbd::{Connection, Refused, errno};
use stonefold_e2e::tools::run;
use stonefold_guest::time::Deadline;
use stonefold_nbd::wire::request::Command;
use stonefold_needs::{Need, there_is};

const ENOSPC: u32 = 28;
/// Bytes of one write.
const PIECE: u64 = 64 << 10;

/// A small file system of its own for the pool, with a ballast file to fill and free it.
struct Small {
    mount: Mount,
    _device: Loop,
}

impl Small {
    fn new(place: &Place) -> Result<Self> {
        let image = place.path("small.img");
        fs::File::create(&image)?.set_len(192 << 20)?;
        run("mkfs.ext4", &["-q", "-F", "-m", "0", &image.to_string_lossy()])?;
        let device = Loop::over(&image)?;
        let mount = Mount::of(&device.device, &place.path("small"), "noatime")?;
        run("fallocate", &["-l", "64M", &mount.folder.join("ballast").to_string_lossy()])?;
        Ok(Small { mount, _device: device })
    }
}

#[test]
fn a_full_place_refuses_writes_and_loses_nothing_and_goes_on_with_room() {
    if !there_is(Need::Loop, "a pool on a small file system that is filled") {
        return;
    }
    in_a_place(|place| {
        let small = Small::new(place)?;
        let outer = place;
        let place = &Place::new()?.with_pool(&small.mount.folder.join("pool"));
        let journal = ["--journal", "16M", "--cache", "16M"];
        let gateway = place.start(&journal).map_err(|e| outer.explain(e))?;
        place.ok("disk create web --size 1G")?;

        let mut written = 0;
        let mut connection = place.connect("web")?;
        let refused = fill(&mut connection, &mut written)?;
        println!("after {written} blocks of 64K: {refused}");
        ensure!(refused.errno == ENOSPC, "{refused}");
        // What the file system takes of it for itself differs from version to version.
        ensure!(written > 150, "{written} blocks of 64K fit into 128 MiB");
        holds(&mut connection, written).context("reads go on while it is full")?;
        let image = outer.text("late.raw");
        fs::write(&image, noise(1 << 40, 8 << 20))?;
        let said = place.fails(&format!("disk import late {image}"), 1)?;
        ensure!(
            said.contains("late") && said.to_lowercase().contains("no space"),
            "a command is told otherwise: {said}"
        );
        ensure!(said.contains("what to do: "), "a command is not told what to do: {said}");
        ensure!(!place.ok("disk ls")?.contains("late"), "an import that failed leaves a disk");

        gateway.kill();
        let gateway = place.start(&journal).context("starting on a full place")?;
        let mut connection = place.connect("web")?;
        holds(&mut connection, written).context("after a kill on a full place")?;

        fs::remove_file(small.mount.folder.join("ballast"))?;
        go_on(place, &mut written)?;
        let mut connection = place.connect("web")?;
        holds(&mut connection, written).context("with room again")?;
        gateway.stop()?;
        let gateway = place.start(&journal)?;
        holds(&mut place.connect("web")?, written).context("after a restart")?;
        gateway.stop()
    });
}

/// Goal: what an operator is told to do on a full pool makes room: a trim by the guest, a snapshot and a disk removed, `pool reclaim`.
#[test]
fn what_is_removed_from_a_full_place_makes_room() {
    if !there_is(Need::Loop, "a pool on a small file system that is filled") {
        return;
    }
    in_a_place(|outer| {
        let small = Small::new(outer)?;
        fs::remove_file(small.mount.folder.join("ballast"))?;
        let place = &Place::new()?.with_pool(&small.mount.folder.join("pool"));
        let gateway = place.start(&["--journal", "16M", "--cache", "16M"]).map_err(|e| outer.explain(e))?;
        let mut written = 0;
        for disk in ["web", "old"] {
            place.ok(&format!("disk create {disk} --size 1G"))?;
        }
        {
            let mut old = place.connect("old")?;
            for piece in 0..768 {
                old.write(piece * PIECE, &noise(1 << 20 | piece, PIECE as usize))?;
            }
        }
        place.ok("snapshot create old --name monday")?;
        let refused = fill(&mut place.connect("web")?, &mut written)?;
        ensure!(refused.errno == ENOSPC, "{refused}");

        // The guest deletes half of what it has; the snapshot is of the other disk, so that it holds none of it.
        let mut connection = place.connect("web")?;
        let half = written / 2;
        for piece in half..written {
            connection
                .request(Command::Trim, 0, piece * PIECE, PIECE, &[])
                .context("a trim on a full place")?;
        }
        connection.flush().context("a trim is durable on a full place")?;
        written = half;
        place.ok("pool reclaim")?;
        go_on(place, &mut written).context("after a trim and a reclaim")?;

        let refused = fill(&mut place.connect("web")?, &mut written)?;
        ensure!(refused.errno == ENOSPC, "{refused}");
        place.ok("snapshot rm old@monday").context("on a full place")?;
        place.ok("disk rm old").context("on a full place")?;
        place.ok("pool reclaim").context("on a full place")?;
        go_on(place, &mut written).context("after a disk was removed")?;
        holds(&mut place.connect("web")?, written)?;
        gateway.stop()
    });
}

/// *Method*: another program takes the last byte of the file system while the server writes, so that what the server
/// has reserved is not there.
#[test]
fn a_place_that_others_fill_loses_nothing() {
    if !there_is(Need::Loop, "a pool on a small file system that others fill") {
        return;
    }
    in_a_place(|outer| {
        let small = Small::new(outer)?;
        let place = &Place::new()?.with_pool(&small.mount.folder.join("pool"));
        let journal = ["--journal", "16M", "--cache", "16M"];
        let mut gateway = place.start(&journal)?;
        place.ok("disk create web --size 1G")?;
        let mut connection = place.connect("web")?;
        let mut written = 0;
        while written < 64 {
            connection.write(written * PIECE, &noise(written, PIECE as usize))?;
            written += 1;
        }
        let ballast = small.mount.folder.join("more");
        let mut file = fs::File::create(&ballast)?;
        while std::io::Write::write_all(&mut file, &[1; 1 << 16]).is_ok() {}
        drop(file);
        let refused = fill(&mut connection, &mut written)?;
        println!("after {written} blocks of 64K: {refused}");
        ensure!(refused.errno == ENOSPC, "{refused}");
        holds(&mut connection, written).context("reads go on while it is full")?;
        drop(connection);
        ensure!(gateway.is_running(), "the server has ended\n{}", place.last_words());
        gateway.kill();

        fs::remove_file(ballast)?;
        fs::remove_file(small.mount.folder.join("ballast"))?;
        let gateway = place.start(&journal)?;
        holds(&mut place.connect("web")?, written).context("after a kill, with room again")?;
        go_on(place, &mut written)?;
        holds(&mut place.connect("web")?, written).context("with room again")?;
        gateway.stop()
    });
}

/// Writes pieces until one is refused.
fn fill(connection: &mut Connection, written: &mut u64) -> Result<Refused> {
    for piece in *written..(1 << 30) / PIECE {
        match connection.write(piece * PIECE, &noise(piece, PIECE as usize)) {
            Ok(()) => *written = piece + 1,
            Err(error) => return error.downcast::<Refused>(),
        }
        if piece % 64 == 63 {
            match connection.flush() {
                Ok(()) => {}
                Err(error) => return error.downcast::<Refused>(),
            }
        }
    }
    bail!("a gigabyte fits into a file system of 192 MiB")
}

fn holds(connection: &mut Connection, written: u64) -> Result<()> {
    for piece in 0..written {
        let bytes = connection.read(piece * PIECE, PIECE as usize)?;
        ensure!(
            bytes == noise(piece, PIECE as usize),
            "piece {piece} of {written} is not what was acknowledged"
        );
    }
    Ok(())
}

/// Writes again now that there is room: at once, or within the time that the fold takes to try again.
fn go_on(place: &Place, written: &mut u64) -> Result<()> {
    let deadline = Deadline::after(Duration::from_secs(20));
    let goal = *written + 64;
    while *written < goal {
        let mut connection = place.connect("web")?;
        let done = connection
            .write(*written * PIECE, &noise(*written, PIECE as usize))
            .and_then(|()| connection.flush());
        match done {
            Ok(()) => *written += 1,
            Err(error) if errno(&error) == Some(ENOSPC) && !deadline.passed() => {
                std::thread::sleep(Duration::from_millis(200));
            }
            Err(error) => return Err(place.explain(error.context("writing with room again"))),
        }
    }
    Ok(())
}
