//! Backups of what lies on other storage, by the command line: images and exports, by TLS too, copied, paused and ended.

mod over_a_folder;

use over_a_folder::{error, json, run, serve, serve_with, text};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use std::path::Path;
use std::time::Duration;
use stonefold_server::Settings;
use stonefold_types::Size;

/// Goal: an image file and an export are backed up by what differs, also over a restart, and come back to the byte; what cannot be is refused and
/// told.
#[test]
fn images_and_exports_are_copied() {
    let folder = tempfile::tempdir().unwrap();
    let (raw, image) = (folder.path().join("raw"), folder.path().join("golden.qcow2"));
    let pattern: Vec<u8> = (0..1u32 << 20).map(|at| (at >> 12) as u8 | 1).collect();
    std::fs::write(&raw, &pattern).unwrap();
    tool(&format!("qemu-img convert -f raw -O qcow2 {} {}", raw.display(), image.display()));
    tool(&format!("qemu-img resize -q {} 8M", image.display()));
    let running = serve(folder.path());
    let added = text(&running, &format!("source add golden --image {}", image.display()));
    assert_eq!(added, format!("source 'golden' of image '{}' added\n", image.display()));
    let first = text(&running, "backup run golden").trim().to_owned();
    let shown = json(&running, &format!("backup show {first}"));
    assert_eq!((&shown["copied"]["written_bytes"], &shown["state"]), (&(1 << 20).into(), &"done".into()));
    // The pattern is as large as its 128 kinds of blocks, before these are made small.
    let stored = |run: &str| {
        let look = |_| {
            std::thread::sleep(Duration::from_millis(100));
            json(&running, &format!("backup show {run}"))["copied"]["stored_bytes"].as_u64()
        };
        (0..600).find_map(look).expect("what was stored is told within a minute")
    };
    let of_first = stored(&first);
    assert!(of_first > 0 && of_first < 512 << 10, "{of_first}");
    // What another has already is not stored again.
    text(&running, &format!("source add sister --image {} --format raw", raw.display()));
    let sister = text(&running, "backup run sister").trim().to_owned();
    assert_eq!(json(&running, &format!("backup show {sister}"))["copied"]["written_bytes"], 1 << 20);
    assert_eq!(stored(&sister), 0);
    running.stop().unwrap();

    tool(&format!("qemu-io -f qcow2 -c {} {}", "write\u{a0}-P\u{a0}9\u{a0}4M\u{a0}8k", image.display()));
    let running = serve(folder.path());
    let second = text(&running, "backup run golden").trim().to_owned();
    assert_eq!(json(&running, &format!("backup show {second}"))["copied"]["written_bytes"], 8192);
    let diff = json(&running, &format!("point diff {first} {second}"));
    assert_eq!(diff["changed_bytes"], 8192);
    let full = text(&running, "backup run golden --full").trim().to_owned();
    let told = text(&running, &format!("backup show {full}"));
    assert!(told.contains("copied to     golden.vda") && told.contains("read          8M"), "{told}");
    let table = text(&running, "backup ls");
    assert!(table.contains("WRITTEN") && table.contains("STORED") && table.contains(" 8K"), "{table}");
    assert!(text(&running, "source show golden").contains("format   qcow2"));

    // What came back is what the image held, read by a stranger.
    for (point, name) in [(&first, "one"), (&second, "two")] {
        text(&running, &format!("recover {point} --as {name}"));
        let out = folder.path().join(name);
        text(&running, &format!("disk export {name}.vda {} --format raw", out.display()));
    }
    let mut wanted = pattern;
    wanted.resize(8 << 20, 0);
    assert!(std::fs::read(folder.path().join("one")).unwrap() == wanted);
    wanted[4 << 20..][..8192].fill(9);
    assert!(std::fs::read(folder.path().join("two")).unwrap() == wanted);

    // An export: one of our own, as good as another's.
    let uri = format!("nbd+unix:///one.vda?socket={}", folder.path().join("nbd").display());
    text(&running, &format!("source add db --nbd {uri}"));
    let point = text(&running, "backup run db").trim().to_owned();
    assert!(text(&running, "source ls").contains(&format!("export '{uri}'")));
    text(
        &running,
        &format!(
            "disk export db.vda@{} {} --format raw",
            point.split_once('@').unwrap().1,
            folder.path().join("db").display()
        ),
    );
    assert_eq!(json(&running, "backup ls").as_array().unwrap().len(), 5);
    assert!(error(&running, "disk rm db.vda --snapshots").contains("source 'db'"));

    assert!(error(&running, "source add x --nbd one.vda").contains("nbd://HOST"));
    assert!(error(&running, "source add x --image /nowhere").contains("'/nowhere' cannot be read"));
    run(&running, "source add x --image /nowhere --nbd nbd://h/x", 2);
    run(&running, "source add x --machine web --format raw", 2);
    assert!(error(&running, &format!("backup cancel {first}")).contains("has ended already"));
    let whole = std::fs::read(&image).unwrap();
    std::fs::write(&image, &whole[..whole.len() / 2]).unwrap();
    let refused = error(&running, "backup run golden");
    assert!(refused.contains("damaged or cut short"), "{refused}");
    std::fs::remove_file(&image).unwrap();
    assert!(error(&running, "backup run golden").contains("No such file"));
    let table = text(&running, "backup ls");
    assert!(
        table.contains("failed") && json(&running, "point ls golden").as_array().unwrap().len() == 3,
        "{table}"
    );
    running.stop().unwrap();
}

