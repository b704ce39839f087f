//! A database on an export, while the server is killed under it.
//!
//! *Promise* (P1, seen from where it matters): what PostgreSQL has told its clients to be committed is there after any number of
//! `kill -9`, whole and consistent by its own checks. *Method*: its files lie on ext4 on a loop device over QEMU's NBD client. Clients
//! insert rows and write down outside, in the test's memory, what was acknowledged; pgbench moves money beside them. Rounds take turns:
//! the server alone is killed, QEMU reconnects, and nobody may notice but by the wait; or the client's machine dies with it, and what
//! is on the export is mounted anew, recovered by ext4 and by PostgreSQL, and checked: `pg_amcheck` over every table and index, its own
//! page checksums, every acknowledged row, no row twice, no money made or lost, and at the end `e2fsck`. *Past bug*: none yet.
//!
//! ```sh
//! STONEFOLD_DATABASE_ROUNDS=40 cargo test -p stonefold-e2e --test database -- --nocapture
//! ```

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use stonefold_dice::Dice;
use stonefold_e2e::gateway::{Gateway, Place, in_a_place};
use stonefold_e2e::mounts::{Loop, Mount};
use stonefold_e2e::postgres::{Postgres, Session};
use stonefold_e2e::qemu::Qemu;
use stonefold_e2e::tools::{attempt, run};
use stonefold_guest::time::Deadline;
use stonefold_needs::{Need, there_is};

/// Some 60 s. `STONEFOLD_DATABASE_ROUNDS` asks for more.
const ROUNDS: u64 = 4;
/// Clients that insert.
const WRITERS: usize = 3;
/// Rows committed by each in a round before the kill, at least.
const ROWS_BEFORE_KILL: u64 = 40;
/// For these rows, on a busy machine.
const ROWS_MAX: Duration = Duration::from_secs(120);
/// Small, so that folding, reclaim and cold reads happen within the test.
const ARGUMENTS: [&str; 4] = ["--cache", "16M", "--journal", "16M"];

#[test]
fn what_was_committed_survives_kills_of_the_server() {
    if !there_is(Need::Loop, "PostgreSQL on an export, through QEMU's client and a loop device") {
        return;
    }
    let rounds = std::env::var("STONEFOLD_DATABASE_ROUNDS").ok();
    let rounds = rounds.map_or(ROUNDS, |text| text.parse().expect("STONEFOLD_DATABASE_ROUNDS is a number"));
    let seed = Dice::seed("STONEFOLD_DATABASE_SEED");
    println!("seed {seed}, {rounds} rounds");
    in_a_place(|place| {
        // PostgreSQL's user has to come through to where it is mounted.
        fs::set_permissions(place.path(""), fs::Permissions::from_mode(0o711))?;
        let mut host = Host::new(place, seed)?;
        for round in 1..=rounds {
            host.round(round).with_context(|| format!("round {round} of {rounds}, seed {seed}"))?;
        }
        host.end()
    });
}

/// A machine that has the export mounted and runs the database.
struct Host<'a> {
    place: &'a Place,
    chance: Dice,
    gateway: Option<Gateway>,
    /// In the order in which they are taken down.
    running: Option<Running>,
    /// By writer: rows acknowledged, which are 1, 2, 3 and so on.
    acked: [AtomicU64; WRITERS],
    attached: u64,
    waits: Vec<Duration>,
}

struct Running {
    database: Postgres,
    mount: Mount,
    device: Loop,
    qemu: Qemu,
}

impl<'a> Host<'a> {
    fn new(place: &'a Place, seed: u64) -> Result<Self> {
        let gateway = Some(place.start(&ARGUMENTS)?);
        place.ok("disk create db --size 2G")?;
        let (chance, acked) = (Dice::new(seed), Default::default());
        let mut host = Host { place, chance, gateway, running: None, acked, attached: 0, waits: Vec::new() };
        host.attach(true)?;
        let database = host.database()?;
        database.ask("CREATE TABLE acked (writer int, n bigint, payload text, PRIMARY KEY (writer, n))")?;
        for each in ["postgres", "template1"] {
            database.tool("psql", &["-q", "-d", each, "-c", "CREATE EXTENSION amcheck"])?;
        }
        database.ask("CREATE INDEX ON acked (md5(payload))")?;
        database.tool("pgbench", &["-q", "-i", "-s", "2", "postgres"])?;
        Ok(host)
    }

