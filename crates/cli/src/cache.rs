//! `stonefold cache …`.

use crate::context::Context;
use crate::failure::Failure;
use clap::Subcommand;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use stonefold_types::{Error, ExportName, Kind, Size};

/// Look at and steer the cache in the server's memory
#[derive(Subcommand)]
pub(crate) enum Cache {
    /// Show how full it is
    Status,
    /// Read a disk or a snapshot into it, so that the first use is fast
    #[command(after_help = "Example:\n  stonefold cache warm web@before-upgrade")]
    Warm {
        /// The disk or the snapshot
        #[arg(value_name = "DISK[@SNAP]")]
        export: ExportName,
    },
    /// Empty it; nothing but speed is lost
    Drop,
    /// Change its size until the server stops; 'serve --cache' says it for good
    #[command(after_help = "Example:\n  stonefold cache resize 4G")]
    Resize {
        /// The new size
        size: Size,
    },
}

/// Bytes of an export asked for at once: a second or so, after which the bar moves.
const STEP_BYTES: u64 = 64 << 20;

impl Cache {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        let client = context.client()?;
        let cache = match self {
            Cache::Status => client.cache()?,
            Cache::Drop => client.drop_cache()?,
            Cache::Resize { size } => client.resize_cache(size.0)?,
            Cache::Warm { export } => return warm(context, &export),
        };
        context.answer(&cache, || {
            format!("the cache holds {} of at most {}\n", Size(cache.used_bytes), Size(cache.max_bytes))
        })
    }
}

fn warm(context: &Context, export: &ExportName) -> Result<(), Failure> {
    let client = context.client()?;
    let room = client.cache()?.max_bytes;
    let bar = ProgressBar::new(0).with_style(
        ProgressStyle::with_template("{msg} [{wide_bar}] {binary_bytes}/{binary_total_bytes}, {eta} left")
            .map_err(|e| Error::new(Kind::Invalid, e.to_string()))?
            .progress_chars("=> "),
    );
    bar.set_message(format!("warming {export}"));
    let (mut at, mut warmed) = (0, 0);
    let full = loop {
        let step = client.warm_cache(export, at, STEP_BYTES)?;
        (at, warmed) = (step.next_offset, warmed + step.warmed_bytes);
        bar.set_length(step.size_bytes);
        bar.set_position(at);
        if at >= step.size_bytes {
            break false;
        }
        // Beyond this what comes in pushes out what came first.
        if warmed >= room {
            break true;
        }
    };
    bar.finish_and_clear();
    let answer = json!({ "export": export.to_string(), "warmed_bytes": warmed, "complete": !full });
    context.answer(&answer, || {
        let rest =
            if full { "; the cache is full: 'stonefold cache resize' makes room for the rest" } else { "" };
        format!("{} of {export} read into the cache{rest}\n", Size(warmed))
    })
}
