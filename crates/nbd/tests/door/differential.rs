//! Random commands against the reference disk: whatever a client does, it sees what the one definition of correct says.

use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::SeqCst;
use stonefold_model::{ReferenceDisk, Step};
use stonefold_nbd::wire::Style;
use stonefold_nbd::wire::request::{Command, flag};

use crate::client::{Client, Reply};
use crate::fixture::Fixture;

const GRAIN: u64 = 512;
/// Large enough for requests in several parts.
const SIZE: u64 = 2 << 20;

#[derive(Clone, Debug)]
enum Act {
    Read {
        at: u64,
        len: u64,
    },
    Write {
        at: u64,
        len: u64,
        fill: u8,
        fua: bool,
    },
    Zero {
        at: u64,
        len: u64,
        trim: bool,
    },
    Flush,
    Status {
        at: u64,
        len: u64,
    },
    /// Answers what is in flight before going on; between barriers requests overlap on the wire.
    Barrier,
    /// From now on everything waits this many polls.
    Slow(u64),
}

fn range() -> impl Strategy<Value = (u64, u64)> {
    let grains = SIZE / GRAIN;
    let len = prop_oneof![8 => 1u64..16, 2 => 1u64..300, 1 => 1u64..grains];
    (0..grains, len).prop_map(move |(at, len)| (at * GRAIN, len.min(grains - at) * GRAIN))
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        5 => range().prop_map(|(at, len)| Act::Read { at, len }),
        5 => (range(), any::<u8>(), any::<bool>())
            .prop_map(|((at, len), fill, fua)| Act::Write { at, len, fill, fua }),
        2 => (range(), any::<bool>()).prop_map(|((at, len), trim)| Act::Zero { at, len, trim }),
        1 => Just(Act::Flush),
        2 => range().prop_map(|(at, len)| Act::Status { at, len }),
        3 => Just(Act::Barrier),
        1 => (0u64..4).prop_map(Act::Slow),
    ]
}

/// Requests in flight: what each must be answered with, by cookie.
#[derive(Default)]
struct Expected(BTreeMap<u64, Option<(u64, Vec<u8>)>>);

impl Expected {
    fn collect(&mut self, client: &mut Client) {
        let mut partial: BTreeMap<u64, Reply> = BTreeMap::new();
        while !self.0.is_empty() {
            // With simple replies only one request is in flight.
            let reads = self.0.values().next().unwrap().as_ref().map_or(0, |(_, data)| data.len());
            let mut chunk = Reply::default();
            let (cookie, done) = client.chunk(reads, &mut chunk).unwrap();
            let reply = partial.entry(cookie).or_default();
            assert_eq!(chunk.error, 0, "{}", chunk.message);
            reply.data.extend(chunk.data);
            reply.status.extend(chunk.status);
            if done {
                let reply = partial.remove(&cookie).unwrap();
                if let Some((at, data)) = self.0.remove(&cookie).expect("each request is answered once") {
                    assert!(reply.bytes(at, data.len()) == data, "read at {at} of {}", data.len());
                }
            }
        }
    }
}

fn play(acts: &[Act], style: Style) {
    let (fixture, disk) = Fixture::with_disk(SIZE as usize);
    let mut model = ReferenceDisk::new(SIZE);
    let mut client = Client::open(&fixture.socket(), "disk", style);
    let mut expected = Expected::default();
    for act in acts {
        // Only requests that do not depend on each other may overlap: reads.
        let overlaps = matches!(act, Act::Read { .. }) && style != Style::Simple;
        if !overlaps {
            expected.collect(&mut client);
        }
        let (cookie, answer) = match act {
            Act::Barrier => continue,
            Act::Slow(polls) => {
                disk.polls_to_wait.store(*polls, SeqCst);
                continue;
            }
            Act::Read { at, len } => {
                let data = model.now().read(*at, *len as usize);
                (client.start(Command::Read, 0, *at, *len, &[]), Some((*at, data)))
            }
            Act::Write { at, len, fill, fua } => {
                let data: Vec<u8> = (0..*len).map(|i| (i / 7) as u8 ^ fill).collect();
                let flags = if *fua { flag::FUA } else { 0 };
                let cookie = client.start(Command::Write, flags, *at, *len, &data);
                model.step(Step::Write { offset: *at, data });
                (cookie, None)
            }
            Act::Zero { at, len, trim } => {
                let command = if *trim { Command::Trim } else { Command::WriteZeroes };
                model.step(Step::Zero { offset: *at, len: *len });
                (client.start(command, 0, *at, *len, &[]), None)
            }
            Act::Flush => (client.start(Command::Flush, 0, 0, 0, &[]), None),
            Act::Status { at, len } => {
                if style != Style::Simple {
                    check_status(&mut client, &model, *at, *len);
                }
                continue;
            }
        };
        expected.0.insert(cookie, answer);
    }
    expected.collect(&mut client);
    assert!(disk.contents() == model.now().read(0, SIZE as usize));
}

/// Extents cover the range, or its beginning; what is called zero is zero.
fn check_status(client: &mut Client, model: &ReferenceDisk, at: u64, len: u64) {
    let reply = client.request(Command::BlockStatus, 0, at, len, &[]);
    assert_eq!(reply.error, 0, "{}", reply.message);
    let extents = &reply.status[&1];
    let mut start = at;
    for pair in extents.windows(2) {
        assert_ne!(pair[0].1, pair[1].1, "neighbours differ");
    }
    for (bytes, status) in extents {
        assert!(*bytes > 0);
        if *status == 3 {
            assert!(model.now().read(start, *bytes as usize).iter().all(|byte| *byte == 0));
        }
        start += bytes;
    }
    assert_eq!(start, at + len);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn random_commands_match_the_model(acts in prop::collection::vec(act(), 1..60), style in 0usize..3) {
        play(&acts, [Style::Simple, Style::Structured, Style::Extended][style]);
    }
}
