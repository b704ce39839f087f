//! PostgreSQL clusters as sources: base backups and WAL, brought back to the moment of a point, and to others before it.
//!
//! *Promise*: what a cluster had committed by a moment is there, and nothing that came later, on a clone that is mounted and started as it
//! is; a run after the first reads WAL alone; what cannot be brought back is told by the run that finds it out. *Method*: real clusters, whose own
//! clock says what was before what; clones of the points on loop devices over QEMU's NBD client; PostgreSQL's own checks of every table.
//! *Past bug*: none yet.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use stonefold_e2e::gateway::{Place, in_a_place};
use stonefold_e2e::mounts::{Loop, Mount};
use stonefold_e2e::postgres::Postgres;
use stonefold_e2e::qemu::Qemu;
use stonefold_e2e::tools::run;
use stonefold_needs::{Need, there_is};

/// For a base backup and its copy, on a busy machine.
const RUN_MAX: Duration = Duration::from_secs(180);

/// A cluster of which points are made.
struct Original {
    database: Postgres,
    url: String,
}

impl Original {
    /// Makes one and starts it. With `apart` its configuration lies beside its data, as Debian has it.
    fn new(place: &Place, name: &str, apart: bool) -> Result<Self> {
        let (data, etc) = (place.path(&format!("{name}-data")), place.path(&format!("{name}-etc")));
        Postgres::init(&data)?;
        if apart {
            fs::create_dir(&etc)?;
            for file in ["postgresql.conf", "pg_hba.conf", "pg_ident.conf"] {
                fs::rename(data.join(file), etc.join(file))?;
            }
            let mut told = fs::OpenOptions::new().append(true).open(etc.join("postgresql.conf"))?;
            writeln!(told, "data_directory = '{}'\nmax_connections = 123", data.display())?;
            run("chown", &["-R", "postgres:", &etc.to_string_lossy()])?;
        }
        let socket = place.path(&format!("{name}-socket"));
        let database = Postgres::start(if apart { &etc } else { &data }, &socket, &log(place, name)?)?;
        database.ask("create role keeper login replication")?;
        database.ask("grant pg_read_all_settings to keeper")?;
        database.ask("create table words (number serial primary key, word text)")?;
        let url = format!("postgresql:///postgres?host={}&user=keeper", socket.display());
        Ok(Original { database, url })
    }

    fn say(&self, word: &str) -> Result<()> {
        self.database.ask(&format!("insert into words (word) values ('{word}')")).map(drop)
    }

    /// How many replication slots it has.
    fn slots(&self) -> Result<String> {
        self.database.ask("select count(*) from pg_replication_slots")
    }
}

/// A log that PostgreSQL's user may write.
fn log(place: &Place, name: &str) -> Result<PathBuf> {
    let path = place.path(&format!("{name}.log"));
    fs::OpenOptions::new().append(true).create(true).open(&path)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666))?;
    Ok(path)
}

fn prepared(place: &Place) -> Result<PathBuf> {
    // PostgreSQL's user has to come through to where it is mounted.
    fs::set_permissions(place.path(""), fs::Permissions::from_mode(0o711))?;
    let scratch = place.path("scratch");
    fs::create_dir(&scratch)?;
    Ok(scratch)
}

fn backed_up(place: &Place, line: &str) -> Result<Value> {
    place.json_within(&format!("backup run {line}"), RUN_MAX)
}

fn name(run: &Value) -> Result<&str> {
    run["name"].as_str().context("a run has a name")
}

/// A point that was brought back, mounted and started.
struct Clone {
    database: Postgres,
    mounts: Vec<(Mount, Loop, Qemu)>,
}

impl Clone {
    fn of(place: &Place, point: &str, as_name: &str, until: Option<&str>) -> Result<Self> {
        place.ok(&format!("recover {point} --as {as_name}"))?;
        let root = place.path(as_name);
        let mut mounts = Vec::new();
        for (disk, at) in [("data", root.clone()), ("wal", root.join("wal"))] {
            let file = place.path(&format!("{as_name}.{disk}"));
            let qemu = Qemu::over_fuse(place, &format!("{as_name}.{disk}"), &file)?;
            let device = Loop::over(&file)?;
            let mount = Mount::of(&device.device, &at, "errors=remount-ro")?;
            // The inner one is unmounted first.
            mounts.insert(0, (mount, device, qemu));
        }
        let data = root.join("data");
        let log = log(place, as_name)?;
        let socket = place.path(&format!("{as_name}-socket"));
        let told = until.map(|until| format!("recovery_target_time={until}"));
        let told: Vec<&str> = told.iter().map(String::as_str).collect();
        let database = Postgres::start_told(&data, &socket, &log, &told)?;
        let clone = Clone { database, mounts };
        clone.opened(&log)?;
        Ok(clone)
    }

