//! A database as a load: transactions of an order-entry business, after those of TPC-C, on a real PostgreSQL whose data and log
//! lie on the target.
//!
//! *Promises*: every step begins with the same bytes, cold; what was acknowledged is looked for when the users have gone; a run that ends
//! early keeps what it has and says why it ended. *Never*: calls itself TPC-C, which has terminals, think times and an audit;
//! touches another PostgreSQL of the machine; leaves a server, a mount or a file behind. *Owns*: a PostgreSQL while it runs, and
//! one folder on the target. *May be used by*: the command line.

pub(crate) mod audit;
pub mod chain;
mod consistency;
mod cycle;
pub mod figures;
mod input;
mod loading;
pub mod migration;
mod place;
mod populate;
pub mod profile;
mod ramp;
pub mod record;
mod rules;
mod schema;
mod server;
mod step;
mod tools;
mod transactions;
mod users;

pub(crate) use audit::summarise;
pub use chain::{ChainRecord, Keeper};
pub use input::Kind as Transaction;
pub use migration::MigrationRecord;
pub use profile::Profile;
pub use ramp::Plateau;
pub use server::Programs;

use crate::bundle::ENDED_BY;
use crate::chance::Chance;
use crate::front::Front;
use crate::measure::{Doing, Point, Reins};
use crate::target::TargetSpec;
use place::{Place, Private};
use populate::Population;
use rules::Uneven;
use server::Host;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use stonefold_env::Env;
use stonefold_types::{Error, Kind, Result};
use tools::User;

/// What PostgreSQL has as `max_wal_size` where nothing else is said.
const LOG_BYTES: u64 = 1 << 30;
/// By how much it may pass that, as it says itself; and the log of the loaded database.
const LOG_MORE: f64 = 1.5;
/// How much a database may grow in a step, as a share of what was loaded.
const GROWTH: f64 = 0.3;
/// The folder of the cluster that users work on.
const DATA: &str = "run";

/// What is run, and on what.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What.
    pub profile: Profile,
    /// At its quick size and times.
    pub quick: bool,
    /// Where the database lies.
    pub target: TargetSpec,
    /// Of everything that is drawn.
    pub seed: u64,
    /// Whether data that is not the lab's own may go.
    pub destroy_data: bool,
    /// Where PostgreSQL's programs are; without it they are looked for.
    pub programs: Option<PathBuf>,
    /// Where the disk is moved to, of a profile that moves it.
    pub to: Option<TargetSpec>,
    /// Who keeps points of the target, of a profile that recovers some.
    pub keeper: Option<Arc<dyn Keeper>>,
    /// Where its neighbours are, of a profile that has some: one for each, or none.
    pub beside: Vec<TargetSpec>,
}

/// What a run has shown.
#[derive(Debug)]
pub struct Outcome {
    /// A point for each step of the ramp.
    pub points: Vec<Point>,
    /// PostgreSQL, its settings and where it lay, by names.
    pub facts: BTreeMap<String, String>,
    /// Bytes of the loaded database.
    pub bytes: u64,
    /// What ended it before its time, beside somebody who wished so.
    pub failure: Option<Error>,
    /// Of a profile that moves the disk: how that went.
    pub migration: Option<MigrationRecord>,
    /// Of a profile that recovers points: how that went.
    pub chain: Option<ChainRecord>,
}

/// Runs all of a plan.
///
/// # Errors
/// When PostgreSQL is missing, the target cannot take the database, or it cannot be loaded. What fails later is in the outcome.
pub fn run(env: &Env, plan: &Plan, reins: &Reins) -> Result<Outcome> {
    let programs = Programs::find(plan.programs.as_deref())?;
    plan.check()?;
    let user = User::of_postgres()?;
    let private = Private::new(env, user)?;
    let scale = plan.profile.scale(plan.quick);
    // The loaded database, its copy, and what a step adds.
    let bytes = scale.bytes() as f64 * (2.0 + GROWTH)
        + plan.profile.log_bytes().unwrap_or(LOG_BYTES) as f64 * LOG_MORE;
    let bytes = bytes as u64 >> 12 << 12;
    reins.begin(Doing { what: format!("making room on {}", plan.target), ..Doing::default() });
    let mut front = match (&plan.profile.migration, &plan.to) {
        (Some(_), Some(to)) => {
            let mut front =
                Front::new(env, (&plan.target, bytes), &private.path, plan.destroy_data, place::is_ours)?;
            // Before hours are spent on what it could not take. The last run's is no data of others.
            front.choose(to, plan.destroy_data, place::is_ours)?;
            Some(front)
        }
        _ => None,
    };
    let on = front.as_ref().map_or_else(|| plan.target.clone(), Front::target);
    let place = Place::new(env, &on, bytes, plan.destroy_data, user, &private.path);
    let place = place.map_err(|e| if front.is_some() { e.context(plan.target.to_string()) } else { e })?;
    let host = Host { env, programs, user, folder: private.path.clone() };
    let outcome = on_place(&host, plan, &place, front.as_mut(), reins);
    // What ended the run says more than what follows from it.
    let closed = place.close(env);
    let outcome = outcome?;
    closed.map(|()| outcome)
}

impl Plan {
    /// Whether it can be run at all, as far as that can be told without a look at a target.
    ///
    /// # Errors
    /// [`Kind::Invalid`]: what is missing in it, or too much.
    pub fn check(&self) -> Result<()> {
        match (&self.profile.migration, &self.to) {
            (Some(_), None) => Err(nowhere(&self.profile.name)),
            (None, Some(_)) => Err(no_move(&self.profile.name)),
            _ => self.check_keeper(),
        }
    }

