//! The binary, run as people run it, against a server over a pool in memory.

use serde_json::Value;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use stonefold_server::{Running, Settings, start};

struct Gateway(Running);

impl Gateway {
    fn new() -> Self {
        let settings = Settings {
            pool: Some("memory:".to_owned()),
            nbd: vec!["tcp://127.0.0.1:0".parse().unwrap()],
            api: vec!["127.0.0.1:0".parse().unwrap()],
            ..Settings::default()
        };
        Gateway(start(settings.resolve().unwrap()).unwrap())
    }

    fn run(&self, line: &str) -> Output {
        stonefold(&self.0.ready().api[0], line)
    }

    /// What a command that must succeed prints.
    fn text(&self, line: &str) -> String {
        let output = self.run(line);
        assert_eq!(output.status.code(), Some(0), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(output.stderr.is_empty(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.text(&format!("{line} --json"))).unwrap()
    }

    /// The document of a command that must fail.
    fn json_error(&self, line: &str, status: i32) -> Value {
        let output = self.run(&format!("{line} --json"));
        assert_eq!(output.status.code(), Some(status), "{line}");
        assert!(output.stderr.starts_with(b"error: "), "{line}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// What a command that must fail complains of; on stdout it must be silent.
    fn error(&self, line: &str, status: i32) -> String {
        let output = self.run(line);
        assert_eq!(output.status.code(), Some(status), "{line}");
        assert!(output.stdout.is_empty(), "{line}: {}", String::from_utf8_lossy(&output.stdout));
        String::from_utf8(output.stderr).unwrap()
    }
}

fn stonefold(api: &str, line: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_stonefold"))
        .args(line.split_whitespace())
        .env("STONEFOLD_API", api)
        .env_remove("STONEFOLD_TOKEN")
        .output()
        .unwrap()
}

#[test]
fn every_family_answers_in_text_and_in_json() {
    let gateway = Gateway::new();
    let made = gateway.text("disk create web --size 20G --compression zstd");
    assert!(made.starts_with("disk 'web', 20G, made") && made.contains("nbd://127.0.0.1:"), "{made}");
    assert_eq!(gateway.json("disk show web")["compression"], "zstd:3");
    assert_eq!(gateway.json("disk set web --durability ack")["durability"], "ack");
    assert_eq!(gateway.json("disk resize web 30G")["size_bytes"], 30u64 << 30);

    assert_eq!(gateway.text("snapshot create web --name monday"), "web@monday\n");
    assert_eq!(gateway.json("snapshot ls web")[0]["name"], "monday");
    let same = "nothing differs between web@monday and web as it is now\n";
    assert_eq!(gateway.text("snapshot diff web@monday"), same);
    assert_eq!(gateway.json("clone web@monday test")["origin"], "web@monday");
    assert_eq!(gateway.json("snapshot diff web@monday test")["to"], "test");
    let kept = gateway.json("rollback web@monday")["kept"]["name"].as_str().unwrap().to_owned();
    assert_eq!(gateway.json(&format!("snapshot rm web@{kept}"))["removed"][0], format!("web@{kept}"));

    let table = gateway.text("disk ls");
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 3, "{table}");
    assert!(lines[0].starts_with("NAME") && lines[1].starts_with("test"), "{table}");
    assert_eq!(gateway.json("disk ls").as_array().unwrap().len(), 2);

    assert_eq!(gateway.json("pool status")["disks"], 2);
    assert_eq!(gateway.json("pool reclaim")["freed_bytes"], 0);
    let checked = gateway.json("pool check");
    assert_eq!((&checked["disks"], checked["problems"].as_array().unwrap().len()), (&2.into(), 0));
    assert!(gateway.text("pool scrub").ends_with("wrong                  nothing\n"));
    assert_eq!(gateway.json("cache resize 64M")["max_bytes"], 64 << 20);
    assert!(gateway.text("cache drop").starts_with("the cache holds 0 of at most 64M"));
    assert_eq!(gateway.json("cache warm web")["complete"], true);
    assert_eq!(gateway.json("top --interval 0.1").as_array().unwrap().len(), 2);
    assert_eq!(gateway.json("version")["server"]["pool"], "memory:");
    assert!(gateway.text("disk rm web --snapshots").contains("and its 1 snapshot"));
    assert_eq!(gateway.json("disk rm test")["removed"][0], "test");
    gateway.0.stop().unwrap();
}

#[test]
fn a_failure_says_what_failed_on_what_and_what_to_do() {
    let gateway = Gateway::new();
    gateway.text("disk create web --size 1G");
    assert_eq!(
        gateway.error("disk show wbe", 1),
        "error: disk 'wbe' does not exist\n\n  what to do: write 'web', if that was meant\n"
    );
    assert!(gateway.error("disk create web --size 1G", 1).contains("choose another name"));
    assert!(gateway.error("disk resize web 4K", 1).contains("--shrink"));
    assert!(gateway.error("snapshot rm web@none", 1).starts_with("error: snapshot 'web@none'"));
    // With --json there is one document on stdout, whatever happens.
    let document = gateway.json_error("disk show wbe", 1);
    assert_eq!(document["error"]["what"], "disk 'wbe' does not exist");
    assert_eq!(document["error"]["remedy"], "write 'web', if that was meant");
    for misuse in ["disk create web", "snapshot diff web db@b", "nonsense"] {
        assert!(gateway.json_error(misuse, 2)["error"]["what"].as_str().unwrap().len() > 5, "{misuse}");
    }
    let misread = gateway.json_error("disk create web", 2);
    assert!(misread["error"]["what"].as_str().unwrap().contains("--size"), "{misread}");
    // Nobody reads what it says; the status is the same.
    let api = gateway.0.ready().api[0].to_string();
    let (reader, writer) = std::os::unix::net::UnixStream::pair().unwrap();
    drop(reader);
    let mut unheard = Command::new(env!("CARGO_BIN_EXE_stonefold"));
    let status = unheard
        .args(["--api", &api, "disk", "show", "wbe"])
        .stderr(std::os::fd::OwnedFd::from(writer))
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(1));
    assert!(gateway.json("completions bash")["script"].as_str().unwrap().contains("stonefold"));
    assert!(gateway.json("domain set default --compression zstd")["name"] == "default");
    assert!(gateway.error("snapshot diff web@a db@b", 1).contains("'db'"));
    assert!(gateway.error("disk create web", 2).contains("--size"));
    assert!(gateway.error("disk import x /nowhere/x.img", 1).contains("what to do:"));
    assert!(gateway.error("disk export nope /nowhere/x.img", 1).contains("what to do:"));
    assert_eq!(gateway.json("disk ls").as_array().unwrap().len(), 1);
    gateway.0.stop().unwrap();
}

#[test]
fn without_a_server_the_remedy_is_to_start_one() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let output = stonefold(&format!("http://{free}"), "disk ls");
    assert_eq!(output.status.code(), Some(1));
    let words = String::from_utf8(output.stderr).unwrap();
    assert!(words.contains("no Stonefold answers") && words.contains("stonefold serve"), "{words}");
    // What is asked of this program alone needs none.
    assert_eq!(stonefold(&format!("http://{free}"), "version").status.code(), Some(0));
}

#[test]
fn serve_refuses_what_cannot_be_before_it_says_ready() {
    let serve =
        |line: &str| stonefold("", &format!("serve --api 127.0.0.1:0 --nbd tcp://127.0.0.1:0 {line}"));
    for (line, status, word) in [
        ("", 2, "--pool"),
        ("--pool /srv/pool", 2, "file:///srv/pool"),
        ("--pool gopher://x", 2, "not the URL of a pool"),
        ("--pool rados://pool", 2, "not the URL of a pool"),
        ("--pool file:///p?copys=2", 2, "copys"),
        ("--pool file:///p?copies=0", 2, "copies=0"),
        ("--pool memory: --cache 1", 2, "at least 8M"),
        ("--pool memory: --journal 1K", 2, "at least 8M"),
        ("--pool memory: --cache 1000000G", 2, "memory"),
        ("--pool file:///proc/x/pool", 1, "directory"),
        ("--pool file:///etc/passwd/pool", 1, "not a directory"),
        ("--config /nowhere.toml", 2, "cannot be read"),
        ("--pool memory: --log loud=very", 2, "level"),
    ] {
        let output = serve(line);
        let words = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{line}: {words}");
        assert!(output.stdout.is_empty() && words.contains(word), "{line}: {words}");
    }
}

/// Goal: what systemd starts after the server finds its doors open. *Method*: the socket that systemd would bind.
#[test]
fn a_supervisor_is_told_when_the_doors_are_open_and_when_it_stops() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("notify");
    let supervisor = std::os::unix::net::UnixDatagram::bind(&socket).unwrap();
    supervisor.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
    let nbd = folder.path().join("nbd");
    let mut server = Command::new(env!("CARGO_BIN_EXE_stonefold"))
        .args(["serve", "--pool", "memory:", "--api", "127.0.0.1:0", "--nbd"])
        .arg(format!("unix://{}", nbd.display()))
        .env("NOTIFY_SOCKET", &socket)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut said = [0; 64];
    let length = supervisor.recv(&mut said).unwrap();
    assert_eq!(&said[..length], b"READY=1");
    std::os::unix::net::UnixStream::connect(&nbd).unwrap();
    let pid = rustix::process::Pid::from_child(&server);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let length = supervisor.recv(&mut said).unwrap();
    assert_eq!(&said[..length], b"STOPPING=1");
    assert!(server.wait().unwrap().success());
}

