//! A cluster, asked through psql, and the tools that read it.

use super::LOST;
use super::wal::{Archive, Lsn};
use crate::hypervisor::last_words;
use serde::Deserialize;
use std::process::Stdio;
use std::time::Duration;
use stonefold_env::{Env, WallNanos};
use stonefold_types::{Error, Kind, Result};
use tokio::process::Command;

/// Older ones say less of their slots, and call their functions otherwise.
const VERSION_MIN: u32 = 130_000;
/// How long a connection may take to be made, in seconds.
const CONNECT_SECONDS: &str = "20";
/// That a server which has gone is noticed: no tool has a limit of its own for what comes after the connection.
const ALIVE: &str = "keepalives_idle=30&keepalives_interval=10&keepalives_count=3&tcp_user_timeout=60000";
/// How often, and how long, an earlier run's receiver is waited for that the cluster has not noticed to be gone.
pub(super) const AGAIN: Duration = Duration::from_millis(500);
pub(super) const TRIES_MAX: u32 = 20;
/// A commit that is later than the moment just told: recovery to that moment, or one before, ends at it. Without one PostgreSQL holds that the moment was never
/// reached.
const MARK: &str =
    "select case when pg_is_in_recovery() then null else pg_logical_emit_message(true, 'stonefold', '') end";
const CLOCK: &str = "select (extract(epoch from clock_timestamp()) * 1000000)::bigint";
const ASK: &str = "select json_build_object(\
    'version', current_setting('server_version_num')::int, \
    'system', (select system_identifier::text from pg_control_system()), \
    'standby', pg_is_in_recovery(), \
    'segment_bytes', pg_size_bytes(current_setting('wal_segment_size')), \
    'flushed', (case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_flush_lsn() end)::text, \
    'slot', (select to_json(slots) from pg_replication_slots slots where slot_name = 'SLOT'), \
    'tablespaces', (select coalesce(json_agg(json_build_object('number', oid::text, 'location', pg_tablespace_location(oid)) order by oid), '[]') \
        from pg_tablespace where pg_tablespace_location(oid) like '/%'), \
    'bytes', (select sum(pg_database_size(oid))::bigint from pg_database where has_database_privilege(oid, 'connect')))";

/// A cluster, and the slot that it has for us.
pub(super) struct Client {
    pub(super) url: String,
    pub(super) slot: String,
}

/// What a cluster tells of itself.
#[derive(Debug, Deserialize)]
pub(super) struct Told {
    /// By its clock, microseconds since 1970: what it had committed by then lies before `flushed`, and a commit behind it.
    #[serde(default)]
    pub(super) at_us: u64,
    pub(super) version: u32,
    pub(super) system: String,
    /// Up to where its WAL is durable.
    pub(super) flushed: Lsn,
    pub(super) segment_bytes: u64,
    pub(super) standby: bool,
    pub(super) slot: Option<Slot>,
    pub(super) tablespaces: Vec<Tablespace>,
    /// What its databases take, as far as it may be known.
    pub(super) bytes: Option<u64>,
}

/// A replication slot.
#[derive(Debug, Deserialize)]
pub(super) struct Slot {
    slot_type: String,
    /// `lost` once it has dropped WAL that nobody had received.
    wal_status: Option<String>,
}

/// A folder of the cluster's beside its data directory.
#[derive(Debug, Deserialize)]
pub(super) struct Tablespace {
    pub(super) number: String,
    pub(super) location: String,
}

impl Told {
    /// Nanoseconds since 1970.
    pub(super) fn at(&self) -> WallNanos {
        self.at_us * 1000
    }

    /// By their numbers.
    pub(super) fn tablespaces(&self) -> Vec<String> {
        self.tablespaces.iter().map(|one| one.number.clone()).collect()
    }
}

impl Client {
    /// What it tells of itself.
    ///
    /// # Errors
    /// When it cannot be reached or may not be asked, in psql's words; [`Kind::Unsupported`] of standbys and of versions before 13.
    pub(super) async fn ask(&self) -> Result<Told> {
        let said = self.query(&[CLOCK, MARK, &ASK.replace("SLOT", &self.slot)]).await?;
        let text = String::from_utf8_lossy(&said);
        let lines: Vec<&str> = text.lines().collect();
        let misread = |why: String| {
            Error::new(Kind::Io, format!("the cluster's answer is not understood: {why}"))
                .remedy("see that the URI names PostgreSQL itself, and no pool of connections in front of it")
        };
        let (Some(at), Some(last)) = (lines.first(), lines.last()) else {
            return Err(misread("it is empty".to_owned()));
        };
        let told: Told = serde_json::from_str(last).map_err(|e| misread(e.to_string()))?;
        let told = Told { at_us: at.trim().parse().map_err(|e| misread(format!("'{at}': {e}")))?, ..told };
        if told.standby {
            let what = "the cluster is a standby, which nobody can mark a moment in";
            return Err(Error::new(Kind::Unsupported, what).remedy("name its primary"));
        }
        if told.version < VERSION_MIN {
            let what = format!("the cluster is PostgreSQL {}", told.version / 10_000);
            return Err(Error::new(Kind::Unsupported, what).remedy("from 13 on it can be backed up"));
        }
        Ok(told)
    }