    fn check_keeper(&self) -> Result<()> {
        let name = &self.profile.name;
        match (&self.profile.chain, &self.keeper) {
            (Some(_), None) => Err(Error::new(
                Kind::Invalid,
                format!("the profile '{name}' recovers points, and nobody has said who keeps them"),
            )
            .remedy("take a target 'stonefold:DISK', or say --recovery FILE; docs/use/lab.md has one")),
            (None, Some(_)) => {
                Err(Error::new(Kind::Invalid, format!("the profile '{name}' recovers nothing"))
                    .remedy("leave --recovery out, or run chain-recover"))
            }
            _ => self.check_neighbours(),
        }
    }

    fn check_neighbours(&self) -> Result<()> {
        let neighbours = self.profile.chain.as_ref().map_or(0, |chain| chain.beside.len());
        match self.beside.len() {
            0 => Ok(()),
            named if named == neighbours => Ok(()),
            named => {
                let what = format!(
                    "{named} targets for the {neighbours} neighbours of the profile '{}'",
                    self.profile.name
                );
                Err(Error::new(Kind::Invalid, what)
                    .remedy("say --beside once for each, in the profile's order, or leave it out"))
            }
        }
    }
}

fn nowhere(profile: &str) -> Error {
    Error::new(Kind::Invalid, format!("the profile '{profile}' moves the disk, and nobody has said where to"))
        .remedy("say --to TARGET: a file, a block device or an export of the same size")
}

fn no_move(profile: &str) -> Error {
    Error::new(Kind::Invalid, format!("the profile '{profile}' moves nothing"))
        .remedy("leave --to out, or run migrate-live")
}

fn on_place(
    host: &Host<'_>,
    plan: &Plan,
    place: &Place,
    front: Option<&mut Front>,
    reins: &Reins,
) -> Result<Outcome> {
    let env = host.env;
    let scale = plan.profile.scale(plan.quick);
    let (loaded, data) = (place.folder.join("loaded"), place.folder.join(DATA));
    let (of_load, of_run) = Uneven::pair(&mut Chance::new(plan.seed));
    let began = env.monotonic();
    reins.begin(Doing { what: "making a PostgreSQL cluster".into(), ..Doing::default() });
    loading::load(host, &loaded, &Population::new(plan.seed, of_load), scale.warehouses, reins)?;
    let load_seconds = (env.monotonic() - began).as_secs_f64();
    let bytes = loading::bytes(&loaded)?;
    let settings = settings(plan);
    let run = step::Run {
        host,
        plan,
        scale,
        uneven: of_run,
        settings: &settings,
        loaded: &loaded,
        data: &data,
        database_bytes: bytes,
        reins,
    };
    let facts = BTreeMap::new();
    let mut outcome =
        Outcome { points: Vec::new(), facts, bytes, failure: None, migration: None, chain: None };
    match (front, plan.profile.migration, &plan.to) {
        (Some(front), Some(migration), Some(to)) => match run.move_under_load(front, migration, to) {
            Ok(moved) => {
                (outcome.points, outcome.failure) = (moved.points, moved.failure);
                outcome.migration = Some(moved.record);
            }
            Err(error) if error.kind() == Kind::Closed => {}
            Err(error) => outcome.failure = Some(error),
        },
        _ => match (&plan.profile.chain, &plan.keeper) {
            (Some(chain), Some(keeper)) => {
                let chained = run.recover_beside(chain, &**keeper, &host.folder)?;
                (outcome.points, outcome.failure) = (chained.points, chained.failure);
                outcome.chain = Some(chained.record);
            }
            _ => (outcome.points, outcome.failure) = climb(&run, |users| run.step("ramp", users)),
        },
    }
    let told = settings.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>();
    outcome.facts = [
        ("postgresql", host.programs.version().to_owned()),
        ("settings", told.join(" ")),
        ("database lies on", place.told.clone()),
        ("loading took", format!("{load_seconds:.1} s, indexes and all")),
        (
            "restored by",
            "copying the files of the stopped cluster, synced and forgotten by the page cache".into(),
        ),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    if let Some(failure) = &outcome.failure {
        outcome.facts.insert(ENDED_BY.into(), failure.what());
    }
    Ok(outcome)
}

/// More and more users, until that gains nothing: a point for each step, and what ended it before its time.
fn climb(
    run: &step::Run<'_>,
    mut step: impl FnMut(u32) -> Result<(Option<Point>, Option<Error>)>,
) -> (Vec<Point>, Option<Error>) {
    let mut points = Vec::new();
    for users in &run.scale.users {
        if run.reins.is_stopped() || Plateau::of(&points).is_some_and(Plateau::is_over) {
            break;
        }
        match step(*users) {
            Ok((point, failure)) => {
                points.extend(point);
                run.reins.measured(&points);
                if failure.is_some() {
                    return (points, failure);
                }
            }
            Err(error) if error.kind() == Kind::Closed => {}
            Err(error) => return (points, Some(error.context(format!("{users} users")))),
        }
    }
    (points, None)
}

/// Everything that PostgreSQL is told, in the order of the names.
fn settings(plan: &Plan) -> Vec<(String, String)> {
    let scale = plan.profile.scale(plan.quick);
    let mut settings = plan.profile.settings.clone();
    settings.insert("shared_buffers".into(), format!("{}kB", scale.buffer_bytes >> 10));
    let users = scale.users.last().copied().unwrap_or(1);
    settings.insert("max_connections".into(), (users + 16).to_string());
    settings.into_iter().collect()
}
