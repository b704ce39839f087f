//! Against QEMU's storage daemon, which is its block layer without a machine, and against one that is played: who is silent, who speaks nonsense, who answers out of order.

use super::*;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use stonefold_env::SystemWorld;
use tokio::net::{UnixListener, UnixSocket};

const PATIENCE: Duration = Duration::from_secs(20);

fn env() -> Env {
    Env::new(SystemWorld::new(tokio::runtime::Handle::current(), 1).unwrap())
}

/// A storage daemon; it ends with the test.
struct Machine(Child);

impl Machine {
    fn start(socket: &Path) -> Machine {
        let mut command = Command::new("qemu-storage-daemon");
        let chardev = format!("socket,id=qmp,path={},server=on,wait=off", socket.display());
        command.args(["--chardev", &chardev, "--monitor", "chardev=qmp"]);
        let spawned = command.stdin(Stdio::null()).spawn();
        let machine =
            Machine(spawned.expect("qemu-storage-daemon is there, of the package qemu-system-common"));
        for _ in 0..800 {
            if UnixStream::connect(socket).is_ok() {
                return machine;
            }
            std::thread::sleep(Duration::from_millis(25));
        }
        panic!("QEMU does not listen");
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn a_real_qemu_answers_tells_and_goes() {
    let dir = tempfile::tempdir().unwrap();
    let (socket, disk) = (dir.path().join("qmp"), dir.path().join("disk"));
    std::fs::File::create(&disk).unwrap().set_len(64 << 20).unwrap();
    let _machine = Machine::start(&socket);
    let qmp = Qmp::connect(&env(), &socket, PATIENCE).await.unwrap();
    let node = json!({ "node-name": "d", "driver": "raw", "file": { "driver": "file", "filename": disk } });
    assert_eq!(qmp.execute("blockdev-add", node.clone(), PATIENCE).await.unwrap(), json!({}));
    let refused = qmp.execute("blockdev-add", node, PATIENCE).await.unwrap_err();
    assert!(refused.to_string().contains("blockdev-add") && refused.kind() == Kind::Io, "{refused}");
    assert_eq!(
        qmp.execute("no-such-thing", json!({}), PATIENCE).await.unwrap_err().kind(),
        Kind::Unsupported
    );
    // Many at once, each with its own answer.
    let names = |qmp: Qmp| async move { qmp.execute("query-named-block-nodes", json!({}), PATIENCE).await };
    for one in futures::future::join_all((0..20).map(|_| names(qmp.clone()))).await {
        assert!(one.unwrap().to_string().contains("\"d\""));
    }
    // The next client is told that this one has the socket.
    let next = Qmp::connect(&env(), &socket, Duration::from_millis(300)).await.err().unwrap();
    assert_eq!(next.kind(), Kind::Busy, "{next}");
    // What goes on by itself is told as it comes.
    let mut events = qmp.events();
    let options = json!({ "driver": "file", "filename": dir.path().join("new"), "size": 1 << 20 });
    let create = json!({ "job-id": "j", "options": options });
    qmp.execute("blockdev-create", create, PATIENCE).await.unwrap();
    let ended = |event: &Event| {
        let is_it = event.name == "JOB_STATUS_CHANGE" && event.data["status"] == "concluded";
        is_it.then(|| event.data["id"].as_str().unwrap_or_default().to_owned())
    };
    assert_eq!(events.wait_for(PATIENCE, ended).await.unwrap(), "j");
    qmp.execute("quit", json!({}), PATIENCE).await.unwrap();
    let gone = async {
        loop {
            if let Err(error) = qmp.execute("query-jobs", json!({}), PATIENCE).await {
                return error;
            }
        }
    };
    assert_eq!(gone.await.kind(), Kind::Closed);
}

/// One that answers the greeting, and then as it is told.
async fn played(answers: impl Fn(u64) -> Vec<String> + Send + 'static) -> (tempfile::TempDir, Qmp) {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("qmp");
    let listener = UnixListener::bind(&socket).unwrap();
    let env = env();
    env.spawn("played", async move {
        let (stream, _) = listener.accept().await.unwrap();
        let (reader, mut writer) = stream.into_split();
        let mut reader = BufReader::new(reader);
        writer.write_all(b"{\"QMP\": {}}\n").await.unwrap();
        while let Ok(Some(asked)) = line(&mut reader).await {
            let id = asked["id"].as_u64().unwrap();
            let lines = match asked["execute"].as_str() {
                Some("qmp_capabilities") => vec![json!({ "return": {}, "id": id }).to_string()],
                _ => answers(id),
            };
            for text in lines {
                writer.write_all(format!("{text}\n").as_bytes()).await.unwrap();
            }
        }
    });
    let qmp = Qmp::connect(&env, &socket, PATIENCE).await.unwrap();
    (dir, qmp)
}

#[tokio::test]
async fn an_answer_is_its_commands_whatever_comes_between() {
    let (_dir, qmp) = played(|id| {
        vec![
            json!({ "event": "STOP", "data": {} }).to_string(),
            json!({ "return": "somebody else's", "id": id + 1000 }).to_string(),
            json!({ "return": id, "id": id }).to_string(),
        ]
    })
    .await;
    let mut events = qmp.events();
    for id in 1..4u64 {
        assert_eq!(qmp.execute("x", json!({}), PATIENCE).await.unwrap(), json!(id));
    }
    events.wait_for(PATIENCE, |event| (event.name == "STOP").then_some(())).await.unwrap();
}

/// Goal: a QEMU that stands still, and one that has lost its senses, keep nobody waiting.
#[tokio::test]
async fn silence_and_nonsense_end_in_an_error() {
    let (_dir, silent) = played(|_| Vec::new()).await;
    let error = silent.execute("query-status", json!({}), Duration::from_millis(100)).await.unwrap_err();
    assert!(error.kind() == Kind::Io && error.to_string().contains("query-status"), "{error}");
    let none = silent.events().wait_for(Duration::from_millis(100), |_| Some(())).await.unwrap_err();
    assert_eq!(none.kind(), Kind::Io);
    let (_dir, mad) = played(|_| vec!["{".into()]).await;
    assert_eq!(mad.execute("query-status", json!({}), PATIENCE).await.unwrap_err().kind(), Kind::Closed);
    assert_eq!(mad.execute("query-status", json!({}), PATIENCE).await.unwrap_err().kind(), Kind::Closed);
    assert_eq!(mad.events().wait_for(PATIENCE, |_| Some(())).await.unwrap_err().kind(), Kind::Closed);
    let nowhere = Qmp::connect(&env(), Path::new("/nowhere/qmp"), PATIENCE).await.err().unwrap();
    assert_eq!(nowhere.kind(), Kind::NotFound);
    let dir = tempfile::tempdir().unwrap();
    let left = dir.path().join("qmp");
    drop(std::os::unix::net::UnixListener::bind(&left).unwrap());
    let dead = Qmp::connect(&env(), &left, Duration::from_millis(50)).await.err().unwrap();
    assert!(dead.kind() == Kind::Io && dead.to_string().contains("a running QEMU"), "{dead}");
}

/// Goal: a QEMU that is starting, whose socket is there before it listens, is waited for.
#[tokio::test]
async fn a_qemu_that_is_about_to_listen_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("qmp");
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let env = env();
    let begins = async {
        env.sleep(Duration::from_millis(50)).await;
        // As QEMU's socket does when it begins to listen, this one is there in one step.
        let starting = dir.path().join("starting");
        let listener = UnixListener::bind(&starting).unwrap();
        std::fs::rename(&starting, &socket).unwrap();
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"{\"QMP\": {}}\n{\"return\": {}, \"id\": 0}\n").await.unwrap();
        stream
    };
    let (connected, _stream) = futures::future::join(Qmp::connect(&env, &socket, PATIENCE), begins).await;
    connected.unwrap();
}

