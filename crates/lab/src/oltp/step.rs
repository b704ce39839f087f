//! One step of the ramp: the database restored, a server started, so many users, and what the database says when they have gone.

use super::cycle::Wanted;
use super::profile::Scale;
use super::rules::Uneven;
use super::server::{Host, Server};
use super::{Plan, consistency, loading};
use crate::measure::{Doing, Point, Reins};
use postgres::Client;
use std::path::Path;
use stonefold_types::{Error, Result};

/// What all steps share.
#[derive(Clone, Copy)]
pub(super) struct Run<'a> {
    pub host: &'a Host<'a>,
    pub plan: &'a Plan,
    pub scale: &'a Scale,
    pub uneven: Uneven,
    pub settings: &'a [(String, String)],
    pub loaded: &'a Path,
    pub data: &'a Path,
    pub database_bytes: u64,
    pub reins: &'a Reins,
}

impl Run<'_> {
    /// One step. A point without a failure is whole; a failure with a point says why it is not.
    pub(super) fn step(&self, step: &str, users: u32) -> Result<(Option<Point>, Option<Error>)> {
        let name = format!("{users} {}", if users == 1 { "user" } else { "users" });
        let restore_seconds = self.restore(&name)?;
        let (mut server, mut watcher) = self.start()?;
        let wanted = Wanted { step: step.into(), label: name.clone(), users, number: 0, restore_seconds };
        let mut cycle = self.cycle(&wanted, &mut server, &mut watcher)?;
        if cycle.failure.is_none() {
            self.reins.begin(Doing { what: format!("{name}: checking the database"), ..Doing::default() });
            let warehouses = self.scale.warehouses;
            cycle.record.checks = consistency::check(&mut watcher, warehouses, &cycle.acknowledged)?;
            drop(watcher);
            server.stop()?;
        }
        let failure = cycle.failure.take();
        Ok((self.point(&wanted, cycle), failure))
    }

    /// Puts the loaded database in place, cold. Returns how many seconds that took.
    pub(super) fn restore(&self, name: &str) -> Result<f64> {
        let env = self.host.env;
        let began = env.monotonic();
        self.reins.begin(Doing { what: format!("{name}: restoring the database"), ..Doing::default() });
        loading::restore(self.host, self.loaded, self.data, self.reins)?;
        Ok((env.monotonic() - began).as_secs_f64())
    }

    /// A server on it, with nothing left to be written, and a connection for whoever watches.
    pub(super) fn start(&self) -> Result<(Server, Client)> {
        let server = self.host.start(self.data, self.settings)?;
        let mut watcher = server.connect()?;
        watcher.batch_execute("CHECKPOINT").map_err(|e| loading::failed("writing a checkpoint", &e))?;
        Ok((server, watcher))
    }
}