/// Goal: a pool that nobody serves can be looked at and checked, and is left as it was; nothing is made where nothing is.
#[test]
fn a_pool_that_nobody_serves_is_checked_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("file://{}", folder.path().join("pool").display());
    let nowhere = stonefold("", &format!("pool check --pool {url}"));
    assert_eq!(nowhere.status.code(), Some(1));
    assert!(!folder.path().join("pool").exists(), "a check makes no pool");
    let settings = Settings {
        pool: Some(url.clone()),
        nbd: vec!["tcp://127.0.0.1:0".parse().unwrap()],
        api: vec!["127.0.0.1:0".parse().unwrap()],
        ..Settings::default()
    };
    let running = Gateway(start(settings.resolve().unwrap()).unwrap());
    running.text("disk create web --size 1G");
    let taken = stonefold("", &format!("pool check --pool {url}"));
    assert_eq!(taken.status.code(), Some(1), "it is served");
    running.0.stop().unwrap();
    for command in ["status", "check", "scrub"] {
        let output = stonefold("", &format!("pool {command} --pool {url} --json"));
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{command}: {told}");
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(answer["disks"], 1, "{command}");
    }
}

#[test]
fn serve_prints_one_line_and_stops_at_a_signal() {
    use std::io::{BufRead, BufReader, Read};
    let mut server = Command::new(env!("CARGO_BIN_EXE_stonefold"))
        .args(["serve", "--pool", "memory:", "--api", "127.0.0.1:0", "--nbd", "tcp://127.0.0.1:0"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(server.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[..2], ["ready", "pool=memory:"]);
    assert!(
        words[2].starts_with("nbd=nbd://127.0.0.1:") && words[3].starts_with("api=http://127.0.0.1:"),
        "{line}"
    );
    assert_eq!(stonefold(words[3].strip_prefix("api=").unwrap(), "pool status").status.code(), Some(0));

    let pid = rustix::process::Pid::from_child(&server);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(server.wait().unwrap().code(), Some(0));
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
}

#[test]
fn classes_of_service_are_shown_set_and_refused_with_reasons() {
    let gateway = Gateway::new();
    assert!(gateway.text("qos ls").contains("backup-target"));
    let made = gateway.text("qos create capped --max-iops 500 --max-bytes 50M");
    assert!(made.contains("capped") && made.contains("500    50M"), "{made}");
    gateway.text("disk create web --size 1G --qos capped");
    assert_eq!(gateway.json("disk show web")["qos"], "capped");
    assert_eq!(gateway.json("qos set capped --max-iops none")["max_iops"], Value::Null);
    let used = gateway.error("qos rm capped", 1);
    assert!(used.contains("used by web") && used.contains("--qos CLASS"), "{used}");
    assert!(gateway.error("qos rm test", 1).contains("every pool has"));
    assert!(gateway.error("qos set fold --max-bytes 1M", 1).contains("fold"));
    assert!(gateway.error("disk set web --qos gold", 1).contains("'gold' does not exist"));
    assert_eq!(gateway.json("disk set web --qos test")["qos"], "test");
    assert_eq!(gateway.json("qos rm capped")["removed"][0], "capped");
}

/// The secret alone is on stdout, so that a file that takes it can be named at once.
#[test]
fn a_token_is_printed_kept_in_a_file_and_shown() {
    let gateway = Gateway::new();
    assert!(gateway.text("token ls").starts_with("no tokens"));
    let made = gateway.run("token create --role admin --name me");
    assert_eq!(made.status.code(), Some(0));
    assert!(String::from_utf8(made.stderr).unwrap().contains("told only now"));
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &made.stdout).unwrap();
    let with = format!("--token-file {}", file.path().display());
    let refused = gateway.error("disk ls", 1);
    assert!(refused.contains("wants a token") && refused.contains("--token-file"), "{refused}");
    assert!(gateway.text(&format!("{with} token ls")).contains("me    admin"));
    let viewer = gateway.json(&format!("{with} token create --role viewer --name eye"));
    assert_eq!(viewer["token"]["role"], "viewer");
    std::fs::write(file.path(), viewer["secret"].as_str().unwrap()).unwrap();
    gateway.text(&format!("{with} disk ls"));
    assert!(gateway.error(&format!("{with} disk create web --size 1G"), 1).contains("takes operator"));
    std::fs::write(file.path(), "two words").unwrap();
    assert!(gateway.error(&format!("{with} disk ls"), 1).contains("does not hold one token"));
    assert!(gateway.error("--token-file /nowhere/at/all disk ls", 1).contains("name a readable file"));
}

/// As of a key's file: it is said, and goes on.
#[test]
fn a_token_that_others_may_read_is_warned_of() {
    let gateway = Gateway::new();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), gateway.run("token create --role admin --name me").stdout).unwrap();
    let line = format!("--token-file {} disk ls", file.path().display());
    for (mode, warned) in [(0o600, false), (0o640, true), (0o604, true)] {
        std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        let done = gateway.run(&line);
        assert_eq!(done.status.code(), Some(0));
        let said = String::from_utf8(done.stderr).unwrap();
        assert_eq!(said.contains("others may read it: chmod 600"), warned, "{mode:o}: {said}");
    }
}

