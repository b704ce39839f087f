//! Points brought back as domains of a real libvirt, which boots them by a real QEMU from the server's door.
//!
//! *Promise*: a domain has a name, a UUID and a MAC address of its own, runs beside its original, and goes with its recovery; what libvirt refuses
//! leaves neither a domain nor a disk. *Method*: a libvirtd that the test starts, in a mount namespace whose /etc/libvirt, /var/lib/libvirt
//! and /run/libvirt are its own, so that a libvirt of this machine is never touched; emulation.

use std::fs;

use anyhow::{Context, Result, ensure};
use stonefold_e2e::gateway::{Place, in_a_place};
use stonefold_e2e::tools::{Beside, attempt};
use stonefold_needs::{Need, there_is};

const XML: &str = "<domain type='qemu'><name>web</name><uuid>11111111-1111-4111-8111-111111111111</uuid><memory unit='MiB'>64</memory>\
    <vcpu>1</vcpu><os><type arch='x86_64' machine='pc'>hvm</type></os><devices>\
    <disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='/srv/web.qcow2'/><target dev='vda' bus='virtio'/></disk>\
    <serial type='pty'/></devices></domain>";

/// A libvirt of this place's.
fn libvirt(place: &Place) -> Result<(Beside, String)> {
    let socket = place.path("libvirt/libvirt-sock");
    fs::create_dir_all(place.path("libvirt"))?;
    let conf = format!(
        "unix_sock_dir = '{}'\nauth_unix_rw = 'none'\nlog_outputs = '1:file:{}'\n",
        place.text("libvirt"),
        place.text("libvirtd.log")
    );
    fs::write(place.path("libvirtd.conf"), conf.replace('\'', "\""))?;
    // QEMU as root, as the test is: the NBD socket is root's.
    fs::write(
        place.path("qemu.conf"),
        "user = \"root\"\ngroup = \"root\"\nsecurity_driver = \"none\"\nnamespaces = []\ncgroup_controllers = []\nstdio_handler = \"file\"\n",
    )?;
    // Its packages make these accounts, where they may start services.
    for (file, lines) in [
        ("passwd", &["libvirt-qemu:x:64055:64055::/:/bin/false"][..]),
        ("group", &["libvirt-qemu:x:64055:", "kvm:x:64056:"]),
    ] {
        let mut own = fs::read_to_string(format!("/etc/{file}"))?;
        for line in lines {
            let name = line.split(':').next().unwrap_or_default();
            if !own.lines().any(|known| known.split(':').next() == Some(name)) {
                own.push_str(line);
                own.push('\n');
            }
        }
        fs::write(place.path(file), own)?;
    }
    let at = place.path("").display().to_string();
    let script = format!(
        "set -e; cd {at}; mount --bind passwd /etc/passwd; mount --bind group /etc/group; \
        for d in /etc/libvirt /var/lib/libvirt /var/cache/libvirt /run/libvirt; do mkdir -p $d; mount -t tmpfs own $d; done; \
        cp qemu.conf /etc/libvirt/qemu.conf; exec libvirtd -f {at}/libvirtd.conf -p {at}/libvirtd.pid"
    );
    let uri = format!("qemu+unix:///system?socket={}", socket.display());
    let answers = || attempt("virsh", &["-c", &uri, "list"]).is_ok_and(|(status, _)| status == Some(0));
    let running = Beside::start("unshare", &["--mount", "sh", "-c", &script], answers)?;
    Ok((running, uri))
}

fn virsh(uri: &str, words: &[&str]) -> Result<String> {
    let (status, said) = attempt("virsh", &[&["-q", "-c", uri], words].concat())?;
    ensure!(status == Some(0), "virsh {words:?}: {said}");
    Ok(said)
}

#[test]
fn a_point_comes_back_as_a_domain_and_goes_again() {
    if !there_is(Need::Loop, "points as domains of a libvirt in a mount namespace of its own") {
        return;
    }
    in_a_place(|place| {
        let (libvirt, uri) = libvirt(place)?;
        let server = place.start(&[])?;
        place.ok("disk create web --size 64M")?;
        fs::write(place.path("web.xml"), XML)?;
        place.ok(&format!("machine add web --disk web --xml {}", place.text("web.xml")))?;
        place.ok("source add nightly --machine web")?;
        let run = place.json("backup run nightly")?;
        let point = run["name"].as_str().context("a run has a name")?;

        let made = place.json(&format!("recover {point} --as again --to libvirt:{uri}"))?;
        let started = &made["recovery"]["started"];
        ensure!(started["running"] == true && started["first_block_us"].is_u64(), "{made}");
        let listed = virsh(&uri, &["list", "--name"])?;
        ensure!(listed.trim() == "again", "{listed}");
        let xml = virsh(&uri, &["dumpxml", "again"])?;
        let own = started["domain"].as_str().context("a domain is named")?;
        ensure!(xml.contains(own) && !xml.contains("11111111-1111") && xml.contains("again.vda"), "{xml}");

        // Another of the same point beside it; and a name that libvirt has already.
        place.ok(&format!("recover {point} --as other --to libvirt:{uri} --network isolated"))?;
        virsh(&uri, &["list", "--name"])?;
        place.ok("recover stop other --discard")?;
        place.ok("recover stop again --power-off")?;
        ensure!(virsh(&uri, &["list", "--all", "--name"])?.trim().is_empty(), "a domain is left");
        place.ok("disk rm again.vda")?;

        // What libvirt refuses leaves nothing.
        fs::write(place.path("bad.xml"), XML.replace("machine='pc'", "machine='no-such'"))?;
        place.ok("source rm nightly")?;
        place.ok("machine rm web")?;
        place.ok(&format!("machine add web --disk web --xml {}", place.text("bad.xml")))?;
        place.ok("source add weekly --machine web")?;
        let run = place.json("backup run weekly")?;
        let bad = run["name"].as_str().context("a run has a name")?;
        let said = place.fails(&format!("recover {bad} --as again --to libvirt:{uri}"), 1)?;
        ensure!(said.contains("libvirt") && said.contains("refuses 'define'"), "{said}");
        ensure!(virsh(&uri, &["list", "--all", "--name"])?.trim().is_empty(), "a domain is left");
        let disks = place.json("disk ls")?;
        ensure!(disks.as_array().is_some_and(|disks| disks.len() == 1), "{disks}");
        libvirt.kill();
        let said = place.fails(&format!("recover {point} --as again --to libvirt:{uri}"), 1)?;
        ensure!(said.contains("refuses") && said.contains("libvirtd"), "{said}");
        server.stop()
    });
}
