//! The words of a profile that recovers a database from points of a chain: a table `[chain]`.

use crate::oltp::chain::Neighbour;
use crate::profile::time;
use serde::Deserialize;
use std::time::Duration;
use stonefold_types::{Error, Kind, Result};

/// Points after the first at most.
const CHANGES_MAX: u32 = 1_000;

/// How a chain of points is made, and which of them are recovered.
#[derive(Clone, Debug, PartialEq)]
pub struct Chain {
    /// Points after the first.
    pub changes: u32,
    /// Users who change the database before each of them.
    pub users: u32,
    /// For how long; at full size, and with `--quick`.
    pub between: [Duration; 2],
    /// Which are recovered, by number; 0 is the first.
    pub recover: Vec<u32>,
    /// Other machines' loads meanwhile, where targets are named for them.
    pub beside: Vec<Neighbour>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ChainWords {
    changes: u32,
    users: u32,
    between: String,
    between_quick: Option<String>,
    recover: Vec<u32>,
    #[serde(default)]
    beside: Vec<Neighbour>,
}

impl ChainWords {
    pub(super) fn check(&self) -> Result<Chain> {
        let wrong = |what: String| Err(Error::new(Kind::Invalid, what));
        if self.changes == 0 || self.changes > CHANGES_MAX {
            return wrong(format!("{} changes; from 1 to {CHANGES_MAX} can be", self.changes));
        }
        if self.users == 0 || self.users > super::USERS_MAX {
            return wrong(format!(
                "{} users who change it; from 1 to {} can be",
                self.users,
                super::USERS_MAX
            ));
        }
        let rising = self.recover.windows(2).all(|pair| pair[0] < pair[1]);
        let last = self.recover.last().copied();
        if !rising || last.is_none_or(|last| last > self.changes) {
            return wrong(format!(
                "points {:?} are to be recovered; name some from 0 to {}, each more than the last",
                self.recover, self.changes
            ));
        }
        self.beside.iter().try_for_each(Neighbour::check)?;
        let quick = self.between_quick.as_ref().unwrap_or(&self.between);
        let between = [time(&self.between)?, time(quick)?];
        match between.iter().min() < Some(&Duration::from_secs(1)) {
            true => wrong("users work for less than a second between two points".into()),
            false => Ok(Chain {
                changes: self.changes,
                users: self.users,
                between,
                recover: self.recover.clone(),
                beside: self.beside.clone(),
            }),
        }
    }
}

impl Chain {
    /// How long it takes to make.
    pub(super) fn duration(&self, quick: bool) -> Duration {
        self.between[usize::from(quick)] * self.changes
    }
}
