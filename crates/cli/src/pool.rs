//! `stonefold pool …`.

use crate::context::Context;
use crate::directories::{self, Add, Drain, Replace, Waiting};
use crate::failure::Failure;
use crate::keys::KeyFlags;
use crate::offline::Offline;
use crate::salvage;
use crate::table::{count, facts};
use crate::waiting::wait_for;
use clap::{Args, Subcommand};
use stonefold_api::{Checked, Directory, DirectoryState, Pool as Info, PoolTime, Scrub, Time};
use stonefold_types::{Error, Kind, Size};

/// Look at the pool, and look after it
#[derive(Subcommand)]
pub(crate) enum Pool {
    /// Show what the pool holds and what room is left
    Status(Place),
    /// Read everything in use, verify every reference and every checksum, and say what is affected
    ///
    /// What is not folded yet is folded first, and a damaged copy that is met is healed from a sound one, as by any
    /// read; nothing else changes. Clients go on meanwhile. Exit status 1 when something is wrong, a missing directory
    /// of the pool too.
    Check(Check),
    /// As check, of every copy: what is damaged is healed from a sound copy
    Scrub(Place),
    /// Give back all space that nothing refers to
    ///
    /// The server does this by itself, a minute or two after; segments that are only a little dead are left until
    /// more is. This does it now and more thoroughly. Clients go on meanwhile.
    Reclaim,
    /// Use another directory from now on; takes an admin
    ///
    /// What is written goes there at once, and what shall lie there is brought there while clients go on. Interrupting the
    /// command stops nothing. Taken back by draining it.
    Add(Add),
    /// Bring everything elsewhere that lies in a directory; then it leaves the pool; takes an admin
    ///
    /// Refused when the other directories have no room for it. Clients go on meanwhile. Interrupting the command stops
    /// nothing; it is taken back by --cancel, or by adding the directory again. A directory that is damaged or missing is
    /// forgotten once the others have every copy. A file 'left' stays in a directory that has left: it says where the pool is, and
    /// keeps a server whose URL names it still from making a new pool there.
    Drain(Drain),
    /// Use a directory in the place of another, which leaves the pool; takes an admin
    ///
    /// The old one is read as long as it answers, else other copies are.
    Replace(Replace),
    /// Take back the change of directories under way: what was brought elsewhere comes home; takes an admin
    Cancel(Waiting),
    /// Take the server's clock for right, after you have looked at it; takes an admin
    ///
    /// Locks are judged by a time of the pool's own. When the clock is ahead of it by more than can be explained, that time stands
    /// still ('pool status' says so), and no lock ends, until this.
    ConfirmTime,
}

/// What to check.
#[derive(Args)]
pub(crate) struct Check {
    #[command(flatten)]
    place: Place,
    /// Make a new disk NAME.salvaged of each disk and snapshot whose map is damaged in every copy
    ///
    /// The damaged one stays as it is. Its map is rebuilt from what lies in the pool, and gives what is there, not what is
    /// certain: a block that was overwritten by one found by deduplication, or trimmed, since the last version of its map that can be
    /// read may be as it was before. Where nothing was found, reading fails until it is written or trimmed. Exit status 1 while
    /// there is damage, also when all of it was salvaged.
    #[arg(long)]
    salvage: bool,
}

/// Which pool.
#[derive(Args)]
pub(crate) struct Place {
    /// A pool that no server serves: open it for this, and close it again
    #[arg(long, value_name = "URL")]
    pool: Option<String>,
    #[command(flatten)]
    keys: KeyFlags,
}

impl Pool {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        match self {
            Pool::Status(place) => place.with(context, status),
            Pool::Check(Check { place, salvage: true }) => place.with(context, salvage::run),
            Pool::Check(Check { place, salvage: false }) => {
                place.with(context, |context| check(context, false))
            }
            Pool::Scrub(place) => place.with(context, |context| check(context, true)),
            Pool::Reclaim => reclaim(context),
            Pool::Add(add) => add.run(context),
            Pool::Drain(drain) => drain.run(context),
            Pool::Replace(replace) => replace.run(context),
            Pool::Cancel(waiting) => waiting.cancel(context),
            Pool::ConfirmTime => confirm_time(context),
        }
    }
}