/// Goal: a command that QEMU took half of is not followed by another, which it would take for the rest; and whoever waits for events then is
/// told at once.
#[tokio::test]
async fn a_command_cut_short_ends_the_connection() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("qmp");
    let listener = UnixListener::bind(&socket).unwrap();
    let env = env();
    env.spawn("deaf", async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"{\"QMP\": {}}\n{\"return\": {}, \"id\": 0}\n").await.unwrap();
        std::future::pending::<()>().await;
    });
    let qmp = Qmp::connect(&env, &socket, PATIENCE).await.unwrap();
    let mut events = qmp.events();
    let long = json!({ "text": "x".repeat(8 << 20) });
    let error = qmp.execute("x", long, Duration::from_millis(300)).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Io, "{error}");
    assert_eq!(qmp.execute("x", json!({}), PATIENCE).await.unwrap_err().kind(), Kind::Closed);
    assert_eq!(events.wait_for(PATIENCE, |_| Some(())).await.unwrap_err().kind(), Kind::Closed);
}

/// Goal: what is left of a QEMU is told from one that lives and has no time.
#[tokio::test]
async fn a_socket_is_left_where_nobody_listens() {
    let (dir, env) = (tempfile::tempdir().unwrap(), env());
    let socket = dir.path().join("qmp");
    assert!(is_left(&env, &socket, PATIENCE).await, "it took it away");
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    assert!(is_left(&env, &socket, PATIENCE).await, "it was killed");
    std::fs::remove_file(&socket).unwrap();
    let listening = UnixSocket::new_stream().unwrap();
    listening.bind(&socket).unwrap();
    let _listening = listening.listen(1).unwrap();
    // Nobody takes the ones that have called out of its queue: it is soon full.
    for calls in 0..4 {
        assert!(!is_left(&env, &socket, Duration::from_millis(50)).await, "{calls} wait");
    }
}
