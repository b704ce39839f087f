//! The clients people use, over TLS: those who may come in, and those who may not.

use std::process::{Command, Stdio};
use std::sync::Arc;
use stonefold_nbd::TlsMode;

use crate::certificates::{Authority, For};
use crate::fixture::Fixture;
use crate::memory::MemoryDisk;
use crate::real_clients::{Beside, run};

const SIZE: usize = 8 << 20;

/// A door on TCP with an authority of its own; with `clients`, one that lets in only those it vouches for.
fn fixture(authority: &Authority, mode: TlsMode, clients: Option<&Authority>) -> (Fixture, Arc<MemoryDisk>) {
    let address = "tcp://127.0.0.1:0".parse().unwrap();
    let fixture = Fixture::start_with(Some(address), authority.tls(mode, clients));
    let disk = fixture.exports.create("disk", SIZE);
    disk.fill();
    (fixture, disk)
}

fn port(fixture: &Fixture) -> String {
    let address = fixture.address.to_string();
    address.rsplit_once(':').unwrap().1.to_owned()
}

fn uri(fixture: &Fixture, folder: &tempfile::TempDir) -> String {
    format!("nbds://localhost:{}/disk?tls-certificates={}", port(fixture), folder.path().display())
}

/// What qemu-img takes instead of a URI.
fn qemu(fixture: &Fixture, folder: &tempfile::TempDir) -> [String; 4] {
    let credentials = format!("tls-creds-x509,id=tls,endpoint=client,dir={}", folder.path().display());
    let image = format!(
        "driver=nbd,server.type=inet,server.host=localhost,server.port={},export=disk,tls-creds=tls",
        port(fixture)
    );
    ["--object".into(), credentials, "--image-opts".into(), image]
}

/// What a program says when it fails; panics when it does not.
fn refused(program: &str, arguments: &[&str]) -> String {
    let out = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let out = out.unwrap_or_else(|error| panic!("{program} cannot be run ({error})"));
    let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(!out.status.success(), "{program} {arguments:?} was let in:\n{text}");
    text
}

#[test]
fn nbdinfo_and_qemu_img_come_in() {
    let authority = Authority::new();
    let (fixture, _disk) = fixture(&authority, TlsMode::Require, None);
    let folder = authority.client_folder(None);
    let text = run("nbdinfo", "libnbd-bin", &[&uri(&fixture, &folder)]);
    for line in ["with TLS", "export-size: 8388608 (8M)", "base:allocation"] {
        assert!(text.contains(line), "no {line:?} in\n{text}");
    }
    // Extended where libnbd knows them, from 1.20 on.
    assert!(
        ["extended", "structured"].iter().any(|kind| text.contains(&format!("using {kind} packets"))),
        "{text}"
    );
    let arguments = qemu(&fixture, &folder);
    let arguments: Vec<&str> = ["info"].into_iter().chain(arguments.iter().map(String::as_str)).collect();
    let text = run("qemu-img", "qemu-utils", &arguments);
    assert!(text.contains("virtual size: 8 MiB"), "{text}");
}

#[test]
fn nbdcopy_nbdkit_and_fio_carry_data_over_it() {
    let authority = Authority::new();
    let (fixture, disk) = fixture(&authority, TlsMode::Require, Some(&authority));
    let folder = authority.client_folder(Some((&authority, For::Client)));
    let uri = uri(&fixture, &folder);
    let file = fixture.folder.path().join("image");
    let contents: Vec<u8> =
        (0..SIZE).map(|at| if at / 300_000 % 3 == 0 { 0 } else { (at % 251) as u8 }).collect();
    std::fs::write(&file, &contents).unwrap();
    run("nbdcopy", "libnbd-bin", &["--flush", file.to_str().unwrap(), &uri]);
    assert!(disk.contents() == contents);
    let back = fixture.folder.path().join("back");
    run("nbdcopy", "libnbd-bin", &[&uri, back.to_str().unwrap()]);
    assert!(std::fs::read(&back).unwrap() == contents);

    let socket = fixture.folder.path().join("kit.sock");
    let path = socket.to_str().unwrap();
    let mut nbdkit = Beside::start(
        "nbdkit",
        "nbdkit",
        &[
            "-f",
            "-U",
            path,
            "nbd",
            "tls=require",
            &format!("tls-certificates={}", folder.path().display()),
            "hostname=localhost",
            &format!("port={}", port(&fixture)),
            "export=disk",
        ],
    );
    nbdkit.wait_for(|| std::os::unix::net::UnixStream::connect(&socket).is_ok());
    run("nbdcopy", "libnbd-bin", &[&format!("nbd+unix:///?socket={path}"), back.to_str().unwrap()]);
    assert!(std::fs::read(&back).unwrap() == contents);

    // fio cannot be told of certificates, so it goes the same way.
    let kit = format!("--uri=nbd+unix:///?socket={path}");
    for polls in [0, 2] {
        disk.polls_to_wait.store(polls, std::sync::atomic::Ordering::SeqCst);
        let job = ["--name=verify", "--ioengine=nbd", &kit, "--rw=randrw", "--bsrange=512-300k"];
        let how = ["--bs_unaligned", "--size=8M", "--iodepth=32", "--fsync=64", "--verify=crc32c"];
        let more = ["--verify_backlog=128", "--randseed=7", "--verify_state_save=0"];
        let text = run("fio", "fio", &[&job[..], &how, &more].concat());
        assert!(text.contains("err= 0"), "{text}");
    }
}

#[test]
fn a_client_in_clear_is_told_why_it_cannot_stay() {
    let authority = Authority::new();
    let (fixture, _disk) = fixture(&authority, TlsMode::Require, None);
    let clear = format!("nbd://localhost:{}/disk", port(&fixture));
    // libnbd has no words for it.
    refused("nbdinfo", &[&clear]);
    let text = refused("qemu-img", &["info", &clear]);
    assert!(text.contains("requires TLS"), "{text}");
}

#[test]
fn only_clients_with_a_good_certificate_come_in_where_one_is_asked_for() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let (fixture, _disk) = fixture(&authority, TlsMode::Require, Some(&authority));
    let good = authority.client_folder(Some((&authority, For::Client)));
    for (why, folder) in [
        ("no certificate", authority.client_folder(None)),
        ("a stranger's authority", authority.client_folder(Some((&stranger, For::Client)))),
        ("expired", authority.client_folder(Some((&authority, For::ExpiredClient)))),
        ("a server's certificate", authority.client_folder(Some((&authority, For::Server)))),
        ("it does not trust the server", stranger.client_folder(Some((&authority, For::Client)))),
    ] {
        let failed = fixture.counts().handshakes_failed;
        refused("nbdinfo", &[&uri(&fixture, &folder)]);
        let arguments = qemu(&fixture, &folder);
        refused("qemu-img", &[&["info"][..], &arguments.each_ref().map(String::as_str)].concat());
        fixture.wait_for_connections(0);
        assert!(fixture.counts().handshakes_failed > failed, "{why}");
        run("nbdinfo", "libnbd-bin", &[&uri(&fixture, &good)]);
    }
    assert_eq!(fixture.counts().panics, 0);
}
