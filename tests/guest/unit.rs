//! The package in a Debian whose systemd runs: installed, served by its unit, killed, configured wrongly, upgraded, purged.
//!
//! *Promise*: as [docs/operate/serve.md](../../docs/operate/serve.md) tells it: the service is there when `systemctl start` returns, runs as its own user with no
//! privilege, comes back after it is killed, is not tried again with a configuration that cannot be, goes over to an upgrade by itself, and leaves the
//! pool. *Method*: on the guest's console, as its administrator would; what `package` sees without a systemd is not looked at again.

use std::fs;

use anyhow::{Result, ensure};
use stonefold_e2e::gateway::in_a_place;
use stonefold_e2e::package;
use stonefold_guest::Guest;

const INSTALL: &str = "dpkg --install /mnt/stonefold.deb";
const CONFIGURATION: &str = "/etc/stonefold/stonefold.toml";
/// Of a service that was told to start and is to be there a little later.
const IS_ACTIVE: &str = "for tried in $(seq 60); do systemctl is-active --quiet stonefold && break; sleep 1; done; systemctl is-active stonefold";
const MAIN: &str = "systemctl show --property=MainPID --value stonefold";

#[test]
fn systemd_serves_what_the_package_installs() {
    in_a_place(|place| {
        let server = place.start(&["--cache", "64M"])?;
        place.ok(&format!("disk import deb {}", super::guest()?.join("disk.raw").display()))?;
        let folder = place.path("carried");
        fs::create_dir(&folder)?;
        fs::copy(package::build(place)?, folder.join("stonefold.deb"))?;
        place.ok(&format!("disk import package {}", super::image_of(place, "carried")?))?;
        let mut guest = super::boot(place, "unit", &["deb", "package"], None)?;
        super::log_in(&mut guest)?;
        say(&mut guest, "mount -o ro /dev/vdb /mnt")?;

        let installed = say(&mut guest, INSTALL)?;
        ensure!(installed.contains("installed, not started"), "{installed}");
        // What is shipped is for a machine with more memory.
        say(&mut guest, &format!("sed -i 's/^cache = .*/cache = \"128M\"/' {CONFIGURATION}"))?;
        let first = starts_as_its_user(&mut guest)?;
        say(&mut guest, "stonefold disk create web --size 1G")?;
        comes_back(&mut guest, &first)?;
        waits_for_a_configuration(&mut guest)?;

        let before = say(&mut guest, MAIN)?;
        say(&mut guest, INSTALL)?;
        ensure!(say(&mut guest, IS_ACTIVE)? == "active", "not after an upgrade");
        ensure!(say(&mut guest, MAIN)? != before, "the upgrade does not run");
        let disks = say(&mut guest, "stonefold disk ls")?;
        ensure!(disks.contains("web"), "{disks}");

        say(&mut guest, "dpkg --purge stonefold")?;
        let left = say(&mut guest, "pgrep stonefold || ls /var/lib/stonefold/pool")?;
        ensure!(left.contains("journals"), "of the pool is left: {left}");
        guest.quit(super::QUIT_MAX)?;
        server.stop()
    });
}

/// Its process.
fn starts_as_its_user(guest: &mut Guest) -> Result<String> {
    // Returns when it is ready: nothing is waited for behind it.
    let journal = "journalctl --unit stonefold --lines 30 --no-pager";
    say(guest, &format!("systemctl enable --now stonefold || {{ {journal}; false; }}"))?;
    let status = say(guest, "stonefold pool status")?;
    ensure!(status.contains("file:///var/lib/stonefold/pool"), "{status}");
    let main = say(guest, MAIN)?;
    let user = say(guest, &format!("stat -c %U /proc/{main}"))?;
    ensure!(user == "stonefold", "it runs as '{user}'");
    let may = say(guest, &format!("grep -E 'CapEff|NoNewPrivs' /proc/{main}/status"))?;
    let may = may.split_whitespace().collect::<Vec<_>>().join(" ");
    ensure!(may.contains("CapEff: 0000000000000000") && may.contains("NoNewPrivs: 1"), "{may}");
    Ok(main)
}

fn comes_back(guest: &mut Guest, main: &str) -> Result<()> {
    say(guest, &format!("kill -9 {main}"))?;
    let again =
        format!("for tried in $(seq 60); do [ \"$({MAIN})\" = {main} ] || break; sleep 1; done; {IS_ACTIVE}");
    ensure!(say(guest, &again)? == "active", "not after it was killed");
    let disks = say(guest, "stonefold disk ls")?;
    ensure!(disks.contains("web"), "{disks}");
    Ok(())
}

/// And is not tried again with one that cannot be.
fn waits_for_a_configuration(guest: &mut Guest) -> Result<()> {
    say(guest, &format!("cp {CONFIGURATION} /root/kept && echo 'pool = 1' >{CONFIGURATION}"))?;
    let refused = guest.run("systemctl restart stonefold", super::SHELL_MAX)?;
    ensure!(refused.success().is_err(), "it starts with 'pool = 1'");
    // Twice the time after which it would be tried again.
    say(guest, "sleep 2")?;
    let failed = say(guest, "systemctl show --property=ActiveState,ExecMainStatus stonefold")?;
    ensure!(failed.contains("ActiveState=failed") && failed.contains("ExecMainStatus=2"), "{failed}");
    let told = say(guest, "journalctl --unit stonefold --lines 20 --no-pager")?;
    ensure!(told.contains("stonefold.toml"), "the journal does not name the file: {told}");
    say(guest, &format!("cp /root/kept {CONFIGURATION} && systemctl start stonefold"))?;
    Ok(())
}

fn say(guest: &mut Guest, command: &str) -> Result<String> {
    Ok(guest.run(command, super::SHELL_MAX)?.success()?.trim().to_owned())
}