impl Place {
    fn with(
        self,
        context: &Context,
        run: impl FnOnce(&Context) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let Some(url) = self.pool else { return run(context) };
        let offline = Offline::open(&url, self.keys)?;
        let result = run(&offline.context(context));
        let closed = offline.close();
        result.and(closed.map_err(Failure::from))
    }
}

fn status(context: &Context) -> Result<(), Failure> {
    let pool = context.client()?.pool()?;
    let work = pool.work.iter().map(|work| work.what.as_str()).collect::<Vec<_>>();
    context.answer(&pool, || {
        facts([
            ("pool", pool.engine.clone()),
            ("state", state(&pool)),
            ("directories", directories::lines(&pool)),
            ("raw", Size(pool.raw_bytes).to_string()),
            (
                "usable",
                format!(
                    "{}: {} used by the pool, {} free",
                    Size(pool.usable_bytes),
                    Size(pool.used_bytes),
                    Size(pool.free_bytes)
                ),
            ),
            ("effective", effective(&pool)),
            ("overcommitted", overcommitted(&pool)),
            ("days to full", days_to_full(&pool)),
            ("data of disks", Size(pool.logical_bytes).to_string()),
            (
                "blocks in use",
                format!(
                    "{} before compression; {} dead beside them",
                    Size(pool.live_bytes),
                    Size(pool.dead_bytes)
                ),
            ),
            ("disks", format!("{}, of {} together", pool.disks, Size(pool.provisioned_bytes))),
            ("reserved", format!("{} of that", Size(pool.reserved_bytes))),
            ("snapshots", pool.snapshots.to_string()),
            ("not yet folded", Size(pool.journal_bytes).to_string()),
            ("scrub", scrub_text(&pool.scrub)),
            ("under way", work.join(", ")),
            ("time", time_text(&pool.time)),
        ])
    })
}

fn effective(pool: &Info) -> String {
    let known = pool.effective_bytes.zip(pool.reduction_percent);
    known.map_or_else(
        || "not known yet: the disks hold less than 1G".into(),
        |(bytes, percent)| {
            format!("{} of disks at the present reduction of {:.2}", Size(bytes), percent as f64 / 100.0)
        },
    )
}

fn overcommitted(pool: &Info) -> String {
    match pool.overcommitted_percent {
        None => "not known yet".into(),
        Some(percent @ 0..=100) => format!("no: the disks' sizes are {percent}% of what is effective"),
        Some(percent) => format!("yes: the disks' sizes are {percent}% of what is effective"),
    }
}

fn days_to_full(pool: &Info) -> String {
    match (pool.growth_bytes_per_day, pool.days_to_full) {
        (None, _) => "not known yet: a day has to be watched".into(),
        (Some(_), None) => "never: the pool does not grow".into(),
        (Some(rate), Some(days)) => {
            format!("{days}, at {} a day", Size(rate.unsigned_abs()))
        }
    }
}

fn scrub_text(scrub: &Scrub) -> String {
    let day = |time: &Time| time.to_seconds_text();
    let mut text = match (&scrub.begun, &scrub.finished) {
        (None, None) => "not begun".to_owned(),
        (Some(begun), None) => format!("the first since {} UTC", day(begun)),
        (_, Some(finished)) => format!("all read last by {} UTC", day(finished)),
    };
    match scrub.damaged_segments {
        0 => text.push_str(", nothing found damaged that is not healed"),
        many => text.push_str(&format!(
            "; {many} segments are damaged in every copy: 'stonefold pool check' tells what is affected"
        )),
    }
    text
}

fn time_text(time: &PoolTime) -> String {
    let (trusted, clock) = (time.trusted.to_seconds_text(), time.clock.to_seconds_text());
    match time.in_doubt {
        false => format!("{trusted} UTC"),
        true => format!(
            "{trusted} UTC; the server's clock says {clock} and is not believed: look at it, then 'stonefold pool confirm-time'"
        ),
    }
}

fn confirm_time(context: &Context) -> Result<(), Failure> {
    let time = context.client()?.confirm_time()?;
    context.answer(&time, || format!("the pool's time is {} UTC\n", time.trusted.to_seconds_text()))
}

