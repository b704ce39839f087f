//! Traces: what clients ask of a disk, streamed to whoever wants it.
//!
//! The answer to a start is the trace itself, in its [format](stonefold_store::trace), and goes on until somebody stops the recording, the disk
//! goes, or the server stops: each of these writes an end that says so. Whoever hangs up ends the recording by that. Nobody waits for a reader
//! who is slow: beyond the room that was asked for, requests are counted as dropped.

use super::answer::{Answer, Body, DiskPath};
use super::{Life, Shared};
use axum::body::Body as Bytes;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use futures::future::select;
use std::convert::Infallible;
use std::pin::pin;
use std::time::Duration;
use stonefold_api::{Time, Trace, TraceStart};
use stonefold_store::trace::parts::Writer;
use stonefold_store::trace::{End, Header, RECORDS_MAX, Reason, Record, Totals};
use stonefold_store::{Capture, CaptureStatus};

/// Records that may wait where nothing else is asked for: 12 MiB, a second of what one server can do.
const ROOM: u64 = 256 << 10;
/// How often it is looked whether there is a block's worth.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long a record waits at most: so much is lost when the server dies.
const BLOCK_TIME_MAX: Duration = Duration::from_secs(1);
/// The unit of time in a trace: what a server's clock and network leave of anything finer is noise.
const TICK_NANOS: u32 = 1_000;

pub(super) async fn start(
    app: Shared,
    Extension(life): Extension<Life>,
    disk: DiskPath,
    Body(asked): Body<TraceStart>,
) -> Answer<Response> {
    let export = disk.export();
    let room = usize::try_from(asked.room.unwrap_or(ROOM)).unwrap_or(usize::MAX);
    let capture = app.gate.run(move |store| async move { store.capture(&disk.0, room) });
    let capture = app.hint(&export, capture.await)?;
    tracing::info!(disk = %capture.disk(), "a trace is being recorded");
    let (writer, first) = Writer::new(Header {
        started: capture.since(),
        device_bytes: capture.device_bytes(),
        tick_nanos: TICK_NANOS,
        has_took: false,
        name: capture.disk().to_string(),
        source: format!("stonefold {}", crate::VERSION),
    });
    let outflow =
        Outflow { capture, life, writer: Some(writer), first, pending: Vec::new().into_iter(), end: None };
    let parts = futures::stream::unfold(outflow, |mut outflow| async move {
        outflow.next().await.map(|part| (Ok::<_, Infallible>(part), outflow))
    });
    Ok(([(CONTENT_TYPE, "application/octet-stream")], Bytes::from_stream(parts)).into_response())
}

pub(super) async fn stop(app: Shared, disk: DiskPath) -> Answer<Json<Trace>> {
    let stopped = app.gate.store().stop_capture(&disk.0);
    Ok(Json(told(app.hint(&disk.export(), stopped)?)))
}

pub(super) async fn list(app: Shared) -> Json<Vec<Trace>> {
    Json(app.gate.store().captures().into_iter().map(told).collect())
}

fn told(status: CaptureStatus) -> Trace {
    let CaptureStatus { disk, since, recorded, dropped, waiting, room } = status;
    let (waiting, room) = (waiting as u64, room as u64);
    Trace { disk, since: Time::from_nanos(since), recorded, dropped, waiting, room }
}

/// A trace on its way out.
struct Outflow {
    capture: Capture,
    life: Life,
    /// Gone when the end is out.
    writer: Option<Writer>,
    /// The header, until it is out.
    first: Vec<u8>,
    /// Taken from the capture and not written yet.
    pending: std::vec::IntoIter<Record>,
    /// Comes behind what is pending.
    end: Option<End>,
}

impl Outflow {
    /// The next part; nothing behind the end.
    async fn next(&mut self) -> Option<Vec<u8>> {
        let writer = self.writer.as_mut()?;
        if !self.first.is_empty() {
            return Some(std::mem::take(&mut self.first));
        }
        if self.pending.len() == 0 && self.end.is_none() {
            self.end = take(&self.capture, &mut self.life, &mut self.pending).await;
        }
        let block: Vec<Record> = self.pending.by_ref().take(RECORDS_MAX).collect();
        if !block.is_empty() {
            return Some(writer.block(&block));
        }
        self.end.and_then(|end| {
            let (writer, disk) = (self.writer.take()?, self.capture.disk());
            tracing::info!(%disk, records = writer.totals().records(), dropped = end.dropped, "the trace has ended");
            if end.dropped > 0 {
                tracing::warn!(%disk, dropped = end.dropped, "the trace is not whole: its reader was too slow");
            }
            Some(writer.end(end))
        })
    }
}

/// Waits for a block's worth, for a second's worth, or for the end.
async fn take(capture: &Capture, life: &mut Life, pending: &mut std::vec::IntoIter<Record>) -> Option<End> {
    let mut since = life.env.monotonic();
    loop {
        if *life.stop.borrow() || life.stop.has_changed().is_err() {
            capture.end(Reason::ServerStopped);
        }
        let due = life.env.monotonic().saturating_sub(since) >= BLOCK_TIME_MAX;
        let taken = capture.take_if(due, RECORDS_MAX);
        *pending = taken.records.into_iter();
        if let Some((reason, length)) = taken.ended {
            let length = length.as_nanos() as u64;
            return Some(End {
                reason,
                length,
                dropped: taken.dropped,
                left_out: 0,
                totals: Totals::default(),
            });
        }
        if pending.len() > 0 {
            return None;
        }
        if due {
            since = life.env.monotonic();
        }
        select(pin!(life.stop.changed()), life.env.sleep(LOOK_EVERY)).await;
    }
}
