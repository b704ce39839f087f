//! Simulated time and tasks: an executor that polls one ready task at a time, chosen by dice.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use stonefold_dice::Dice;
use stonefold_env::{BoxFuture, Env, WallNanos};

/// Nanoseconds since 1970 at which a world begins.
const WALL_START: u64 = 1_700_000_000_000_000_000;

/// A world; clones are the same one.
#[derive(Clone)]
pub struct World(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
}

struct State {
    now: Duration,
    /// How far the wall clock was set forward.
    wall_ahead: Duration,
    dice: Dice,
    tasks: Vec<Option<BoxFuture<'static, ()>>>,
    /// What each task is called, and how often it was polled.
    polled: Vec<(&'static str, u64)>,
    ready: Vec<usize>,
    timers: BTreeMap<(Duration, u64), Waker>,
    next_timer: u64,
    digest: u64,
    polls: u64,
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The main task finished.
    Finished,
    /// The polls were used up: a crash.
    Crashed,
    /// Nothing was left to do, and the main task had not finished: a deadlock.
    Stuck,
}

struct TaskWaker {
    id: usize,
    world: std::sync::Weak<Shared>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        if let Some(shared) = self.world.upgrade() {
            let mut state = shared.state.lock();
            if !state.ready.contains(&self.id) {
                state.ready.push(self.id);
            }
        }
    }
}

impl World {
    /// A world of its own dice.
    pub fn new(seed: u64) -> Self {
        World(Arc::new(Shared {
            state: Mutex::new(State {
                now: Duration::from_secs(1),
                wall_ahead: Duration::ZERO,
                dice: Dice::new(seed),
                tasks: Vec::new(),
                polled: Vec::new(),
                ready: Vec::new(),
                timers: BTreeMap::new(),
                next_timer: 0,
                digest: 0,
                polls: 0,
            }),
        }))
    }

    /// The store's way to it.
    pub fn env(&self) -> Env {
        Env::new(self.clone())
    }

    /// Throws the world's dice.
    pub fn with_dice<T>(&self, throw: impl FnOnce(&mut Dice) -> T) -> T {
        throw(&mut self.0.state.lock().dice)
    }

    /// Sets the wall clock forward.
    pub fn set_wall_ahead(&self, by: Duration) {
        self.0.state.lock().wall_ahead += by;
    }

    /// Mixes a number into the digest.
    pub fn note(&self, value: u64) {
        let mut state = self.0.state.lock();
        state.note(value);
    }

    /// What happened so far, in one number.
    pub fn digest(&self) -> u64 {
        self.0.state.lock().digest
    }

    /// Polls so far.
    pub fn polls(&self) -> u64 {
        self.0.state.lock().polls
    }

    /// Runs `main` and whatever it spawns for up to `polls` polls, then drops every task that is left, wherever it
    /// was.
    pub fn run(&self, polls: u64, main: impl Future<Output = ()> + Send + 'static) -> Ended {
        let done = Arc::new(Mutex::new(false));
        let tell = done.clone();
        self.0.state.lock().polled.clear();
        stonefold_env::World::spawn(
            self,
            "main",
            Box::pin(async move {
                main.await;
                *tell.lock() = true;
            }),
        );
        let mut ended = Ended::Crashed;
        for _ in 0..polls {
            if *done.lock() {
                ended = Ended::Finished;
                break;
            }
            if !self.step() {
                ended = Ended::Stuck;
                break;
            }
        }
        self.drop_tasks();
        ended
    }

    /// Polls one task, or lets time pass; `false` when there is neither.
    fn step(&self) -> bool {
        let Some((id, mut task)) = self.pick() else { return self.pass_time() };
        let waker = Waker::from(Arc::new(TaskWaker { id, world: Arc::downgrade(&self.0) }));
        let polled = task.as_mut().poll(&mut Context::from_waker(&waker));
        let mut state = self.0.state.lock();
        state.polls += 1;
        state.polled[id].1 += 1;
        state.note(id as u64);
        if polled.is_pending() {
            state.tasks[id] = Some(task);
        } else {
            drop(state);
            drop(task);
        }
        true
    }