    fn database(&self) -> Result<&Postgres> {
        self.running.as_ref().map(|running| &running.database).context("the database runs")
    }

    /// Attaches the export, mounts it, starts the database, the first time after making them.
    fn attach(&mut self, make: bool) -> Result<()> {
        self.attached += 1;
        let path = |what: &str| self.place.path(&format!("{what}{}", self.attached));
        let file = path("export");
        let qemu = Qemu::over_fuse(self.place, "db", &file)?;
        let device = Loop::over(&file)?;
        if make {
            run("mkfs.ext4", &["-q", "-F", &device.device])?;
        }
        let mount = Mount::of(&device.device, &path("mount"), "errors=remount-ro")?;
        let data = mount.folder.join("data");
        if make {
            Postgres::init(&data)?;
        }
        let database = Postgres::start(&data, &path("socket"), &self.log())?;
        self.running = Some(Running { database, mount, device, qemu });
        Ok(())
    }

    /// PostgreSQL writes there as its own user, so it is made for everybody.
    fn log(&self) -> PathBuf {
        let log = self.place.path("postgres.log");
        if !log.exists() && fs::write(&log, "").is_ok() {
            // Where that fails PostgreSQL does not start, and says so.
            let _ = fs::set_permissions(&log, fs::Permissions::from_mode(0o666));
        }
        log
    }

    /// Load, a kill in its midst, and a look at what is there.
    fn round(&mut self, round: u64) -> Result<()> {
        let host_dies = round % 2 == 0;
        let database = self.database()?;
        let before: Vec<u64> = self.acked.iter().map(|acked| acked.load(SeqCst)).collect();
        let mut money = database.beside("pgbench", &["-n", "-c", "2", "-T", "600", "postgres"])?;
        let sessions = (0..WRITERS).map(|_| database.session()).collect::<Result<Vec<_>>>()?;
        let pause = self.chance.millis(0, 500);
        let stop = AtomicBool::new(false);
        let (acked, place) = (&self.acked, self.place);
        let (gateway, running) = (&mut self.gateway, &mut self.running);
        let wait = std::thread::scope(|scope| {
            let stop = &stop;
            for (writer, session) in sessions.into_iter().enumerate() {
                let acked = &acked[writer];
                std::thread::Builder::new()
                    .name(format!("writer-{writer}"))
                    .spawn_scoped(scope, move || insert(writer, session, acked, stop))?;
            }
            let mut kill = || -> Result<Option<Duration>> {
                wait_for_rows(acked, &before, ROWS_BEFORE_KILL)?;
                std::thread::sleep(pause);
                gateway.take().context("the server runs")?.kill();
                if host_dies {
                    fall(running.take().context("it runs")?);
                    return Ok(None);
                }
                let again = place.start(&ARGUMENTS)?;
                let ready_after = again.ready_after;
                *gateway = Some(again);
                // Nobody has noticed: the same sessions go on.
                let then: Vec<u64> = acked.iter().map(|acked| acked.load(SeqCst)).collect();
                wait_for_rows(acked, &then, 5)?;
                ensure!(money.is_running(), "pgbench met an error when the server was killed");
                Ok(Some(ready_after))
            };
            let wait = kill();
            stop.store(true, SeqCst);
            wait
        })?;
        money.kill();
        self.waits.extend(wait);
        if host_dies {
            self.gateway = Some(self.place.start(&ARGUMENTS)?);
            self.attach(false)?;
        }
        self.check()
    }

