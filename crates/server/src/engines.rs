//! From a pool's URL to an engine.

use std::sync::Arc;
use stonefold_engine::{Engine, FileEngine, FileOptions, MemoryEngine};
use stonefold_env::Env;
use stonefold_s3::{Options as S3Options, S3Engine};
use stonefold_types::{Error, Kind, Result};

fn scheme(url: &str) -> &str {
    url.split_once(':').map_or("", |(scheme, _)| scheme)
}

/// Opens the engine that a pool's URL names.
/// With `own` the place must hold a pool already.
pub(crate) async fn open(url: &str, degraded: bool, own: bool, env: &Env) -> Result<Arc<dyn Engine>> {
    match scheme(url) {
        "memory" if !own => Ok(Arc::new(MemoryEngine::default())),
        "file" => {
            let mut options = FileOptions::parse(url)?;
            options.degraded |= degraded;
            options.create &= !own;
            Ok(Arc::new(FileEngine::open(env.clone(), options).await?))
        }
        "s3" => {
            let mut options = S3Options::parse(url)?;
            options.create &= !own;
            Ok(Arc::new(S3Engine::open(env.clone(), options).await?))
        }
        _ => Err(not_a_pool(url)),
    }
}

/// Refuses a URL that names no place which another pool can be in.
pub(crate) fn check_other(url: &str) -> Result<()> {
    match scheme(url) {
        "memory" => Err(not_a_pool(url)),
        _ => check(url),
    }
}

/// Refuses a URL that names no place, before anything is opened.
pub(crate) fn check(url: &str) -> Result<()> {
    match scheme(url) {
        "memory" => Ok(()),
        "file" => FileOptions::parse(url).map(drop),
        "s3" => S3Options::parse(url).map(drop),
        _ => Err(not_a_pool(url)),
    }
}

/// Whether a pool, or anything but room for one, is there already. Fails where that cannot be asked.
pub(crate) async fn is_made(url: &str, env: &Env) -> Result<bool> {
    match scheme(url) {
        "s3" => stonefold_s3::is_made(&S3Options::parse(url)?, env).await,
        _ => {
            let url = url.to_owned();
            // A place that hangs keeps no guest waiting.
            let made = move || FileOptions::parse(&url).is_ok_and(|options| options.is_made());
            Ok(env.offload(made).await)
        }
    }
}

fn not_a_pool(url: &str) -> Error {
    let error =
        Error::new(Kind::Invalid, format!("'{url}' is not the URL of a pool that this version serves"));
    // A bare path is the likeliest slip.
    match url.starts_with('/') {
        true => error.remedy(format!("write it as file://{url}")),
        false => error.remedy("write it as file:///srv/pool or s3://bucket/prefix"),
    }
}
