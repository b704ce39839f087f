//! `stonefold lab trace`: recording what clients ask of a disk, and looking at what was recorded.

use crate::context::Context;
use crate::failure::Failure;
use crate::interrupt::on_stop;
use crate::table::{Table, count, facts};
use clap::{Subcommand, ValueEnum};
use serde_json::json;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use stonefold_api::{Client, TraceStart};
use stonefold_lab::stats::require::time;
use stonefold_lab::trace::import::{self, Event};
use stonefold_lab::trace::{self, Reason, Summary};
use stonefold_types::{Error, Kind, Name, Result, Size};

/// Record what is asked of a disk, and look at what was recorded
#[derive(Subcommand)]
pub(crate) enum Trace {
    /// Record what clients ask of a disk until 'lab trace stop', Ctrl-C or the time is over
    ///
    /// Each read, write, flush, trim and zeroing with its time, place and length; never the data. Requests for which there was no room are
    /// counted, in the trace and in the answer.
    #[command(after_help = "Example:\n  stonefold lab trace start web --out web.sftrace --duration 10m\n  \
                      stonefold lab replay web.sftrace --target file:/srv/test.img")]
    Start {
        /// The disk
        disk: Name,
        /// Where the trace goes: a file that does not exist yet [default: DISK.sftrace]
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
        /// How long, as in 90s, 10m or 1h [default: until it is stopped]
        #[arg(long, value_name = "TIME", value_parser = stonefold_lab::profile::read_time)]
        duration: Option<Duration>,
        /// Requests that may wait in the server to be fetched [default: 262144]
        #[arg(long, value_name = "N")]
        room: Option<u64>,
    },
    /// End the recording of a disk
    Stop {
        /// The disk
        disk: Name,
    },
    /// List the recordings under way
    Ls,
    /// Show what is in a trace: rates, sizes, places
    Show {
        /// The trace: a file, or the name of one of the lab's own
        file: PathBuf,
        /// Also of one that was cut short: what can be read of it
        #[arg(long)]
        partial: bool,
    },
    /// Make a trace of what fio or blktrace have recorded
    #[command(
        after_help = "Examples:\n  stonefold lab trace import job.log --out job.sftrace                       # fio --write_iolog=job.log\n  \
                      stonefold lab trace import sda.blktrace.* --out sda.sftrace --event issue  # blktrace -d /dev/sda"
    )]
    Import {
        /// An I/O log of fio (version 2 or 3), or all files that blktrace wrote of a device
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// Where the trace goes: a file that does not exist yet
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
        /// Of a blktrace: what was asked for (Q), or what came to the device after merging (D)
        #[arg(long, value_enum, default_value = "queue")]
        event: Which,
        /// The device, as MAJOR:MINOR, or the file of an I/O log, where there are several
        #[arg(long)]
        device: Option<String>,
    },
}

/// Which events of a blktrace.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Which {
    Queue,
    Issue,
}

impl Trace {
    pub(super) fn run(self, context: &Context) -> std::result::Result<(), Failure> {
        match self {
            Trace::Start { disk, out, duration, room } => start(context, &disk, out, duration, room),
            Trace::Stop { disk } => stop(context, &disk),
            Trace::Ls => ls(context),
            Trace::Show { file, partial } => show(context, &file, partial),
            Trace::Import { files, out, event, device } => {
                let event = match event {
                    Which::Queue => Event::Queue,
                    Which::Issue => Event::Issue,
                };
                import(context, &files, &out, event, device.as_deref())
            }
        }
    }
}

fn start(
    context: &Context,
    disk: &Name,
    out: Option<PathBuf>,
    duration: Option<Duration>,
    room: Option<u64>,
) -> std::result::Result<(), Failure> {
    let out = out.unwrap_or_else(|| format!("{disk}.sftrace").into());
    let client = context.client()?;
    let mut file = create(&out)?;
    let recorded = client.start_trace(disk, &TraceStart { room }).and_then(|trace| {
        let until = duration.map_or_else(String::new, |time| format!(" after {} s, or", time.as_secs_f64()));
        eprintln!(
            "recording disk '{disk}' into {}; it ends{until} with Ctrl-C or 'stonefold lab trace stop {disk}'",
            out.display()
        );
        end_when_told(&client, disk, duration)?;
        fetch(trace, &mut file, &out)
    });
    drop(file);
    if let Err(error) = recorded {
        // Made by this call; a file without a header is of no use.
        if trace::Trace::open(&out, true).is_err() {
            let _ = std::fs::remove_file(&out);
        }
        return Err(error.into());
    }
    trace::close(&out)?;
    let trace = trace::Trace::open(&out, false)?;
    tell(context, &trace, &out)?;
    match trace.end().reason {
        Reason::Lost => {
            let what = format!("the server fell silent while disk '{disk}' was recorded");
            Err(Error::new(Kind::Io, what)
                .remedy(format!("what came until then is in {}", out.display()))
                .into())
        }
        _ => Ok(()),
    }
}

