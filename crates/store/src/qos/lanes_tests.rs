//! Clients that always want more, on virtual time: an engine that serves so many bytes of cost a second, and a queue in
//! front of it. What each gets is held against what its class says.

use super::*;
use crate::qos::flow::Gates;
use parking_lot::Mutex;
use proptest::prelude::*;
use stonefold_env::{BoxFuture, Env, WallNanos, World};

/// Time that stands where it was put.
#[derive(Clone, Default)]
struct Clock(Arc<Mutex<Duration>>);

impl World for Clock {
    fn monotonic(&self) -> Duration {
        *self.0.lock()
    }
    fn wall(&self) -> WallNanos {
        0
    }
    fn random(&self, _: &mut [u8]) {}
    fn spawn(&self, _: &'static str, _: BoxFuture<'static, ()>) {}
    fn sleep(&self, _: Duration) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
    fn offload(&self, _: Box<dyn FnOnce() + Send>) {}
}

/// A disk whose client keeps `depth` requests of `bytes` in flight.
struct Client {
    flow: Arc<Flow>,
    depth: usize,
    bytes: u64,
    waiting: Vec<oneshot::Receiver<Place>>,
    under_way: Vec<Place>,
    done: u64,
}

/// The engine serves what is under way in turns, one request each, at a rate of its own.
struct Bench {
    clock: Clock,
    gates: Arc<Gates>,
    clients: Vec<Client>,
    cost_per_second: u64,
    turn: usize,
}

fn share(share: u32) -> QosFigures {
    QosFigures { share, ..QosFigures::default() }
}

impl Bench {
    fn new(cost_per_second: u64, clients: &[(QosFigures, usize, u64)]) -> Self {
        let clock = Clock::default();
        let gates = Arc::new(Gates { env: Env::new(clock.clone()), lanes: Mutex::default() });
        let client = |(at, (figures, depth, bytes)): (usize, &(QosFigures, usize, u64))| {
            let flow = Flow::new(at as u64);
            gates.set(&flow, *figures);
            let (waiting, under_way) = (Vec::new(), Vec::new());
            Client { flow, depth: *depth, bytes: *bytes, waiting, under_way, done: 0 }
        };
        let clients = clients.iter().enumerate().map(client).collect();
        Bench { clock, gates, clients, cost_per_second, turn: 0 }
    }

    fn fill(&mut self) {
        for client in &mut self.clients {
            client.waiting.retain_mut(|told| match told.try_recv() {
                Ok(place) => {
                    client.under_way.push(place);
                    false
                }
                Err(_) => true,
            });
            while client.waiting.len() + client.under_way.len() < client.depth {
                let entered = self.gates.enter(&client.flow, Lane::Writes, client.bytes);
                match futures::FutureExt::now_or_never(entered) {
                    Some(place) => client.under_way.push(place),
                    None => {
                        // Given up by now; a request that stays in the queue instead.
                        let now = *self.clock.0.lock();
                        let mut lanes = self.gates.lanes.lock();
                        client.waiting.push(lanes.wait(&client.flow, Lane::Writes, client.bytes, now));
                    }
                }
            }
        }
    }

    /// Runs, and returns requests a second for each client.
    fn run(&mut self, seconds: u64) -> Vec<u64> {
        let before: Vec<u64> = self.clients.iter().map(|client| client.done).collect();
        let end = *self.clock.0.lock() + Duration::from_secs(seconds);
        while *self.clock.0.lock() < end {
            self.fill();
            let count = self.clients.len();
            let next = (0..count).map(|at| (self.turn + at) % count);
            let Some(at) = next.into_iter().find(|at| !self.clients[*at].under_way.is_empty()) else {
                assert!(
                    self.clients.iter().all(|client| client.depth == 0),
                    "somebody waits, and there is room"
                );
                *self.clock.0.lock() = end;
                break;
            };
            self.turn = at + 1;
            let client = &mut self.clients[at];
            let place = client.under_way.swap_remove(0);
            *self.clock.0.lock() += Duration::from_nanos(cost(client.bytes) * SECOND / self.cost_per_second);
            client.done += 1;
            drop(place);
        }
        self.clients.iter().zip(before).map(|(client, before)| (client.done - before) / seconds).collect()
    }
}

/// Some 10,000 requests of 4 KiB a second.
const ENGINE: u64 = 10_000 * (36 << 10);

fn assert_near(what: &str, is: u64, should: u64, percent: u64) {
    assert!(is.abs_diff(should) * 100 <= should * percent, "{what}: {is}, and not {should}");
}

#[test]
fn greedy_neighbours_get_what_their_shares_say() {
    let shares = [800, 400, 100, 50];
    let clients: Vec<_> = shares.iter().map(|s| (share(*s), 128, 4096)).collect();
    let got = Bench::new(ENGINE, &clients).run(20);
    for (share, got) in shares.into_iter().zip(got) {
        assert_near(&format!("share {share}"), got, 10_000 * u64::from(share) / 1350, 3);
    }
}

#[test]
fn shares_divide_work_and_not_requests() {
    let got = Bench::new(ENGINE, &[(share(100), 256, 4096), (share(100), 64, 256 << 10)]).run(20);
    assert_near("work", got[0] * cost(4096), got[1] * cost(256 << 10), 5);
}

