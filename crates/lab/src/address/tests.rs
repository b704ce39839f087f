use super::*;
use crate::generations::Generations;
use crate::payload::{Payload, Reduction, mix};
use crate::verify::Verification;
use crate::volume::Content;
use crate::workload::Hotspots;
use crate::workload::tests::reads;
use proptest::prelude::*;
use std::collections::HashMap;
use stonefold_types::BLOCK_BYTES;

fn drawn(stream: &Stream, volume: &Volume, many: usize) -> Vec<Draw> {
    let mut addresses = Addresses::new(stream, volume, 11);
    (0..many).map(|_| addresses.draw().unwrap()).collect()
}

#[test]
fn sequential_follows_on_and_begins_again() {
    let workload = reads(64 << 10);
    let stream = Stream { random: 0.0, sizes: vec![(24 << 10, 1.0)], ..workload.streams[0].clone() };
    let places: Vec<u64> = drawn(&stream, &workload.volumes[0], 5).iter().map(|draw| draw.offset).collect();
    assert_eq!(places, [0, 24 << 10, 0, 24 << 10, 0]);
}

#[test]
fn hotspots_get_their_share_and_no_more() {
    let workload = reads(1 << 30);
    let stream = Stream {
        hotspots: Some(Hotspots { count: 30, range: 0.15, share: 0.83 }),
        zone: (0.0, 0.8),
        ..workload.streams[0].clone()
    };
    let draws = drawn(&stream, &workload.volumes[0], 200_000);
    // By the places alone: of those that are asked for most often, which have 15% of the zone, the share.
    let mut asked: HashMap<u64, usize> = HashMap::new();
    draws.iter().for_each(|draw| *asked.entry(draw.offset).or_default() += 1);
    let mut often: Vec<usize> = asked.into_values().collect();
    often.sort_unstable_by_key(|times| std::cmp::Reverse(*times));
    let range = (0.15 * 0.8 * f64::from(1 << 30) / 4096.0) as usize;
    let share = often[..range].iter().sum::<usize>() as f64 / draws.len() as f64;
    assert!((share - 0.83).abs() < 0.01, "{share}");
    let hot = draws.iter().filter(|draw| draw.hot).count() as f64 / draws.len() as f64;
    assert!((hot - 0.83).abs() < 0.005, "{hot}");
    assert!(draws.iter().all(|draw| draw.offset + draw.bytes <= (0.8 * f64::from(1 << 30)) as u64));
}

#[test]
fn a_pass_touches_every_byte_once() {
    let workload = reads(100 << 10);
    let stream = Stream { sizes: vec![(24 << 10, 1.0)], ..workload.streams[0].clone() };
    let mut addresses = Addresses::new(&stream, &workload.volumes[0], 1);
    addresses.set_pass();
    let places: Vec<_> =
        std::iter::from_fn(|| addresses.draw()).map(|draw| (draw.offset >> 10, draw.bytes >> 10)).collect();
    assert_eq!(places, [(0, 24), (24, 24), (48, 24), (72, 24), (96, 4)]);
}

/// Bundles name their seeds: what a stream without a mix of alignments draws must not change. As it was before there were any: with each alignment
/// for all, and hotspots, some of which have no place on it.
#[test]
fn one_alignment_for_all_draws_what_it_drew() {
    let workload = reads(1 << 30);
    let base = Stream {
        read: 0.7,
        random: 0.8,
        zone: (0.1, 0.9),
        sizes: vec![(512, 10.0), (4096, 60.0), (12 << 10, 30.0)],
        ..workload.streams[0].clone()
    };
    let folded = |align: u64, hotspots: Option<Hotspots>| {
        let alignments = if align > 0 { vec![(align, 100.0)] } else { Vec::new() };
        let draws = drawn(&Stream { alignments, hotspots, ..base.clone() }, &workload.volumes[0], 10_000);
        assert!(draws.iter().all(|draw| draw.align.is_none()));
        draws
            .iter()
            .fold(0u64, |all, draw| mix(all ^ draw.offset ^ (draw.bytes << 40) ^ ((draw.op as u64) << 62)))
    };
    let spots = Some(Hotspots { count: 30, range: 0.15, share: 0.83 });
    for (align, anywhere, in_spots) in [
        (0, 0xe95d_896a_8eb5_7e7a, 0x103c_98c1_35d3_92d8),
        (512, 0x1b45_6d69_b709_c34c, 0x18ee_9a67_82a7_a39f),
        (4096, 0x1e70_494c_c891_7e39, 0x339d_fbfc_996e_2975),
        (65536, 0xfff7_104a_a0d1_31bc, 0x6f21_af77_67b5_e902),
    ] {
        assert_eq!((folded(align, None), folded(align, spots)), (anywhere, in_spots), "{align}");
    }
    let tight = Some(Hotspots { count: 500, range: 0.001, share: 0.5 });
    assert_eq!(folded(1 << 20, tight), 0xe865_5ef7_d3ae_291f);
}

