//! The log: on stderr, one line an event.

use std::io::IsTerminal;
use stonefold_types::{Error, Kind, Result};
use tracing_subscriber::EnvFilter;

/// Starts the log for this process. `directives` as in `info` or `warn,stonefold_nbd=debug`; left out, those of
/// RUST_LOG, else `info`.
pub fn start_log(directives: Option<&str>) -> Result<()> {
    let from_env = std::env::var("RUST_LOG").ok().filter(|text| !text.is_empty());
    let directives = directives.map(str::to_owned).or(from_env).unwrap_or_else(|| "info".to_owned());
    let filter = EnvFilter::try_new(&directives).map_err(|e| {
        Error::new(Kind::Invalid, format!("'{directives}' does not say what to log: {e}"))
            .remedy("write a level (error, warn, info, debug, trace), or module=level,…")
    })?;
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    // A second start, in a test, keeps the first.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(colour)
        .try_init();
    Ok(())
}