/// Ends the recording at a signal, and when its time is over.
fn end_when_told(client: &Client, disk: &Name, duration: Option<Duration>) -> Result<()> {
    // One that has ended meanwhile needs no ending: whoever reads it sees that.
    let end = |client: Client, disk: Name| move || drop(client.stop_trace(&disk));
    on_stop(end(client.clone(), disk.clone()))?;
    let Some(duration) = duration else { return Ok(()) };
    let end = end(client.clone(), disk.clone());
    let wait = move || {
        std::thread::sleep(duration);
        end();
    };
    let thread = std::thread::Builder::new().name("duration".into()).spawn(wait);
    thread.map(drop).map_err(|e| Error::io("starting the thread that ends the recording", e))
}

/// Writes down what comes, until it ends or breaks off.
fn fetch(mut from: impl Read, into: &mut File, path: &Path) -> Result<()> {
    let failed = |e| Error::io(format!("writing the trace '{}'", path.display()), e);
    let mut buffer = vec![0; 64 << 10];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return into.sync_all().map_err(failed),
            Ok(read) => into.write_all(&buffer[..read]).map_err(failed)?,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            // The trace says so itself: it has no end.
            Err(_) => return into.sync_all().map_err(failed),
        }
    }
}

fn create(path: &Path) -> Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path).map_err(|e| match e.kind() {
        ErrorKind::AlreadyExists => {
            Error::new(Kind::AlreadyExists, format!("'{}' is there already", path.display()))
                .remedy("name another file with --out")
        }
        _ => Error::io(format!("making '{}'", path.display()), e)
            .remedy("name a file that this user may write"),
    })
}

fn tell(context: &Context, trace: &trace::Trace, out: &Path) -> std::result::Result<(), Failure> {
    let (requests, dropped) = (trace.end().totals.records(), trace.end().dropped);
    if dropped > 0 {
        eprintln!(
            "warning: {dropped} of {} requests are missing: they came faster than they were fetched; see --room",
            requests + dropped
        );
    }
    let document = json!({
        "file": out, "requests": requests, "dropped": dropped, "seconds": trace.length() as f64 / 1e9,
        "bytes": trace.bytes(), "ended": word(trace.end().reason),
    });
    context.answer(&document, || {
        let (time, size) = (time(trace.length() as f64), Size(trace.bytes() as u64));
        format!("{}: {} in {time}, {dropped} dropped, {size}\n", out.display(), count(requests, "request"))
    })
}

fn word(reason: Reason) -> &'static str {
    match reason {
        Reason::Stopped => "stopped",
        Reason::ServerStopped => "the server was stopped",
        Reason::DiskGone => "the disk was removed",
        Reason::Lost => "cut short",
        Reason::Imported => "imported",
    }
}

fn stop(context: &Context, disk: &Name) -> std::result::Result<(), Failure> {
    let trace = context.client()?.stop_trace(disk)?;
    if trace.dropped > 0 {
        eprintln!("warning: {} requests had no room and are missing in the trace", trace.dropped);
    }
    context.answer(&trace, || {
        format!("{disk}: {} recorded, {} dropped\n", count(trace.recorded, "request"), trace.dropped)
    })
}

fn ls(context: &Context) -> std::result::Result<(), Failure> {
    let traces = context.client()?.traces()?;
    context.answer(&traces, || {
        let mut table = Table::new(&["DISK", "SINCE", "RECORDED>", "DROPPED>", "WAITING>", "ROOM>"]);
        for trace in &traces {
            table.row([
                trace.disk.to_string(),
                trace.since.to_string(),
                trace.recorded.to_string(),
                trace.dropped.to_string(),
                trace.waiting.to_string(),
                trace.room.to_string(),
            ]);
        }
        table.or("no disk is being recorded")
    })
}

