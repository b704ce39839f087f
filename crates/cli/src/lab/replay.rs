//! `stonefold lab replay`.

use super::load::{counters, quoted, target, tell_before, with_server};
use super::system::Declared;
use super::trace::opened;
use super::{picture, report};
use crate::context::Context;
use crate::environment::environment;
use crate::failure::Failure;
use crate::interrupt::on_stop;
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use stonefold_env::Env;
use stonefold_lab::bundle::{self, Bundle, Run as Record};
use stonefold_lab::measure::Reins;
use stonefold_lab::replay::{self, Layout, Plan};
use stonefold_lab::rig::RigOptions;
use stonefold_lab::stats::require;
use stonefold_lab::trace::Trace;
use stonefold_lab::trace::fit::Mode;
use stonefold_lab::{TargetSpec, machine, verdict};
use stonefold_types::{Error, Kind, Size};

/// What a bundle of a replay has where others have their profile.
const REMARK: &str = "# A replay of traces, and no profile: run.json says what was replayed.\n";

/// Replay traces on a target, each request at its moment, and say what came of it
///
/// Every block is written first; what is written is the lab's, so that what is read can be looked at. The verdict is by the rules for tiles:
/// 70% of all I/Os within 20 ms, each stream's mean within 20 ms, the end no later than 15 s after its time; or by --require. Exit status: 0 pass,
/// 1 fail, 3 invalid, 4 inconclusive; 2 misuse.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    stonefold lab replay web.sftrace --target file:/srv/test.img --out runs/web\n  \
    stonefold lab replay mail.sftrace web.sftrace db.sftrace --tiles 4 --duration 1h --target nbd://host/test\n  \
    stonefold lab replay web.sftrace --target stonefold:test --speed 2")]
pub(crate) struct Replay {
    /// The traces of one tile: each is a stream to a volume of its own. Files, or names of the lab's own
    #[arg(required = true)]
    trace: Vec<PathBuf>,
    /// Where to; once for all volumes, one behind the other, or once for each trace of each tile, in order
    #[arg(long, required = true, value_name = "TARGET")]
    target: Vec<String>,
    /// How many copies of all traces, each at a moment of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    tiles: u16,
    /// How much faster than they were recorded
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    speed: f64,
    /// How long, as in 90s, 10m or 1h; shorter traces begin again [default: once through the longest]
    #[arg(long, value_name = "TIME", value_parser = stonefold_lab::profile::read_time)]
    duration: Option<Duration>,
    /// The size of each volume [default: that of the trace's device, or less where the target has not as much]
    #[arg(long)]
    size: Option<Size>,
    /// Where places go that lie beyond a smaller volume: the device is shrunk, or they begin at the front again
    #[arg(long, value_enum, default_value = "scale")]
    remap: Remap,
    /// What is needed, as in 'p99<=20ms,web:mean<=5ms', in place of the rules for tiles
    #[arg(long, value_name = "NEEDS", default_value = "")]
    require: String,
    #[command(flatten)]
    declared: Declared,
    /// Where the raw data go: a folder that is empty or does not exist yet [default: nothing is kept]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Threads of the load [default: half of the processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// Of everything that is drawn [default: drawn, and told]
    #[arg(long)]
    seed: Option<u64>,
    /// Do not look at what is read: faster, and one warning
    #[arg(long)]
    no_verify: bool,
    /// Take a trace that was cut short for what it has
    #[arg(long)]
    partial: bool,
    /// The target may hold data of others: it goes
    #[arg(long)]
    destroy_data: bool,
}

/// See [`Mode`].
#[derive(Clone, Copy, ValueEnum)]
enum Remap {
    Scale,
    Wrap,
}

