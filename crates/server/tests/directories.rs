//! Directories that come and go, over the API.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use stonefold_api::{Client, DirectoryState, Pool};
use stonefold_server::{Running, Settings, start};
use stonefold_types::{Kind, Size};

fn server(pool: &str) -> (Running, Client) {
    let settings = Settings {
        pool: Some(pool.to_owned()),
        nbd: vec!["tcp://127.0.0.1:0".parse().unwrap()],
        api: vec!["127.0.0.1:0".parse().unwrap()],
        cache: Some(Size(16 << 20)),
        ..Settings::default()
    };
    let running = start(settings.resolve().unwrap()).unwrap();
    let client = Client::new(&running.ready().api[0]).unwrap();
    (running, client)
}

fn metrics(running: &Running) -> String {
    let address = running.ready().api[0].strip_prefix("http://").unwrap().to_owned();
    let mut stream = TcpStream::connect(&address).unwrap();
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// The pool, once nothing is under way.
fn settled(client: &Client) -> Pool {
    for _ in 0..3000 {
        let pool = client.pool().unwrap();
        if pool.directories.iter().all(|one| one.state == DirectoryState::Ok) {
            return pool;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("it does not end: {:?}", client.pool());
}

#[test]
fn a_directory_comes_and_goes() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::create_dir(path("two")).unwrap();
    let (running, client) = server(&format!("file://{}", path("one")));
    let begun = client.add_directory(&path("two")).unwrap();
    assert_eq!(begun.directories.len(), 2);
    let pool = settled(&client);
    assert_eq!(pool.url, Some(format!("file://{}?also={}", path("one"), path("two"))));
    assert!(pool.directories.iter().all(|one| one.total_bytes > 0 && !one.medium.is_empty()), "{pool:?}");
    let told = metrics(&running);
    assert!(told.contains(&format!("stonefold_directory_state{{dir=\"{}\"}} 0\n", path("two"))), "{told}");
    assert_eq!(client.cancel_directories().unwrap_err().kind(), Kind::NotFound);
    assert_eq!(client.add_directory(&path("two")).unwrap_err().kind(), Kind::AlreadyExists);
    assert_eq!(client.drain_directory(&path("three")).unwrap_err().kind(), Kind::NotFound);
    client.drain_directory(&path("one")).unwrap();
    let pool = settled(&client);
    assert_eq!(pool.url, Some(format!("file://{}", path("two"))));
    let left: Vec<_> = std::fs::read_dir(path("one")).unwrap().map(|one| one.unwrap().file_name()).collect();
    assert_eq!(left, ["left"], "nothing of the pool is there");
    client.replace_directory(&path("two"), &path("one")).unwrap();
    assert_eq!(settled(&client).url, Some(format!("file://{}", path("one"))));
    running.stop().unwrap();
}

#[test]
fn a_pool_in_memory_has_none() {
    let (running, client) = server("memory:");
    let pool = client.pool().unwrap();
    assert!(pool.directories.is_empty() && pool.url.is_none());
    let error = client.add_directory("/srv/two").unwrap_err();
    assert_eq!(error.kind(), Kind::Unsupported);
    assert!(error.to_string().contains("only pools of files"), "{error}");
    running.stop().unwrap();
}
