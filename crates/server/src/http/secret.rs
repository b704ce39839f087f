//! HTTPS: a listener that shakes hands with many clients at once, so that one that is slow keeps only itself waiting.

use axum::serve::Listener;
use futures::future::{BoxFuture, Either, select};
use futures::stream::{FuturesUnordered, StreamExt};
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;
use stonefold_env::Env;
use stonefold_tls::{Acceptor, TlsStream};
use tokio::net::{TcpListener, TcpStream};

/// How long a client may take to shake hands.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// Handshakes under way at once; beyond, clients wait to be accepted. A console and some programs ask here, not a crowd.
const HANDSHAKES_MAX: usize = 256;
/// When the system has no descriptor for another connection, trying at once would only burn time.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

type Shaken = Option<(TlsStream<TcpStream>, SocketAddr)>;

/// See the module.
pub(super) struct SecretListener {
    tcp: TcpListener,
    acceptor: Acceptor,
    env: Env,
    handshakes: FuturesUnordered<BoxFuture<'static, Shaken>>,
}

impl SecretListener {
    pub(super) fn new(tcp: TcpListener, acceptor: Acceptor, env: Env) -> Self {
        SecretListener { tcp, acceptor, env, handshakes: FuturesUnordered::new() }
    }

    fn shake_hands(&self, stream: TcpStream, peer: SocketAddr) -> BoxFuture<'static, Shaken> {
        let (acceptor, limit) = (self.acceptor.clone(), self.env.sleep(HANDSHAKE_MAX));
        Box::pin(async move {
            match select(pin!(acceptor.accept(stream)), limit).await {
                Either::Left((Ok(stream), _)) => return Some((stream, peer)),
                Either::Left((Err(error), _)) => {
                    tracing::info!(%peer, %error, "a client of the API failed to begin TLS");
                }
                Either::Right(_) => tracing::info!(%peer, "a client of the API took too long to begin TLS"),
            }
            None
        })
    }
}

impl Listener for SecretListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, SocketAddr) {
        loop {
            tokio::select! {
                accepted = self.tcp.accept(), if self.handshakes.len() < HANDSHAKES_MAX => match accepted {
                    Ok((stream, peer)) => self.handshakes.push(self.shake_hands(stream, peer)),
                    Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                    Err(error) => {
                        tracing::warn!(%error, "the API cannot accept a client");
                        self.env.sleep(ACCEPT_PAUSE).await;
                    }
                },
                Some(shaken) = self.handshakes.next() => if let Some(shaken) = shaken {
                    return shaken;
                },
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }
}
