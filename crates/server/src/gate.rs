//! From the API's thread to the store's.

use std::future::Future;
use std::sync::Arc;
use stonefold_env::Env;
use stonefold_store::Store;
use stonefold_types::{Error, Kind, Result};
use tokio::sync::oneshot;

/// Carries calls over to the data thread, where the engine's ring lives. A call that was carried over runs to its
/// end even when whoever asked has gone.
#[derive(Clone)]
pub(crate) struct Gate {
    env: Env,
    store: Arc<Store>,
}

impl Gate {
    pub(crate) fn new(env: Env, store: Arc<Store>) -> Self {
        Gate { env, store }
    }

    /// The store, for calls that only look at memory.
    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// Runs a call that does I/O.
    pub(crate) async fn run<T, F, C>(&self, call: C) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send,
        C: FnOnce(Arc<Store>) -> F + Send + 'static,
    {
        let (tell, told) = oneshot::channel();
        let store = self.store.clone();
        self.env.spawn("api call", async move {
            // Whoever asked may have gone; the call is done all the same.
            let _ = tell.send(call(store).await);
        });
        told.await.unwrap_or_else(|_| Err(Error::new(Kind::Closed, "the server is stopping")))
    }
}
