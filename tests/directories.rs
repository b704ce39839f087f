//! Directories are added, drained and replaced under load, and the server is killed in the midst of it.
//!
//! *Promise*: a change of directories costs clients no error and nothing that was acknowledged, whenever the server dies in
//! it; it goes on by itself at the next start, whichever of the pool's directories the URL names; and a directory that
//! has left holds only what says so, so that no server makes a new pool there.
//! *Method*: clients write with many requests in flight, flush and verify, and stay when their server dies. Beside them lies a
//! disk that makes the moving last. Changes follow each other; in each the server gets SIGKILL, once or more, and at
//! the end of each everything is read and the pool is checked. *Past bug*: none yet.
//!
//! ```sh
//! STONEFOLD_DIRECTORY_ROUNDS=10 cargo test -p stonefold-e2e --test directories -- --nocapture
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use stonefold_dice::{Dice, mix};
use stonefold_e2e::gateway::{Gateway, Place, in_a_place};
use stonefold_e2e::keeper::Keeper;
use stonefold_e2e::load::{Client, World};
use stonefold_e2e::story::{Contents, Story};
use stonefold_guest::time::Deadline;

const DISK_BYTES: u64 = 24 << 20;
/// Clients' regions, in bytes: two of them share a block.
const REGIONS: [(&str, u64, u64); 3] =
    [("a", 0, (2 << 20) + 512), ("a", (2 << 20) + 512, 3 << 20), ("b", 4096, 4 << 20)];
/// What lies still and has to be moved: enough that a kill comes in the midst of it.
const BALLAST_BYTES: u64 = 96 << 20;
const PIECE_BYTES: u64 = 4 << 20;
/// For a change to end, with other tests beside; a drain waits for a round of the fold.
const CHANGE_MAX: Duration = Duration::from_secs(120);
const SETTLE_MAX: Duration = Duration::from_secs(60);
const ARGUMENTS: [&str; 4] = ["--cache", "8M", "--journal", "32M"];