    /// Sees to it that the slot is there. Returns why WAL may be missing that it should have kept, where that is so.
    pub(super) async fn keep(&self, slot: Option<&Slot>, archive: &Archive) -> Result<Option<String>> {
        match slot {
            Some(slot) if slot.slot_type != "physical" => {
                let what = format!("the replication slot '{}' is not one of ours", self.slot);
                return Err(Error::new(Kind::Conflict, what).remedy("drop it, and run it again"));
            }
            Some(slot) if slot.wal_status.as_deref() != Some("lost") => return Ok(None),
            Some(_) => self.query(&[&self.drop_slot()]).await.map(drop)?,
            None => {}
        }
        self.query(&[&format!("select pg_create_physical_replication_slot('{}', true)", self.slot)]).await?;
        // What follows does not go on from what was received.
        archive.clear().await?;
        archive.begin(None).await?;
        Ok(Some(format!(
            "the cluster did not keep its WAL any more (its replication slot was dropped, or max_slot_wal_keep_size was reached); {LOST}"
        )))
    }

    /// Drops the slot, if there is one. A receiver that was just killed may have it yet.
    pub(super) async fn let_go(&self, env: &Env) -> Result<()> {
        let mut tries = 1;
        loop {
            match self.query(&[&self.drop_slot()]).await {
                Err(error) if is_active(&error) && tries < TRIES_MAX => env.sleep(AGAIN).await,
                done => return done.map(drop),
            }
            tries += 1;
        }
    }

    fn drop_slot(&self) -> String {
        let slot = &self.slot;
        format!(
            "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = '{slot}'"
        )
    }

    /// Where it is, for its tools.
    pub(super) fn reached(&self) -> String {
        let with = if self.url.contains('?') { '&' } else { '?' };
        format!("{}{with}{ALIVE}", self.url)
    }

    /// What queries answer, each a transaction of its own, without ornament.
    pub(super) async fn query(&self, queries: &[&str]) -> Result<Vec<u8>> {
        let mut command = tool("psql");
        command.args(["-X", "-q", "-A", "-t", "-w", "-v", "ON_ERROR_STOP=1", "-d", &self.reached()]);
        // A standby that has gone is not waited for.
        command.env("PGOPTIONS", "-c synchronous_commit=local");
        for query in queries {
            command.args(["-c", query]);
        }
        said(command, "psql").await
    }
}

/// Whether somebody has the slot at the moment.
pub(super) fn is_active(error: &Error) -> bool {
    error.what().contains("is active for PID")
}

/// A tool of PostgreSQL's, which ends with us and asks nobody for a password.
pub(super) fn tool(name: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", name]).current_dir("/");
    command.env("LC_ALL", "C").env("PGCONNECT_TIMEOUT", CONNECT_SECONDS).env("PGAPPNAME", "stonefold");
    // Where the URI names none; without it libpq takes one that is called as the user.
    command.env("PGDATABASE", "postgres").env_remove("PGOPTIONS");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

/// What a tool says.
pub(super) async fn said(mut command: Command, name: &str) -> Result<Vec<u8>> {
    let output = command.output().await.map_err(|e| Error::io(format!("running {name}"), e))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = complaint(&output.stderr);
    let has = |words: &[&str]| words.iter().any(|words| said.contains(words));
    let (kind, remedy) = if has(&["failed to execute"]) {
        (Kind::NotFound, "install it: apt install postgresql-client util-linux, where the server runs")
    } else if has(&["incompatible server version", "server version mismatch"]) {
        (
            Kind::Unsupported,
            "install postgresql-client of the cluster's version, or a newer one, where the server runs",
        )
    } else if has(&["No space left"]) {
        (Kind::NoSpace, "make room there, or add the source with --scratch and another folder")
    } else if has(&[
        "authentication failed",
        "no pg_hba.conf entry",
        "ermission denied",
        "must be ",
        "password",
    ]) {
        (
            Kind::Denied,
            "give the role REPLICATION and pg_read_all_settings, and let it in in pg_hba.conf, for replication, too",
        )
    } else {
        (Kind::Io, "see that the cluster runs, and can be reached from the server's machine by this URI")
    };
    Err(Error::new(kind, format!("{name}: {said}")).remedy(remedy))
}

/// The line that says what failed: behind it there may be hints.
fn complaint(said: &[u8]) -> String {
    let text = String::from_utf8_lossy(said);
    let is_one = |line: &&str| ["error: ", "FATAL: ", "ERROR: "].iter().any(|word| line.contains(word));
    match text.lines().find(is_one) {
        Some(line) => {
            let bare = line.split_once("error: ").map_or(line, |(_, what)| what);
            bare.trim().to_owned()
        }
        None => last_words(said),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_cluster_tells_is_read() {
        let told: Told = serde_json::from_str(
            r#"{"version":150018,"segment_bytes":16777216,"standby":false,"system":"7712361537833245177","flushed":"16/B374D848",
                "slot":{"slot_name":"s","slot_type":"physical","wal_status":"reserved","restart_lsn":"0/1500718"},
                "tablespaces":[{"number":"16400","location":"/srv/fast"}],"bytes":null}"#,
        )
        .unwrap();
        assert_eq!((told.flushed, told.tablespaces()), (Lsn(0x16_B374_D848), vec!["16400".to_owned()]));
        let slot = told.slot.unwrap();
        assert_eq!((slot.slot_type.as_str(), slot.wal_status.as_deref()), ("physical", Some("reserved")));
    }

    #[test]
    fn the_line_that_says_what_failed_is_told() {
        let of = |text: &str| complaint(text.as_bytes());
        assert_eq!(
            of(
                "psql: error: connection to server on socket \"/x/.s.PGSQL.5432\" failed: No such file or directory\n\tIs the server running locally?\n"
            ),
            "connection to server on socket \"/x/.s.PGSQL.5432\" failed: No such file or directory"
        );
        assert_eq!(
            of("setpriv: failed to execute psql: No such file or directory\n"),
            "setpriv: failed to execute psql: No such file or directory"
        );
        assert_eq!(of(""), "it did not say why");
    }
}
