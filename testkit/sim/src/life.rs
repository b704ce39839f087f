//! One seed: a pool that is opened, used, crashed and opened again, several times.

use crate::clients::{Client, Stop};
use crate::decay;
use crate::opening::find_everything;
use crate::resize;
use crate::rot::Copies;
use crate::story::Story;
use crate::weather::{Forecast, Weather};
use crate::world::{Ended, World};
use futures::FutureExt;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use stonefold_dice::Dice;
use stonefold_engine::{Engine, MemoryEngine};
use stonefold_store::{Keys, MasterKey, Options, Secret, Store};
use stonefold_types::Kind;

/// The disks' size: sparse, so that a map of every level is used.
pub(crate) const DISK_BYTES: u64 = 1 << 40;
/// Locks last for so long: longer than any life. The wall clock is set forward by more than that, and by less.
pub(crate) const LOCKED_FOR: Duration = Duration::from_secs(365 * 86_400);
/// What openings believe of the wall clock, all together: less than a lock lasts.
const TIME_STEP_MAX: Duration = Duration::from_secs(7 * 86_400);
/// A life that has not ended by itself after so many polls hangs.
const POLLS_MAX: u64 = 3_000_000;

/// Runs the world of a seed; returns its digest, or what went wrong and how to see it again.
pub fn run_seed(seed: u64, trace: bool) -> Result<u64, String> {
    let caught = std::panic::catch_unwind(|| Pool::new(seed, trace).run());
    let result = caught.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
        Err(format!("a panic: {}", text.unwrap_or_default()))
    });
    result.map_err(|what| format!("seed {seed}: {what}\nreplay: cargo run -p stonefold-sim -- --seed {seed}"))
}

/// A pool through its lives.
struct Pool {
    world: World,
    engine: MemoryEngine,
    copies: Copies,
    story: Arc<Mutex<Story>>,
}

/// How a life that was not cut short ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// As if it had been.
    Abrupt,
    /// Everything is folded.
    Close,
    /// Everything is durable.
    Leave,
}

/// What a life of the store is like.
#[derive(Clone, Copy, Debug)]
struct Plan {
    forecast: Forecast,
    /// The life ends after so many polls, wherever it is.
    polls: u64,
    /// Things each client does.
    acts: u64,
    /// The end, if it comes by itself.
    end: End,
}

impl Pool {
    fn new(seed: u64, trace: bool) -> Self {
        let world = World::new(seed);
        let story = Arc::new(Mutex::new(Story::new(trace)));
        for disk in 0..1 + world.with_dice(|dice| dice.below(2)) {
            // Neighbours meet inside a block; somewhere on the disk, at any level's edge or not.
            let mut base =
                world.with_dice(|dice| dice.below(DISK_BYTES / 2) / 4096 * 4096 + 512 * dice.below(8));
            for _ in 0..1 + world.with_dice(|dice| dice.below(2)) {
                let bytes = 512 * (40 + world.with_dice(|dice| dice.below(160)));
                story.lock().add_region(format!("d{disk}"), base, bytes);
                base += bytes;
            }
        }
        if world.with_dice(|dice| dice.one_in(2)) {
            let bytes = resize::BYTES_MIN;
            story.lock().add_resized_disk("dz".into(), bytes, resize::BYTES_MAX);
        }
        let copies = Copies::new(1 + world.with_dice(|dice| dice.below(2)) as usize);
        Pool { world, engine: MemoryEngine::default(), copies, story }
    }

