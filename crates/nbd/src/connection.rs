//! One connection: a task that owns its socket, from the greeting to the end.
//!
//! *Promises*: nothing a client does outlives or slows other than its own connection; replies are gathered until the input
//! runs dry, then written at once; other tasks get their turn; a client that left properly, and a server that is told
//! to stop, finish what is in flight.

use bytes::BytesMut;
use futures::future::{BoxFuture, Either, Select, select};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use stonefold_env::Env;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;

use crate::fault::Fault;
use crate::handshake::{greet, negotiate};
use crate::limits::{FAREWELL_MAX, HANDSHAKE_MAX, PULSE, SHUTDOWN_MAX, STALL_MAX};
use crate::memory::Memory;
use crate::metrics::Metrics;
use crate::negotiation::{Negotiation, Next, Opened};
use crate::session::{Session, Stop, Turn};
use crate::target::{Exports, Target};
use crate::tls::{Secrecy, Tls};
use std::sync::atomic::Ordering::Relaxed;

/// What a connection needs of its server.
pub(crate) struct Surroundings<E> {
    pub(crate) env: Env,
    pub(crate) exports: Arc<E>,
    /// Who the client is, for people.
    pub(crate) peer: Arc<str>,
    pub(crate) memory: Arc<Memory>,
    pub(crate) metrics: Arc<Metrics>,
    /// True once the server stops.
    pub(crate) stopping: watch::Receiver<bool>,
}

/// Serves one client until it leaves, fails, or the server stops.
pub(crate) async fn converse<S, E>(
    mut stream: S,
    tls: Option<Tls>,
    around: Surroundings<E>,
) -> Result<(), Fault>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
    E: Exports,
{
    let (exports, peer) = (around.exports.clone(), around.peer.clone());
    let mut negotiation = Negotiation::new(exports.as_ref(), &peer, Secrecy::at_first(tls.as_ref()));
    let mut limit = handshake_limit(&around);
    let mut input = BytesMut::new();
    let begin = async {
        greet(&mut stream, &mut negotiation, &mut input).await?;
        negotiate(&mut stream, &mut negotiation, &mut input).await
    };
    match within(&mut limit, &around, begin).await? {
        Some(Next::Transmission(opened)) => transmit(stream, opened, input, &around).await,
        // In a box, because a connection in clear should not have room for all of TLS.
        Some(Next::StartTls) => Box::pin(converse_in_secret(stream, tls, negotiation, limit, &around)).await,
        Some(Next::Option | Next::Close) | None => Ok(()),
    }
}

/// The rest of a conversation whose client has asked for TLS, and was told to begin.
async fn converse_in_secret<S, E>(
    stream: S,
    tls: Option<Tls>,
    mut negotiation: Negotiation<'_, E>,
    mut limit: HandshakeLimit,
    around: &Surroundings<E>,
) -> Result<(), Fault>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
    E: Exports,
{
    let tls = tls.expect("only a door that has TLS lets it begin");
    let mut input = BytesMut::new();
    let begin = async {
        let mut stream = tls.acceptor.accept(stream).await.map_err(Fault::Tls)?;
        negotiation.secured();
        let next = negotiate(&mut stream, &mut negotiation, &mut input).await?;
        Ok((stream, next))
    };
    match within(&mut limit, around, begin).await? {
        Some((stream, Next::Transmission(opened))) => transmit(stream, opened, input, around).await,
        _ => Ok(()),
    }
}

/// The transmission phase, to its end.
async fn transmit<S, E>(
    mut stream: S,
    opened: Opened<E::Target>,
    input: BytesMut,
    around: &Surroundings<E>,
) -> Result<(), Fault>
where
    S: AsyncRead + AsyncWrite + Unpin,
    E: Exports,
{
    let Opened { name, style, .. } = &opened;
    tracing::debug!(export = name, ?style, "a client opened an export");
    let tally = around.metrics.export(&opened.name);
    let session = Session::new(opened, input, around.memory.lease(), tally);
    let mut transmission = Transmission {
        stream: &mut stream,
        session,
        stop: Some(stop_signal(around.stopping.clone())),
        deadline: None,
        pulse: None,
        quiet_pulses: 0,
        env: &around.env,
    };
    let result = poll_fn(|cx| transmission.poll(cx)).await;
    let Transmission { session, deadline, .. } = transmission;
    if result.is_ok() {
        // The client may be gone already, and then there is nobody to say goodbye to. TLS has a word for it, which a
        // client that does not read would keep us waiting with.
        select(pin!(stream.shutdown()), around.env.sleep(FAREWELL_MAX)).await;
    }
    drop(stream);
    let patience = async {
        match deadline {
            Some(deadline) => deadline.await,
            None => {
                stop_signal(around.stopping.clone()).await;
                around.env.sleep(SHUTDOWN_MAX).await;
            }
        }
    };
    select(pin!(session.finish_changes()), pin!(patience)).await;
    result
}

