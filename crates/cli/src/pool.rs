//! `stonefold pool …`.

use crate::context::Context;
use crate::failure::Failure;
use crate::table::facts;
use clap::Subcommand;
use stonefold_types::Size;

/// Look at the pool
#[derive(Subcommand)]
pub(crate) enum Pool {
    /// Show what the pool holds and what room is left
    Status,
}

impl Pool {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        match self {
            Pool::Status => status(context),
        }
    }
}

fn status(context: &Context) -> Result<(), Failure> {
    let pool = context.client()?.pool()?;
    context.answer(&pool, || {
        facts([
            ("pool", pool.engine.clone()),
            ("place", format!("{}, of which {} free", Size(pool.total_bytes), Size(pool.free_bytes))),
            ("used by the pool", Size(pool.used_bytes).to_string()),
            (
                "disks",
                format!(
                    "{}, of {} together: {}% of the place",
                    pool.disks,
                    Size(pool.provisioned_bytes),
                    pool.provisioned_percent
                ),
            ),
            ("snapshots", pool.snapshots.to_string()),
            ("not yet folded", Size(pool.journal_bytes).to_string()),
        ])
    })
}
