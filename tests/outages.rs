//! Our own server, killed under the lab's load.
//!
//! *Promise* (P1, for a process that dies while the machine lives): all that was acknowledged is there, flushed or not; the
//! lab, which knows nothing of us, finds it so. *Method*: `stonefold lab run` with a file of outages whose commands kill
//! `stonefold serve` by SIGKILL and start it again, as a user's would.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use stonefold_e2e::binary::stonefold;
use stonefold_e2e::gateway::{Place, in_a_place};
use stonefold_guest::process;

/// Two outages with their loads and looks, beside other tests.
const RUN_MAX: Duration = Duration::from_secs(300);

const PROFILE: &str = r#"
title = "files"
about = "for this test"
[payload]
dedupe = 1.5
compression = 2.0
[[volume]]
name = "files"
size = "32M"
quick = "32M"
[[stream]]
name = "files"
volume = "files"
read = 30
random = 80
sizes = { "512" = 10, "4K" = 60, "16K" = 30 }
outstanding = 16
flush = 64
[[step]]
name = "outage"
outages = true
[time]
quick_precondition = "1s"
quick_sample = "6s"
"#;

/// A shell's server: it ends with the test.
struct Serving<'a>(&'a Path);

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        let kill = format!("kill -9 $(cat {})", self.0.display());
        let _ = Command::new("sh").args(["-c", &kill]).status();
    }
}

/// The command that starts a server of this place in the background, and returns when it is ready.
fn start(place: &Place) -> Result<String> {
    let (log, pid) = (place.text("server.log"), place.text("pid"));
    Ok(format!(
        "setsid {} serve --pool file://{} --nbd unix://{} --api unix://{} > {log} 2>&1 < /dev/null & \
         echo $! > {pid}; for _ in $(seq 300); do grep -q ^ready {log} && exit 0; sleep 0.1; done; exit 1",
        stonefold()?.display(),
        place.pool().display(),
        place.text("nbd.sock"),
        place.text("api.sock"),
    ))
}

#[test]
fn the_lab_finds_that_a_killed_server_keeps_what_it_acknowledged() {
    in_a_place(|place| {
        let start = start(place)?;
        ensure!(Command::new("sh").args(["-c", &start]).status()?.success(), "{}", place.last_words());
        let pid = place.path("pid");
        let _serving = Serving(&pid);
        place.ok("disk create web --size 32M")?;
        fs::write(place.path("files.toml"), PROFILE)?;
        let outages = format!(
            "promise = 'ack'\n[[outage]]\nkind = 'kill'\nstrike = '''kill -9 $(cat {})'''\nrestore = '''{start}'''\n\
             after = '2s'\nlasts = '0.5s'\ntimes = 2\n",
            pid.display()
        );
        fs::write(place.path("outages.toml"), outages)?;
        let mut command = Command::new(stonefold()?);
        command
            .args(["lab", "run", &place.text("files.toml"), "--quick", "--json", "--threads", "1", "--api"])
            .arg(format!("unix://{}", place.text("api.sock")))
            .args(["--target", "stonefold:web", "--outages", &place.text("outages.toml")]);
        let done = process::run(&mut command, RUN_MAX)?;
        let why = || format!("{}\n{}\n{}", done.stdout, done.stderr, place.last_words());
        ensure!(done.status.code() == Some(0), "{}", why());
        let answer: serde_json::Value = serde_json::from_str(&done.stdout).with_context(why)?;
        let outages = answer["outages"].as_array().context("it tells of its outages")?;
        ensure!(outages.len() == 2 && answer["summary"]["verdict"] == "PASS", "{}", why());
        for outage in outages {
            let found = &outage["found"];
            ensure!(outage["breaks"].as_u64() > Some(0) && outage["resume"].is_number(), "{outage}");
            ensure!(found["checked"].as_u64() > Some((32 << 20) / 512), "{outage}");
            for none in ["lost", "stale", "misplaced", "corrupt", "gone_acknowledged", "gone_flushed"] {
                ensure!(found[none] == 0, "{none}: {outage}");
            }
            println!("resumed in {} s, silent for {} s", outage["resume"], outage["silent"]);
        }
        Ok(())
    });
}
