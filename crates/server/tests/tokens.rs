//! Who is let in: anybody while there is no token, then those whose token's role allows what they ask. And HTTPS.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use stonefold_api::{
    Access, Client, DiskCreate, MachineCreate, MachineLimits, MachineSet, RecoveryCreate, SnapshotCreate,
    SourceCreate, TokenCreate,
};
use stonefold_server::{Config, Running, Settings, start};
use stonefold_types::{Kind, Name, Role, Size, SnapshotName};

fn settings(folder: &Path) -> Settings {
    Settings {
        pool: Some(format!("file://{}", folder.join("pool").display())),
        nbd: vec![format!("unix://{}", folder.join("nbd.sock").display()).parse().unwrap()],
        api: vec!["127.0.0.1:0".parse().unwrap()],
        cache: Some(Size(64 << 20)),
        ..Settings::default()
    }
}

fn config(folder: &Path) -> Config {
    settings(folder).resolve().unwrap()
}

fn client(running: &Running, secret: Option<&str>) -> Client {
    let access = Access { token: secret.map(str::to_owned), authority: None };
    Client::with(&running.ready().api[0], access).unwrap()
}

fn name(text: &str) -> Name {
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

fn token(client: &Client, role: Role, text: &str) -> String {
    let made = client.create_token(&TokenCreate { role, name: Some(name(text)) }).unwrap();
    assert_eq!((made.token.role, made.token.name.as_str()), (role, text));
    made.secret
}

/// Sends a request as it is and returns the whole answer.
fn raw(running: &Running, path: &str, header: &str) -> String {
    let address = running.ready().api[0].strip_prefix("http://").unwrap().to_owned();
    let mut stream = TcpStream::connect(&address).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n{header}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn from_the_first_token_on_everybody_needs_one_whose_role_allows_it() {
    let folder = tempfile::tempdir().unwrap();
    let running = start(config(folder.path())).unwrap();
    let open = client(&running, None);
    open.create_disk(&disk("before")).unwrap();
    let too_little = TokenCreate { role: Role::Viewer, name: None };
    assert_eq!(open.create_token(&too_little).unwrap_err().kind(), Kind::Invalid, "first an admin's");
    let admin = token(&open, Role::Admin, "boss");

    let error = open.disks().unwrap_err();
    assert_eq!(error.kind(), Kind::NoToken);
    assert!(error.to_string().contains("--token-file"), "{error}");
    assert_eq!(client(&running, Some(&admin[..admin.len() - 1])).disks().unwrap_err().kind(), Kind::NoToken);
    let boss = client(&running, Some(&admin));
    let operator = client(&running, Some(&token(&boss, Role::Operator, "hand")));
    let viewer = client(&running, Some(&token(&boss, Role::Viewer, "eye")));

    for client in [&boss, &operator, &viewer] {
        assert_eq!(client.disks().unwrap().len(), 1);
        client.pool().unwrap();
    }
    operator.create_disk(&disk("web")).unwrap();
    operator.drop_cache().unwrap();
    let denied = viewer.create_disk(&disk("x")).unwrap_err();
    assert_eq!(denied.kind(), Kind::Denied);
    assert!(denied.to_string().contains("'eye' is of the role viewer, and this takes operator"), "{denied}");
    assert_eq!(viewer.drop_cache().unwrap_err().kind(), Kind::Denied);
    let image = SourceCreate {
        name: name("golden"),
        machine: None,
        nbd: None,
        bitmap: None,
        image: Some("/nowhere".to_owned()),
        format: None,
        qmp: None,
        agent: None,
        libvirt: None,
        domain: None,
        dir: None,
        postgres: None,
        ssh: None,
        devices: Vec::new(),
        identity: None,
        snapshot_bytes: None,
        scratch: None,
    };
    assert_eq!(operator.create_source(&image).unwrap_err().kind(), Kind::Denied, "it reads any file");
    let guest = SourceCreate { image: None, qmp: Some("/nowhere".to_owned()), ..image.clone() };
    assert_eq!(operator.create_source(&guest).unwrap_err().kind(), Kind::Denied, "it speaks to any QEMU");
    let folder = SourceCreate { image: None, dir: Some("/nowhere".to_owned()), ..image.clone() };
    assert_eq!(operator.create_source(&folder).unwrap_err().kind(), Kind::Denied, "it reads any folder");
    let url = Some("postgresql:///?host=/run/postgresql".to_owned());
    let cluster = SourceCreate { image: None, postgres: url, ..image.clone() };
    assert_eq!(
        operator.create_source(&cluster).unwrap_err().kind(),
        Kind::Denied,
        "it is let in as the server"
    );
    let url = Some("ssh://root@web".to_owned());
    let machine = SourceCreate { image: None, ssh: url, ..image.clone() };
    assert_eq!(operator.create_source(&machine).unwrap_err().kind(), Kind::Denied, "it has its keys");
    let domain = SourceCreate {
        image: None,
        libvirt: Some("qemu:///system".to_owned()),
        domain: Some("web".to_owned()),
        ..image.clone()
    };
    assert_eq!(operator.create_source(&domain).unwrap_err().kind(), Kind::Denied, "it has any domain");
    assert_eq!(boss.create_source(&image).unwrap_err().kind(), Kind::NotFound);
    let nbd = SourceCreate { image: None, nbd: Some("nbd://storage/db".to_owned()), ..image };
    operator.create_source(&nbd).unwrap();
    // So does whoever says where a guest agent is: the server speaks to what is there.
    let new = MachineCreate { name: name("vm"), disks: vec![name("web")], hardware: None };
    operator.create_machine(&new).unwrap();
    let agent = MachineSet { agent: Some("unix:/nowhere".to_owned()), ..MachineSet::default() };
    assert_eq!(operator.set_machine(&name("vm"), &agent).unwrap_err().kind(), Kind::Denied);
    assert_eq!(boss.set_machine(&name("vm"), &agent).unwrap().agent.as_deref(), Some("unix:/nowhere"));
    // And whoever has a libvirt asked whether it would take a machine: its URI may name a program.
    let recovery = RecoveryCreate {
        point: "vm@20261123T184005Z".parse().unwrap(),
        name: name("again"),
        qos: None,
        network: None,
        on: Some("libvirt:qemu+ext:///system?command=/bin/true".to_owned()),
        limits: MachineLimits::default(),
        dry_run: true,
    };
    assert_eq!(operator.recover(&recovery).unwrap_err().kind(), Kind::Denied);
    assert_eq!(boss.recover(&recovery).unwrap_err().kind(), Kind::NotFound);
    let limits = MachineLimits { memory_bytes: Some(1 << 30), processors_percent: None };
    let nowhere = RecoveryCreate { on: None, limits, ..recovery.clone() };
    assert_eq!(operator.recover(&nowhere).unwrap_err().kind(), Kind::Invalid);
    assert_eq!(
        operator.recover(&RecoveryCreate { on: None, ..recovery }).unwrap_err().kind(),
        Kind::NotFound
    );
    for client in [&operator, &viewer] {
        assert_eq!(client.tokens().unwrap_err().kind(), Kind::Denied);
        assert_eq!(client.create_token(&too_little).unwrap_err().kind(), Kind::Denied);
        assert_eq!(client.remove_token(&name("boss")).unwrap_err().kind(), Kind::Denied);
    }
    let names: Vec<String> = boss.tokens().unwrap().iter().map(|token| token.name.to_string()).collect();
    assert_eq!(names, ["boss", "hand", "eye"]);

    boss.remove_token(&name("eye")).unwrap();
    assert_eq!(viewer.disks().unwrap_err().kind(), Kind::NoToken, "at once");
    assert_eq!(boss.remove_token(&name("boss")).unwrap_err().kind(), Kind::Busy, "the last admin");
    boss.remove_token(&name("hand")).unwrap();
    boss.remove_token(&name("boss")).unwrap();
    assert_eq!(open.disks().unwrap().len(), 2, "open as before");
    running.stop().unwrap();
}

/// Goal: who sends the body of a request in pieces hears that it is refused, and is not cut off; and one who never sends it holds nothing
/// for long.
#[test]
fn a_refusal_is_heard_by_those_who_are_still_sending() {
    let folder = tempfile::tempdir().unwrap();
    let running = start(config(folder.path())).unwrap();
    let admin = token(&client(&running, None), Role::Admin, "boss");
    let asks = |path: &str, secret: &str, body: &[&[u8]], length: usize| {
        let address = running.ready().api[0].strip_prefix("http://").unwrap().to_owned();
        let mut stream = TcpStream::connect(&address).unwrap();
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {secret}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        for piece in body {
            // Long enough for a server that does not wait to answer, and to close.
            std::thread::sleep(std::time::Duration::from_millis(100));
            stream.write_all(piece).unwrap();
        }
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.lines().next().unwrap_or_default().to_owned()
    };
    let body: [&[u8]; 2] = [&[b' '; 1000], &[b' '; 1000]];
    assert!(asks("/v1/disks", "wrong", &body, 2000).contains(" 401 "));
    assert!(asks("/v1/nothing", &admin, &body, 2000).contains(" 404 "));
    assert!(asks("/v1/server", &admin, &body, 2000).contains(" 400 "), "no POST there");
    assert!(asks("/v1/disks", "wrong", &body[..1], 2000).contains(" 401 "), "the rest never comes");
    running.stop().unwrap();
}

/// Goal: who may only look removes nothing, sets nothing back and makes nothing, whatever he asks; and an operator shreds nothing.
#[test]
fn a_viewer_removes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let running = start(config(folder.path())).unwrap();
    let boss = client(&running, Some(&token(&client(&running, None), Role::Admin, "boss")));
    let operator = client(&running, Some(&token(&boss, Role::Operator, "hand")));
    let viewer = client(&running, Some(&token(&boss, Role::Viewer, "eye")));
    let (web, monday): (Name, SnapshotName) = (name("web"), "web@monday".parse().unwrap());
    operator.create_disk(&disk("web")).unwrap();
    operator
        .create_snapshot(&SnapshotCreate { disks: vec![web.clone()], name: Some(name("monday")) })
        .unwrap();
    let refused = [
        viewer.remove_disk(&web, false),
        viewer.remove_disk(&web, true),
        viewer.remove_snapshot(&monday),
        viewer.remove_qos(&name("standard")),
        viewer.flush_disk(&web),
        viewer.rollback(&monday).map(drop),
        viewer.clone_snapshot(&monday, &name("x")).map(drop),
        viewer.reclaim().map(drop),
        viewer.shred_domain(&name("default")).map(drop),
        operator.shred_domain(&name("default")).map(drop),
    ];
    for (at, result) in refused.into_iter().enumerate() {
        assert_eq!(result.unwrap_err().kind(), Kind::Denied, "request {at}");
    }
    assert_eq!((viewer.disks().unwrap().len(), viewer.snapshots(None).unwrap().len()), (1, 1));
    operator.remove_disk(&web, true).unwrap();
    assert!(viewer.disks().unwrap().is_empty());
    running.stop().unwrap();
}

#[test]
fn only_health_is_told_to_strangers_and_a_header_has_one_form() {
    let folder = tempfile::tempdir().unwrap();
    let running = start(config(folder.path())).unwrap();
    let secret = token(&client(&running, None), Role::Admin, "boss");
    let status = |path: &str, header: &str| raw(&running, path, header)[9..12].to_owned();
    assert_eq!(status("/healthz", ""), "200");
    for path in ["/metrics", "/openapi.json", "/v1/pool", "/v1/tokens", "/nowhere", "/healthz/", "/v1//pool"]
    {
        let answer = raw(&running, path, "");
        assert_eq!(&answer[9..12], "401", "{path}");
        assert!(answer.to_lowercase().contains("\r\nwww-authenticate: bearer\r\n"), "{answer}");
        assert!(answer.contains("\"kind\":\"no_token\""), "{answer}");
    }
    for (header, expected) in [
        (format!("Authorization: Bearer {secret}\r\n"), "200"),
        (format!("authorization: bearer  {secret}\r\n"), "200"),
        (format!("Authorization: {secret}\r\n"), "401"),
        (format!("Authorization: Basic {secret}\r\n"), "401"),
        ("Authorization: Bearer \r\n".to_owned(), "401"),
        ("Authorization: Bearer \u{e9}\r\n".to_owned(), "401"),
    ] {
        assert_eq!(status("/v1/pool", &header), expected, "{header}");
    }
    running.stop().unwrap();
}

#[test]
fn tokens_outlive_the_server_and_can_be_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let running = start(config(folder.path())).unwrap();
    let secret = token(&client(&running, None), Role::Admin, "boss");
    running.stop().unwrap();
    let running = start(config(folder.path())).unwrap();
    assert_eq!(client(&running, None).disks().unwrap_err().kind(), Kind::NoToken);
    client(&running, Some(&secret)).disks().unwrap();
    running.stop().unwrap();
    let running = start(Config { forget_tokens: true, ..config(folder.path()) }).unwrap();
    client(&running, None).disks().unwrap();
    running.stop().unwrap();
}