/// Goal: a copy that is paused says so, reads nothing more, and makes its point once it is resumed.
#[test]
fn a_backup_is_paused_and_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("raw");
    std::fs::write(&image, vec![7; 4 << 20]).unwrap();
    let running =
        serve_with(folder.path(), Settings { copy_bandwidth: Some(Size(1 << 20)), ..Settings::default() });
    text(&running, &format!("source add golden --image {} --format raw", image.display()));
    let newest = || json(&running, "backup ls")[0].clone();
    let read = || newest()["copied"]["read_bytes"].as_u64();
    let point = std::thread::scope(|scope| {
        let made = scope.spawn(|| text(&running, "backup run golden"));
        while read().is_none_or(|bytes| bytes == 0) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let name = newest()["name"].as_str().unwrap().to_owned();
        assert!(text(&running, &format!("backup pause {name}")).contains("backup resume"));
        // What had begun ends.
        std::thread::sleep(Duration::from_secs(1));
        let before = read();
        std::thread::sleep(Duration::from_secs(1));
        assert!(read() == before && before < Some(4 << 20), "it reads on: {before:?}");
        assert!(text(&running, "backup ls").contains("paused") && newest()["paused"] == true);
        assert!(text(&running, &format!("backup resume {name}")).contains("goes on"));
        made.join().unwrap()
    });
    let point = point.trim();
    text(&running, &format!("recover {point} --as back"));
    assert!(newest()["paused"].is_null() && newest()["state"] == "done", "{}", newest());
    assert!(error(&running, &format!("backup resume {point}")).contains("has ended already"));
    running.stop().unwrap();
}

/// Goal: an export is read by TLS from a server that shows a certificate of our authority, and asks for ours; and from no other.
#[test]
fn an_export_is_read_by_tls() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    pki(folder.path());
    std::fs::write(folder.path().join("raw"), vec![5; 1 << 20]).unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut serving = std::process::Command::new("qemu-nbd")
        .args([
            "--object",
            &format!("tls-creds-x509,id=t,endpoint=server,verify-peer=on,dir={}", at("server")),
        ])
        .args([
            "--tls-creds",
            "t",
            "-b",
            "127.0.0.1",
            "-p",
            &port.to_string(),
            "-t",
            "-r",
            "-f",
            "raw",
            "-x",
            "golden",
            &at("raw"),
        ])
        .spawn()
        .unwrap();
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(serving.try_wait().unwrap().is_none(), "qemu-nbd has gone");
        std::thread::sleep(Duration::from_millis(50));
    }
    let running = serve(folder.path());
    for (name, pki, says) in [
        ("far", "client", ""),
        ("strange", "stranger", "TLS"),
        ("bare", "nobody", "ca-cert.pem"),
        ("shy", "shy", ""),
    ] {
        let uri = format!("nbds://127.0.0.1:{port}/golden?tls-certificates={}", at(pki));
        text(&running, &format!("source add {name} --nbd {uri}"));
        match name {
            "far" => {
                let point = text(&running, "backup run far").trim().to_owned();
                let copied = json(&running, &format!("backup show {point}"));
                assert_eq!(copied["copied"]["written_bytes"], 1 << 20, "{copied}");
            }
            // Who shows none of his own is told so after the handshake.
            _ => assert!(error(&running, &format!("backup run {name}")).contains(says)),
        }
    }
    let open = format!("nbd://127.0.0.1:{port}/golden");
    text(&running, &format!("source add open --nbd {open}"));
    let refused = error(&running, "backup run open");
    assert!(refused.contains("TLS") && refused.contains("tls-certificates"), "{refused}");
    running.stop().unwrap();
    serving.kill().unwrap();
    serving.wait().unwrap();
}

/// Folders as QEMU and libnbd have them: of the server, of a client, of one that trusts another authority, and of one that shows nothing.
fn pki(folder: &Path) {
    let authority = || {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        params.distinguished_name.push(DnType::CommonName, "an authority");
        let key = KeyPair::generate().unwrap();
        (params.self_signed(&key).unwrap().pem(), Issuer::new(params, key))
    };
    let ((pem, issuer), (of_another, _)) = (authority(), authority());
    let signed = |usage: ExtendedKeyUsagePurpose| {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        params.extended_key_usages = vec![usage];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        (params.signed_by(&key, &issuer).unwrap().pem(), key.serialize_pem())
    };
    for (name, authority, own) in [
        ("server", &pem, "server"),
        ("client", &pem, "client"),
        ("stranger", &of_another, "client"),
        ("shy", &pem, ""),
    ] {
        let at = folder.join(name);
        std::fs::create_dir(&at).unwrap();
        std::fs::write(at.join("ca-cert.pem"), authority).unwrap();
        if !own.is_empty() {
            let usage = if own == "server" {
                ExtendedKeyUsagePurpose::ServerAuth
            } else {
                ExtendedKeyUsagePurpose::ClientAuth
            };
            let (certificate, key) = signed(usage);
            std::fs::write(at.join(format!("{own}-cert.pem")), certificate).unwrap();
            std::fs::write(at.join(format!("{own}-key.pem")), key).unwrap();
        }
    }
}

/// Runs another's program; words that a no-break space holds together are one.
fn tool(line: &str) {
    let words: Vec<String> = line.split(' ').map(|word| word.replace('\u{a0}', " ")).collect();
    let done = std::process::Command::new(&words[0]).args(&words[1..]).output();
    let done = done.unwrap_or_else(|e| panic!("{}, of the package qemu-utils, is needed: {e}", words[0]));
    assert!(done.status.success(), "{line}: {}", String::from_utf8_lossy(&done.stderr));
}
