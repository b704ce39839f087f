//! Import and export through a door that requires TLS.
//!
//! Goal: what goes in comes out, from a file, from another export over TLS, and back to a file; without certificates, or with
//! another authority's, nothing is made and the reason is told.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use std::path::Path;
use std::process::{Command, Output};
use stonefold_server::{Running, Settings, start};

/// An authority of a test's own; its certificate is put where qemu-img looks for it.
fn authority(folder: &Path) -> Issuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "an authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let key = KeyPair::generate().unwrap();
    std::fs::write(folder.join("ca-cert.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
    Issuer::new(params, key)
}

/// A server whose only NBD door has TLS.
fn server(folder: &Path) -> Running {
    let issuer = authority(folder);
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, "localhost");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let own = KeyPair::generate().unwrap();
    let (certificate, key) = (folder.join("server.pem"), folder.join("server-key.pem"));
    std::fs::write(&certificate, params.signed_by(&own, &issuer).unwrap().pem()).unwrap();
    std::fs::write(&key, own.serialize_pem()).unwrap();
    let settings = Settings {
        pool: Some("memory:".to_owned()),
        nbd: vec!["tcp://0.0.0.0:0".parse().unwrap()],
        api: vec!["127.0.0.1:0".parse().unwrap()],
        tls_cert: Some(certificate),
        tls_key: Some(key),
        ..Settings::default()
    };
    start(settings.resolve().unwrap()).unwrap()
}

fn stonefold(api: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stonefold"));
    command.args(arguments).env("STONEFOLD_API", api).env_remove("STONEFOLD_TOKEN").output().unwrap()
}

fn ok(api: &str, arguments: &[&str]) {
    let output = stonefold(api, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn refused(api: &str, arguments: &[&str]) -> String {
    let output = stonefold(api, arguments);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn what_goes_in_over_tls_comes_out_over_tls() {
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let running = server(folder.path());
    // The certificate is for this name.
    let api = running.ready().api[0].replace("127.0.0.1", "localhost");
    let door = &running.ready().nbd[0];
    let port = door.trim_end_matches('/').rsplit_once(':').unwrap().1;
    let image: Vec<u8> = (0..3 << 20).map(|at: u32| (at / 4096 * 7 + at % 251) as u8).collect();
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(path("in.img"), &image).unwrap();
    let tls = ["--tls-certificates", &folder.path().display().to_string()].map(str::to_owned);
    let [flag, of_server] = [tls[0].as_str(), tls[1].as_str()];

    let told = refused(&api, &["disk", "import", "web", &path("in.img"), "--format", "raw"]);
    assert!(told.contains("--tls-certificates"), "{told}");
    authority(other.path());
    let strangers = other.path().display().to_string();
    let told =
        refused(&api, &["disk", "import", "web", &path("in.img"), "--format", "raw", flag, &strangers]);
    assert!(told.contains("certificate"), "{told}");
    refused(&api, &["disk", "show", "web"]);

    ok(&api, &["disk", "import", "web", &path("in.img"), "--format", "raw", flag, of_server]);
    let source = format!("nbds://localhost:{port}/web");
    ok(&api, &["disk", "import", "copy", &source, flag, of_server]);
    ok(&api, &["disk", "export", "copy", &path("out.img"), flag, of_server]);
    assert!(std::fs::read(path("out.img")).unwrap() == image, "what came out is not what went in");
    ok(&api, &["disk", "export", "web", &path("out.qcow2"), flag, of_server]);
    running.stop().unwrap();
}