/// A server on the network needs a token, and keeps one; with a certificate it speaks HTTPS.
#[test]
fn the_network_is_served_with_tokens_only_and_with_tls_where_there_is_a_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let networked = || {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let (certificate, key) = (folder.path().join("ca.pem"), folder.path().join("key.pem"));
        std::fs::write(&certificate, made.cert.pem()).unwrap();
        std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        let (api, tls_cert, tls_key) = ("0.0.0.0:0".parse().unwrap(), Some(certificate), Some(key));
        Settings { api: vec![api], tls_cert, tls_key, ..settings(folder.path()) }.resolve().unwrap()
    };
    let refused = start(networked()).err().unwrap();
    assert_eq!(refused.kind(), Kind::Invalid);
    assert!(refused.to_string().contains("token create --role admin"), "{refused}");
    assert!(!folder.path().join("pool").exists(), "a refused start left a pool behind");
    let running = start(config(folder.path())).unwrap();
    let secret = token(&client(&running, None), Role::Admin, "boss");
    running.stop().unwrap();

    let running = start(networked()).unwrap();
    let port = running.ready().api[0].strip_prefix("https://0.0.0.0:").unwrap().to_owned();
    // Clients that never begin keep nobody waiting.
    let _silent: Vec<TcpStream> =
        (0..20).map(|_| TcpStream::connect(format!("127.0.0.1:{port}")).unwrap()).collect();
    let mut rude = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
    rude.write_all(b"GET /healthz HTTP/1.1\r\n\r\n").unwrap();
    let url = format!("https://localhost:{port}");
    let access = |token: Option<&str>| Access {
        token: token.map(str::to_owned),
        authority: Some(folder.path().join("ca.pem")),
    };
    let boss = Client::with(&url, access(Some(&secret))).unwrap();
    boss.create_disk(&disk("web")).unwrap();
    let nobody = Client::with(&url, access(None)).unwrap();
    assert_eq!(nobody.disks().unwrap_err().kind(), Kind::NoToken);
    let last = boss.remove_token(&name("boss")).unwrap_err();
    assert_eq!(last.kind(), Kind::Busy);
    assert!(last.to_string().contains("open to the network"), "{last}");

    assert_eq!(Client::new(&url).err().unwrap().kind(), Kind::Invalid, "nobody vouches");
    let other = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(folder.path().join("other.pem"), other.cert.pem()).unwrap();
    let wrong = Access { token: None, authority: Some(folder.path().join("other.pem")) };
    let distrusted = Client::with(&url, wrong).unwrap().disks().unwrap_err();
    assert_eq!(distrusted.kind(), Kind::Io);
    assert!(distrusted.remedy_text().unwrap().contains("--api-ca"), "{distrusted}");
    running.stop().unwrap();
}