#[test]
fn a_reservation_is_kept_under_a_greedy_neighbour() {
    let reserved = QosFigures { min_iops: 3000, ..share(1) };
    let got = Bench::new(ENGINE, &[(reserved, 64, 4096), (share(1000), 512, 4096)]).run(20);
    assert_near("reserved", got[0], 3000, 3);
    assert_near("the rest", got[1], 7000, 3);
    // In bytes, of long requests; nobody else may have less than the rest.
    let reserved = QosFigures { min_bytes: 100 << 20, ..share(1) };
    let got = Bench::new(ENGINE, &[(reserved, 64, 256 << 10), (share(1000), 512, 4096)]).run(20);
    assert_near("reserved", got[0], 400, 5);
    // Whose share is more than its reservation has its share, not both.
    let reserved = QosFigures { min_iops: 1000, ..share(100) };
    let got = Bench::new(ENGINE, &[(reserved, 128, 4096), (share(100), 128, 4096)]).run(20);
    assert_near("half", got[0], 5000, 12);
}

#[test]
fn reservations_that_do_not_fit_are_cut_alike_and_the_rest_is_not_forgotten_for_ever() {
    let reserved = |min_iops| QosFigures { min_iops, ..share(100) };
    let mut bench = Bench::new(ENGINE, &[(reserved(20_000), 128, 4096), (reserved(10_000), 128, 4096)]);
    let got = bench.run(20);
    assert_near("all of it", got[0] + got[1], 10_000, 1);
    assert!(got[0] > 4000 && got[1] > 2500, "{got:?}");
}

#[test]
fn what_one_does_not_use_the_others_get() {
    let clients = [(share(1000), 1, 4096), (share(1), 128, 4096)];
    let got = Bench::new(ENGINE, &clients).run(10);
    assert_near("all of it", got[0] + got[1], 10_000, 1);
    assert!(got[1] > 5000, "{got:?}");
    assert_near("alone", Bench::new(ENGINE, &[(share(1), 4000, 4096)]).run(10)[0], 10_000, 1);
}

#[test]
fn a_change_counts_at_once_and_idleness_saves_nothing_up() {
    let mut bench = Bench::new(ENGINE, &[(share(100), 128, 4096), (share(100), 128, 4096)]);
    let got = bench.run(10);
    assert_near("equal", got[0], got[1], 3);
    let flow = bench.clients[0].flow.clone();
    bench.gates.set(&flow, share(300));
    assert_near("three quarters", bench.run(10)[0], 7500, 3);
    bench.gates.set(&flow, QosFigures { min_iops: 9000, ..share(1) });
    assert_near("reserved", bench.run(10)[0], 9000, 3);
    bench.gates.set(&flow, share(100));
    assert_near("equal again", bench.run(1)[0], 5000, 5);
    bench.clients[0].depth = 0;
    bench.run(30);
    bench.clients[0].depth = 128;
    assert_near("after a rest", bench.run(1)[1], 5000, 8);
}

/// A request that is given up gives its place back, wherever it was.
#[test]
fn who_goes_away_holds_nothing() {
    let mut bench = Bench::new(ENGINE, &[(share(100), 300, 4096), (share(100), 300, 4096)]);
    bench.run(1);
    for client in &mut bench.clients {
        client.depth = 0;
        client.waiting.clear();
        client.under_way.clear();
    }
    let lanes = bench.gates.lanes.lock();
    assert!(lanes.is_idle() && !lanes.is_queued(Lane::Writes));
    assert!(lanes.0.iter().all(|queues| queues.busy == 0 && queues.by_reservation.is_empty()));
}

#[test]
fn writes_that_stand_still_keep_nobody_from_reading() {
    let bench = Bench::new(ENGINE, &[(share(100), 0, 4096), (share(100), 0, 4096)]);
    let enter = |at: usize, lane| {
        futures::FutureExt::now_or_never(bench.gates.enter(&bench.clients[at].flow, lane, 1 << 20))
    };
    let mut held: Vec<Place> = (0..15).map_while(|_| enter(0, Lane::Writes)).collect();
    assert!(held.len() >= 14 && enter(1, Lane::Writes).is_none());
    held.extend(enter(1, Lane::Reads));
    assert!(held.len() >= 15);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever the classes: the engine is never idle while somebody waits, and nobody waits for ever.
    #[test]
    fn nobody_starves_and_nothing_is_wasted(
        clients in prop::collection::vec(
            (1u32..=1000, prop::option::of(1u64..20_000), 1usize..200, prop::sample::select(vec![512u64, 4096, 65536, 262_144])),
            1..6,
        ),
    ) {
        let clients: Vec<_> = clients
            .into_iter()
            .map(|(share, min, depth, bytes)| {
                (QosFigures { share, min_iops: min.unwrap_or(0), ..QosFigures::default() }, depth, bytes)
            })
            .collect();
        let reserved: u64 = clients
            .iter()
            .map(|(figures, _, bytes)| figures.min_iops * cost(*bytes) / QosFigures::operations(*bytes))
            .sum();
        let mut bench = Bench::new(ENGINE, &clients);
        let got = bench.run(10);
        let work: u64 = got.iter().zip(&clients).map(|(got, (_, _, bytes))| got * cost(*bytes)).sum();
        prop_assert!(work >= ENGINE * 95 / 100, "{work} of {ENGINE}");
        if reserved < ENGINE * 9 / 10 {
            prop_assert!(bench.clients.iter().all(|client| client.done > 0), "{got:?}");
        }
    }
}