    fn pick(&self) -> Option<(usize, BoxFuture<'static, ()>)> {
        let mut state = self.0.state.lock();
        while !state.ready.is_empty() {
            let count = state.ready.len() as u64;
            let chosen = state.dice.below(count) as usize;
            let id = state.ready.swap_remove(chosen);
            // A task may be woken again after it ended.
            if let Some(task) = state.tasks[id].take() {
                return Some((id, task));
            }
        }
        None
    }

    fn pass_time(&self) -> bool {
        let mut state = self.0.state.lock();
        let Some(((at, _), waker)) = state.timers.pop_first() else { return false };
        state.now = state.now.max(at);
        drop(state);
        waker.wake();
        true
    }

    /// The tasks of the last run that were polled most, for whoever wonders why it did not end.
    pub fn busiest(&self) -> Vec<(&'static str, u64)> {
        let mut polled = self.0.state.lock().polled.clone();
        polled.sort_by_key(|(_, polls)| std::cmp::Reverse(*polls));
        polled.truncate(4);
        polled
    }

    fn drop_tasks(&self) {
        let (tasks, timers) = {
            let mut state = self.0.state.lock();
            state.ready.clear();
            (std::mem::take(&mut state.tasks), std::mem::take(&mut state.timers))
        };
        drop(tasks);
        drop(timers);
        self.0.state.lock().ready.clear();
    }
}

impl State {
    fn note(&mut self, value: u64) {
        self.digest = (self.digest ^ value).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(17);
    }
}

impl stonefold_env::World for World {
    fn monotonic(&self) -> Duration {
        self.0.state.lock().now
    }

    fn wall(&self) -> WallNanos {
        let state = self.0.state.lock();
        WALL_START + (state.now + state.wall_ahead).as_nanos() as u64
    }

    fn random(&self, bytes: &mut [u8]) {
        let mut state = self.0.state.lock();
        for chunk in bytes.chunks_mut(8) {
            let word = state.dice.number().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }

    fn spawn(&self, name: &'static str, task: BoxFuture<'static, ()>) {
        let mut state = self.0.state.lock();
        let id = state.tasks.len();
        state.polled.push((name, 0));
        state.tasks.push(Some(task));
        state.ready.push(id);
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let until = self.0.state.lock().now + duration;
        Box::pin(Sleep { world: self.clone(), until, timer: None })
    }

    fn offload(&self, job: Box<dyn FnOnce() + Send>) {
        self.spawn("offloaded", Box::pin(async move { job() }));
    }
}

struct Sleep {
    world: World,
    until: Duration,
    timer: Option<u64>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let world = self.world.clone();
        let mut state = world.0.state.lock();
        if state.now >= self.until {
            return Poll::Ready(());
        }
        let timer = self.timer.unwrap_or_else(|| {
            state.next_timer += 1;
            state.next_timer
        });
        self.timer = Some(timer);
        state.timers.insert((self.until, timer), context.waker().clone());
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes_only_when_nothing_is_ready_and_seeds_repeat() {
        let run = |seed| {
            let world = World::new(seed);
            let env = world.env();
            let ended = world.run(10_000, async move {
                for at in 0..5u64 {
                    let sleeper = env.clone();
                    env.spawn("sleeper", async move { sleeper.sleep(Duration::from_secs(at)).await });
                }
                env.sleep(Duration::from_secs(10)).await;
                assert_eq!(env.offload(|| 7).await, 7);
                assert_eq!(env.monotonic(), Duration::from_secs(11));
            });
            (ended, world.digest())
        };
        assert_eq!(run(1).0, Ended::Finished);
        assert_eq!(run(1), run(1));
        assert_ne!(run(1).1, run(2).1);
    }

    #[test]
    fn a_deadlock_is_told() {
        assert_eq!(World::new(1).run(100, std::future::pending()), Ended::Stuck);
    }
}