    fn run(mut self) -> Result<u64, String> {
        for life in 0..2 + self.world.with_dice(|dice| dice.below(3)) {
            let plan = self.plan();
            self.live(plan).map_err(|what| format!("life {life}: {what}"))?;
            let lost_power = self.world.with_dice(|dice| dice.one_in(2));
            self.story.lock().tell(|| format!("a crash; power lost: {lost_power}"));
            self.crash(lost_power);
            self.set_clock();
            if self.world.with_dice(|dice| dice.one_in(8)) {
                self.rot_counts();
            }
            if self.world.with_dice(|dice| dice.one_in(4)) {
                self.live_without_one().map_err(|what| format!("life {life}, without a disk: {what}"))?;
            }
        }
        let fair = Plan { forecast: Forecast::default(), polls: POLLS_MAX, acts: 3, end: End::Close };
        self.live(fair).map_err(|what| format!("the last life: {what}"))?;
        self.live(fair).map_err(|what| format!("after an orderly close: {what}"))?;
        if self.copies.count() == 1 {
            self.decay().map_err(|what| format!("after it rotted: {what}"))?;
        }
        Ok(self.world.digest())
    }

    /// The only copy rots, and is looked at.
    fn decay(&self) -> Result<(), String> {
        let outcome = Arc::new(Mutex::new(Ok(())));
        let weather =
            Weather::new(self.world.clone(), self.engine.clone(), Forecast::default(), self.copies.clone());
        let (tell, world, story) = (outcome.clone(), self.world.clone(), self.story.clone());
        let ended = self.world.run(POLLS_MAX, async move {
            *tell.lock() = decay::rot_and_look(&world, weather, &story, options(&world)).await;
        });
        let result = outcome.lock().clone();
        if ended == Ended::Finished { result } else { Err(format!("it ended as {ended:?}")) }
    }

    fn plan(&self) -> Plan {
        self.world.with_dice(|dice| {
            let stormy = dice.one_in(3);
            let delay_max = Duration::from_micros(if dice.one_in(2) { 0 } else { 1 + dice.below(50_000) });
            let forecast = Forecast {
                failures_one_in: if stormy { 10 + dice.below(100) } else { 0 },
                journal_failures_one_in: if stormy && dice.one_in(2) { 20 + dice.below(200) } else { 0 },
                delay_max,
                rot_one_in: if dice.one_in(2) { 4 + dice.below(60) } else { 0 },
                second_copy_lag: if dice.one_in(3) { 1 + dice.below(20) as u32 } else { 0 },
            };
            let magnitude = dice.below(14);
            let polls = if dice.one_in(4) { POLLS_MAX } else { 1 + dice.below(1 << magnitude) };
            let end = [End::Abrupt, End::Close, End::Leave][dice.below(3) as usize];
            Plan { forecast, polls, acts: 5 + dice.below(60), end }
        })
    }

    fn live(&self, plan: Plan) -> Result<(), String> {
        let (engine, copies) = (self.engine.clone(), self.copies.clone());
        let weather = Weather::new(self.world.clone(), engine, plan.forecast, copies);
        let outcome = Arc::new(Mutex::new(Ok(())));
        let (tell, world, story) = (outcome.clone(), self.world.clone(), self.story.clone());
        let stormy = plan.forecast.failures_one_in > 0;
        let ended = self.world.run(plan.polls, async move {
            *tell.lock() = match one_life(world, weather, story, plan, stormy).await {
                Err(Stop::Weather(_) | Stop::Enough) | Ok(()) => Ok(()),
                Err(Stop::Wrong(what)) => Err(what),
            };
        });
        self.world.note(ended as u64);
        self.story.lock().tell(|| format!("the life ended: {ended:?}; {plan:?}"));
        let result = outcome.lock().clone();
        match ended {
            Ended::Stuck => Err("a deadlock: nothing left to do, and the life has not ended".into()),
            Ended::Crashed if plan.polls == POLLS_MAX => {
                Err(format!("the life does not end; it polls mostly {:?}", self.world.busiest()))
            }
            _ => result,
        }
    }

    /// Somebody sets the clock forward now and then: by less than is believed, or by more than a lock lasts.
    fn set_clock(&self) {
        let by = self.world.with_dice(|dice| match dice.below(6) {
            0 => Duration::from_secs(dice.below(6 * 86_400)),
            1 => LOCKED_FOR * 2,
            _ => Duration::ZERO,
        });
        self.world.set_wall_ahead(by);
    }

