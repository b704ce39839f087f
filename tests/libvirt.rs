//! Points brought back as domains of a real libvirt, which boots them by a real QEMU from the server's door.
//!
//! *Promise*: a domain has a name, a UUID and a MAC address of its own, runs beside its original, and goes with its recovery; what libvirt refuses
//! leaves neither a domain nor a disk. *Method*: a libvirt of the test's own ([`stonefold_e2e::libvirt`]); emulation.

use std::fs;

use anyhow::{Context, ensure};
use stonefold_e2e::gateway::in_a_place;
use stonefold_e2e::libvirt::{libvirt, virsh};
use stonefold_needs::{Need, there_is};

const XML: &str = "<domain type='qemu'><name>web</name><uuid>11111111-1111-4111-8111-111111111111</uuid><memory unit='MiB'>64</memory>\
    <vcpu>1</vcpu><os><type arch='x86_64' machine='pc'>hvm</type></os><devices>\
    <disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='/srv/web.qcow2'/><target dev='vda' bus='virtio'/></disk>\
    <serial type='pty'/></devices></domain>";

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
