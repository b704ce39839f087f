//! Random worlds: a pool whose directories change while it is used, and which dies at any step.
//!
//! *Goal*: whatever was acknowledged is there after every death, nothing that was deleted comes back, the journal has every
//! chunk that it shall, and in the end every object lies on as many directories as it shall, and nowhere else.
//! *Method*: one [model](super::model) of what was acknowledged; operations, changes of directories and steps of the moving by dice,
//! several at once; a death is the end of the runtime between any two steps of any task. A world that has a [medium](crate::medium)
//! also loses its power, before any sync; [`super::power`] plays these. *Planted*: every bug in [`super::super::planted`] is found.

mod acts;
mod checks;

use super::model::{Model, Verdict};
use super::several::several;
use super::*;
use crate::directories::{Directories, Step};
use crate::medium::Medium;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use stonefold_dice::Dice;

/// Some 30 s on a quiet machine. `STONEFOLD_WORLDS` asks for more.
const SEEDS: u64 = 6;
const LIVES: u32 = 6;

/// A pool, whoever uses it, and what they know.
pub(super) struct World {
    pub(super) dir: tempfile::TempDir,
    pub(super) options: Options,
    pub(super) dice: Dice,
    pub(super) model: Model,
    /// The pool's id, once it is made.
    pool: Option<[u8; 16]>,
    /// What the power can go of.
    pub(super) medium: Option<Arc<Medium>>,
    /// A directory that is not there in this life.
    pub(super) away: Option<PathBuf>,
    /// All directories count, and none is coming or going.
    pub(super) whole: bool,
    /// An object that was read while it was put, and what it was.
    seen: Mutex<Option<(String, Vec<u8>)>>,
    rings: bool,
}

/// Why a life ends.
pub(super) enum End {
    /// The power is lost.
    Lost,
    /// A promise is broken.
    Broken(String),
}

type Lived<T = ()> = std::result::Result<T, End>;

impl From<String> for End {
    fn from(why: String) -> End {
        End::Broken(why)
    }
}

fn content(n: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| (n.wrapping_mul(31) as usize + at / 5) as u8).collect()
}

impl World {
    fn new(seed: u64) -> World {
        let mut dice = Dice::new(seed);
        let dir = tempdir();
        let copies = 1 + dice.below(2) as usize;
        let members = copies + dice.below(2) as usize;
        let base = several(dir.path(), members, copies);
        World::of(dir, dice, Options { direct: Direct::Never, ..base })
    }

    pub(super) fn of(dir: tempfile::TempDir, dice: Dice, options: Options) -> World {
        let options = Options { journal_file_bytes_max: 64 << 10, handles_max: Some(4), ..options };
        let (model, seen) = Default::default();
        let (pool, medium, away) = (None, None, None);
        World { dir, options, dice, model, pool, medium, away, whole: false, seen, rings: false }
    }

    /// A world whose power can be lost; by a ring or not.
    pub(super) fn with_medium(mut self, rings: bool) -> World {
        (self.medium, self.rings) = (Some(Medium::new(self.dir.path())), rings);
        self
    }

    /// The pool's life until a death, which may come before it is open, or its power is lost.
    pub(super) fn live(&mut self, last: bool) -> Verdict {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        // Most die young; some live until a change is done.
        let longest = if self.dice.one_in(2) { 6000 } else { 800 };
        let steps = if last { u64::MAX } else { 20 + self.dice.below(longest) };
        let medium = self.medium.clone();
        Medium::watch(medium.clone());
        let life = self.life(last);
        let mut life = std::pin::pin!(life);
        let mut polled = 0;
        let ended = runtime.block_on(std::future::poll_fn(|context| {
            polled += 1;
            if polled > steps || medium.as_ref().is_some_and(|medium| medium.is_lost()) {
                return std::task::Poll::Ready(Err(End::Lost));
            }
            life.as_mut().poll(context)
        }));
        // Tasks end where they are; what a thread is about for them it finishes.
        runtime.shutdown_background();
        Medium::watch(None);
        if let Some(medium) = medium {
            medium.wait_until_idle();
        }
        match ended {
            Err(End::Broken(why)) => Err(why),
            Ok(()) | Err(End::Lost) => Ok(()),
        }
    }

    /// What the pool answers, unless the power has gone: what is answered then nobody hears.
    pub(super) async fn answer<T>(&self, answer: impl Future<Output = Result<T>>) -> Lived<Result<T>> {
        let answer = answer.await;
        match &self.medium {
            Some(medium) if medium.is_lost() => Err(End::Lost),
            _ => Ok(answer),
        }
    }

    /// The same, where an error is wrong.
    pub(super) async fn ok<T>(&self, what: &str, answer: impl Future<Output = Result<T>>) -> Lived<T> {
        self.answer(answer).await?.map_err(|error| End::Broken(format!("{what}: {error}")))
    }

    /// Chance is the world's, so that objects lie where they lay when the seed was thrown before.
    fn env(&mut self) -> Env {
        let real = SystemWorld::new(tokio::runtime::Handle::current(), 1).unwrap();
        Env::new(Seeded { real, dice: Mutex::new(self.dice.fork()) })
    }

    async fn open(&mut self) -> Lived<FileEngine> {
        let env = self.env();
        let options = Options { degraded: self.away.is_some(), ..self.options.clone() };
        self.ok("opening", open_after(env, &options)).await
    }