/// One change: the command, and who belongs to the pool afterwards.
type Change = (&'static str, &'static [&'static str]);

/// From one directory to others and back.
const WITH_ONE_COPY: [Change; 5] = [
    ("add TWO", &["one", "two"]),
    ("drain ONE", &["two"]),
    ("add ONE", &["one", "two"]),
    ("replace TWO THREE", &["one", "three"]),
    ("drain THREE", &["one"]),
];
const WITH_TWO_COPIES: [Change; 4] = [
    ("add THREE", &["one", "two", "three"]),
    ("drain TWO", &["one", "three"]),
    ("replace THREE TWO", &["one", "two"]),
    ("replace TWO THREE", &["one", "three"]),
];

#[test]
fn directories_come_and_go_under_load_and_deaths() {
    changes("ONE", &WITH_ONE_COPY);
}

#[test]
fn directories_come_and_go_with_two_copies() {
    changes("ONE?also=TWO&copies=2", &WITH_TWO_COPIES);
}

/// What the commands say, to people and to scripts, when they wait and when they refuse.
#[test]
fn commands_wait_tell_and_refuse() {
    in_a_place(|place| {
        let gateway = place.start(&ARGUMENTS)?;
        place.ok("disk create a --size 64M")?;
        let mut connection = place.connect("a")?;
        for at in (0..32 << 20).step_by(PIECE_BYTES as usize) {
            for (nth, bytes) in ballast(at).chunks(1 << 20).enumerate() {
                connection.write(at + ((nth as u64) << 20), bytes)?;
                connection.flush()?;
                // Folds into a segment by itself. Each goes where chance has it: of 32, fewer than four to one side once in a million times.
                place.ok("pool check")?;
            }
        }
        let (pool, two, strange) =
            (place.pool().display().to_string(), place.text("two"), place.path("strange"));
        fs::create_dir(place.path("two"))?;
        fs::create_dir(&strange)?;
        fs::write(strange.join("thesis.txt"), "years of work")?;
        let said = place.ok(&format!("pool add {two}"))?;
        ensure!(said.contains(&format!("'{two}' is a directory of the pool")), "{said}");
        ensure!(said.contains(&format!("file://{pool}?also={two}")), "it tells the URL: {said}");
        let status = place.ok("pool status")?;
        ensure!(status.contains(&format!("{two}: ok, ")) && status.contains(" on "), "{status}");
        let status = place.json("pool status")?;
        ensure!(status["url"] == format!("file://{pool}?also={two}"), "{status}");
        for dir in status["directories"].as_array().context("directories are listed")? {
            ensure!(dir["used_bytes"].as_u64() > Some(4 << 20), "each has its part: {status}");
        }
        let refused = [
            (format!("pool add {}", strange.display()), "thesis.txt"),
            (format!("pool add {two}"), "is a directory of the pool already"),
            (format!("pool add {two}/inside"), "does not exist"),
            (format!("pool drain {}", strange.display()), "is no directory of the pool"),
            (format!("pool drain {two} --cancel"), "is not being drained"),
            ("pool cancel".to_owned(), "no directory of the pool is being added"),
        ];
        for (line, says) in refused {
            let complaint = place.fails(&line, 1)?;
            ensure!(complaint.contains(says) || complaint.contains("No such file"), "{line}: {complaint}");
        }
        place.ok(&format!("pool drain {pool} --no-wait"))?;
        let busy = place.fails(&format!("pool replace {two} {}", strange.display()), 1)?;
        ensure!(busy.contains("is being drained") || busy.contains("not"), "{busy}");
        let deadline = Deadline::after(CHANGE_MAX);
        while place.json("pool status")?["directories"].as_array().map(Vec::len) != Some(1) {
            ensure!(!deadline.passed(), "the drain does not end: {}", place.ok("pool status")?);
            std::thread::sleep(Duration::from_millis(100));
        }
        ensure!(things_in(place.pool())? == ["left"], "nothing of the pool is in the directory it began in");
        for at in (0..32 << 20).step_by(PIECE_BYTES as usize) {
            ensure!(connection.read_all(at, PIECE_BYTES)? == ballast(at), "what was written at {at} is read");
        }
        let back = place.json(&format!("pool add {pool}"))?;
        ensure!(back["directories"].as_array().map(Vec::len) == Some(2), "{back}");
        let metrics = place.ok("pool check")?;
        ensure!(metrics.contains("nothing"), "{metrics}");
        drop(connection);
        gateway.stop()
    });
}

/// A server whose URL names only directories that have left: it does not start, makes nothing, and says where the pool is. Named
/// beside one that belongs they are left out; and added again they belong.
#[test]
fn an_old_url_is_refused_and_says_where_the_pool_is() {
    let place = Place::new().expect("a folder for the test");
    if let Err(error) = moved_away_and_back(place) {
        panic!("{error:#}");
    }
}

fn moved_away_and_back(place: Place) -> Result<()> {
    let (old, two) = (place.pool().display().to_string(), place.text("two"));
    let gateway = place.start(&ARGUMENTS)?;
    place.ok("disk create precious --size 64M")?;
    fs::create_dir(&two)?;
    place.ok(&format!("pool replace {old} {two}"))?;
    gateway.stop()?;
    let moved = format!("file://{two}");
    let (complaint, status) = place.refused(&ARGUMENTS)?;
    ensure!(status == 1, "{complaint}");
    for complaint in [complaint, place.fails(&format!("pool status --pool file://{old}"), 1)?] {
        for part in [format!("'{old}' has left its pool"), moved.clone(), format!("remove '{old}/left'")] {
            ensure!(complaint.contains(&part), "'{part}' is not in: {complaint}");
        }
    }
    ensure!(things_in(place.pool())? == ["left"], "nothing was made there");
    let status = place.json(&format!("pool status --pool file://{old}?also={two}"))?;
    ensure!(status["disks"] == 1 && status["url"] == moved, "{status}");
    let place = place.with_pool(&PathBuf::from(&two));
    let gateway = place.start(&ARGUMENTS)?;
    place.ok(&format!("pool replace {two} {old}"))?;
    ensure!(!Path::new(&old).join("left").exists(), "it belongs again");
    ensure!(things_in(place.pool())? == ["left"], "and the other does not");
    gateway.stop()?;
    let status = place.json(&format!("pool status --pool file://{old}"))?;
    ensure!(status["disks"] == 1, "{status}");
    fs::remove_file(place.pool().join("left"))?;
    let gateway = place.start(&ARGUMENTS)?;
    ensure!(place.json("pool status")?["disks"] == 0, "a new pool was asked for, and made");
    gateway.stop()
}

fn things_in(dir: &Path) -> Result<Vec<String>> {
    fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

fn changes(url: &str, changes: &[Change]) {
    let rounds = std::env::var("STONEFOLD_DIRECTORY_ROUNDS").ok();
    let rounds = rounds.map_or(1, |text| text.parse().expect("STONEFOLD_DIRECTORY_ROUNDS is a number"));
    let seed = Dice::seed("STONEFOLD_DIRECTORY_SEED");
    println!("seed {seed}, {rounds} rounds of {} changes", changes.len());
    let place = Place::new().expect("a folder for the test");
    // Behind file:// this names what the pool began with, whatever has become of it.
    let url = PathBuf::from(in_place(&place, url));
    let place = place.with_pool(&url);
    if let Err(error) = Changes::run(&place, seed, rounds, changes) {
        panic!("{error:#}");
    }
}

/// A line with the directories' paths.
fn in_place(place: &Place, line: &str) -> String {
    let named = [("ONE", "one"), ("TWO", "two"), ("THREE", "three")];
    named.iter().fold(line.to_owned(), |line, (word, name)| line.replace(word, &place.text(name)))
}

struct Changes<'a> {
    place: &'a Place,
    world: Arc<World>,
    chance: Dice,
    gateway: Option<Gateway>,
    kills: u64,
    /// Kills that left a change under way.
    midst: u64,
}

impl<'a> Changes<'a> {
    fn run(place: &'a Place, seed: u64, rounds: u64, changes: &[Change]) -> Result<()> {
        let mut story = Story::default();
        REGIONS.iter().for_each(|(disk, base, bytes)| story.add_region(disk, *base, *bytes));
        let world = Arc::new(World::new(place.nbd(), story));
        world.stay.store(true, SeqCst);
        let gateway = Some(place.start(&ARGUMENTS)?);
        let chance = Dice::new(seed);
        let mut this = Changes { place, world: world.clone(), chance, gateway, kills: 0, midst: 0 };
        this.lay_ballast()?;
        let clients: Vec<_> = (0..REGIONS.len())
            .map(|number| {
                let client = Client::new(world.clone(), number, this.chance.fork());
                std::thread::Builder::new().name(format!("client-{number}")).spawn(move || client.live())
            })
            .collect::<Result<_, _>>()?;
        let mut lived = Ok(());
        for (round, (command, after)) in
            (0..rounds).flat_map(|round| changes.iter().map(move |one| (round, one)))
        {
            lived = lived.and_then(|()| {
                this.change(command, after)
                    .with_context(|| format!("round {round}, pool {command}, seed {seed}"))
            });
        }
        world.ending.store(true, SeqCst);
        if lived.is_err() {
            world.fail("the test is over".into());
        }
        for client in clients {
            client.join().map_err(|_| anyhow!("a client panicked"))?;
        }
        lived.map_err(|error| place.explain(error))?;
        world.check().map_err(|error| place.explain(error))?;
        this.end()
    }

    fn lay_ballast(&self) -> Result<()> {
        for disk in ["a", "b"] {
            self.place.ok(&format!("disk create {disk} --size {}M", DISK_BYTES >> 20))?;
        }
        self.place.ok(&format!("disk create ballast --size {}M", BALLAST_BYTES >> 20))?;
        let mut connection = self.place.connect("ballast")?;
        for at in (0..BALLAST_BYTES).step_by(PIECE_BYTES as usize) {
            connection.write(at, &ballast(at))?;
        }
        connection.flush()
    }

    /// One change with deaths in it, and a look at everything behind it.
    fn change(&mut self, command: &str, after: &[&str]) -> Result<()> {
        for word in ["one", "two", "three"] {
            let dir = self.place.path(word);
            if !dir.exists() {
                fs::create_dir(dir)?;
            }
        }
        self.place.ok(&in_place(self.place, &format!("pool {command} --no-wait")))?;
        for _ in 0..self.chance.between(1, 4) {
            std::thread::sleep(self.chance.millis(0, 300));
            self.kill_and_start()?;
        }
        self.wait_for_the_end(after)?;
        let contents = self.place.json("pool check")?;
        ensure!(contents["problems"].as_array().is_none_or(Vec::is_empty), "the pool is damaged: {contents}");
        for word in ["one", "two", "three"].iter().filter(|word| !after.contains(word)) {
            let left = things_in(&self.place.path(word))?;
            // One that has never belonged is empty.
            ensure!(
                left.is_empty() || left == ["left"],
                "'{word}' has left the pool, and {left:?} lie in it"
            );
        }
        self.world.check()
    }

    fn kill_and_start(&mut self) -> Result<()> {
        let server = self.world.server.load(SeqCst);
        self.keeper().wait_for_clients(server, SETTLE_MAX)?;
        let working = self.is_changing()?;
        self.world.killing.store(true, SeqCst);
        self.gateway.take().context("a server runs")?.kill();
        self.kills += 1;
        self.world.story().killed();
        self.world.server.fetch_add(1, SeqCst);
        self.gateway = Some(self.place.start(&ARGUMENTS)?);
        self.midst += u64::from(working && self.is_changing()?);
        let server = self.world.server.load(SeqCst);
        self.keeper().wait_for_clients(server, SETTLE_MAX)?;
        self.world.killing.store(false, SeqCst);
        Ok(())
    }

    fn is_changing(&self) -> Result<bool> {
        let pool = self.place.json("pool status")?;
        let states = pool["directories"].as_array().context("a pool of files has directories")?;
        Ok(states.iter().any(|one| one["state"] != "ok"))
    }

    fn wait_for_the_end(&mut self, after: &[&str]) -> Result<()> {
        let deadline = Deadline::after(CHANGE_MAX);
        while self.is_changing()? {
            ensure!(!deadline.passed(), "the change does not end: {}", self.place.ok("pool status")?);
            self.world.check()?;
            std::thread::sleep(Duration::from_millis(50));
        }
        let pool = self.place.json("pool status")?;
        let mut dirs: Vec<&str> = pool["directories"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|one| one["dir"].as_str())
            .collect();
        let mut expected: Vec<String> = after.iter().map(|word| self.place.text(word)).collect();
        dirs.sort_unstable();
        expected.sort_unstable();
        ensure!(dirs == expected, "the pool lies in {dirs:?}, not in {expected:?}");
        Ok(())
    }

    fn keeper(&mut self) -> Keeper<'a> {
        let world = Arc::clone(&self.world);
        Keeper { place: self.place, world, disks: &["a", "b"], made: 0, chance: self.chance.fork() }
    }

    /// Everybody has left: all that was written is there, also for the next server.
    fn end(&mut self) -> Result<()> {
        for turn in 0..2 {
            let keeper = self.keeper();
            let mut contents = Contents::new();
            for disk in ["a", "b"] {
                contents.extend(keeper.read(disk, disk)?);
            }
            self.world.story().check_regions(&contents).map_err(|why| self.place.explain(anyhow!(why)))?;
            let mut connection = self.place.connect("ballast")?;
            for at in (0..BALLAST_BYTES).step_by(PIECE_BYTES as usize) {
                let read = connection.read_all(at, PIECE_BYTES)?;
                ensure!(read == ballast(at), "the ballast at {at} is not what was written");
            }
            keeper.check_pool(turn == 1)?;
            self.gateway.take().context("a server runs")?.stop()?;
            self.gateway = Some(self.place.start(&ARGUMENTS)?);
        }
        println!(
            "{} kills, {} of them with a change under way before and after; {} requests acknowledged, {} sent again",
            self.kills,
            self.midst,
            self.world.acked.load(SeqCst),
            self.world.resent.load(SeqCst)
        );
        Ok(())
    }
}

/// What lies at a place of the ballast: nothing that compresses, and no two blocks alike.
fn ballast(at: u64) -> Vec<u8> {
    (at / 8..(at + PIECE_BYTES) / 8).flat_map(|number| mix(number + 1).to_le_bytes()).collect()
}