    /// Waits until it has recovered and takes writes, and looks at all of it.
    fn opened(&self, log: &Path) -> Result<()> {
        let patience = stonefold_guest::time::Deadline::after(RUN_MAX);
        while self.database.ask("select pg_is_in_recovery()")? != "f" {
            ensure!(!patience.passed(), "it recovers yet: {}", fs::read_to_string(log)?);
            std::thread::sleep(Duration::from_millis(100));
        }
        self.database.ask("create extension amcheck")?;
        self.database.tool("pg_amcheck", &["--heapallindexed", "postgres"])?;
        self.database.ask("insert into words (word) values ('of the clone')")?;
        Ok(())
    }

    /// The words that were there before it was opened.
    fn words(&self) -> Result<String> {
        let ask = "select string_agg(word, ' ' order by number) from words where word <> 'of the clone'";
        self.database.ask(ask)
    }

    fn end(self, place: &Place, as_name: &str) -> Result<()> {
        self.database.stop()?;
        for (mount, device, qemu) in self.mounts {
            mount.unmount()?;
            drop(device);
            drop(qemu);
        }
        place.ok(&format!("recover stop {as_name} --discard")).map(drop)
    }
}

#[test]
fn a_cluster_comes_back_to_any_moment_of_a_point() {
    if !there_is(Need::Loop, "a PostgreSQL that is started from its points") {
        return;
    }
    in_a_place(|place| {
        let scratch = prepared(place)?;
        let original = Original::new(place, "shop", false)?;
        let server = place.start(&["--cache", "64M"])?;
        place.ok(&format!("source add shop --postgres {} --scratch {}", original.url, scratch.display()))?;
        original.say("first")?;
        let first = backed_up(place, "shop")?;
        ensure!(first["copied"]["notes"].as_array().is_none_or(Vec::is_empty), "{first}");
        original.say("early")?;
        let moment = original.database.ask("select clock_timestamp()")?;
        original.say("late")?;
        let after_all = original.database.ask("select clock_timestamp()")?;
        let second = backed_up(place, "shop")?;
        let diff = place.json(&format!("point diff {} {}", name(&first)?, name(&second)?))?;
        ensure!(changed(&diff, "data") == Some(0) && changed(&diff, "wal") > Some(0), "{diff}");
        ensure!(second["copied"]["notes"].as_array().is_none_or(Vec::is_empty), "{second}");
        original.say("after")?;
        original.database.kill();

        let shown = place.ok(&format!("point show {}", name(&second)?))?;
        ensure!(shown.contains("any moment from") && shown.contains("committed"), "{shown}");
        let clone = Clone::of(place, name(&second)?, "newest", None)?;
        ensure!(clone.words()? == "first early late", "{}", clone.words()?);
        clone.end(place, "newest")?;
        let clone = Clone::of(place, name(&second)?, "between", Some(&moment))?;
        ensure!(clone.words()? == "first early", "{}", clone.words()?);
        clone.end(place, "between")?;
        // After the last word, and before the point: PostgreSQL alone would say that it was never reached.
        let clone = Clone::of(place, name(&second)?, "latest", Some(&after_all))?;
        ensure!(clone.words()? == "first early late", "{}", clone.words()?);
        clone.end(place, "latest")?;
        let clone = Clone::of(place, name(&first)?, "oldest", None)?;
        ensure!(clone.words()? == "first", "{}", clone.words()?);
        clone.end(place, "oldest")?;

        let said = place.fails(&format!("verify {}", name(&second)?), 1)?;
        ensure!(said.contains("no machine that boots"), "{said}");
        let said = place.fails(&format!("recover {} --as vm --to qemu", name(&second)?), 1)?;
        ensure!(said.contains("no machine that boots"), "{said}");
        ensure!(
            place.json("recover ls")?.as_array().is_some_and(Vec::is_empty),
            "of what did not start something stays"
        );
        server.stop()
    });
}