/// The largest segment in a pool's directory, which is the data's.
fn segment(dir: &Path) -> PathBuf {
    let buckets = std::fs::read_dir(dir.join("objects/segment")).unwrap();
    let files = buckets.flat_map(|bucket| std::fs::read_dir(bucket.unwrap().path()).unwrap());
    files.map(|file| file.unwrap().path()).max_by_key(|path| path.metadata().unwrap().len()).unwrap()
}

fn flip(file: &Path, parts: u64) {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(file).unwrap();
    let at = file.metadata().unwrap().len() / 10 * parts;
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
}

/// Goal: what can be read is not called unreadable, and copies that are missing are not called sound. *Past bugs*: a check
/// told of one bad copy of two as of a disk that cannot be read; of a pool without one of its directories, and of
/// what was not folded, it said nothing.
#[test]
fn a_check_tells_a_bad_copy_from_lost_data_and_names_a_missing_directory() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (folder.path().join("one"), folder.path().join("two"));
    let url = format!("file://{}?also={}&copies=2", one.display(), two.display());
    let settings = Settings {
        pool: Some(url.clone()),
        nbd: vec![format!("unix://{}", folder.path().join("nbd").display()).parse().unwrap()],
        api: vec![format!("unix://{}", folder.path().join("api").display()).parse().unwrap()],
        ..Settings::default()
    };
    let running = Gateway(start(settings.resolve().unwrap()).unwrap());
    std::fs::write(folder.path().join("raw"), stonefold_dice::noise(1, 4 << 20)).unwrap();
    let made = running.json(&format!("disk import web {} --format raw", folder.path().join("raw").display()));
    let data = made["mapped_bytes"].as_u64().unwrap() + made["unfolded_bytes"].as_u64().unwrap();
    assert!(data >= 4 << 20, "what was just imported is counted: {made}");
    // Folded first: the snapshot that was just taken is walked, and so is the data.
    running.text("snapshot create web --name now");
    let checked = running.json("pool check");
    assert_eq!((&checked["snapshots"], &checked["blocks"]), (&1.into(), &1024.into()), "{checked}");
    assert_eq!(running.json("pool status")["missing"], serde_json::json!([]));
    running.0.stop().unwrap();

    // Whichever copy is read, it is damaged somewhere, and the other is sound there.
    flip(&segment(&one), 3);
    flip(&segment(&two), 7);
    let output = stonefold("", &format!("pool check --json --pool {url}"));
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let checked: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(checked["healed"].as_u64().unwrap() > 0, "{checked}");

    std::fs::remove_dir_all(&two).unwrap();
    for command in ["check", "scrub"] {
        let output = stonefold("", &format!("pool {command} --json --pool {url}&degraded=yes"));
        assert_eq!(output.status.code(), Some(1), "{command}");
        let checked: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(checked["problems"][0].as_str().unwrap().contains(two.to_str().unwrap()), "{checked}");
    }
    let output = stonefold("", &format!("pool status --pool {url}&degraded=yes"));
    assert!(String::from_utf8_lossy(&output.stdout).contains("DEGRADED"), "{output:?}");
}