    /// Something that reclaim keeps rots or is gone, for good: it must be told anew from the maps.
    fn rot_counts(&mut self) {
        let listed = |prefix| self.engine.list(prefix, None, usize::MAX).now_or_never();
        let found = ["account", "ledger/"].into_iter().filter_map(listed).filter_map(Result::ok);
        let keys: Vec<_> = found.flatten().map(|one| one.key).collect();
        if keys.is_empty() {
            return;
        }
        let (key, bit, is_gone) = self
            .world
            .with_dice(|dice| (&keys[dice.below(keys.len() as u64) as usize], dice.number(), dice.one_in(3)));
        if is_gone {
            self.engine.delete(key).now_or_never();
        } else {
            self.engine.rot(key, bit);
        }
        let mut story = self.story.lock();
        story.tell(|| format!("{key} {}", if is_gone { "is gone" } else { "rots" }));
        story.miscounted = true;
    }

    /// The head of a disk rots; the pool lives on without the disk, and then its head is restored.
    fn live_without_one(&mut self) -> Result<(), String> {
        let listed = self.engine.list("head/", None, usize::MAX).now_or_never();
        let heads = listed.and_then(Result::ok).unwrap_or_default();
        if heads.is_empty() {
            return Ok(());
        }
        let head = heads[self.world.with_dice(|dice| dice.below(heads.len() as u64)) as usize].key.clone();
        let bit = self.world.with_dice(Dice::number);
        self.engine.rot(&head, bit);
        let disk = head.as_str().trim_start_matches("head/").to_owned();
        self.story.lock().tell(|| format!("{head} rots"));
        self.story.lock().hide(Some(disk));
        for _ in 0..1 + self.world.with_dice(|dice| dice.below(2)) {
            self.live(self.plan())?;
            let lost_power = self.world.with_dice(|dice| dice.one_in(2));
            self.crash(lost_power);
        }
        self.story.lock().tell(|| format!("{head} is restored"));
        self.story.lock().hide(None);
        self.engine.rot(&head, bit);
        Ok(())
    }

    /// What is on the medium when the next life begins.
    fn crash(&mut self, lost_power: bool) {
        let dice = self.world.with_dice(|dice| Dice::new(dice.number()));
        let dice = Mutex::new(dice);
        let mut choose = |n: usize| if lost_power { dice.lock().below(n as u64) as usize } else { 0 };
        self.engine = self.engine.after_crash(&mut choose);
        match lost_power {
            true => self.story.lock().power_lost(),
            false => self.story.lock().killed(),
        }
    }
}

async fn one_life(
    world: World,
    weather: Weather,
    story: Arc<Mutex<Story>>,
    plan: Plan,
    stormy: bool,
) -> Result<(), Stop> {
    let opened = Store::open(world.env(), Arc::new(weather.clone()), options(&world)).await;
    let store = opened.map_err(|error| match error.kind() {
        Kind::Io if stormy => Stop::Weather(error),
        _ => Stop::Wrong(format!("opening: {error:?}")),
    })?;
    if stormy {
        wait_for_heads(&store).await?;
    }
    find_everything(&world, &store, &story, stormy).await?;
    crate::service::shuffle(&world, &store, stormy).await?;
    let miscounted = story.lock().miscounted;
    if !stormy && miscounted {
        reclaim(&store).await.map_err(|e| Stop::Wrong(format!("counting anew: {e:?}")))?;
        let mut story = story.lock();
        story.miscounted = story.hidden.is_some();
    }
    if !stormy && !story.lock().miscounted {
        check(&store).await?;
    }
    let hidden = story.lock().hidden.clone();
    let clients: Vec<usize> = {
        let story = story.lock();
        let visible = |at: &usize| Some(&story.regions[*at].disk) != hidden.as_ref();
        (0..story.regions.len()).filter(visible).collect()
    };
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    for id in clients.iter().copied() {
        let (world, store, story) = (world.clone(), store.clone(), story.clone());
        let mortal = plan.end == End::Abrupt;
        let client =
            Client { id, world: world.clone(), store, story, weather: weather.clone(), stormy, mortal };
        let tell = tell.clone();
        world.env().spawn("client", async move {
            // Nobody listens any more once another client has stopped the life.
            let _ = tell.send(client.live(plan.acts).await);
        });
    }
    for _ in clients {
        told.recv().await.expect("every client tells how it ended")?;
    }
    if !stormy && !story.lock().miscounted {
        decay::scrub(&world, &store, &weather).await?;
        // Before anything is given back, too: what is still to be done must not be taken for lost.
        check(&store).await?;
        reclaim(&store).await.map_err(|e| Stop::Wrong(format!("reclaiming at the end: {e:?}")))?;
        check(&store).await?;
    }
    weather.set_full(false);
    let covered = story.lock().flush_begins();
    let ended = match plan.end {
        End::Abrupt => return Ok(()),
        End::Close => store.close().await,
        End::Leave => store.leave().await,
    };
    match ended {
        Ok(()) => story.lock().flush_ended(&covered),
        Err(error) if stormy => return Err(Stop::Weather(error)),
        Err(error) => return Err(Stop::Wrong(format!("ending in {:?}: {error:?}", plan.end))),
    }
    Ok(())
}

