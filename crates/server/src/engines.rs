//! From a pool's URL to an engine.

use std::sync::Arc;
use stonefold_engine::Engine;
use stonefold_env::Env;
use stonefold_types::{Error, Kind, Result};

/// Opens the engine that a pool's URL names.
pub(crate) async fn open(url: &str, _env: &Env) -> Result<Arc<dyn Engine>> {
    let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
    match scheme {
        _ => Err(Error::new(Kind::Invalid, format!("'{url}' is not the URL of a pool"))
            .remedy("write it as file:///srv/pool")),
    }
}
