//! `kill -9` under load, again and again.
//!
//! *Promise* (P1, for a process that dies while the machine lives): all that was acknowledged is there, flushed or not;
//! what was in flight is there or not, each step whole; snapshots are of one instant; the server is soon back; and what
//! nobody refers to any more is given back, and nothing else.
//! *Method*: clients on two disks, whose regions share blocks, write with many requests in flight while snapshots and
//! clones come and go and space is given back; one of the disks is encrypted, so that its records and frames are sealed; at a random instant, sometimes in the middle of a recovery, the server gets SIGKILL. After half
//! of the deaths the clients come back, flush and go on, and what they wrote must survive the next. *Past bug*: none yet.
//!
//! ```sh
//! STONEFOLD_CRASH_ROUNDS=200 cargo test -p stonefold-e2e --test crash -- --nocapture
//! STONEFOLD_CRASH_SEED=… …       # the same choices again; when the kill strikes is up to the machine
//! ```

use std::fs;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use stonefold_dice::Dice;
use stonefold_e2e::gateway::{Gateway, Place, in_a_place};
use stonefold_e2e::keeper::Keeper;
use stonefold_e2e::load::{Client, World};
use stonefold_e2e::story::{Contents, Story};

/// Some 40 s. A soak asks for more.
const ROUNDS: u64 = 30;
const DISK_BYTES: u64 = 24 << 20;
const DISKS: [&str; 2] = ["a", "b"];
/// Clients' regions, in bytes: two and two share a block, the last ends with its disk.
const REGIONS: [(&str, u64, u64); 6] = [
    ("a", 0, (2 << 20) + 512),
    ("a", (2 << 20) + 512, 3 << 20),
    ("a", 22 << 20, 2 << 20),
    ("b", 512, (3 << 20) - 1024),
    ("b", (3 << 20) - 512, 1 << 20),
    ("b", (23 << 20) - 1536, (1 << 20) + 1536),
];
/// For clients to come back and read everything.
const SETTLE_MAX: Duration = Duration::from_secs(60);

#[test]
fn nothing_acknowledged_is_lost_when_the_server_is_killed() {
    let rounds = std::env::var("STONEFOLD_CRASH_ROUNDS").ok();
    let rounds = rounds.map_or(ROUNDS, |text| text.parse().expect("STONEFOLD_CRASH_ROUNDS is a number"));
    let seed = Dice::seed("STONEFOLD_CRASH_SEED");
    println!("seed {seed}, {rounds} rounds");
    in_a_place(|place| {
        let mut crashes = Crashes::new(place, seed)?;
        let result = (1..=rounds).try_for_each(|round| {
            crashes.round().with_context(|| {
                format!("round {round} of {rounds}; again: STONEFOLD_CRASH_SEED={seed} STONEFOLD_CRASH_ROUNDS={rounds} cargo test -p stonefold-e2e --test crash")
            })
        });
        result.and_then(|()| crashes.end()).inspect_err(|_| crashes.world.fail("the test is over".into()))
    });
}

/// The test's own hand: it starts and kills, and looks between.
struct Crashes<'a> {
    place: &'a Place,
    /// The file with the master key.
    key_file: String,
    world: Arc<World>,
    chance: Dice,
    gateway: Option<Gateway>,
    clients: Vec<JoinHandle<()>>,
    /// Snapshots and clones made so far.
    made: u64,
    ready: Vec<Duration>,
    killed_early: u64,
    stayed: u64,
}

impl<'a> Crashes<'a> {
    fn new(place: &'a Place, seed: u64) -> Result<Self> {
        let mut story = Story::default();
        REGIONS.iter().for_each(|(disk, base, bytes)| story.add_region(disk, *base, *bytes));
        fs::write(place.path("master.key"), "6b".repeat(32))?;
        let mut crashes = Crashes {
            place,
            key_file: place.text("master.key"),
            world: Arc::new(World::new(place.nbd(), story)),
            chance: Dice::new(seed),
            gateway: None,
            clients: Vec::new(),
            made: 0,
            ready: Vec::new(),
            killed_early: 0,
            stayed: 0,
        };
        crashes.start()?;
        place.ok(&format!("disk create a --size {}M", DISK_BYTES >> 20))?;
        place.ok("domain create vault --encrypt")?;
        place.ok(&format!("disk create b --size {}M --durability ack --domain vault", DISK_BYTES >> 20))?;
        Ok(crashes)
    }

    /// One death.
    fn round(&mut self) -> Result<()> {
        if self.clients.is_empty() {
            self.send_in_clients()?;
        }
        let server = self.world.server.load(SeqCst);
        self.keeper().wait_for_clients(server, SETTLE_MAX)?;
        let stay = self.chance.percent(50);
        self.world.stay.store(stay, SeqCst);
        self.load_and_kill()?;
        self.world.story().killed();
        if !stay {
            self.see_off_clients()?;
        }
        self.world.server.fetch_add(1, SeqCst);
        self.start()?;
        // Again, while clients are coming back and before what was replayed is folded: so there are several journals.
        while stay && self.chance.percent(40) {
            std::thread::sleep(self.chance.millis(0, 60));
            self.gateway.take().context("a server runs")?.kill();
            self.killed_early += 1;
            self.world.server.fetch_add(1, SeqCst);
            self.start()?;
        }
        self.keeper().settle()?;
        if stay {
            self.stayed += 1;
            // A client may find out only now that its server had died; until all have, it is excused.
            let server = self.world.server.load(SeqCst);
            self.keeper().wait_for_clients(server, SETTLE_MAX)?;
            self.world.killing.store(false, SeqCst);
        } else {
            self.world.killing.store(false, SeqCst);
            self.check_all()?;
        }
        self.world.check().map_err(|error| self.place.explain(error))
    }

