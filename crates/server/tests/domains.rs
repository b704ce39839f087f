//! Domains and their keys over the API, on a pool in a directory, from one start of the server to the next.

use std::path::{Path, PathBuf};
use stonefold_api::{Client, DiskCreate, DomainCreate, DomainSet, DomainState, MasterKeyChange};
use stonefold_server::{Running, Settings, start};
use stonefold_types::{Compression, Kind, Name, Result, Size};

fn settings(folder: &Path) -> Settings {
    Settings {
        pool: Some(format!("file://{}", folder.join("pool").display())),
        nbd: vec![format!("unix://{}", folder.join("nbd.sock").display()).parse().unwrap()],
        api: vec!["127.0.0.1:0".parse().unwrap()],
        cache: Some(Size(64 << 20)),
        ..Settings::default()
    }
}

fn serve(settings: Settings) -> Result<(Running, Client)> {
    let running = start(settings.resolve()?)?;
    let client = Client::new(&running.ready().api[0])?;
    Ok((running, client))
}

fn file(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn disk(text: &str, domain: &str) -> DiskCreate {
    DiskCreate {
        name: name(text),
        size_bytes: 1 << 20,
        domain: Some(name(domain)),
        durability: None,
        compression: None,
        dedupe: None,
        qos: None,
        reserve: None,
    }
}

fn bank() -> DomainCreate {
    DomainCreate { name: name("bank"), encrypt: true, compression: Some(Compression::Zstd(9)), dedupe: None }
}

#[test]
fn a_domain_lives_from_create_to_shred() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (running, client) = serve(settings(folder)).unwrap();
    let error = client.create_domain(&bank()).unwrap_err();
    assert!(error.kind() == Kind::WrongKey && error.remedy_text().unwrap().contains("--key-file"), "{error}");
    running.stop().unwrap();

    let key = file(folder, "master.key", &"5a".repeat(32));
    let with_key = || Settings { key_file: Some(key.clone()), ..settings(folder) };
    let (running, client) = serve(with_key()).unwrap();
    let made = client.create_domain(&bank()).unwrap();
    assert_eq!((made.state, made.key_version, made.disks), (DomainState::Open, Some(1), 0));
    let vault = client.create_disk(&disk("vault", "bank")).unwrap();
    assert_eq!(
        (vault.domain, vault.compression),
        (Some(name("bank")), Compression::Zstd(9)),
        "as the domain says"
    );
    assert_eq!(client.create_disk(&disk("x", "nowhere")).unwrap_err().kind(), Kind::NotFound);
    let off = DomainSet { dedupe: Some(false), compression: None };
    assert!(!client.set_domain(&name("bank"), &off).unwrap().dedupe);
    assert!(!client.create_disk(&disk("second", "bank")).unwrap().dedupe);
    assert_eq!(client.rotate_domain(&name("bank")).unwrap().key_version, Some(2));
    assert_eq!(client.rotate_domain(&name("default")).unwrap_err().kind(), Kind::Invalid);
    let exported = client.export_domain_key(&name("bank")).unwrap().recovery_key;
    assert_eq!(exported.lines().count(), 2);
    let phrase = MasterKeyChange { passphrase: Some("correct horse".into()), key: None };
    client.change_master_key(&phrase).unwrap();
    assert_eq!(client.change_master_key(&MasterKeyChange::default()).unwrap_err().kind(), Kind::Invalid);
    running.stop().unwrap();

    let wrong = serve(with_key()).err().unwrap();
    assert_eq!(wrong.kind(), Kind::WrongKey, "{wrong}");
    let (running, client) = serve(settings(folder)).unwrap();
    assert_eq!(client.domain(&name("bank")).unwrap().state, DomainState::Locked);
    running.stop().unwrap();
    let phrase = file(folder, "phrase", "correct horse\n");
    let (running, client) = serve(Settings { passphrase_file: Some(phrase), ..settings(folder) }).unwrap();
    assert_eq!(client.domain(&name("bank")).unwrap().state, DomainState::Open);
    running.stop().unwrap();

    // The passphrase is lost; what was exported gives the domain another master key.
    let recovery_keys = vec![file(folder, "bank.keys", &format!("# mine\n{exported}"))];
    let (running, _) = serve(Settings { recovery_keys, ..with_key() }).unwrap();
    running.stop().unwrap();
    let (running, client) = serve(with_key()).unwrap();
    assert_eq!(client.domain(&name("bank")).unwrap().state, DomainState::Open);
    let shredded = client.shred_domain(&name("bank")).unwrap();
    assert_eq!((shredded.state, shredded.key_version, shredded.disks), (DomainState::Shredded, None, 2));
    let export = "vault".parse().unwrap();
    assert_eq!(client.warm_cache(&export, 0, 4096).unwrap_err().kind(), Kind::WrongKey);
    client.remove_disk(&name("vault"), false).unwrap();
    let needed = client.remove_domain(&name("bank")).unwrap_err();
    assert!(needed.kind() == Kind::Busy && needed.what().contains("'second'"), "{needed}");
    client.remove_disk(&name("second"), false).unwrap();
    client.reclaim().unwrap();
    client.remove_domain(&name("bank")).unwrap();
    assert_eq!(client.domain(&name("bank")).unwrap_err().kind(), Kind::NotFound);
    assert_eq!(client.remove_domain(&name("default")).unwrap_err().kind(), Kind::Invalid);
    running.stop().unwrap();
    let (running, client) = serve(settings(folder)).unwrap();
    assert_eq!(client.domains().unwrap().len(), 1);
    running.stop().unwrap();
}