fn stop_signal(mut stopping: watch::Receiver<bool>) -> BoxFuture<'static, ()> {
    // An error means that the server is gone, which is a stop as well.
    Box::pin(async move { drop(stopping.wait_for(|stop| *stop).await) })
}

/// Completes when a handshake has taken too long, or when the server stops.
type HandshakeLimit = Select<BoxFuture<'static, ()>, BoxFuture<'static, ()>>;

fn handshake_limit<E>(around: &Surroundings<E>) -> HandshakeLimit {
    select(around.env.sleep(HANDSHAKE_MAX), stop_signal(around.stopping.clone()))
}

/// A stretch of the handshake, within the time for all of it; `None` when the server stops.
async fn within<T, E>(
    limit: &mut HandshakeLimit,
    around: &Surroundings<E>,
    stretch: impl Future<Output = Result<T, Fault>>,
) -> Result<Option<T>, Fault> {
    let result = match select(pin!(stretch), limit).await {
        Either::Left((result, _)) => result.map(Some),
        Either::Right((Either::Left(_), _)) => Err(Fault::Stalled),
        Either::Right((Either::Right(_), _)) => Ok(None),
    };
    result.inspect_err(|_| {
        around.metrics.handshakes_failed.fetch_add(1, Relaxed);
    })
}

/// Lets other tasks run and, unlike waking oneself, also lets the runtime look at its sockets before.
fn yield_now<R>(cx: &mut Context<'_>) -> Poll<R> {
    let yielded = pin!(tokio::task::yield_now()).poll(cx);
    debug_assert!(yielded.is_pending(), "the first poll of a yield only arranges the second");
    Poll::Pending
}

struct Transmission<'a, S, T: Target> {
    stream: &'a mut S,
    session: Session<T>,
    /// Completes when the server stops; `None` afterwards.
    stop: Option<BoxFuture<'static, ()>>,
    /// When a stopping server waits no longer.
    deadline: Option<BoxFuture<'static, ()>>,
    /// The next pulse, while there is nothing to do.
    pulse: Option<BoxFuture<'static, ()>>,
    /// Pulses since anything moved.
    quiet_pulses: u32,
    env: &'a Env,
}

impl<S: AsyncRead + AsyncWrite + Unpin, T: Target> Transmission<'_, S, T> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        if self.is_told_to_stop(cx) {
            return Poll::Ready(Ok(()));
        }
        let mut turn = Turn::new();
        loop {
            let mut moved = self.session.harvest(cx, &mut turn);
            let stop = self.session.digest(cx, &mut turn)?;
            let waiting = self.session.output.len();
            if self.session.output.poll_write(cx, self.stream)?.is_ready() && self.session.is_finished() {
                return Poll::Ready(Ok(()));
            }
            let wrote = self.session.output.len() < waiting;
            moved |= wrote;
            match stop {
                Stop::Dry => match self.session.poll_fill(cx, self.stream)? {
                    Poll::Ready(0) => {
                        self.session.end();
                        moved = true;
                    }
                    Poll::Ready(_) => moved = true,
                    Poll::Pending => {}
                },
                Stop::Spent => {
                    self.session.publish();
                    return yield_now(cx);
                }
                Stop::Full | Stop::Over => {}
            }
            if moved {
                self.quiet_pulses = 0;
            } else if !self.session.has_fresh_jobs() {
                break;
            }
        }
        self.session.publish();
        self.poll_pulse(cx)
    }

    /// Notices the server's wish to stop. True when it waits no longer.
    fn is_told_to_stop(&mut self, cx: &mut Context<'_>) -> bool {
        if let Some(stop) = &mut self.stop {
            if stop.as_mut().poll(cx).is_pending() {
                return false;
            }
            self.stop = None;
            self.session.end();
            self.deadline = Some(self.env.sleep(SHUTDOWN_MAX));
        }
        self.deadline.as_mut().is_some_and(|deadline| deadline.as_mut().poll(cx).is_ready())
    }

    /// Waits with the connection. After a quiet while its buffers are given back; a client that has left a request half sent
    /// or a reply unread is given up in the end.
    fn poll_pulse(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        loop {
            let pulse = self.pulse.get_or_insert_with(|| self.env.sleep(PULSE));
            if pulse.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.pulse = None;
            self.quiet_pulses += 1;
            // The first may have come right after something moved.
            if self.quiet_pulses > 1 {
                self.session.shrink();
            }
            let owes = !self.session.output.is_settled() || self.session.is_mid_request();
            if owes && PULSE * self.quiet_pulses > STALL_MAX {
                return Poll::Ready(Err(Fault::Stalled));
            }
        }
    }
}
