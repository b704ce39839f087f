//! The API, asked over real sockets by its own client, over a pool in memory.

use std::io::{Read, Write};
use std::net::TcpStream;
use stonefold_api::{Client, DiskCreate, DiskResize, DiskSet, QosCreate, QosSet, SnapshotCreate, Time};
use stonefold_server::{Config, Running, Settings, start};
use stonefold_types::{Compression, Durability, ExportName, Kind, Name, Size, SnapshotName};

fn config() -> Config {
    let settings = Settings {
        pool: Some("memory:".to_owned()),
        nbd: vec!["tcp://127.0.0.1:0".parse().unwrap()],
        api: vec!["127.0.0.1:0".parse().unwrap()],
        cache: Some(Size(64 << 20)),
        ..Settings::default()
    };
    settings.resolve().unwrap()
}

fn server() -> (Running, Client) {
    let running = start(config()).unwrap();
    let client = Client::new(&running.ready().api[0]).unwrap();
    (running, client)
}

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn snapshot(text: &str) -> SnapshotName {
    text.parse().unwrap()
}

fn disk(text: &str) -> DiskCreate {
    DiskCreate {
        name: name(text),
        size_bytes: 1 << 30,
        domain: None,
        durability: None,
        compression: None,
        dedupe: None,
        qos: None,
        reserve: None,
    }
}

