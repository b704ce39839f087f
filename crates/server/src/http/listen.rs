//! The API's listeners and the thread that serves them.

use super::secret::SecretListener;
use super::{App, Life, router};
use crate::{ApiAddress, Config};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;
use stonefold_env::Env;
use stonefold_nbd::{SocketFile, bind_unix};
use stonefold_tls::Acceptor;
use stonefold_types::{Error, Kind, Result};
use tokio::sync::watch;

/// How long a client that does not read its answer, or does not finish its request, can hold up a stop.
const DRAIN_MAX: Duration = Duration::from_secs(5);
/// Clients that may wait to be accepted.
const BACKLOG: i32 = 128;

/// An address taken, not yet served.
pub(crate) enum ApiListener {
    /// And whether it has TLS.
    Tcp(TcpListener, bool),
    Unix(UnixListener, SocketFile),
}

impl ApiListener {
    /// TLS is for TCP where there is a certificate: beyond loopback always, there when asked for.
    pub(crate) fn bind(address: &ApiAddress, config: &Config) -> Result<Self> {
        let secret = config.tls.is_some() && (config.api_tls || address.is_networked());
        let listener = match address {
            ApiAddress::Tcp(socket) => {
                if address.is_networked() && !secret {
                    tracing::warn!(%address, "the API is on the network without TLS, tokens too; see --tls-cert");
                }
                TcpListener::bind(socket).map(|listener| ApiListener::Tcp(listener, secret))
            }
            // Whoever may use the socket owns every disk.
            ApiAddress::Unix(path) => {
                let (listener, file) = bind_unix(path, BACKLOG, |e| taken(address, e))?;
                Ok(ApiListener::Unix(listener, file))
            }
        };
        let listener = listener.map_err(|e| taken(address, e))?;
        listener.set_nonblocking().map_err(|e| taken(address, e))?;
        Ok(listener)
    }

    fn set_nonblocking(&self) -> std::io::Result<()> {
        match self {
            ApiListener::Tcp(listener, _) => listener.set_nonblocking(true),
            ApiListener::Unix(listener, _) => listener.set_nonblocking(true),
        }
    }

    /// As clients write it, with the port that was really taken.
    pub(crate) fn url(&self) -> String {
        match self {
            ApiListener::Tcp(listener, secret) => {
                let address = listener.local_addr().expect("a bound socket has an address");
                format!("{}://{address}", if *secret { "https" } else { "http" })
            }
            ApiListener::Unix(_, file) => format!("unix://{}", file.path().display()),
        }
    }
}

/// What to do about an address that cannot be listened on.
fn taken(address: &ApiAddress, error: std::io::Error) -> Error {
    let what = format!("the API cannot listen on {address}");
    let (error, remedy) = match error.kind() {
        std::io::ErrorKind::AddrInUse => (
            Error::new(Kind::Busy, format!("{what}: address in use")),
            "stop what listens there, or choose another address with --api",
        ),
        std::io::ErrorKind::AddrNotAvailable => (Error::io(what, error), "choose an address of this machine"),
        std::io::ErrorKind::PermissionDenied => {
            (Error::io(what, error), "choose a port above 1023, or a folder you may write to")
        }
        std::io::ErrorKind::NotFound => (Error::io(what, error), "make the folder, or choose another one"),
        _ => (Error::io(what, error), "choose another address with --api"),
    };
    error.remedy(remedy)
}

/// Serves the API on this thread until told to stop, then until what was asked is answered.
pub(crate) fn run(
    listeners: Vec<ApiListener>,
    app: Arc<App>,
    env: Env,
    tls: Option<Acceptor>,
    stop: watch::Receiver<bool>,
) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Error::io("starting the API's runtime", e))?;
    runtime.block_on(async {
        let mut served = tokio::task::JoinSet::new();
        for listener in listeners {
            let life = Life { env: env.clone(), stop: stop.clone() };
            served.spawn(serve_one(
                listener,
                router(app.clone(), life),
                env.clone(),
                tls.clone(),
                stop.clone(),
            ));
        }
        while let Some(one) = served.join_next().await {
            one.unwrap_or_else(|_| Err(Error::new(Kind::Io, "the API ended by a defect of Stonefold")))?;
        }
        Ok(())
    })
}

async fn serve_one(
    listener: ApiListener,
    router: axum::Router,
    env: Env,
    tls: Option<Acceptor>,
    stop: watch::Receiver<bool>,
) -> Result<()> {
    let told = |mut stop: watch::Receiver<bool>| async move {
        // A sender that is gone means stop, too.
        let _ = stop.wait_for(|stop| *stop).await;
    };
    let late = async {
        told(stop.clone()).await;
        env.sleep(DRAIN_MAX).await;
    };
    let url = listener.url();
    let served = async {
        match listener {
            ApiListener::Tcp(listener, true) => {
                let acceptor = tls.expect("only where there is a certificate is TLS promised");
                let tcp = tokio::net::TcpListener::from_std(listener)?;
                let listener = SecretListener::new(tcp, acceptor, env.clone());
                axum::serve(listener, router).with_graceful_shutdown(told(stop.clone())).await
            }
            ApiListener::Tcp(listener, false) => {
                let listener = tokio::net::TcpListener::from_std(listener)?;
                axum::serve(listener, router).with_graceful_shutdown(told(stop.clone())).await
            }
            ApiListener::Unix(listener, _file) => {
                let listener = tokio::net::UnixListener::from_std(listener)?;
                axum::serve(listener, router).with_graceful_shutdown(told(stop.clone())).await
            }
        }
    };
    tokio::select! {
        result = served => result.map_err(|e| Error::io(format!("serving the API at {url}"), e)),
        () = late => {
            tracing::warn!(%url, "a client of the API did not finish in time, and was dropped");
            Ok(())
        }
    }
}