impl Replay {
    pub(super) fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        require::parse(&self.require).map_err(Failure::Misuse)?;
        if let Some(dir) = &self.out {
            bundle::check_free(dir)?;
        }
        let system = self.declared.read()?;
        let (_runtime, env) = environment()?;
        let plan = self.plan(context, &env)?;
        let layout = Layout::new(&plan)?;
        tell(&plan, &layout);
        let length = Duration::from_secs_f64(layout.replayed.seconds);
        let others = tell_before(self.out.as_deref(), length);
        let reins = Arc::new(Reins::new());
        let of_signal = reins.clone();
        on_stop(move || of_signal.stop())?;
        let began = env.wall() / 1_000_000_000;
        let points = picture::show(&env, &reins, || replay::run(&env, &plan, &layout, &reins))?;
        let record = Record {
            format: Record::FORMAT,
            version: super::VERSION.into(),
            profile: format!("replay of {}", replay::title(&layout.replayed)),
            // Any trace, at any speed: what is published is a profile of tiles.
            locked: false,
            quick: false,
            targets: plan.targets.iter().map(ToString::to_string).collect(),
            seed: plan.options.seed,
            threads: plan.options.threads,
            verified: plan.options.verify && !plan.targets.contains(&TargetSpec::Null),
            bytes: layout.workload.volumes.iter().map(|volume| volume.bytes).sum(),
            require: self.require.clone(),
            began,
            reproduce: with_server(context, self.reproduce(&plan), &self.target),
            machine: machine::describe().into_iter().chain(others).collect(),
            cut_short: reins.is_stopped(),
            replay: Some(layout.replayed),
            occupied: super::cost::occupied(context, &self.target),
            system,
            ..Record::default()
        };
        let hash = match &self.out {
            Some(dir) => bundle::save(dir, &record, REMARK, &points)?,
            None => String::new(),
        };
        let bundle = Bundle { run: record, profile: REMARK.into(), points, hash };
        let summary = verdict::summarise(&bundle)?;
        report::answer(context, &bundle, &summary, self.out.as_deref())
    }

    fn plan(&self, context: &Context, env: &Env) -> Result<Plan, Failure> {
        let mut traces: Vec<(String, Arc<Trace>)> = Vec::new();
        for path in &self.trace {
            let (trace, mut name) = (opened(path, self.partial)?, stem(path));
            let same = traces.iter().filter(|(other, _)| *other == name).count();
            if same > 0 {
                name = format!("{name}.{}", same + 1);
            }
            traces.push((name, Arc::new(trace)));
        }
        if let Some(size) = self.size.filter(|size| size.0 == 0 || size.0 % 4096 != 0) {
            let error = Error::new(Kind::Invalid, format!("--size {size} is no size of a volume"));
            return Err(Failure::Misuse(error.remedy("choose a multiple of 4K")));
        }
        let seed = self.seed.unwrap_or_else(|| u64::from_le_bytes(env.random()) >> 16);
        let threads = self.threads.map_or_else(|| machine::cores().div_ceil(2), usize::from);
        let mode = match self.remap {
            Remap::Scale => Mode::Scale,
            Remap::Wrap => Mode::Wrap,
        };
        Ok(Plan {
            traces,
            tiles: self.tiles.into(),
            speed: self.speed,
            length: self.duration,
            size: self.size.map(|size| size.0),
            mode,
            targets: self.target.iter().map(|text| target(context, text)).collect::<Result<_, _>>()?,
            options: RigOptions {
                threads,
                verify: !self.no_verify,
                seed,
                destroy_data: self.destroy_data,
                lasting: false,
            },
            counters: counters(context, &self.target)?,
        })
    }

    fn reproduce(&self, plan: &Plan) -> String {
        let mut words = vec!["stonefold lab replay".to_owned()];
        words.extend(self.trace.iter().map(|path| quoted(&path.display().to_string())));
        words.extend(self.target.iter().map(|target| format!("--target {}", quoted(target))));
        words.push(format!("--tiles {} --speed {}", self.tiles, self.speed));
        words.extend(self.duration.map(|length| format!("--duration {}s", length.as_secs_f64())));
        words.extend(self.size.map(|size| format!("--size {}", size.0)));
        if plan.mode == Mode::Wrap {
            words.push("--remap wrap".into());
        }
        let flag = |name: &str, set: bool| set.then(|| name.to_owned());
        words.extend(flag("--no-verify", self.no_verify).into_iter().chain(flag("--partial", self.partial)));
        if !self.require.is_empty() {
            words.push(format!("--require {}", quoted(&self.require)));
        }
        words.extend(self.declared.words());
        words.push(format!("--threads {} --seed {}", plan.options.threads, plan.options.seed));
        words.join(" ")
    }
}

/// The trace's name: letters that a requirement can name.
fn stem(path: &Path) -> String {
    let stem = path.file_stem().map_or_else(|| "trace".into(), |stem| stem.to_string_lossy().into_owned());
    stem.chars().map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' }).collect()
}

fn tell(plan: &Plan, layout: &Layout) {
    let targets: Vec<String> = plan.targets.iter().map(ToString::to_string).collect();
    let requests: u64 =
        layout.replayed.streams.iter().map(|stream| stream.requests.iter().sum::<u64>()).sum();
    eprintln!(
        "{} on {}: {} in {}, {} in {:.1} s after they are written; seed {}",
        replay::title(&layout.replayed),
        targets.join(" and "),
        Size(layout.workload.volumes.iter().map(|volume| volume.bytes).sum()),
        crate::table::count(layout.workload.volumes.len() as u64, "volume"),
        crate::table::count(requests, "request"),
        layout.replayed.seconds,
        plan.options.seed
    );
}