/// *Promise*: a cluster that is reached over a network, by a password that stands in a file, is a source like one on a socket; a wrong password is told, and
/// stands nowhere.
#[test]
fn a_cluster_is_reached_over_tcp_by_a_password() {
    if !there_is(Need::Loop, "a PostgreSQL that is reached over TCP") {
        return;
    }
    in_a_place(|place| {
        let scratch = prepared(place)?;
        let (data, port) = (place.path("shop-data"), free_port()?);
        Postgres::init(&data)?;
        // Over the network nobody is trusted.
        let who = "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\nhost replication all 127.0.0.1/32 scram-sha-256\n";
        fs::write(data.join("pg_hba.conf"), who)?;
        let settings = [format!("port={port}"), "listen_addresses=127.0.0.1".to_owned()];
        let told: Vec<&str> = settings.iter().map(String::as_str).collect();
        let database = Postgres::start_told(&data, &place.path("shop-socket"), &log(place, "shop")?, &told)?;
        database.ask("create role keeper login replication password 'hush-hush'")?;
        database.ask("grant pg_read_all_settings to keeper")?;
        database.ask("create table words (number serial primary key, word text)")?;
        database.ask("insert into words (word) values ('over tcp')")?;
        let passfile = place.path("pgpass");
        let passes = |password: &str| -> Result<()> {
            fs::write(&passfile, format!("127.0.0.1:{port}:*:keeper:{password}\n"))?;
            Ok(fs::set_permissions(&passfile, fs::Permissions::from_mode(0o600))?)
        };
        let server = place.start(&["--cache", "64M"])?;
        let url = format!("postgresql://keeper@127.0.0.1:{port}/postgres?passfile={}", passfile.display());
        place.ok(&format!("source add shop --postgres {url} --scratch {}", scratch.display()))?;
        passes("wrong-word")?;
        let said = place.fails("backup run shop", 1)?;
        ensure!(said.contains("password authentication failed") && !said.contains("wrong-word"), "{said}");
        passes("hush-hush")?;
        backed_up(place, "shop")?;
        database.ask("insert into words (word) values ('again')")?;
        let second = backed_up(place, "shop")?;
        ensure!(second["copied"]["notes"].as_array().is_none_or(Vec::is_empty), "{second}");
        database.kill();
        let clone = Clone::of(place, name(&second)?, "again", None)?;
        ensure!(clone.words()? == "over tcp again", "{}", clone.words()?);
        clone.end(place, "again")?;
        server.stop()
    });
}

/// One that nobody listens on now.
fn free_port() -> Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// *Promise*: also with tablespaces and a configuration that lie elsewhere, and with a server that is killed between two runs.
#[test]
fn what_lies_beside_the_data_directory_comes_back() {
    if !there_is(Need::Loop, "a PostgreSQL with tablespaces that is started from its points") {
        return;
    }
    in_a_place(|place| {
        let scratch = prepared(place)?;
        let original = Original::new(place, "shop", true)?;
        let fast = place.path("fast");
        fs::create_dir(&fast)?;
        run("chown", &["postgres:", &fast.to_string_lossy()])?;
        original.database.ask(&format!("create tablespace fast location '{}'", fast.display()))?;
        original.database.ask("create table there (n int) tablespace fast")?;
        original.database.ask("insert into there select generate_series(1, 5000)")?;
        let server = place.start(&["--cache", "64M"])?;
        place.ok(&format!("source add shop --postgres {} --scratch {}", original.url, scratch.display()))?;
        backed_up(place, "shop")?;
        original.say("first")?;
        server.kill();
        let server = place.start(&["--cache", "64M"])?;
        let second = backed_up(place, "shop")?;
        ensure!(second["copied"]["notes"].as_array().is_none_or(Vec::is_empty), "{second}");
        // Replaying what was done in one that is made after the base would take its folder.
        let late = place.path("late");
        fs::create_dir(&late)?;
        run("chown", &["postgres:", &late.to_string_lossy()])?;
        original.database.ask(&format!("create tablespace late location '{}'", late.display()))?;
        let second = backed_up(place, "shop")?;
        ensure!(second["copied"]["notes"].to_string().contains("other tablespaces"), "{second}");
        // The tablespaces' own folders are not what the clone works on.
        original.database.stop()?;
        fs::rename(&fast, place.path("away"))?;
        fs::remove_dir_all(&late)?;
        let clone = Clone::of(place, name(&second)?, "again", None)?;
        ensure!(clone.words()? == "first", "{}", clone.words()?);
        ensure!(clone.database.ask("select count(*) from there")? == "5000");
        ensure!(clone.database.ask("show max_connections")? == "123");
        clone.end(place, "again")?;
        server.stop()
    });
}

