//! Traffic whose payload are real binaries. fio can make up payload, and cannot take it from files; so this cuts binaries into
//! unique blocks, and writes them over NBD as fio would. Prints one JSON document.

mod payload;
mod traffic;

use anyhow::{Result, bail};
use clap::{Parser, Subcommand};
use serde_json::json;
use std::path::PathBuf;
use stonefold_types::Size;
use traffic::{Job, Pattern};

/// Payload of real binaries, and a load that writes it.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Cut the binaries of folders into unique blocks.
    Payload {
        /// Where the blocks go.
        out: PathBuf,
        /// Bytes at most.
        #[arg(long, default_value = "1G")]
        bytes: Size,
        /// Folders to look through.
        #[arg(required = true)]
        folders: Vec<PathBuf>,
    },
    /// Make an image of blocks of a payload, each of which is unique.
    Image {
        /// The payload.
        payload: PathBuf,
        /// Where the image goes.
        out: PathBuf,
        /// Its size.
        #[arg(long)]
        bytes: Size,
        /// Blocks with other seeds differ.
        #[arg(long)]
        seed: u32,
    },
    /// Write, or read and write, over NBD.
    Run {
        /// The payload.
        payload: PathBuf,
        /// The server's Unix socket.
        #[arg(long)]
        socket: PathBuf,
        /// The export.
        #[arg(long, default_value = "disk")]
        export: String,
        /// In order, or anywhere.
        #[arg(long, value_enum)]
        pattern: Pattern,
        /// Bytes of a request.
        #[arg(long, default_value = "4K")]
        request: Size,
        /// Requests under way at one time.
        #[arg(long, default_value_t = 32)]
        depth: u32,
        /// A flush after so many writes; none, when 0.
        #[arg(long, default_value_t = 0)]
        flush_each: u64,
        /// So many of a hundred requests are reads.
        #[arg(long, default_value_t = 0)]
        reads_percent: u64,
        /// Bytes to write.
        #[arg(long)]
        bytes: Size,
        /// It ends after so many seconds, whatever was written.
        #[arg(long, default_value_t = 3600)]
        seconds_max: u64,
        /// Blocks with other seeds differ.
        #[arg(long)]
        seed: u32,
    },
}

fn main() -> Result<()> {
    let told = match Arguments::parse().command {
        Command::Payload { out, bytes, folders } => {
            let cut = payload::cut(&folders, &out, bytes.0)?;
            json!({ "files": cut.files, "blocks": cut.blocks, "blocks_repeated": cut.repeated })
        }
        Command::Image { payload, out, bytes, seed } => {
            payload::Payload::read(&payload, seed)?.write_image(&out, bytes.0)?;
            json!({ "bytes": bytes.0 })
        }
        Command::Run {
            payload,
            socket,
            export,
            pattern,
            request,
            depth,
            flush_each,
            reads_percent,
            bytes,
            seconds_max,
            seed,
        } => {
            if request.0 % 4096 != 0 || request.0 == 0 || depth == 0 || reads_percent > 99 {
                bail!("a request is of whole blocks, the depth is not 0, and something is written");
            }
            let request_bytes = u32::try_from(request.0)?;
            let payload = payload::Payload::read(&payload, seed)?;
            let write_bytes = bytes.0;
            let job = Job {
                pattern,
                request_bytes,
                depth,
                flush_each,
                reads_percent,
                write_bytes,
                seconds_max,
                seed,
            };
            let done = traffic::run(&socket, &export, payload, &job)?;
            json!({
                "reads": done.reads, "writes": done.writes, "flushes": done.flushes,
                "request_bytes": request.0, "seconds": done.took.as_secs_f64(),
            })
        }
    };
    println!("{told}");
    Ok(())
}
