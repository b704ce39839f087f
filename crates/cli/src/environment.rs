//! Clock, threads and chance of this machine, for commands that do long work themselves.

use stonefold_env::{Env, SystemWorld};
use stonefold_types::{Error, Result};

/// The real ones; they end with their runtime.
pub(crate) fn environment() -> Result<(tokio::runtime::Runtime, Env)> {
    let failed = |e| Error::io("starting the clock and the threads", e);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let world = SystemWorld::new(runtime.handle().clone(), 1).map_err(failed)?;
    Ok((runtime, Env::new(world)))
}