/// Sends bytes as they are and returns the answer's head and body.
fn raw(running: &Running, request: &str) -> String {
    let address = running.ready().api[0].strip_prefix("http://").unwrap().to_owned();
    let mut stream = TcpStream::connect(&address).unwrap();
    stream.write_all(request.replace("HOST", &address).as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_disk_lives_from_create_to_rm() {
    let (running, client) = server();
    let made = client.create_disk(&disk("web")).unwrap();
    assert_eq!((made.size_bytes, made.durability, made.clients), (1 << 30, Durability::Flush, 0));
    assert_eq!(made.uris, [format!("{}/web", running.ready().nbd[0])]);
    assert!(made.created >= client.server().unwrap().started && made.created > Time(0));

    let change =
        DiskSet { compression: Some(Compression::Zstd(3)), dedupe: Some(false), ..DiskSet::default() };
    let set = client.set_disk(&name("web"), &change).unwrap();
    assert_eq!((set.compression, set.durability), (Compression::Zstd(3), Durability::Flush));

    let shrink = DiskResize { size_bytes: 1 << 20, shrink: false };
    assert_eq!(client.resize_disk(&name("web"), &shrink).unwrap_err().kind(), Kind::Invalid);
    let shrunk = client.resize_disk(&name("web"), &DiskResize { shrink: true, ..shrink }).unwrap();
    assert_eq!(shrunk.size_bytes, 1 << 20);

    client.flush_disk(&name("web")).unwrap();
    client.remove_disk(&name("web"), false).unwrap();
    assert_eq!(client.disks().unwrap(), []);
    running.stop().unwrap();
}

#[test]
fn snapshots_are_taken_together_compared_cloned_and_brought_back() {
    let (running, client) = server();
    for text in ["web", "db"] {
        client.create_disk(&disk(text)).unwrap();
    }
    let both = SnapshotCreate { disks: vec![name("web"), name("db")], name: Some(name("monday")) };
    let taken = client.create_snapshot(&both).unwrap();
    assert_eq!(taken.len(), 2);
    assert_eq!(taken[0].created, taken[1].created);
    assert_eq!(client.snapshots(Some(&name("db"))).unwrap().len(), 1);
    assert_eq!(
        client.snapshots(None).unwrap().iter().map(|s| s.disk.as_str()).collect::<Vec<_>>(),
        ["db", "web"]
    );
    assert_eq!(client.snapshot(&snapshot("web@monday")).unwrap().name, name("monday"));

    let diff = client.diff(&snapshot("web@monday"), None).unwrap();
    assert_eq!((diff.changed_bytes, diff.ranges.len()), (0, 0));
    let clone = client.clone_snapshot(&snapshot("web@monday"), &name("test")).unwrap();
    assert_eq!(clone.origin.as_deref(), Some("web@monday"));
    let kept = client.rollback(&snapshot("web@monday")).unwrap().kept;
    assert_eq!(client.snapshots(Some(&name("web"))).unwrap().len(), 2);

    assert_eq!(client.remove_disk(&name("web"), false).unwrap_err().kind(), Kind::Busy);
    client.remove_snapshot(&SnapshotName { disk: kept.disk, snapshot: kept.name }).unwrap();
    client.remove_disk(&name("web"), true).unwrap();
    assert_eq!(client.disks().unwrap().len(), 2);
    running.stop().unwrap();
}

#[test]
fn errors_keep_kind_what_and_remedy_and_name_what_was_meant() {
    let (running, client) = server();
    client.create_disk(&disk("web")).unwrap();
    let again = client.create_disk(&disk("web")).unwrap_err();
    assert_eq!(
        again.to_string(),
        "disk 'web' exists already; choose another name, or remove that disk first"
    );
    assert_eq!(again.kind(), Kind::AlreadyExists);

    let slip = client.disk(&name("wbe")).unwrap_err();
    assert_eq!((slip.kind(), slip.remedy_text()), (Kind::NotFound, Some("write 'web', if that was meant")));
    let taken = SnapshotCreate { disks: vec![name("web")], name: Some(name("monday")) };
    client.create_snapshot(&taken).unwrap();
    let slip = client.remove_snapshot(&snapshot("wbe@mnoday")).unwrap_err();
    assert_eq!(slip.remedy_text(), Some("write 'web@monday', if that was meant"));

    let bad_size = DiskCreate { size_bytes: 1000, ..disk("odd") };
    assert_eq!(client.create_disk(&bad_size).unwrap_err().kind(), Kind::Invalid);
    running.stop().unwrap();
}

#[test]
fn requests_that_cannot_be_read_are_answered_with_the_reason() {
    let (running, _) = server();
    let post = |body: &str| {
        let head =
            "POST /v1/disks HTTP/1.1\r\nHost: HOST\r\nConnection: close\r\nContent-Type: application/json";
        raw(&running, &format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()))
    };
    let unknown = post(r#"{"name":"web","size_bytes":4096,"sise":1}"#);
    assert!(unknown.starts_with("HTTP/1.1 400") && unknown.contains("unknown field `sise`"), "{unknown}");
    let bad_name = post(r#"{"name":"a/b","size_bytes":4096}"#);
    assert!(bad_name.starts_with("HTTP/1.1 400") && bad_name.contains("is not a name"), "{bad_name}");
    assert!(post("{").starts_with("HTTP/1.1 400"));

    let get = |path: &str| {
        raw(&running, &format!("GET {path} HTTP/1.1\r\nHost: HOST\r\nConnection: close\r\n\r\n"))
    };
    let lost = get("/v2/disks");
    assert!(lost.starts_with("HTTP/1.1 404") && lost.contains("\"kind\":\"not_found\""), "{lost}");
    assert!(get("/v1/disks/a%2Fb").contains("is not a name"));
    running.stop().unwrap();
}

#[test]
fn a_page_from_elsewhere_may_not_ask() {
    let (running, _) = server();
    let from = |origin: &str| {
        let request = "GET /v1/disks HTTP/1.1\r\nHost: HOST\r\nConnection: close\r\nOrigin: ";
        raw(&running, &format!("{request}{origin}\r\n\r\n"))
    };
    assert!(from("https://evil.example").starts_with("HTTP/1.1 403"));
    assert!(from("http://HOST").starts_with("HTTP/1.1 200"));
    running.stop().unwrap();
}

/// The document promises each path and method; a route that is missing would answer 404 of its own kind, or 405.
#[test]
fn everything_documented_is_routed() {
    let (running, client) = server();
    let document = client.openapi().unwrap();
    for (path, operations) in document["paths"].as_object().unwrap() {
        let path = path.replace("{disk}", "web").replace("{snapshot}", "monday");
        for method in operations.as_object().unwrap().keys() {
            let head =
                format!("{} {path} HTTP/1.1\r\nHost: HOST\r\nConnection: close", method.to_uppercase());
            let answer = raw(&running, &format!("{head}\r\nContent-Length: 0\r\n\r\n"));
            assert!(!answer.contains("the API has no"), "{method} {path}: {answer}");
        }
    }
    running.stop().unwrap();
}

/// The other way round: what the document does not have is not routed either, so that no path is there which nobody is told of.
#[test]
fn everything_routed_is_documented() {
    let (running, client) = server();
    let document = client.openapi().unwrap();
    // What every path begins with, and the document.
    let of_itself = [stonefold_api::paths::V1, stonefold_api::paths::OPENAPI];
    let paths = include_str!("../../api/src/paths.rs").lines().filter_map(|line| {
        let path = line.strip_prefix("pub const ")?.split('"').nth(1)?;
        (!of_itself.contains(&path)).then_some(path)
    });
    let mut seen = 0;
    for pattern in paths {
        let path = pattern.replace(['{', '}'], "");
        for method in ["GET", "PUT", "POST", "PATCH", "DELETE"] {
            if document["paths"][pattern][method.to_lowercase()].is_object() {
                seen += 1;
                continue;
            }
            let head = format!("{method} {path} HTTP/1.1\r\nHost: HOST\r\nConnection: close");
            let answer = raw(&running, &format!("{head}\r\nContent-Length: 0\r\n\r\n"));
            assert!(answer.contains("the API has no"), "{method} {path}: {answer}");
        }
    }
    let documented = document["paths"].as_object().unwrap().values();
    let documented: usize = documented.map(|operations| operations.as_object().unwrap().len()).sum();
    assert_eq!(seen, documented, "a path of the document is none of the constants");
    running.stop().unwrap();
}

#[test]
fn classes_of_service_are_made_changed_used_and_removed() {
    let (running, client) = server();
    let predefined: Vec<String> =
        client.qos_classes().unwrap().into_iter().map(|class| class.name.into()).collect();
    assert_eq!(predefined, ["critical", "production", "test", "backup-target", "fold", "reclaim"]);
    let gold = QosCreate {
        name: name("gold"),
        min_iops: 100,
        min_bytes: 0,
        max_iops: Some(1000),
        max_bytes: None,
        share: None,
    };
    assert_eq!(client.create_qos(&gold).unwrap().share, 100);
    assert_eq!(client.create_qos(&gold).unwrap_err().kind(), Kind::AlreadyExists);
    let made = client.create_disk(&DiskCreate { qos: Some(name("gold")), ..disk("web") }).unwrap();
    assert_eq!((made.qos, client.create_disk(&disk("db")).unwrap().qos), (name("gold"), name("production")));
    let unlimited = QosSet { max_iops: Some(None), share: Some(300), ..QosSet::default() };
    let set = client.set_qos(&name("gold"), &unlimited).unwrap();
    assert_eq!((set.max_iops, set.min_iops, set.share, set.disks), (None, 100, 300, vec![name("web")]));
    let wrong = QosSet { max_iops: Some(Some(99)), ..QosSet::default() };
    assert_eq!(client.set_qos(&name("gold"), &wrong).unwrap_err().kind(), Kind::Invalid);
    let in_use = client.remove_qos(&name("gold")).unwrap_err();
    assert!(in_use.kind() == Kind::Busy && in_use.what().contains("web"), "{in_use}");
    let moved = DiskSet { qos: Some(name("test")), ..DiskSet::default() };
    assert_eq!(client.set_disk(&name("web"), &moved).unwrap().qos, name("test"));
    client.remove_qos(&name("gold")).unwrap();
    let gone = DiskSet { qos: Some(name("gold")), ..DiskSet::default() };
    assert_eq!(client.set_disk(&name("web"), &gone).unwrap_err().kind(), Kind::NotFound);
    running.stop().unwrap();
}

#[test]
fn pool_cache_health_and_metrics_answer() {
    let (running, client) = server();
    client.create_disk(&disk("web")).unwrap();
    let pool = client.pool().unwrap();
    assert_eq!((pool.disks, pool.provisioned_bytes), (1, 1 << 30));
    assert_eq!(client.resize_cache(128 << 20).unwrap().max_bytes, 128 << 20);
    assert_eq!(client.resize_cache(1).unwrap_err().kind(), Kind::Invalid);
    assert_eq!(client.drop_cache().unwrap().used_bytes, 0);
    let warmed = client.warm_cache(&ExportName::Disk(name("web")), 0, u64::MAX).unwrap();
    assert_eq!((warmed.warmed_bytes, warmed.size_bytes), (0, 1 << 30));

    let get = |path: &str| {
        raw(&running, &format!("GET {path} HTTP/1.1\r\nHost: HOST\r\nConnection: close\r\n\r\n"))
    };
    assert!(get("/healthz").ends_with("ok\n"));
    let metrics = get("/metrics");
    for line in [
        "stonefold_pool_disks 1\n",
        "stonefold_disk_size_bytes{disk=\"web\"} 1073741824\n",
        "stonefold_nbd_connections 0\n",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    running.stop().unwrap();
}

/// Goal (P8): a process that takes more than it was given has its caches smaller soon, and says by how much.
#[test]
fn what_the_process_takes_too_much_comes_from_the_caches() {
    let settings = Settings {
        pool: Some("memory:".to_owned()),
        nbd: vec!["tcp://127.0.0.1:0".parse().unwrap()],
        api: vec!["127.0.0.1:0".parse().unwrap()],
        cache: Some(Size(64 << 20)),
        journal: Some(Size(16 << 20)),
        ..Settings::default()
    };
    let running = start(settings.resolve().unwrap()).unwrap();
    // This test lives in the same process, and is what takes too much.
    let taken = std::hint::black_box(vec![1u8; 256 << 20]);
    let half = "stonefold_cache_withheld_bytes 33554432\n";
    let told = || raw(&running, "GET /metrics HTTP/1.1\r\nHost: HOST\r\nConnection: close\r\n\r\n");
    let gave = (0..400).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(25));
        told().contains(half)
    });
    assert!(gave, "{} bytes are taken, and yet: {}", taken.len(), told());
    running.stop().unwrap();
}

#[test]
fn the_api_is_served_on_a_unix_socket_that_only_its_maker_can_open() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("api.sock");
    let api = vec![format!("unix://{}", path.display()).parse().unwrap()];
    let running = start(Config { api: api.clone(), ..config() }).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let client = Client::new(&running.ready().api[0]).unwrap();
    client.create_disk(&disk("web")).unwrap();
    assert_eq!(client.disks().unwrap().len(), 1);
    assert_eq!(start(Config { api, ..config() }).err().unwrap().kind(), Kind::Busy);
    running.stop().unwrap();
    assert!(!path.exists());
    let gone = client.disks().unwrap_err();
    assert!(gone.what().starts_with("no Stonefold answers at unix://"), "{gone}");
}

