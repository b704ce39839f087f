use super::super::{Imported, Mapped, import};
use crate::profile::Profile;
use crate::workload::{Arrivals, Load, Stream};
use stonefold_types::Kind;

fn imported(text: &str) -> Imported {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("job.fio");
    std::fs::write(&path, text).unwrap();
    let imported = import(&path).unwrap_or_else(|e| panic!("{e}\n{text}"));
    // The lab reads what was made, by itself.
    assert_eq!(Profile::parse("again", &imported.profile.text).unwrap().full, imported.profile.full);
    imported
}

fn refused(text: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("job.fio");
    std::fs::write(&path, text).unwrap();
    let error = import(&path).unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
    error.to_string()
}

/// The notes as `line option`.
fn told(imported: &Imported, mapped: Mapped) -> Vec<String> {
    let notes = imported.notes.iter().filter(|note| note.mapped == mapped);
    notes.map(|note| format!("{} {}", note.line, note.option)).collect()
}

#[test]
fn a_mix_is_the_same_mix() {
    let imported = imported(
        "; a database\n[global]\nioengine=libaio\ndirect=1\ntime_based\nruntime=30m\nramp_time=60\n\n\
         [db]\nrw=randrw\nrwmixread=65\nbssplit=4k/20:8k/50:64k/:128k/ # the rest\niodepth=8\nsize=10g\n\
         norandommap\ndedupe_percentage=20\nbuffer_compress_percentage=50\n",
    );
    let workload = &imported.profile.full;
    let stream = &workload.streams[0];
    assert_eq!((stream.read, stream.random, stream.load), (0.65, 1.0, Load::Closed { outstanding: 8 }));
    let mut sizes = stream.sizes.clone();
    sizes.sort_by_key(|(bytes, _)| *bytes);
    assert_eq!(sizes, [(4096, 20.0), (8192, 50.0), (65536, 15.0), (131_072, 15.0)]);
    assert_eq!((stream.alignments.as_slice(), workload.volumes[0].bytes), (&[(4096, 100.0)][..], 10 << 30));
    let reduction = workload.volumes[0].reduction;
    assert_eq!((reduction.dedupe, reduction.compression), (1.25, 2.0));
    let times = imported.profile.times(false);
    assert_eq!((times.precondition.as_secs(), times.sample.as_secs()), (60, 1800));
    assert_eq!(told(&imported, Mapped::Not), [""; 0]);
    assert_eq!(told(&imported, Mapped::Nearly), [""; 0]);
    assert_eq!(told(&imported, Mapped::Beside), ["15 norandommap"]);
}

/// As was tried with fio 3.33: each direction has the rate, and the mix is what they make of it.
#[test]
fn rates_are_of_each_direction() {
    let job = |options: &str| {
        let text =
            format!("[j]\ndirect=1\nsize=1g\nrw=randrw\nrwmixread=70\nruntime=9\ntime_based\n{options}\n");
        let stream = imported(&text).profile.full.streams[0].clone();
        (stream.read, stream.load)
    };
    let open = |iops: f64, arrivals| Load::Open { from: iops, to: iops, arrivals };
    assert_eq!(job("rate_iops=500"), (0.5, open(1000.0, Arrivals::Constant)));
    assert_eq!(job("rate_iops=500,100\nrate_process=poisson").1, open(600.0, Arrivals::Poisson));
    assert_eq!(job("rate=4m\nbs=4k"), (0.5, open(2048.0, Arrivals::Constant)));
    assert_eq!(job("rate_iops=100\nnumjobs=3\nfilename=x"), (0.5, open(600.0, Arrivals::Constant)));
}

#[test]
fn what_reads_and_writes_differently_is_two_streams_that_keep_the_mix() {
    let imported = imported(
        "[j]\ndirect=1\nsize=1g\nrw=randrw\nrwmixread=75\nbs=4k,64k\niodepth=4\nioengine=libaio\nruntime=9\ntime_based\n",
    );
    let streams = &imported.profile.full.streams;
    assert_eq!((streams[0].read, streams[0].sizes.as_slice()), (1.0, &[(4096, 100.0)][..]));
    assert_eq!((streams[1].read, streams[1].sizes.as_slice()), (0.0, &[(65536, 100.0)][..]));
    assert_eq!(streams[0].load, Load::Closed { outstanding: 4 });
    assert_eq!(streams[1].load, Load::Follow { stream: 0, ios: 25.0, per: 75.0 });
}

