//! Files that cannot be used are told: what, of which file, what to do.

use super::*;
use rcgen::{CertificateParams, KeyPair};
use stonefold_env::SystemWorld;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A folder with the files of one server, and of another.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        let folder = Folder(tempfile::tempdir().unwrap());
        for name in ["own", "other"] {
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
            folder.write(&format!("{name}.pem"), &params.self_signed(&key).unwrap().pem());
            folder.write(&format!("{name}-key.pem"), &key.serialize_pem());
        }
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    fn acceptor(&self, certificate: &str, key: &str, client_ca: Option<&str>) -> Result<Acceptor> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let env = Env::new(SystemWorld::new(runtime.handle().clone(), 1).unwrap());
        let files = Files { certificate: self.path(certificate), key: self.path(key) };
        Acceptor::new(&files, client_ca.map(|name| self.path(name)).as_deref(), &env)
    }
}

#[test]
fn good_files_are_taken() {
    let folder = Folder::new();
    folder.acceptor("own.pem", "own-key.pem", None).unwrap();
    folder.acceptor("own.pem", "own-key.pem", Some("other.pem")).unwrap();
    // One file for all: others keep theirs so.
    let both = folder.read("own.pem") + &folder.read("other.pem") + &folder.read("own-key.pem");
    folder.write("both.pem", &both);
    folder.acceptor("both.pem", "both.pem", Some("both.pem")).unwrap();
}

/// Goal: a server is spoken to that shows a certificate of that name which the authority has signed, and no other.
#[tokio::test]
async fn a_server_is_known_by_its_certificate() {
    let folder = Folder::new();
    let env = Env::new(SystemWorld::new(tokio::runtime::Handle::current(), 1).unwrap());
    let files = |name: &str| Files {
        certificate: folder.path(&format!("{name}.pem")),
        key: folder.path(&format!("{name}-key.pem")),
    };
    let greeted = |authority: &str, own: Option<Files>, host: &'static str| {
        let acceptor =
            Acceptor::new(&files("own"), own.is_some().then(|| folder.path("other.pem")).as_deref(), &env);
        let connector = Connector::new(&folder.path(authority), own.as_ref(), &env).unwrap();
        async move {
            let (ours, theirs) = tokio::io::duplex(16 << 10);
            let acceptor = acceptor.unwrap();
            let served = async {
                let mut stream = acceptor.accept(theirs).await?;
                stream.write_all(b"x").await?;
                stream.flush().await
            };
            let asked = async { connector.connect(ours, host).await?.read_u8().await };
            let (served, asked) = tokio::join!(served, asked);
            served.and(asked)
        }
    };
    assert_eq!(greeted("own.pem", None, "localhost").await.unwrap(), b'x');
    assert_eq!(greeted("own.pem", Some(files("other")), "localhost").await.unwrap(), b'x');
    for (authority, own, host) in [
        ("other.pem", None, "localhost"),
        ("own.pem", None, "another"),
        ("own.pem", Some(files("own")), "localhost"),
        ("own.pem", None, ""),
    ] {
        assert!(greeted(authority, own, host).await.is_err(), "{authority} {host}");
    }
    let missing = Connector::new(&folder.path("nowhere"), None, &env).unwrap_err();
    assert!(missing.to_string().contains("TLS authority file"), "{missing}");
}

#[test]
fn what_is_wrong_with_a_file_is_said_with_its_name() {
    let folder = Folder::new();
    folder.write("empty", "");
    folder.write(
        "locked",
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIB\n-----END ENCRYPTED PRIVATE KEY-----\n",
    );
    folder.write("short", &folder.read("own.pem")[..200]);
    folder.write("not-der", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    folder.write("not-a-key", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n");
    let (cert, key) = ("own.pem", "own-key.pem");
    for (certificate, key, ca, words) in [
        ("nowhere", key, None, ["nowhere' cannot be read", "name a PEM file"]),
        ("empty", key, None, ["empty' has no certificate", "BEGIN CERTIFICATE"]),
        (key, key, None, ["own-key.pem' has no certificate", "BEGIN CERTIFICATE"]),
        ("short", key, None, ["short' is damaged", "make the file anew"]),
        ("not-der", key, None, ["first certificate in", "not-der' cannot be used"]),
        (cert, "nowhere", None, ["nowhere' cannot be read", "name a PEM file"]),
        (cert, "empty", None, ["empty' has no private key", "BEGIN PRIVATE KEY"]),
        (cert, cert, None, ["own.pem' has a certificate, and no key", "BEGIN PRIVATE KEY"]),
        (cert, "locked", None, ["locked' has a key that is locked", "openssl pkey"]),
        (cert, "not-a-key", None, ["not-a-key' cannot be used", "ECDSA"]),
        (cert, "other-key.pem", None, ["other-key.pem' does not belong", "the key that this certificate"]),
        (cert, key, Some("nowhere"), ["client authority file", "nowhere' cannot be read"]),
        (cert, key, Some("empty"), ["client authority file", "empty' has no certificate"]),
        (cert, key, Some("not-der"), ["a certificate in", "not-der' cannot be used"]),
    ] {
        let error = folder.acceptor(certificate, key, ca).unwrap_err();
        let text = error.to_string();
        assert!(words.iter().all(|word| text.contains(word)), "{words:?}: {text}");
        assert!(error.remedy_text().is_some(), "{text}");
    }
}