#[test]
fn an_address_in_use_is_told_before_the_pool_is_touched() {
    let folder = tempfile::tempdir().unwrap();
    let pool = folder.path().join("pool");
    let (running, _) = server();
    let api = running.ready().api[0].parse().unwrap();
    let second = Config { api: vec![api], pool: format!("file://{}", pool.display()), ..config() };
    let error = start(second).err().unwrap();
    assert!(error.what().contains("address in use"), "{error}");
    assert!(error.remedy_text().is_some_and(|remedy| remedy.contains("--api")), "{error}");
    assert!(!pool.exists());
    running.stop().unwrap();
}

#[test]
fn a_pool_of_files_keeps_what_a_stopped_server_had() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config { pool: format!("file://{}", folder.path().join("pool").display()), ..config() };
    let running = start(config.clone()).unwrap();
    let client = Client::new(&running.ready().api[0]).unwrap();
    let made = client.create_disk(&disk("web")).unwrap();
    let refused = start(config.clone()).err().unwrap();
    assert!(refused.what().contains("in use"), "{refused}");
    running.stop().unwrap();

    let running = start(config).unwrap();
    let client = Client::new(&running.ready().api[0]).unwrap();
    let found = client.disk(&name("web")).unwrap();
    assert_eq!((found.size_bytes, found.created), (made.size_bytes, made.created));
    running.stop().unwrap();
}