/// fio's list is of directions: reads are not to draw what writes are aligned to.
#[test]
fn each_direction_keeps_its_alignment() {
    let job = |options: &str| {
        let text = format!("[j]\ndirect=1\nsize=1g\nrwmixread=75\nruntime=9\ntime_based\n{options}\n");
        let imported = imported(&text);
        let of = |stream: &Stream| (stream.read, stream.alignments.first().map_or(0, |(align, _)| *align));
        let streams: Vec<_> = imported.profile.full.streams.iter().map(of).collect();
        (streams, told(&imported, Mapped::Nearly).join(", "))
    };
    let apart = vec![(1.0, 4096), (0.0, 512)];
    assert_eq!(job("rw=randrw\nba=4k,512\nrate_iops=100").0, apart);
    assert_eq!(job("rw=randrw\nbs=8k\nblockalign=4k,512"), (apart, "1 [j]".into()));
    assert_eq!(job("rw=randrw\nba=4k"), (vec![(0.75, 4096)], String::new()));
    assert_eq!(job("rw=randrw\nba=4k,4k,512").0, [(0.75, 4096)]);
    assert_eq!(job("rw=randwrite\nba=4k,512"), (vec![(0.0, 512)], String::new()));
    assert_eq!(job("rw=randread\nba=,512").0, [(1.0, 0)]);
    assert_eq!(job("rw=randread\nba=1000"), (vec![(1.0, 1024)], "8 blockalign=1000".into()));
    // Where nothing is said, by the sizes of each; in a row, by none.
    assert_eq!(job("rw=randrw\nbssplit=4k/50:8k/50,64k/100").0, [(1.0, 4096), (0.0, 0)]);
    assert_eq!(job("rw=write\nba=64k").0, [(0.0, 0)]);
}

#[test]
fn jobs_between_stonewalls_are_a_step() {
    let imported = imported(
        "[global]\nfilename=disk\nsize=1g\ndirect=1\nioengine=libaio\nruntime=10\ntime_based\n\
         [a]\nrw=read\nbs=1m\n[b]\nrw=randwrite\niodepth=16\nnumjobs=2\n[c]\nstonewall\nrw=randread\n",
    );
    let profile = &imported.profile;
    assert_eq!(profile.full.volumes.len(), 1, "they share one file");
    let steps: Vec<_> = profile.steps.iter().map(|step| (step.name.as_str(), step.streams.clone())).collect();
    assert_eq!(steps, [("a and b", vec![0, 1]), ("c", vec![2])]);
    assert_eq!(profile.full.streams[1].load, Load::Closed { outstanding: 32 });
}

#[test]
fn each_job_has_a_file_of_its_own_or_a_part_of_one() {
    let own = imported("[j]\nnumjobs=4\nnrfiles=2\nsize=2g\nrw=write\ndirect=1\nruntime=9\ntime_based\n");
    assert_eq!((own.profile.full.volumes.len(), own.profile.full.volumes[0].bytes), (8, 1 << 30));
    let parts = imported(
        "[j]\nnumjobs=4\nfilename=/dev/sdx\nsize=1g\noffset_increment=1g\nrw=write\ndirect=1\nruntime=9\ntime_based\n",
    );
    let zones: Vec<_> = parts.profile.full.streams.iter().map(|stream| stream.zone).collect();
    assert_eq!(zones, [(0.0, 0.25), (0.25, 0.5), (0.5, 0.75), (0.75, 1.0)]);
    assert_eq!(parts.profile.full.volumes[0].bytes, 4 << 30);
}