    /// Every acknowledged row is there once, and PostgreSQL finds nothing wrong with its files.
    fn check(&self) -> Result<()> {
        let database = self.database()?;
        for (writer, acked) in self.acked.iter().enumerate() {
            let acked_rows = acked.load(SeqCst);
            let row = database.ask(&format!(
                "SELECT count(*), coalesce(max(n), 0), count(*) FILTER (WHERE payload <> repeat(md5(n::text), 1 + (n % 60)::int)) \
                 FROM acked WHERE writer = {writer}"
            ))?;
            let figures: Vec<u64> = row.split('|').map(|figure| figure.parse().unwrap_or(u64::MAX)).collect();
            let [count, last, wrong] = figures[..] else { bail!("psql answers {row:?}") };
            ensure!(wrong != u64::MAX, "psql answers {row:?}");
            ensure!(
                count == last && last >= acked_rows && last <= acked_rows + 1 && wrong == 0,
                "writer {writer} was told of {acked_rows} rows; {count} are there, the last is {last}, {wrong} hold something else"
            );
            // What was in flight at the kill and happened counts from now on.
            acked.store(last, SeqCst);
        }
        let sums = database.ask(
            "SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(tbalance) FROM pgbench_tellers) \
             AND (SELECT sum(bbalance) FROM pgbench_branches) = (SELECT coalesce(sum(delta), 0) FROM pgbench_history) \
             AND (SELECT sum(tbalance) FROM pgbench_tellers) = (SELECT sum(bbalance) FROM pgbench_branches)",
        )?;
        ensure!(sums == "t", "pgbench's money does not add up: {sums}");
        let said = database
            .tool("pg_amcheck", &["--all", "--heapallindexed", "--rootdescend"])
            .context("pg_amcheck")?;
        ensure!(said.trim().is_empty(), "pg_amcheck: {said}");
        let failures = database.ask("SELECT coalesce(sum(checksum_failures), 0) FROM pg_stat_database")?;
        ensure!(failures == "0", "{failures} pages fail PostgreSQL's checksums");
        Ok(())
    }

    fn end(mut self) -> Result<()> {
        let Running { database, mount, device, qemu } = self.running.take().context("it runs")?;
        database.stop()?;
        mount.unmount()?;
        let (status, said) = attempt("e2fsck", &["-f", "-n", &device.device])?;
        ensure!(status == Some(0), "e2fsck ends with {status:?}:\n{said}");
        drop(device);
        qemu.kill();
        self.place.ok("pool reclaim")?;
        self.place.ok("pool check")?;
        let rows: u64 = self.acked.iter().map(|acked| acked.load(SeqCst)).sum();
        println!("{rows} rows committed and found; the server was ready again after {:?}", self.waits);
        self.gateway.take().context("the server runs")?.stop()
    }
}

/// The host's machine is dead: nobody of it says another word to the server.
fn fall(running: Running) {
    let Running { database, mount, device, qemu } = running;
    qemu.kill();
    database.kill();
    mount.let_go();
    drop(device);
}

/// Inserts row after row, until told to stop or the session breaks.
fn insert(writer: usize, mut session: Session, acked: &AtomicU64, stop: &AtomicBool) {
    while !stop.load(SeqCst) {
        let n = acked.load(SeqCst) + 1;
        let statement = format!(
            "INSERT INTO acked VALUES ({writer}, {n}, repeat(md5({n}::text), 1 + ({n} % 60)::int)) RETURNING n;"
        );
        // The test sees that rows stop coming.
        let Ok(answer) = session.ask(&statement) else { return };
        if answer != n.to_string() {
            return;
        }
        acked.store(n, SeqCst);
    }
}

fn wait_for_rows(acked: &[AtomicU64; WRITERS], from: &[u64], rows: u64) -> Result<()> {
    let patience = Deadline::after(ROWS_MAX);
    loop {
        let slow = acked.iter().zip(from).position(|(acked, from)| acked.load(SeqCst) < from + rows);
        let Some(writer) = slow else { return Ok(()) };
        if patience.passed() {
            return Err(anyhow!("writer {writer} does not get {rows} rows committed"));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