    async fn life(&mut self, last: bool) -> Lived {
        if self.rings {
            let _ = uring::install();
        }
        self.try_an_old_url().await?;
        let engine = self.open().await?;
        let pool = engine.members.view().roster.pool;
        if *self.pool.get_or_insert(pool) != pool {
            return Err(End::Broken("another pool is opened".into()));
        }
        self.check(&engine).await?;
        self.whole = engine.missing().is_empty() && !engine.members.view().is_changing();
        self.model.begun += 1;
        let id = JournalId([self.model.begun; 16]);
        self.model.journals.insert(id, Default::default());
        let journal = self.ok("a journal", engine.journal_create(id)).await?;
        self.model.journals.entry(id).or_default().stands = true;
        let rounds = if last { 40 } else { 400 };
        for _ in 0..rounds {
            self.act(&engine, &*journal, id).await?;
        }
        if last { self.end(&engine, journal, id).await } else { Ok(()) }
    }

    /// Everything comes to where it shall lie.
    async fn end(&mut self, engine: &FileEngine, journal: Arc<dyn Journal>, id: JournalId) -> Lived {
        self.ok("a sync", journal.sync()).await?;
        drop(journal);
        let all: Vec<JournalId> = self.model.journals.keys().copied().filter(|one| *one != id).collect();
        for id in all.into_iter().chain([id]) {
            self.remove_journal(engine, id).await?;
        }
        for _ in 0..20_000 {
            match self.ok("a step", engine.step()).await? {
                Step::Idle => return self.check_places(engine).await,
                Step::Waits { .. } => {
                    return Err(End::Broken(format!("it waits for ever: {:?}", engine.moving())));
                }
                Step::Went { .. } => {}
            }
        }
        Err(End::Broken("the change never ends".into()))
    }

    /// A URL from before: it names some directories that belong to the pool, or did. It opens the pool or nothing, and never makes another.
    async fn try_an_old_url(&mut self) -> Lived {
        let Some(pool) = self.pool else { return Ok(()) };
        let first = self.dice.index(self.options.dirs.len());
        let copies = self.options.copies.unwrap_or(1);
        let dirs: Vec<PathBuf> = self.options.dirs.iter().cycle().skip(first).take(copies).cloned().collect();
        let options = Options { dirs: dirs.clone(), ..self.options.clone() };
        let env = self.env();
        match self.answer(FileEngine::open(env, options)).await? {
            Ok(engine) if engine.members.view().roster.pool != pool => {
                Err(End::Broken(format!("another pool is made in {dirs:?}")))
            }
            _ => Ok(()),
        }
    }
}

/// The real world, but for chance.
struct Seeded {
    real: SystemWorld,
    dice: Mutex<Dice>,
}

impl stonefold_env::World for Seeded {
    fn monotonic(&self) -> Duration {
        self.real.monotonic()
    }
    fn wall(&self) -> stonefold_env::WallNanos {
        self.real.wall()
    }
    fn random(&self, bytes: &mut [u8]) {
        self.dice.lock().fill(bytes);
    }
    fn spawn(&self, name: &'static str, task: BoxFuture<'static, ()>) {
        self.real.spawn(name, task);
    }
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.real.sleep(duration)
    }
    fn offload(&self, job: Box<dyn FnOnce() + Send>) {
        self.real.offload(job);
    }
}

/// Lives and deaths by one seed.
fn run(seed: u64, bug: Option<&'static str>) -> Verdict {
    planted::plant(bug);
    let mut world = World::new(seed);
    let lived = (0..=LIVES).try_for_each(|life| world.live(life == LIVES));
    planted::plant(None);
    lived.map_err(|why| format!("seed {seed}: {why}"))
}

/// What a variable of the environment asks for, or else this.
pub(super) fn asked(variable: &str, or_else: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(or_else)
}

#[test]
fn nothing_is_lost_in_any_world() {
    let from = asked("STONEFOLD_WORLDS_FROM", 1);
    on_all_processors(from..from + asked("STONEFOLD_WORLDS", SEEDS), |seed| {
        if let Err(why) = run(seed, None) {
            panic!(
                "{why}; again: STONEFOLD_WORLDS_FROM={seed} STONEFOLD_WORLDS=1 cargo test -p stonefold-engine worlds"
            );
        }
    });
}

#[test]
fn every_planted_bug_is_found() {
    on_all_processors(planted::BUGS, |(bug, what)| {
        let found = find(bug, 100, run);
        assert!(found.is_some(), "{bug}: {what}");
    });
}

/// Does something with each of a list, as many at one time as there are processors: a world lives in one thread, and a bug is planted
/// in one alone. Fails when one of them does.
pub(super) fn on_all_processors<T: Send>(
    all: impl IntoIterator<Item = T, IntoIter: Send>,
    act: impl Fn(T) + Sync,
) {
    let rest = Mutex::new(all.into_iter());
    let work = || {
        loop {
            let next = rest.lock().next();
            let Some(next) = next else { return };
            act(next);
        }
    };
    std::thread::scope(|threads| {
        let many = std::thread::available_parallelism().map_or(1, usize::from);
        (0..many).for_each(|_| drop(threads.spawn(work)));
    });
}

/// How a bug is found by one of so many seeds.
pub(super) fn find(
    bug: &'static str,
    seeds: u64,
    run: fn(u64, Option<&'static str>) -> Verdict,
) -> Option<String> {
    let found = (1..=seeds).find_map(|seed| {
        let seen = std::panic::catch_unwind(|| run(seed, Some(bug)));
        planted::plant(None);
        Medium::watch(None);
        let why = seen.unwrap_or_else(|_| Err(format!("seed {seed}: an assertion"))).err()?;
        // A seed that fails by itself would find every bug.
        run(seed, None).unwrap_or_else(|own| panic!("without {bug}, too: {own}"));
        Some(why)
    });
    println!("{bug}: {}", found.as_deref().unwrap_or("not found"));
    found
}
