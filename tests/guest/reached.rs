//! A Debian that is read over SSH while it writes to a logical volume, by a real ssh and with LVM's real snapshots.
//!
//! *Promise*: the volume is of one instant: of files that were written and synced one after another there are all up to some one, and its
//! file system is sound; the disk comes back with its partitions and its volume group, in which nothing is of the backup; nothing of it stays where it was read;
//! a snapshot that overflows makes no point; a disk that it boots from boots as a machine. *Method*: a second disk of the guest with a partition that is mounted and one of LVM's; sshd in the guest, reached through a port that
//! QEMU forwards; what comes back is looked at by another guest. *Past bug*: none yet.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use stonefold_e2e::gateway::{Place, in_a_place};
use stonefold_e2e::machines::Machines;
use stonefold_e2e::tools::run;
use stonefold_guest::Guest;

/// Of a disk that an emulated machine sums and sends.
const RUN_MAX: Duration = Duration::from_secs(600);
/// Of one of 2 GiB that is summed three times.
const WHOLE_MAX: Duration = Duration::from_secs(3600);
const DISK: &str = "384M";
const DISK_MIB: u64 = 384;
const PARTED: &str =
    "printf 'start=1MiB,size=32MiB,type=83\\nstart=33MiB,type=8e\\n' | sfdisk -q /dev/vdb && udevadm settle";
/// Half of the group stays free, for snapshots.
const VOLUMES: &str = "modprobe dm-snapshot; pvcreate -y /dev/vdb2 && vgcreate -y data /dev/vdb2 && lvcreate -y -L 128M -n work data && \
    lvcreate -y -L 16M -n swap data && mkswap /dev/data/swap && swapon /dev/data/swap";
const SYSTEMS: &str = "mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 /dev/vdb1 && mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 /dev/data/work && \
    mkdir -p /boot2 /work && mount -o noatime /dev/vdb1 /boot2 && mount /dev/data/work /work && cp /etc/passwd /boot2/ && sync";
/// Each file is there, durably, before the next is begun.
const WRITER: &str = "echo 'n=0; while [ ! -e /root/stop ]; do n=$((n + 1)); echo $n | dd of=/work/$n conv=fsync 2>/dev/null; \
    echo $n >/root/written.new; mv /root/written.new /root/written; sleep 0.05; done' >/root/writer";
const SNAPSHOTS: &str = "lvs --noheadings -o lv_name data | grep -c stonefold; true";

/// The server's way to the guest: a real ssh, with keys and known hosts of the test alone.
fn way(place: &Place) -> Result<String> {
    fs::create_dir(place.path("bin"))?;
    let key = place.text("key");
    run("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-f", &key])?;
    let real = run("which", &["ssh"])?;
    let program = place.path("bin").join("ssh");
    let known = place.text("known");
    // In front, since the first of two that say the same holds.
    fs::write(
        &program,
        format!(
            "#!/bin/sh\nexec {} -F none -o UserKnownHostsFile={known} -o GlobalKnownHostsFile=/dev/null \"$@\"\n",
            real.trim()
        ),
    )?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    Ok(fs::read_to_string(place.path("key.pub"))?.trim().to_owned())
}

#[test]
fn a_debian_is_read_over_ssh_while_it_writes() {
    in_a_place(|place| {
        let _ended = Machines(place);
        let public = way(place)?;
        // What runs under KVM here is not known; emulation runs everywhere.
        let server = place.start(&[
            "--cache",
            "64M",
            "--machines",
            &place.text("machines"),
            "--accelerator",
            "tcg",
        ])?;
        place.ok(&format!("disk import deb {}", super::guest()?.join("disk.raw").display()))?;
        place.ok("snapshot create deb --name golden")?;
        for name in ["web", "other"] {
            place.ok(&format!("clone deb@golden {name}"))?;
        }
        place.ok(&format!("disk create web-data --size {DISK}"))?;
        // Free now, and nobody else is told of it.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut guest = super::boot(place, "web", &["web", "web-data"], Some((port, 22)))?;
        prepare(&mut guest, &public)?;

        let url = format!("ssh://root@127.0.0.1:{port}");
        let key = place.text("key");
        let add = |name: &str, room: &str| {
            let line = format!(
                "source add {name} --ssh {url} --identity {key} --device /dev/vdb --snapshot-size {room}"
            );
            place.ok(&line).map(drop)
        };
        add("old-web", "48M")?;
        let said = place.fails("backup run old-web", 1)?;
        ensure!(said.contains("host key is not known") && said.contains(" true' once"), "{said}");
        let known = run("ssh-keyscan", &["-T", "60", "-p", &port.to_string(), "127.0.0.1"])?;
        let keys: Vec<&str> = known.lines().filter(|line| line.starts_with('[')).collect();
        fs::write(place.path("known"), keys.join("\n") + "\n")?;

        let before = written(&mut guest)?;
        let first = place.json_within("backup run old-web", RUN_MAX)?;
        let after = written(&mut guest)?;
        ensure!(after > before, "it did not write meanwhile: {before} to {after}");
        ensure!(say(&mut guest, SNAPSHOTS)? == "0", "a snapshot stays");
        let second = place.json_within("backup run old-web", RUN_MAX)?;
        let copied = &second["copied"];
        ensure!(copied["read_bytes"] == DISK_MIB << 20, "{second}");
        ensure!(copied["sent_bytes"].as_u64() < first["copied"]["sent_bytes"].as_u64(), "{first} {second}");

        overflows(place, &mut guest, &add)?;
        let whole = is_long().then(|| of_its_own_disk(place, &mut guest, &url)).transpose()?;
        guest.quit(super::QUIT_MAX)?;
        comes_back(place, &first, (before, after))?;
        if let Some(whole) = whole {
            boots(place, &whole)?;
        }
        server.stop()
    });
}