/// *Promise*: WAL that is not there any more is told, and a new base is taken; what somebody wrote to the disk is not in the next point.
#[test]
fn what_cannot_be_gone_on_with_is_told() {
    if !there_is(Need::Loop, "a PostgreSQL of its own user") {
        return;
    }
    in_a_place(|place| {
        let scratch = prepared(place)?;
        let original = Original::new(place, "shop", false)?;
        let server = place.start(&["--cache", "64M"])?;
        let add = |name: &str, url: &str| {
            format!("source add {name} --postgres {url} --scratch {}", scratch.display())
        };
        let said = place.fails(&add("bad", "postgresql://keeper:hush@db"), 1)?;
        ensure!(said.contains(".pgpass") && !said.contains("hush"), "{said}");
        place.ok(&add("nobody", "postgresql:///postgres?host=/nowhere&user=keeper"))?;
        let said = place.fails("backup run nobody", 1)?;
        ensure!(said.contains("/nowhere") && said.contains("by this URI"), "{said}");
        place.ok("source rm nobody")?;

        place.ok(&add("shop", &original.url))?;
        backed_up(place, "shop")?;
        let notes = |run: &Value| run["copied"]["notes"].to_string();
        // Its slot is dropped.
        let slot = original.database.ask("select slot_name from pg_replication_slots")?;
        original.database.ask(&format!("select pg_drop_replication_slot('{slot}')"))?;
        let second = backed_up(place, "shop")?;
        ensure!(notes(&second).contains("slot was dropped"), "{second}");
        // Its scratch folder is emptied, when the cluster has been told of what was received.
        original.database.ask("select pg_switch_wal()")?;
        original.say("more")?;
        backed_up(place, "shop")?;
        for entry in fs::read_dir(&scratch)? {
            fs::remove_dir_all(entry?.path())?;
        }
        original.say("more")?;
        original.database.ask("select pg_switch_wal()")?;
        original.say("and more")?;
        let third = backed_up(place, "shop")?;
        ensure!(notes(&third).contains("is missing in"), "{third}");
        // Somebody wrote to the disk that has the base.
        write_to_disk(place)?;
        let fourth = backed_up(place, "shop")?;
        ensure!(notes(&fourth).contains("something else had changed"), "{fourth}");
        let of_point = |run: &Value| -> Result<Vec<u8>> {
            let stamp = name(run)?.split_once('@').context("a point has a time")?.1;
            place.connect(&format!("shop.data@{stamp}"))?.read(1 << 20, 4096)
        };
        ensure!(of_point(&third)? == of_point(&fourth)?, "what somebody wrote stays");

        server.stop()
    });
}

/// *Promise*: another cluster is not taken for the one that was; a source that is removed leaves nothing in its cluster and in its scratch folder.
#[test]
fn another_cluster_is_not_taken_for_the_one_that_was() {
    if !there_is(Need::Loop, "two PostgreSQLs, one after the other") {
        return;
    }
    in_a_place(|place| {
        let scratch = prepared(place)?;
        let original = Original::new(place, "shop", false)?;
        let server = place.start(&["--cache", "64M"])?;
        place.ok(&format!("source add shop --postgres {} --scratch {}", original.url, scratch.display()))?;
        backed_up(place, "shop")?;
        let Original { database, url } = original;
        database.stop()?;
        fs::rename(place.path("shop-data"), place.path("old-data"))?;
        fs::remove_dir_all(place.path("shop-socket"))?;
        let other = Original::new(place, "shop", false)?;
        ensure!(other.url == url);
        let said = place.fails("backup run shop", 1)?;
        ensure!(said.contains("another than the last point has"), "{said}");
        backed_up(place, "shop --full")?;
        ensure!(other.slots()? == "1");
        place.ok("source rm shop")?;
        ensure!(other.slots()? == "0", "its slot stays");
        ensure!(fs::read_dir(&scratch)?.next().is_none(), "something stays in its scratch folder");
        server.stop()
    });
}

/// How much of a disk differs.
fn changed(diff: &Value, target: &str) -> Option<u64> {
    diff["disks"].as_array()?.iter().find(|disk| disk["target"] == target)?["changed_bytes"].as_u64()
}

/// Writes to the disk that a base was copied to.
fn write_to_disk(place: &Place) -> Result<()> {
    let mut disk = place.connect("shop.data")?;
    disk.write(1 << 20, &[7; 4096])?;
    Ok(())
}