/// What needs somebody to act.
fn state(pool: &Info) -> String {
    let mut wrong: Vec<String> =
        pool.missing.iter().map(|dir| format!("DEGRADED: without '{dir}', see the log for why")).collect();
    let damaged = pool.damaged.iter();
    wrong.extend(
        damaged.map(|damage| format!("DAMAGED, nothing is given back: {}; {}", damage.what, damage.remedy)),
    );
    wrong.extend(damage_found(pool));
    if pool.full {
        wrong.push(
            "FULL: writes are refused; remove disks or snapshots and run 'stonefold pool reclaim', or enlarge the place"
                .to_owned(),
        );
    }
    if wrong.is_empty() { "sound, takes writes".to_owned() } else { wrong.join("\n") }
}

/// What a check, the scrub and clients have met of damage.
fn damage_found(pool: &Info) -> Vec<String> {
    let mut found = Vec::new();
    if let Some(check) = pool.checked.as_ref().filter(|check| check.problems > 0) {
        let first = check.first.as_deref().unwrap_or_default();
        found.push(format!(
            "DAMAGED: {} found by the check of {} UTC: {first}; 'stonefold pool check' tells all",
            count(check.problems, "problem"),
            check.finished.to_seconds_text(),
        ));
    }
    if pool.scrub.damaged_segments > 0 {
        found.push(format!(
            "DAMAGED in every copy: {}, as the scrub in the background found; 'stonefold pool check' tells what is affected",
            count(pool.scrub.damaged_segments, "segment"),
        ));
    }
    for reads in &pool.damaged_reads {
        found.push(format!(
            "DAMAGED: {} of '{}' failed, last {} UTC: {}; 'stonefold pool check' tells what is affected",
            count(reads.times, "read"),
            reads.export,
            reads.last.to_seconds_text(),
            reads.what,
        ));
    }
    found
}

fn reclaim(context: &Context) -> Result<(), Failure> {
    let client = context.client()?;
    let done = wait_for(&client, "reclaim", |client| client.reclaim())?;
    context.answer(&done, || {
        format!(
            "{} given back: {} deleted, {} written anew, which left {} of dead blocks out\n",
            Size(done.freed_bytes),
            count(done.deleted_segments, "segment"),
            done.rewritten_segments,
            Size(done.dead_bytes)
        )
    })
}

fn check(context: &Context, heal: bool) -> Result<(), Failure> {
    let client = context.client()?;
    let found = match heal {
        true => wait_for(&client, "scrub", |client| client.scrub_pool())?,
        false => wait_for(&client, "check", |client| client.check_pool())?,
    };
    context.answer(&found, || told(&found))?;
    let wrong = found.problems.len();
    if wrong == 0 {
        return Ok(());
    }
    let what = format!("{wrong} thing{} wrong in the pool", if wrong == 1 { " is" } else { "s are" });
    let lost = |one: &Directory| matches!(one.state, DirectoryState::Missing | DirectoryState::Damaged);
    let bring_back = "bring the directory back that is missing and restart the server, or put another in its place with 'stonefold \
                      pool replace'";
    let remedy = match heal {
        _ if client.pool()?.directories.iter().any(lost) => bring_back,
        true => "restore what is named from another copy; everything else is sound",
        false => {
            "'stonefold pool scrub' heals what has a second copy; 'stonefold pool check --salvage' makes new disks of what \
             it can where a map is damaged; restore the rest from elsewhere"
        }
    };
    Err(Error::new(Kind::Corrupt, what).remedy(remedy).into())
}

pub(crate) fn told(found: &Checked) -> String {
    let mut text = facts([
        ("walked", format!("{}, {}", count(found.disks, "disk"), count(found.snapshots, "snapshot"))),
        ("in use", format!("{}, {}", count(found.blocks, "block"), count(found.nodes, "map node"))),
        ("read", format!("{} in {}", Size(found.bytes), count(found.segments, "segment"))),
        ("healed copies", found.healed.to_string()),
        ("not folded, not read", Size(found.unfolded_bytes).to_string()),
        ("space lost to nothing", Size(found.lost_bytes).to_string()),
        (
            "wrong",
            if found.problems.is_empty() { "nothing".into() } else { found.problems.len().to_string() },
        ),
    ]);
    found.problems.iter().for_each(|problem| text.push_str(&format!("  {problem}\n")));
    found.notes.iter().for_each(|note| text.push_str(&format!("note: {note}\n")));
    text
}