#[test]
fn places_that_get_more_are_hotspots_or_zones() {
    let job = |distribution: &str| {
        imported(&format!(
            "[j]\nsize=1g\nrw=randread\ndirect=1\nruntime=9\ntime_based\nrandom_distribution={distribution}\n"
        ))
    };
    let spots = |imported: &Imported| imported.profile.full.streams[0].hotspots.unwrap();
    let hit =
        |imported: &Imported| spots(imported).share + (1.0 - spots(imported).share) * spots(imported).range;
    let pareto = job("pareto:0.2");
    assert!((spots(&pareto).range - 0.2).abs() < 1e-9 && (hit(&pareto) - 0.8).abs() < 1e-3);
    assert_eq!(told(&pareto, Mapped::Nearly), ["7 random_distribution=pareto:0.2"]);
    assert!(hit(&job("zipf:1.2")) > hit(&job("zipf:0.8")));
    let zoned = job("zoned:60/10:30/20:10/70");
    let streams = &zoned.profile.full.streams;
    let zones: Vec<_> = streams.iter().map(|stream| stream.zone).collect();
    assert_eq!(zones, [(0.0, 0.1), (0.1, 0.3), (0.3, 1.0)]);
    assert_eq!(streams[2].load, Load::Follow { stream: 0, ios: 10.0, per: 60.0 });
    assert_eq!(told(&job("normal:10"), Mapped::Not), ["7 random_distribution=normal:10"]);
}

/// Each with its line; what is inherited by several is told once.
#[test]
fn what_has_no_place_is_told() {
    let imported = imported(
        "[global]\nfsync=8\nthinktime=5\ngroup_reporting\nsize=1g\n[a]\nrw=randwrite\niodepth=32\nrandom_frobnication=1\n\
         [b]\nrw=randtrim\n[c]\nioengine=cpuio\ncpuload=50\n",
    );
    assert_eq!(imported.profile.full.streams.len(), 1);
    assert_eq!(
        told(&imported, Mapped::Not),
        ["2 fsync=8", "3 thinktime=5", "9 random_frobnication=1", "11 rw=randtrim", "13 ioengine=cpuio"]
    );
    let nearly = told(&imported, Mapped::Nearly);
    assert!(nearly.contains(&"8 iodepth=32".to_owned()), "psync has one in flight: {nearly:?}");
    assert!(
        nearly.contains(&"6 direct".to_owned()) && nearly.contains(&"6 runtime".to_owned()),
        "{nearly:?}"
    );
}

#[test]
fn files_include_others_and_the_environment() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("base.inc"), "rw=randwrite\nthinktime=3\n").unwrap();
    std::fs::write(dir.path().join("j.fio"), "[j]\ninclude base.inc\nsize=1g\nbs=$pagesize\n").unwrap();
    let imported = import(&dir.path().join("j.fio")).unwrap();
    assert_eq!((imported.profile.full.streams[0].read, imported.from), (0.0, "fio"));
    assert!(
        imported.notes.iter().any(|note| note.file == "base.inc" && note.line == 2),
        "{:?}",
        imported.notes
    );
    std::fs::write(dir.path().join("base.inc"), "include base.inc\n").unwrap();
    assert!(import(&dir.path().join("j.fio")).unwrap_err().to_string().contains("include one another"));
}

#[test]
fn what_is_wrong_is_refused_with_its_line() {
    for (text, says) in [
        ("[j]\nrw=randread\nbs=700\n", "job.fio:3: an I/O of 700 bytes"),
        ("[j]\nsize=big\n", "job.fio:2: size 'big'"),
        ("[j]\nsize=1g\niodepth=0\n", "job.fio:3: iodepth"),
        ("[j]\nrw=randrw\nrwmixread=130\nsize=1g\n", "job.fio:3: '130'"),
        ("[j]\nsize=${STONEFOLD_NOT_SET}\n", "STONEFOLD_NOT_SET is not set"),
        ("[j]\nrw=trim\n", "nothing in it loads storage"),
        ("[j]\nbssplit=4k/x\nsize=1g\n", "job.fio:2: '4k/x'"),
        ("[j]\nsize=1g\nba=4k,page\n", "job.fio:3: 'page' of blockalign"),
        ("[j]\nsize=1g\nrate_iops=0\n", "job.fio:3: '0' is no rate"),
    ] {
        assert!(refused(text).contains(says), "{text}: {}", refused(text));
    }
}