/// When the weather kept a head from being read, the disk is refused until an opening that can read it. What is done meanwhile
/// takes nothing from it.
async fn wait_for_heads(store: &Store) -> Result<(), Stop> {
    let damaged = store.damaged_disks();
    let Some(failed) = damaged.into_iter().find(|disk| disk.why.kind() == Kind::Io) else { return Ok(()) };
    for _ in 0..2 {
        if let Err(error) = store.fold_everything().await {
            return Err(Stop::Weather(error));
        }
        match store.reclaim().await {
            Err(error) if matches!(error.kind(), Kind::Io | Kind::Corrupt | Kind::Busy) => {}
            other => {
                return Err(Stop::Wrong(format!("reclaim beside a head that cannot be read: {other:?}")));
            }
        }
    }
    Err(Stop::Weather(failed.why))
}

fn options(world: &World) -> Options {
    Options {
        cache_bytes: 1 << 18,
        journal_bytes_max: 1 << 18,
        keys: keys(),
        time_step_max: TIME_STEP_MAX,
        // So short that a few snapshots fill pages and directories; another from life to life.
        snapshot_page_records: 1 + world.with_dice(|dice| dice.below(4)) as usize,
        // So fast that it comes by many times, in some lives.
        scrub_period: world
            .with_dice(|dice| dice.one_in(4).then(|| Duration::from_millis(50 + dice.below(2000)))),
    }
}

/// Everything that is referred to is there, sound and counted, and nothing is counted that nothing refers to.
async fn check(store: &Arc<Store>) -> Result<(), Stop> {
    let checked = store.check().await.map_err(|e| Stop::Wrong(format!("checking: {e:?}")))?;
    // That a head is hidden is told, and is all that is wrong.
    let hidden = store.damaged_disks().len();
    if let Some(problem) = checked.problems.get(hidden) {
        return Err(Stop::Wrong(format!("the check finds: {problem}")));
    }
    if checked.lost_blocks > 0 {
        return Err(Stop::Wrong(format!("{} blocks are never given back: {checked:?}", checked.lost_blocks)));
    }
    Ok(())
}

/// Gives back what can be given back; nothing while a head cannot be read.
pub(crate) async fn reclaim(store: &Store) -> stonefold_types::Result<()> {
    match store.reclaim().await {
        Err(error) if error.kind() == Kind::Corrupt && !store.damaged_disks().is_empty() => Ok(()),
        other => other.map(|_| ()),
    }
}

/// The master key of every pool.
pub(crate) fn keys() -> Keys {
    Keys { master: Some(MasterKey::Key(Secret::new(&[7; 32]))), ..Keys::default() }
}
