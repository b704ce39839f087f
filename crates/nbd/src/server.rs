//! The server: accepts clients, gives each a task, and counts them.

use futures::FutureExt;
use futures::future::{Either, select};
use std::future::Future;
use std::io;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use stonefold_env::Env;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use crate::connection::{Surroundings, converse};
use crate::fault::Fault;
use crate::limits::CONNECTIONS_MAX;
use crate::listener::{Accepted, Listener};
use crate::memory::Memory;
use crate::metrics::Metrics;
use crate::peer::BROUGHT;
use crate::target::Exports;
use crate::tls::Tls;

/// When the system has no descriptor or memory for another connection, trying at once would only burn time.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// An NBD server for a set of exports. It can serve several listeners, which share its bounds and counters.
pub struct Server<E> {
    env: Env,
    exports: Arc<E>,
    memory: Arc<Memory>,
    metrics: Arc<Metrics>,
    connections_max: usize,
}

impl<E: Exports> Server<E> {
    /// A server that nobody can reach yet.
    pub fn new(env: Env, exports: E) -> Self {
        let (exports, connections_max) = (Arc::new(exports), CONNECTIONS_MAX);
        Server { env, exports, memory: Arc::default(), metrics: Arc::default(), connections_max }
    }

    /// The same for no more than so many connections, because the process may not open more.
    #[must_use]
    pub fn with_connections_max(self, connections_max: usize) -> Self {
        Server { connections_max: connections_max.min(CONNECTIONS_MAX), ..self }
    }

    /// Its counters.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Accepts clients until `shutdown` completes; then closes the socket, finishes what is in flight within a bound,
    /// and returns when the last connection has ended.
    pub async fn serve(&self, listener: Listener, shutdown: impl Future<Output = ()>) {
        let (stop, stopping) = watch::channel(false);
        let mut shutdown = pin!(shutdown);
        loop {
            let accepted = match select(pin!(listener.accept()), &mut shutdown).await {
                Either::Left((accepted, _)) => accepted,
                Either::Right(_) => break,
            };
            match accepted.map(|accepted| (accepted.configure(), accepted.peer(), accepted)) {
                Ok((Ok(()), peer, Accepted::Tcp(stream))) => {
                    self.admit(stream, peer, listener.tls(), &stopping);
                }
                Ok((Ok(()), peer, Accepted::Unix(stream))) => {
                    self.admit(stream, peer, listener.tls(), &stopping);
                }
                // Gone before it was served; nobody else should wait for that.
                Ok((Err(_), ..)) => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    tracing::warn!(address = %listener.address(), %error, "cannot accept a client");
                    self.env.sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop(listener);
        drop(stopping);
        // Fails only when there is no connection left, which is what we are waiting for.
        let _ = stop.send(true);
        stop.closed().await;
    }

    /// Serves one client over a stream that somebody else has accepted, until it leaves.
    pub async fn attend<S>(&self, stream: S, tls: Option<&Tls>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (stop, stopping) = watch::channel(false);
        self.admit(stream, BROUGHT.into(), tls, &stopping);
        drop(stopping);
        stop.closed().await;
    }

    /// Gives a client a task of its own, unless there are too many.
    fn admit<S>(&self, stream: S, peer: Arc<str>, tls: Option<&Tls>, stopping: &watch::Receiver<bool>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let metrics = self.metrics.clone();
        metrics.connections_total.fetch_add(1, Relaxed);
        if metrics.connections.fetch_add(1, Relaxed) >= self.connections_max as u64 {
            metrics.connections.fetch_sub(1, Relaxed);
            metrics.connections_refused.fetch_add(1, Relaxed);
            tracing::warn!("a client was turned away: {} are connected", self.connections_max);
            return;
        }
        let around = Surroundings {
            env: self.env.clone(),
            exports: self.exports.clone(),
            peer,
            memory: self.memory.clone(),
            metrics: metrics.clone(),
            stopping: stopping.clone(),
        };
        let tls = tls.cloned();
        self.env.spawn("nbd", async move {
            match AssertUnwindSafe(converse(stream, tls, around)).catch_unwind().await {
                Ok(Ok(())) => {}
                Ok(Err(fault @ Fault::Hangup)) => tracing::debug!("{fault}"),
                Ok(Err(fault)) => tracing::info!("an NBD connection ended: {fault}"),
                Err(_panic) => {
                    metrics.panics.fetch_add(1, Relaxed);
                    tracing::error!("an NBD connection ended in a panic; this is a bug");
                }
            }
            metrics.connections.fetch_sub(1, Relaxed);
        });
    }
}
