//! A server with certificates: its doors are told as what they are, and a mistake is told before anything is touched.

use std::path::{Path, PathBuf};
use stonefold_server::{Config, Settings, TlsMode, start};
use stonefold_types::{Kind, Size};

/// A certificate of its own making, and its key.
fn certificate(folder: &Path) -> (PathBuf, PathBuf) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let (certificate, key) = (folder.join("ca-cert.pem"), folder.join("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    (certificate, key)
}

fn config(folder: &Path, tls: Option<TlsMode>) -> Config {
    let (certificate, key) = certificate(folder);
    let settings = Settings {
        pool: Some("memory:".to_owned()),
        nbd: vec![
            "tcp://127.0.0.1:0".parse().unwrap(),
            format!("unix://{}", folder.join("nbd.sock").display()).parse().unwrap(),
        ],
        api: vec!["127.0.0.1:0".parse().unwrap()],
        cache: Some(Size(64 << 20)),
        tls_cert: Some(certificate),
        tls_key: Some(key),
        tls,
        ..Settings::default()
    };
    settings.resolve().unwrap()
}

fn nbdinfo(uri: &str) -> bool {
    let out = std::process::Command::new("nbdinfo").args(["--list", uri]).output();
    out.expect("nbdinfo runs; install the package libnbd-bin").status.success()
}

/// TLS is for doors on TCP, and required unless something else was said.
#[test]
fn doors_on_tcp_have_tls_and_sockets_have_not() {
    let folder = tempfile::tempdir().unwrap();
    for (tls, scheme, in_clear) in [(None, "nbds://", false), (Some(TlsMode::Allow), "nbd://", true)] {
        let running = start(config(folder.path(), tls)).unwrap();
        let [tcp, unix] = running.ready().nbd.as_slice() else { panic!("two doors") };
        let port = tcp.strip_prefix(scheme).unwrap().rsplit_once(':').unwrap().1.to_owned();
        let secret = format!("nbds://localhost:{port}/?tls-certificates={}", folder.path().display());
        assert!(nbdinfo(&secret), "{secret}");
        assert_eq!(nbdinfo(&format!("nbd://localhost:{port}/")), in_clear);
        assert!(nbdinfo(unix), "{unix}");
        running.stop().unwrap();
    }
}

#[test]
fn a_mistake_in_the_files_is_told_before_the_pool_is_touched() {
    let folder = tempfile::tempdir().unwrap();
    let pool = folder.path().join("pool");
    let mut config = config(folder.path(), None);
    config.pool = format!("file://{}", pool.display());
    config.tls.as_mut().unwrap().files.key = folder.path().join("ca-cert.pem");
    let error = start(config).err().unwrap();
    assert_eq!(error.kind(), Kind::Invalid);
    assert!(error.to_string().contains("has a certificate, and no key"), "{error}");
    assert!(!pool.exists());
}