#[test]
fn each_alignment_of_a_mix_gets_its_share() {
    let workload = reads(1 << 30);
    let stream = Stream {
        random: 0.9,
        sizes: vec![(512, 1.0), (16 << 10, 1.0)],
        alignments: vec![(512, 17.5), (4096, 80.25), (65536, 2.25), (1024, 0.0)],
        ..workload.streams[0].clone()
    };
    let draws: Vec<Draw> = drawn(&stream, &workload.volumes[0], 200_000);
    let random: Vec<&Draw> = draws.iter().filter(|draw| draw.random).collect();
    let near = |count: usize, share: f64| {
        let expected = random.len() as f64 * share;
        assert!((count as f64 - expected).abs() < 4.0 * expected.sqrt(), "{count} of {expected} expected");
    };
    let of = |align: u64| random.iter().filter(|draw| draw.align == Some(align)).count();
    near(of(512), 0.175);
    near(of(4096), 0.8025);
    near(of(65536), 0.0225);
    assert_eq!(of(1024), 0);
    // By the places alone: of those at any sector one in eight lies at a block, too.
    near(random.iter().filter(|draw| draw.offset % 4096 != 0).count(), 0.175 * 7.0 / 8.0);
    // What follows on has none, and goes on from wherever the one before has ended.
    assert!(draws.windows(2).filter(|pair| !pair[1].random).all(|pair| {
        pair[1].align.is_none() && [0, pair[0].offset + pair[0].bytes].contains(&pair[1].offset)
    }));
    // The sizes are drawn beside it, whatever the alignment.
    near(random.iter().filter(|draw| draw.align == Some(4096) && draw.bytes == 512).count(), 0.8025 / 2.0);
}

/// Goal: what a load with a mix of alignments wrote, much of it over parts of blocks, is what is expected of it when it is read.
#[test]
fn a_mix_of_alignments_is_written_and_read_right() {
    const BLOCKS: u64 = 256;
    let workload = reads(BLOCKS * BLOCK_BYTES as u64);
    let stream = Stream {
        read: 0.5,
        sizes: vec![(512, 1.0), (4096, 3.0), (12 << 10, 1.0)],
        alignments: vec![(512, 30.0), (1024, 20.0), (4096, 50.0)],
        ..workload.streams[0].clone()
    };
    for dedupe in [1.0, 2.0] {
        let payload = Payload::new(3, 0, BLOCKS, Reduction { dedupe, compression: 2.0 }).unwrap();
        let mut content = Content::new(0, payload, Some(Generations::new(BLOCKS)));
        let mut medium = vec![0; BLOCKS as usize * BLOCK_BYTES];
        let (mut issued, mut expected, mut seen) = (Vec::new(), Vec::new(), Verification::default());
        content.write(0, &mut medium, &mut issued);
        content.written(0, medium.len(), &issued, false);
        for draw in drawn(&stream, &workload.volumes[0], 20_000) {
            let (from, bytes) = (draw.offset as usize, draw.bytes as usize);
            let place = &mut medium[from..from + bytes];
            if draw.op == Op::Write {
                content.write(draw.offset, place, &mut issued);
                content.written(draw.offset, bytes, &issued, false);
            } else {
                content.expect(draw.offset, bytes, &mut expected);
                content.check(draw.offset, place, &expected, &mut seen);
            }
        }
        assert_eq!((seen.faults(), seen.unwritten), (0, 0), "{seen:?}");
        assert!(seen.right > 50_000, "{seen:?}");
    }
}

proptest! {
    /// Whatever else a stream is, an I/O by chance begins at a multiple of the alignment that was drawn for it, and within its zone.
    #[test]
    fn an_address_is_a_multiple_of_what_was_drawn_for_it(
        seed in any::<u64>(), random in 0.01f64..=1.0, from in 0.0f64..0.5, to in 0.6f64..=1.0,
        weights in (0.1f64..10.0, 0.1f64..10.0, 0.1f64..10.0),
        spots in prop::option::of((1u32..400, 0.0001f64..=1.0)),
    ) {
        let workload = reads(8 << 20);
        let stream = Stream {
            random,
            zone: (from, to),
            alignments: vec![(512, weights.0), (20 << 10, weights.1), (65536, weights.2)],
            sizes: vec![(512, 1.0), (4096, 2.0), (12 << 10, 1.0), (256 << 10, 0.5)],
            hotspots: spots.map(|(count, range)| Hotspots { count, range, share: 0.5 }),
            ..workload.streams[0].clone()
        };
        prop_assert_eq!(stream.check_room(&workload.volumes[0]), Ok(()));
        let (first, end) = stream.span(&workload.volumes[0]);
        let mut addresses = Addresses::new(&stream, &workload.volumes[0], seed);
        for _ in 0..500 {
            let draw = addresses.draw().unwrap();
            prop_assert!(draw.offset >= first && draw.offset + draw.bytes <= end, "{draw:?} in {first}..{end}");
            prop_assert_eq!(draw.align.is_some(), draw.random);
            prop_assert_eq!(draw.offset % draw.align.unwrap_or(512), 0, "{:?}", draw);
        }
    }

    /// Whatever the mix, an I/O lies within its zone, on sectors, and where its alignment can be had, on that.
    #[test]
    fn every_io_lies_in_its_zone(seed in any::<u64>(), random in 0.0f64..=1.0, from in 0.0f64..0.5, to in 0.6f64..=1.0,
                                 align in prop::option::of(prop::sample::select(vec![512u64, 4096, 65536])),
                                 spots in prop::option::of((1u32..40, 0.01f64..=1.0))) {
        let workload = reads(8 << 20);
        let stream = Stream {
            random,
            zone: (from, to),
            alignments: align.map_or(Vec::new(), |align| vec![(align, 100.0)]),
            sizes: vec![(512, 1.0), (4096, 2.0), (12 << 10, 1.0), (256 << 10, 0.5)],
            hotspots: spots.map(|(count, range)| Hotspots { count, range, share: 0.5 }),
            ..workload.streams[0].clone()
        };
        let (first, end) = stream.span(&workload.volumes[0]);
        let mut addresses = Addresses::new(&stream, &workload.volumes[0], seed);
        for _ in 0..500 {
            let draw = addresses.draw().unwrap();
            prop_assert!(draw.offset >= first && draw.offset + draw.bytes <= end, "{draw:?} in {first}..{end}");
            prop_assert_eq!(draw.offset % 512, 0);
        }
    }
}
