//! Load that is made inside guests and led from outside.
//!
//! *Promise*: what two machines do together is one result, and all of it was done to the disks that the machines have. *Method*: two Debians on
//! one server, each with a disk for the load; the lab's worker runs in each, from a disk that carries the program; the lab leads them through a
//! port that QEMU forwards. The server counts what its clients did. *Past bug*: none yet.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use stonefold_e2e::binary::stonefold;
use stonefold_e2e::gateway::{Place, in_a_place};
use stonefold_e2e::tools::run;
use stonefold_guest::Guest;

/// Where workers listen, each in its guest.
const INSIDE: u16 = 7771;
const DATA_BYTES: u64 = 32 << 20;
const TOKEN: &str = "a token for this test alone";
const PROFILE: &str = "title = 't'\nabout = 'a'\n[[volume]]\nname = 'v'\nsize = '16M'\nquick = '16M'\n[[stream]]\nname = 's'\n\
    volume = 'v'\nread = 50\nrandom = 100\nsizes = { '4K' = 100 }\noutstanding = 4\n[time]\nprecondition = '1s'\n\
    sample = '6s'\nquick_precondition = '1s'\nquick_sample = '6s'\n";

#[test]
fn two_debians_make_one_load() {
    in_a_place(|place| {
        let server = place.start(&["--cache", "64M"])?;
        place.ok(&format!("disk import deb {}", super::guest()?.join("disk.raw").display()))?;
        place.ok("snapshot create deb --name golden")?;
        place.ok(&format!("disk import program {}", program(place)?))?;
        place.ok("snapshot create program --name one")?;
        fs::write(place.path("p.toml"), PROFILE)?;
        fs::write(place.path("token"), TOKEN)?;
        fs::set_permissions(place.path("token"), fs::Permissions::from_mode(0o600))?;
        let (mut guests, mut ports) = (Vec::new(), Vec::new());
        for name in ["one", "two"] {
            place.ok(&format!("clone deb@golden {name}"))?;
            place.ok(&format!("clone program@one {name}-program"))?;
            place.ok(&format!("disk create {name}-data --size {DATA_BYTES}"))?;
            // Free now, and nobody else is told of it.
            let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
            let disks = [name.to_owned(), format!("{name}-program"), format!("{name}-data")];
            guests.push(super::boot(place, name, &disks, Some((port, INSIDE)))?);
            ports.push(port);
        }
        for guest in &mut guests {
            work(guest)?;
        }
        let led = lead(place, &ports)?;
        let machines = led["run"]["machine"].as_object().context("a run tells its machines")?;
        let workers: Vec<_> = machines.iter().filter(|(key, _)| key.starts_with("worker ")).collect();
        // What a worker says of its machine: the guest's, of whose 512 MiB its kernel takes some, not this one's.
        let is_guest = |told: &serde_json::Value| {
            ["0.4 GiB", "0.5 GiB"].iter().any(|memory| told.to_string().contains(memory))
        };
        ensure!(workers.len() == 2 && workers.iter().all(|(_, it)| is_guest(it)), "{workers:?}");
        let point = &led["summary"]["points"][0];
        let ios = point["iops"].as_f64().context("a point has a rate")?;
        let gates = point["gates"].as_array().context("a point has gates")?;
        let verified = gates.iter().find(|gate| gate["name"] == "verification");
        ensure!(ios > 20.0 && verified.is_some_and(|gate| gate["state"] == "pass"), "{point}");
        for name in ["one-data", "two-data"] {
            let disk = place.json(&format!("disk show {name}"))?;
            let (reads, written) = (disk["io"]["reads"].as_u64(), disk["io"]["written_bytes"].as_u64());
            // Written once before anything is measured, then read and written.
            ensure!(reads > Some(20) && written > Some(16 << 20), "{name}: {}", disk["io"]);
        }
        for guest in &mut guests {
            guest.quit(super::QUIT_MAX)?;
        }
        server.stop()
    });
}

/// An image of a file system with nothing on it but the program and the token.
fn program(place: &Place) -> Result<String> {
    let folder = place.path("program");
    fs::create_dir(&folder)?;
    let stripped = folder.join("stonefold");
    run("strip", &["--strip-debug", "-o", &stripped.to_string_lossy(), &stonefold()?.to_string_lossy()])?;
    fs::write(folder.join("token"), TOKEN)?;
    super::image_of(place, "program")
}

/// Has its worker listen.
fn work(guest: &mut Guest) -> Result<()> {
    super::log_in(guest)?;
    // The one card there is, whatever the guest calls it.
    let network = "for card in /sys/class/net/e*; do ip link set ${card##*/} up && ip addr add 10.0.2.15/24 dev ${card##*/}; done";
    let mounted = "mount -o ro /dev/vdb /mnt && install -m 600 /mnt/token /root/token";
    let serving = format!(
        "(/mnt/stonefold lab worker --listen 0.0.0.0:{INSIDE} --token-file /root/token >/root/worker.log 2>&1 &); \
         for tried in $(seq 60); do grep -q : /root/worker.log && break; sleep 1; done; cat /root/worker.log"
    );
    for command in [network, mounted, &serving] {
        guest.run(command, super::SHELL_MAX)?.success()?;
    }
    Ok(())
}

/// Leads both, and gives what the lab answers.
fn lead(place: &Place, ports: &[u16]) -> Result<serde_json::Value> {
    let mut lab = Command::new(stonefold()?);
    lab.args(["lab", "run"]).arg(place.path("p.toml")).args(["--target", "dev:/dev/vdc", "--json"]);
    lab.arg("--token-file").arg(place.path("token"));
    for port in ports {
        lab.arg("--worker").arg(format!("127.0.0.1:{port}"));
    }
    let led = lab.output()?;
    // What it finds of two emulated machines is not this test's concern; that it found something is.
    serde_json::from_slice(&led.stdout)
        .with_context(|| format!("the lab: {}", String::from_utf8_lossy(&led.stderr)))
}
