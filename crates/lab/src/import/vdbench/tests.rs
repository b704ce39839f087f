use super::super::{Imported, Mapped, import};
use crate::profile::{Profile, StepKind};
use crate::workload::{Arrivals, Load};
use stonefold_types::Kind;

fn read(text: &str) -> stonefold_types::Result<Imported> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.vdb");
    std::fs::write(&path, text).unwrap();
    import(&path)
}

fn imported(text: &str) -> Imported {
    let imported = read(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert_eq!(Profile::parse("again", &imported.profile.text).unwrap().full, imported.profile.full);
    imported
}

fn told(imported: &Imported, mapped: Mapped) -> Vec<String> {
    let notes = imported.notes.iter().filter(|note| note.mapped == mapped);
    notes.map(|note| format!("{} {}", note.line, note.option)).collect()
}

const STORAGE: &str =
    "* two disks\nsd=sd1,lun=/dev/sdb,size=10g,threads=16\nsd=sd2,lun=/dev/sdc,size=20g,\nthreads=4\n";

#[test]
fn workloads_are_streams_to_each_of_their_disks() {
    let imported = imported(&format!(
        "compratio=2\ndedupratio=1.5\ndedupunit=4k\n{STORAGE}wd=wd1,sd=sd*,xfersize=(4k,60,8k,40),rdpct=70,seekpct=90,range=(10,50)\n\
         rd=rd1,wd=wd1,iorate=max,elapsed=5m,warmup=30,interval=1\n"
    ));
    let profile = &imported.profile;
    assert_eq!(imported.from, "vdbench");
    assert_eq!(profile.full.volumes.iter().map(|volume| volume.bytes >> 30).collect::<Vec<_>>(), [10, 20]);
    let reduction = profile.full.volumes[1].reduction;
    assert_eq!((reduction.dedupe, reduction.compression), (1.5, 2.0));
    let streams = &profile.full.streams;
    assert_eq!((streams.len(), streams[0].read, streams[0].random), (2, 0.7, 0.9));
    assert_eq!(
        (streams[0].sizes.as_slice(), streams[0].zone),
        (&[(4096, 60.0), (8192, 40.0)][..], (0.1, 0.5))
    );
    assert_eq!([streams[0].load, streams[1].load], [16, 4].map(|outstanding| Load::Closed { outstanding }));
    let times = profile.times(false);
    assert_eq!((times.precondition.as_secs(), times.sample.as_secs()), (30, 300));
    assert_eq!(told(&imported, Mapped::Not), [""; 0]);
    assert_eq!(told(&imported, Mapped::Beside), ["5 lun=/dev/sdb", "6 lun=/dev/sdc", "9 interval=1"]);
}

/// vdbench has one for all that goes to a disk.
#[test]
fn the_alignment_of_a_disk_is_that_of_its_streams() {
    let sd = |align: &str| {
        format!("sd=sd1,lun=/dev/sdb,size=1g,align={align}\nwd=w,sd=sd1\nrd=r,wd=w,iorate=max,elapsed=9\n")
    };
    assert_eq!(imported(&sd("16k")).profile.full.streams[0].alignments, [(16 << 10, 100.0)]);
    for (align, says) in [
        ("(4k,512)", "align '4k,512' is no size"),
        ("1000", "run.vdb:1: align '1000' is no size in multiples of 512"),
    ] {
        let error = read(&sd(align)).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn skew_is_kept_by_rates_and_without() {
    let of = |rate: &str| {
        imported(&format!(
            "{STORAGE}wd=wd1,sd=sd1,skew=75\nwd=wd2,sd=sd1,rdpct=0,xfersize=64k\nrd=rd1,wd=wd*,iorate={rate},elapsed=9,distribution=deterministic\n"
        ))
    };
    let rated = of("1000").profile.full;
    let open = |iops: f64| Load::Open { from: iops, to: iops, arrivals: Arrivals::Constant };
    assert_eq!([rated.streams[0].load, rated.streams[1].load], [open(750.0), open(250.0)]);
    let none_left = imported(&format!(
        "{STORAGE}wd=wd1,sd=sd1,iorate=50\nwd=wd2,sd=sd1,skew=100\nwd=wd3,sd=sd1\nrd=rd1,wd=wd*,iorate=max,elapsed=9\n"
    ));
    let loads: Vec<Load> = none_left.profile.full.streams.iter().map(|stream| stream.load).collect();
    assert_eq!(loads.len(), 2, "the third has no share: {loads:?}");
    assert!(loads.contains(&Load::Closed { outstanding: 16 }));
    let most = of("max").profile.full;
    assert_eq!(most.streams[0].load, Load::Closed { outstanding: 16 });
    assert_eq!(most.streams[1].load, Load::Follow { stream: 0, ios: 25.0, per: 75.0 });
}

#[test]
fn curves_and_lists_and_loops_are_steps() {
    let curve = imported(&format!(
        "{STORAGE}wd=w,sd=sd1\nrd=r,wd=w,iorate=curve,curve=(20-80,30),forthreads=(4,8),elapsed=9\n"
    ));
    let kinds: Vec<_> = curve.profile.steps.iter().map(|step| step.kind.clone()).collect();
    let loads = || StepKind::Loads(vec![0.2, 0.5, 0.8]);
    assert_eq!(kinds, [StepKind::Sweep(vec![4]), loads(), StepKind::Sweep(vec![8]), loads()]);
    let loops = imported(&format!(
        "{STORAGE}wd=w,sd=(sd1-sd2)\nrd=r,wd=w,iorate=(100,200),forxfersize=(4k,8k),forrdpct=(0,100),elapsed=9\n"
    ));
    let names: Vec<_> = loops.profile.steps.iter().map(|step| step.name.as_str()).collect();
    assert_eq!((names.len(), names[0]), (8, "r, xfersize 4k, rdpct 0, 100 a second"));
    assert_eq!(loops.profile.steps[7].streams.len(), 2, "one for each disk");
    assert_eq!(loops.profile.full.streams.len(), 16);
}

#[test]
fn what_has_no_place_is_told() {
    let imported = imported(&format!(
        "hd=localhost\n{STORAGE}fsd=fsd1,anchor=/x\nwd=wd1,sd=sd1,rhpct=50,hotband=(10,20),seekpct=eof\nwd=wd2,sd=sd1,range=(80,120) rdpct=3\n\
         rd=rd1,wd=(wd1,wd2),iorate=max,elapsed=9,maxdata=1t\n"
    ));
    assert_eq!(
        told(&imported, Mapped::Not),
        ["6 fsd=…", "7 rhpct=50", "8 range=80,120", "8 rdpct=3", "9 maxdata=1t"]
    );
    assert_eq!(told(&imported, Mapped::Nearly), ["7 hotband=10,20", "7 seekpct=eof", "9 rd=rd1"]);
}

#[test]
fn what_is_wrong_is_refused_with_its_line() {
    for (text, says) in [
        ("wd=w,sd=sd1\nrd=r,wd=w,iorate=max\n", "run.vdb:2: run 'r' has no storage"),
        ("sd=sd1,size=1g\nrd=r,wd=w,iorate=max\n", "run.vdb:2: run 'r' has no workload"),
        ("sd=sd1,size=huge\n", "run.vdb:1: size 'huge'"),
        ("sd=sd1,size=1g\nwd=w,sd=sd1,xfersize=(4k,10,8k)\n", "run.vdb:2: xfersize '10'"),
        ("sd=sd1,size=1g\nwd=w,sd=(sd1\n", "never closed"),
        ("fsd=f,anchor=/x\n", "nothing in it loads storage"),
        ("", "nothing in it loads storage"),
    ] {
        let error = read(text).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid, "{text}");
        assert!(error.to_string().contains(says), "{text}: {error}");
    }
}
