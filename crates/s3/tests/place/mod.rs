//! Pools in an S3 server.

use stonefold_engine::Engine;
use stonefold_env::{Env, SystemWorld};
use stonefold_s3::{Options, S3Engine};
use stonefold_types::Result;

/// The real world.
pub(crate) fn env() -> Env {
    Env::new(SystemWorld::new(tokio::runtime::Handle::current(), 1).unwrap())
}

/// Opens a pool's place.
pub(crate) async fn open(url: &str) -> Result<S3Engine> {
    S3Engine::open(env(), Options::parse(url).unwrap()).await
}

/// A place for the suite.
pub(crate) struct Bucket(pub(crate) String);

#[async_trait::async_trait]
impl stonefold_engine::conformance::Place for Bucket {
    async fn open(&self) -> std::sync::Arc<dyn Engine> {
        std::sync::Arc::new(open(&self.0).await.unwrap())
    }
}
