//! The log: on stderr, one line an event.

use std::io::IsTerminal;
use stonefold_types::{Error, Kind, Result};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// Starts the log for this process. `directives` as in `info` or `warn,stonefold_nbd=debug`; left out, those of
/// RUST_LOG, else `info`.
pub fn start_log(directives: Option<&str>) -> Result<()> {
    if let Some(word) = directives.and_then(neither) {
        return Err(Error::new(Kind::Invalid, format!("'{word}' does not say what to log"))
            .remedy("write a level (error, warn, info, debug, trace), or module=level,…"));
    }
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

/// What of the directives is neither a level nor a module with one. The filter itself would take it for the name of a
/// module, and log nothing of all others: a slip of the pen would hide every warning.
fn neither(directives: &str) -> Option<&str> {
    let is_level = |text: &str| !text.is_empty() && text.parse::<LevelFilter>().is_ok();
    directives.split(',').map(str::trim).find(|word| match word.rsplit_once('=') {
        Some((module, level)) => module.is_empty() || !is_level(level),
        None => !is_level(word),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_pen_is_no_module() {
        for good in ["warn", "WARN", "off", "warn,stonefold_nbd=debug", "stonefold_store::fold=trace"] {
            assert_eq!(neither(good), None, "{good}");
        }
        for (bad, word) in
            [("loud", "loud"), ("warn,stonefold_nbd", "stonefold_nbd"), ("a=loud", "a=loud"), ("", "")]
        {
            assert_eq!(neither(bad), Some(word), "{bad}");
        }
    }
}