    /// Snapshots and clones beside the load, until the kill.
    fn load_and_kill(&mut self) -> Result<()> {
        // Without a keeper, who has things folded, and not for long: so journals of several deaths add up.
        let quick = self.chance.percent(40);
        let load = if quick { self.chance.millis(5, 100) } else { self.chance.millis(20, 600) };
        let mut keeper = self.keeper();
        let mut gateway = self.gateway.take().context("a server runs")?;
        let world = Arc::clone(&self.world);
        self.made = std::thread::scope(|scope| {
            let keeping =
                std::thread::Builder::new().name("keeper".into()).spawn_scoped(scope, move || {
                    if quick { Ok(keeper.made) } else { keeper.keep().map(|()| keeper.made) }
                })?;
            std::thread::sleep(load);
            let alive = gateway.is_running();
            world.killing.store(true, SeqCst);
            gateway.kill();
            ensure!(alive, "the server had ended by itself\n{}", self.place.last_words());
            keeping.join().map_err(|_| anyhow!("the keeper panicked"))?.map_err(|e| self.place.explain(e))
        })?;
        Ok(())
    }

    /// Starts the server, sometimes killing it once more before it is ready.
    fn start(&mut self) -> Result<()> {
        let journal = ["8M", "16M", "256M", "256M"];
        while self.chance.percent(15) && !self.ready.is_empty() {
            let starting = self.place.begin(&self.arguments("16M"))?;
            std::thread::sleep(self.chance.millis(1, 60));
            starting.kill();
            self.killed_early += 1;
        }
        let journal = *self.chance.one_of(&journal);
        let gateway = self.place.start(&self.arguments(journal))?;
        self.ready.push(gateway.ready_after);
        self.gateway = Some(gateway);
        Ok(())
    }

    fn arguments<'b>(&'b self, journal: &'b str) -> [&'b str; 6] {
        ["--cache", "8M", "--journal", journal, "--key-file", &self.key_file]
    }

    fn send_in_clients(&mut self) -> Result<()> {
        for number in 0..REGIONS.len() {
            let client = Client::new(Arc::clone(&self.world), number, self.chance.fork());
            let name = format!("client-{number}");
            self.clients.push(std::thread::Builder::new().name(name).spawn(move || client.live())?);
        }
        Ok(())
    }

    fn see_off_clients(&mut self) -> Result<()> {
        for client in self.clients.drain(..) {
            client.join().map_err(|_| anyhow!("a client panicked"))?;
        }
        self.world.check().map_err(|error| self.place.explain(error))
    }

    fn keeper(&mut self) -> Keeper<'a> {
        let world = Arc::clone(&self.world);
        Keeper { place: self.place, world, disks: &DISKS, made: self.made, chance: self.chance.fork() }
    }

    fn check_all(&mut self) -> Result<()> {
        let mut keeper = self.keeper();
        let mut contents = Contents::new();
        for disk in DISKS {
            contents.extend(keeper.read(disk, disk)?);
        }
        let checked = self.world.story().check_regions(&contents);
        checked.map_err(|why| self.place.explain(anyhow!(why)))?;
        keeper.check()?;
        keeper.check_pool(false)
    }

    /// The last clients leave, the server stops, and a new one has it all.
    fn end(&mut self) -> Result<()> {
        self.world.ending.store(true, SeqCst);
        self.see_off_clients()?;
        self.gateway.take().context("a server runs")?.stop()?;
        self.start()?;
        self.check_all()?;
        self.keeper().check_pool(true)?;
        let (b, domains) = (self.place.json("disk show b")?, self.place.json("domain ls")?);
        let vault = domains.as_array().into_iter().flatten().find(|domain| domain["name"] == b["domain"]);
        let sealed = vault.is_some_and(|vault| vault["key_version"].is_u64());
        ensure!(sealed, "disk b was not encrypted: {b}\n{domains}");
        self.tell();
        Ok(())
    }

    fn tell(&mut self) {
        self.ready.sort();
        let at = |part: usize| self.ready[(self.ready.len() - 1) * part / 100].as_millis();
        println!(
            "{} starts, ready after {} ms (median; p90 {}, longest {}); {} killed before they or their clients were ready; clients stayed {} times; \
             {} requests acknowledged, {} sent again; {} snapshots and clones",
            self.ready.len(),
            at(50),
            at(90),
            at(100),
            self.killed_early,
            self.stayed,
            self.world.acked.load(SeqCst),
            self.world.resent.load(SeqCst),
            self.made
        );
    }
}
