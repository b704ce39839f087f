//! Texts that others wrote for other readers: articles with figures, job files of fio, parameter files of vdbench.

use crate::Target;
use std::path::Path;
use stonefold_lab::claims::lint_text;
use stonefold_lab::import::import_text;
use stonefold_lab::profile::Profile;

/// The readers.
pub fn targets() -> Vec<Target> {
    // Loops and counts say much in few bytes: of vdbench's up to 64 runs of as many streams as a profile has.
    let target = |name, seeds, read| Target { name, seeds, read, bytes_max: 64 << 20 };
    vec![
        target("claims", articles, read_article),
        target("fio job files", jobs, read_job),
        target("vdbench parameter files", parameters, read_parameters),
    ]
}

fn articles() -> Vec<Vec<u8>> {
    [
        "# A report\n\nAlpha peaked at 9,952 IOPS of 64K, 622 MB/s, over three times Beta's 4,000 IOPS; p99.9 of 200 I/Os was 2 ms.\n\n\
         | system | users | TPM |\n|---|---|---|\n| Alpha | 21 | 118,417 |\n| average | 9 | 44,821 |\n\n`code` [link](x) 8 of 6, 7 of 3: score 5.47.\n",
        "<!doctype html><html><h1>R</h1><p>µ&times;no impact on performance, 34&nbsp;TB deduplicated to 7.2 TB</p>\
         <table><tr><th>a</th><th>IOPS</th></tr><tr><td>64K</td><td>9,952</td></tr></table><script>x<y</script></html>",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

fn read_article(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for finding in lint_text(&text) {
        let line = finding.line.and_then(|line| text.split('\n').nth(line - 1)).expect("its line is there");
        assert!(finding.column.is_some_and(|column| column <= line.chars().count() + 1), "{finding:?}");
    }
}

fn jobs() -> Vec<Vec<u8>> {
    ["[global]\nioengine=libaio\ndirect=1\nkb_base=1000\nruntime=30m\n[db]\nrw=randrw:8\nrwmixread=65\nbssplit=4k/20:8k/:64k/,1k/\n\
      iodepth=8\nsize=10g\noffset=10%\nnumjobs=3\nfilename=a:b\nrandom_distribution=zoned:50/5:50/\n[log]\nstonewall\nrw=write\nbs=,4k\n\
      rate_iops=,500\nbsrange=1k-64k\nrandom_distribution=zipf:1.2\nsize=${HOME}\n"]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

fn read_job(bytes: &[u8]) {
    read_import(bytes, "job.fio");
}

fn parameters() -> Vec<Vec<u8>> {
    ["compratio=2\nsd=default,threads=4\nsd=sd,lun=/dev/x*,size=10g,count=(1,3)\nwd=wd1,sd=(sd1-sd3),xfersize=(4k,60,8k,40),skew=70,\n\
      range=(10,50),seekpct=eof\nwd=wd2,sd=sd*,xfersize=(1k,64k,1k),rdpct=0\nrd=r,wd=wd*,iorate=(100-500,100),forthreads=(1-64,d),elapsed=5m\n\
      rd=s,wd=wd1,iorate=curve,curve=(10,50),distribution=uniform\n"]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

fn read_parameters(bytes: &[u8]) {
    read_import(bytes, "run.vdb");
}

/// What was accepted is a profile that reads the same again.
fn read_import(bytes: &[u8], name: &str) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(imported) = import_text(Path::new(name), &text) {
        let again = Profile::parse(&imported.profile.name, &imported.file()).expect("its file is a profile");
        assert_eq!((again.full, again.steps), (imported.profile.full, imported.profile.steps));
    }
}