/// Whether there is time for what an emulated machine takes many minutes for.
fn is_long() -> bool {
    std::env::var("STONEFOLD_TEST_LONG").is_ok_and(|long| long == "yes")
}

/// A point of the disk that it runs from, which has no volumes, and to which nobody writes meanwhile.
fn of_its_own_disk(place: &Place, guest: &mut Guest, url: &str) -> Result<String> {
    // As after the kernel's own emergency: what is open for writing does not hold it up.
    say(
        guest,
        "touch /root/was-here && sync && echo u >/proc/sysrq-trigger && while grep -q ' / ext4 rw' /proc/mounts; do sleep 1; done",
    )?;
    place.ok(&format!("source add whole --ssh {url} --identity {} --device /dev/vda", place.text("key")))?;
    let made = place.json_within("backup run whole", WHOLE_MAX)?;
    Ok(made["name"].as_str().context("a run has a name")?.to_owned())
}

/// It boots, by the description that was made of it: on other hardware than it was read from.
fn boots(place: &Place, point: &str) -> Result<()> {
    let line = format!("verify {point} --wait console:login: --timeout {}", super::BOOT_MAX);
    let proof = place.json_within(&line, super::LOGIN_MAX)?;
    println!("{proof}");
    Ok(())
}

/// Its second disk, a writer, and an sshd that lets the server in.
fn prepare(guest: &mut Guest, public: &str) -> Result<()> {
    super::log_in(guest)?;
    let network = "for card in /sys/class/net/e*; do ip link set ${card##*/} up && ip addr add 10.0.2.15/24 dev ${card##*/}; done";
    let keys = format!(
        "mkdir -p -m 700 /root/.ssh /run/sshd && echo '{public}' >/root/.ssh/authorized_keys && chmod 600 /root/.ssh/authorized_keys && /usr/sbin/sshd"
    );
    for command in [network, PARTED, VOLUMES, SYSTEMS, WRITER, &keys, "(sh /root/writer >/dev/null 2>&1 &)"] {
        say(guest, command)?;
    }
    Ok(())
}

fn written(guest: &mut Guest) -> Result<u64> {
    let text = say(guest, "while [ ! -e /root/written ]; do sleep 1; done; cat /root/written")?;
    text.parse().with_context(|| format!("'{text}' is no number"))
}

/// More is written than the snapshot has room for: no point, and none of it stays.
fn overflows(place: &Place, guest: &mut Guest, add: &dyn Fn(&str, &str) -> Result<()>) -> Result<()> {
    add("narrow", "4M")?;
    say(
        guest,
        "(while [ ! -e /root/stop ]; do dd if=/dev/urandom of=/work/large bs=1M count=40 conv=fsync; done >/dev/null 2>&1 &)",
    )?;
    let done = place.json_within("backup run narrow", RUN_MAX);
    let said = format!("{:#}", done.err().context("a snapshot that overflows makes a point")?);
    ensure!(said.contains("overflowed") && said.contains("--snapshot-size"), "{said}");
    say(guest, "touch /root/stop")?;
    ensure!(say(guest, SNAPSHOTS)? == "0", "a snapshot stays that has overflowed");
    let points = place.json("point ls")?;
    ensure!(points.as_array().is_some_and(|points| points.len() == 2), "{points}");
    Ok(())
}

/// What came back, in another guest.
fn comes_back(place: &Place, made: &Value, (before, after): (u64, u64)) -> Result<()> {
    let point = made["name"].as_str().context("a run has a name")?;
    let shown = place.json(&format!("point show {point}"))?;
    ensure!(shown["hardware"].to_string().contains("q35"), "{shown}");
    place.ok(&format!("recover {point} --as again"))?;
    let mut guest = super::boot(place, "other", &["other", "again.vda"], None)?;
    super::log_in(&mut guest)?;
    let volumes = say(&mut guest, "vgchange -ay data >/dev/null 2>&1; lvs --noheadings -a -o lv_name data")?;
    let volumes: Vec<&str> = volumes.split_whitespace().collect();
    ensure!(volumes == ["swap", "work"], "of the backup something is in the group: {volumes:?}");
    say(&mut guest, "pvck /dev/vdb2 && swapon /dev/data/swap && mkdir -p /work /boot2")?;
    // Its journal is replayed by the mount; then it must be sound.
    say(
        &mut guest,
        "mount /dev/data/work /work && umount /work && e2fsck -fn /dev/data/work && mount -o ro /dev/data/work /work",
    )?;
    let last: u64 = say(&mut guest, "ls /work | grep -v -e lost -e large | sort -n | tail -n 1")?.parse()?;
    ensure!(before <= last && last <= after + 1, "{last} is not between {before} and {after}");
    // Of the last one its name may be there, and not yet its content.
    let whole = format!(
        "n=0; while [ $n -lt {} ]; do n=$((n + 1)); [ \"$(cat /work/$n)\" = $n ] || break; done; echo $n",
        last - 1
    );
    let found = say(&mut guest, &whole)?;
    ensure!(found == (last - 1).to_string(), "file {found} of {last} is not there, or not as it was synced");
    let boot =
        say(&mut guest, "mount -o ro /dev/vdb1 /boot2 && cmp /boot2/passwd /etc/passwd && echo alike")?;
    ensure!(boot == "alike", "{boot}");
    guest.quit(super::QUIT_MAX).map(drop)
}

fn say(guest: &mut Guest, command: &str) -> Result<String> {
    Ok(guest.run(command, super::SHELL_MAX)?.success()?.trim().to_owned())
}