fn import(
    context: &Context,
    files: &[PathBuf],
    out: &Path,
    event: Event,
    device: Option<&str>,
) -> std::result::Result<(), Failure> {
    let imported = import::import(files, event, device)?;
    let written = create(out)?.write_all(&imported.bytes);
    written.map_err(|e| Error::io(format!("writing the trace '{}'", out.display()), e))?;
    let left: u64 = imported.left_out.values().sum();
    let document = json!({
        "file": out, "format": imported.format, "requests": imported.totals.records(), "left_out": imported.left_out,
        "bytes": imported.bytes.len(),
    });
    context.answer(&document, || {
        let mut text = format!(
            "{}: {} from {}, {} left out\n",
            out.display(),
            count(imported.totals.records(), "request"),
            imported.format,
            left
        );
        for (why, count) in &imported.left_out {
            text.push_str(&format!("  {count} {why}\n"));
        }
        text
    })
}

/// A trace in a file; else the lab's own of that name.
pub(super) fn opened(path: &Path, partial: bool) -> Result<trace::Trace> {
    match path.to_str().filter(|name| !path.exists() && trace::shipped::names().any(|other| other == *name)) {
        Some(name) => trace::shipped::find(name),
        None => trace::Trace::open(path, partial),
    }
}

fn show(context: &Context, path: &Path, partial: bool) -> std::result::Result<(), Failure> {
    let trace = opened(path, partial)?;
    let (summary, header, end) = (Summary::of(&trace), trace.header(), trace.end());
    let document = json!({
        "name": header.name, "source": header.source, "device_bytes": header.device_bytes, "started_nanos": header.started,
        "bytes": trace.bytes(), "hash": trace.hash(), "ended": word(end.reason), "whole": trace.cut_at().is_none(),
        "dropped": end.dropped, "left_out": end.left_out, "summary": summary,
    });
    context.answer(&document, || text(&trace, &summary))
}

fn text(trace: &trace::Trace, summary: &Summary) -> String {
    let (header, end) = (trace.header(), trace.end());
    let percent = |share: f64| format!("{:.1}%", share * 100.0);
    let ios: u64 = summary.sizes.values().sum();
    let kinds = summary.count.iter().filter(|(_, count)| **count > 0);
    let kinds: Vec<String> =
        kinds.map(|(word, count)| format!("{word} {count}, {}", Size(summary.bytes[word]))).collect();
    let mut sizes: Vec<(&u64, &u64)> = summary.sizes.iter().collect();
    sizes.sort_by_key(|(bytes, count)| (std::cmp::Reverse(**count), **bytes));
    let size =
        |(bytes, count): &(&u64, &u64)| format!("{} {}", Size(**bytes), percent(**count as f64 / ios as f64));
    let spots = summary.spots.iter().map(|spot| format!("{} at {}", percent(spot.share), Size(spot.offset)));
    let records = end.totals.records().max(1);
    facts([
        ("of", format!("{} ({}), by {}", header.name, Size(trace.device_bytes()), header.source)),
        ("length", format!("{:.1} s, {}", summary.seconds, word(end.reason))),
        ("requests", kinds.join("\n")),
        ("missing", if end.dropped > 0 { format!("{} dropped", end.dropped) } else { "none".into() }),
        ("left out", if end.left_out > 0 { end.left_out.to_string() } else { String::new() }),
        (
            "durable",
            if summary.durable > 0 { format!("{} when answered", summary.durable) } else { String::new() },
        ),
        ("rate", format!("{:.1}/s, {} in the busiest second", summary.rate_mean, summary.rate_max)),
        ("reads", percent(summary.read_share)),
        ("in sequence", percent(summary.sequential_share)),
        ("sizes", sizes.iter().take(8).map(size).collect::<Vec<_>>().join(", ")),
        (
            "touched",
            format!(
                "{}, the hottest tenth of it by {} of the I/Os",
                Size(summary.footprint_bytes),
                percent(summary.hottest_tenth_share)
            ),
        ),
        ("hot places", spots.collect::<Vec<_>>().join(", ")),
        ("took", summary.took_mean.map(|mean| format!("{} on average", time(mean))).unwrap_or_default()),
        (
            "file",
            format!(
                "{}, {:.1} bytes a request",
                Size(trace.bytes() as u64),
                trace.bytes() as f64 / records as f64
            ),
        ),
    ])
}
