//! Guests that stand still for their points: a point says so only where it is true, and whatever happens a guest goes on.

use crate::life::{ENDS, Ended, HOUR, Life, Pool, name};
use crate::machines::web;
use crate::policies::{HOURLY, asked, round};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use stonefold_protect::{AgentPlace, Consistency, NewPolicy, QemuGuest, RunRequest, RunState, SourceOf};
use stonefold_types::{Error, Kind};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};

const APP: RunRequest = RunRequest { full: false, consistency: Consistency::App };
/// What the guest's disk says once all is finished, and what it says before and after.
const FINISHED: u8 = 7;
const AT_WORK: u8 = 9;

/// How a guest takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mood {
    Well,
    Refuses,
    /// Has nothing that could stand still.
    Empty,
    /// Stands still, and its agent goes without a word.
    Falls,
    /// Does not stay still.
    Restless,
}

/// A guest and its agent, which outlive the server.
pub(crate) struct Guest {
    folder: TempDir,
    pub(crate) state: Arc<Mutex<State>>,
}

pub(crate) struct State {
    pub(crate) mood: Mood,
    still: bool,
    asked: usize,
    /// So often it refuses to go on, or hangs up when it is told to.
    refusals: usize,
    /// How often it was told to go on, and how long that takes it.
    told: usize,
    thaw_takes: Duration,
}

impl Guest {
    pub(crate) fn new(mood: Mood) -> Guest {
        let (asked, refusals, told, thaw_takes) = (0, 0, 0, Duration::ZERO);
        let state = State { mood, still: false, asked, refusals, told, thaw_takes };
        Guest { folder: tempfile::tempdir().unwrap(), state: Arc::new(Mutex::new(state)) }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("agent")
    }

    pub(crate) fn place(&self) -> AgentPlace {
        AgentPlace::Socket(self.socket())
    }

    fn is_still(&self) -> bool {
        self.state.lock().still
    }

    /// Lets its agent be reached by this life.
    pub(crate) fn wakes_up(&self, life: &Arc<Life>) {
        let _ = std::fs::remove_file(self.socket());
        let listener = UnixListener::bind(self.socket()).unwrap();
        let (state, life) = (self.state.clone(), life.clone());
        life.env.clone().spawn("guest", async move {
            while let Ok((stream, _)) = listener.accept().await {
                // Whoever hangs up is no error.
                drop(serve(stream, &state, &life).await);
            }
        });
    }
}

async fn serve(stream: UnixStream, state: &Mutex<State>, life: &Life) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        if stream.read_until(b'\n', &mut line).await? == 0 {
            return Ok(());
        }
        let asked: Value = serde_json::from_slice(line.strip_prefix(b"\xff").unwrap_or(&line))?;
        let answer = match asked["execute"].as_str().unwrap() {
            "guest-sync" => json!({ "return": asked["arguments"]["id"] }),
            "guest-fsfreeze-freeze" => match freeze(state, life).await {
                Some(answer) => answer,
                None => return Ok(()),
            },
            "guest-fsfreeze-thaw" if state.lock().refusals > 0 => {
                let left = {
                    let mut state = state.lock();
                    state.refusals -= 1;
                    state.refusals
                };
                if left % 2 == 0 {
                    return Ok(());
                }
                json!({ "error": { "desc": "a file system is busy" } })
            }
            "guest-fsfreeze-thaw" => {
                let takes = {
                    let mut state = state.lock();
                    state.told += 1;
                    state.thaw_takes
                };
                life.env.sleep(takes).await;
                let (was_still, mood) = {
                    let mut state = state.lock();
                    (std::mem::take(&mut state.still), state.mood)
                };
                write(life, AT_WORK).await;
                json!({ "return": if was_still && mood != Mood::Restless { 2 } else { 0 } })
            }
            other => panic!("{other}"),
        };
        stream.write_all(format!("{answer}\n").as_bytes()).await?;
    }
}

/// What it answers; nothing where it says nothing any more.
async fn freeze(state: &Mutex<State>, life: &Life) -> Option<Value> {
    let mood = {
        let mut state = state.lock();
        state.asked += 1;
        assert!(!state.still, "asked to stand still while it does");
        state.still = !matches!(state.mood, Mood::Refuses | Mood::Empty);
        state.mood
    };
    write(life, FINISHED).await;
    match mood {
        Mood::Well | Mood::Restless => Some(json!({ "return": 2 })),
        Mood::Refuses => Some(json!({ "error": { "desc": "the hook has failed" } })),
        Mood::Empty => Some(json!({ "return": 0 })),
        Mood::Falls => None,
    }
}

/// A disk that fails the guest, or does not answer it, is no matter of its agent's.
async fn write(life: &Life, byte: u8) {
    let written = async {
        if let Ok(attachment) = life.store.attach(&"root".parse().unwrap()) {
            let _ = attachment.write(0, &[byte; 4096], false).await;
        }
    };
    tokio::select! {
        () = written => {}
        () = life.env.sleep(Duration::from_millis(100)) => {}
    }
}

/// The next round has guests go on that were left.
async fn goes_on(life: &Life, guest: &Guest, when: &str) {
    round(life).await;
    for _ in 0..500 {
        if !guest.is_still() && life.store.catalog("standstills").await.unwrap().is_empty() {
            return;
        }
        life.env.sleep(Duration::from_millis(10)).await;
    }
    panic!("it stands still {when}");
}

async fn source(life: &Life) {
    web(life, None).await;
    life.protection.add_source(name("nightly"), SourceOf::Machine(name("web"))).await.unwrap();
}

/// Points that say of themselves that the guest stood still, and all others, looked at.
async fn points(life: &Life) -> (usize, usize) {
    let (mut app, mut crash) = (0, 0);
    for status in life.protection.points(None).await.unwrap() {
        assert!(status.missing.is_empty(), "{status:?}");
        let read = life.read(&status.point.snapshot_of(&status.point.disks[0]).to_string()).await;
        match status.point.consistency {
            Consistency::App => {
                assert_eq!(read, FINISHED);
                app += 1;
            }
            Consistency::Crash => crash += 1,
        }
    }
    (app, crash)
}

fn refused(error: &Error, words: &str) {
    assert!(error.to_string().contains(words), "{error:?}");
}

#[test]
fn a_guest_stands_still_for_its_point() {
    let (pool, guest) = (Pool::new(), Guest::new(Mood::Well));
    let asked = guest.state.clone();
    pool.life(|life| async move {
        source(&life).await;
        guest.wakes_up(&life);
        let machine = life.protection.set_machine_agent(&name("web"), Some(guest.place())).await.unwrap();
        assert_eq!(machine.agent, Some(guest.place()));
        let run = life.protection.back_up(&name("nightly"), APP).await.unwrap();
        assert_eq!((run.state, run.note), (RunState::Done, None));
        assert!(!guest.is_still());
        assert_eq!(life.read("root").await, AT_WORK);
        life.protection.back_up(&name("nightly"), RunRequest::default()).await.unwrap();
        assert!(life.store.catalog("standstills").await.unwrap().is_empty());
        life.protection.set_machine_agent(&name("web"), None).await.unwrap();
    });
    pool.life(|life| async move {
        assert_eq!(points(&life).await, (1, 1));
        assert_eq!(life.protection.machine(&name("web")).await.unwrap().agent, None);
        assert_eq!(asked.lock().asked, 1);
    });
}

/// Goal: where a guest cannot be had to stand still there is no point, it is told why, and the guest goes on.
#[test]
fn a_guest_that_cannot_stand_still_has_no_point() {
    Pool::new().life(|life| async move {
        source(&life).await;
        let of_nobody = life.protection.back_up(&name("nightly"), APP).await.unwrap_err();
        assert_eq!(of_nobody.kind(), Kind::Invalid);
        refused(&of_nobody, "machine set web --agent");
        let guest = Guest::new(Mood::Well);
        life.protection.set_machine_agent(&name("web"), Some(guest.place())).await.unwrap();
        let absent = life.protection.back_up(&name("nightly"), APP).await.unwrap_err();
        refused(&absent, "the guest of machine 'web'");
        guest.wakes_up(&life);
        for (mood, words) in [
            (Mood::Refuses, "the hook has failed"),
            (Mood::Empty, "no file system"),
            (Mood::Falls, "channel has ended"),
        ] {
            guest.state.lock().mood = mood;
            let error = life.protection.back_up(&name("nightly"), APP).await.unwrap_err();
            refused(&error, words);
            assert!(!guest.is_still(), "{mood:?}");
        }
        assert!(life.snapshots().is_empty() && life.protection.points(None).await.unwrap().is_empty());
        assert!(life.store.catalog("standstills").await.unwrap().is_empty());
        let runs = life.protection.runs(None).await.unwrap();
        assert!(
            runs.len() == 4 && runs.iter().all(|run| run.state == RunState::Failed && run.note.is_some())
        );

        // What was copied from elsewhere has a guest elsewhere.
        let of = SourceOf::Nbd("nbd://127.0.0.1:1/x".into());
        life.protection.add_source(name("db"), of).await.unwrap();
        let error = life.protection.back_up(&name("db"), APP).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Unsupported);
        // One that can be asked must be said where.
        let of = SourceOf::Qmp(QemuGuest { socket: "/nowhere/qmp".into(), agent: None });
        life.protection.add_source(name("mail"), of).await.unwrap();
        let error = life.protection.back_up(&name("mail"), APP).await.unwrap_err();
        assert!(error.kind() == Kind::Invalid && error.to_string().contains("--agent"), "{error}");
        assert!(life.protection.runs(Some(&name("mail"))).await.unwrap().is_empty());

        // Well again, and nothing is in its way.
        guest.state.lock().mood = Mood::Well;
        life.protection.back_up(&name("nightly"), APP).await.unwrap();
        assert_eq!(points(&life).await, (1, 0));
    });
}

/// Goal: a guest that does not go on when it is told to is told again, and its point is what it says.
#[test]
fn a_guest_that_is_slow_to_go_on_is_told_again() {
    Pool::new().life(|life| async move {
        source(&life).await;
        let guest = Guest::new(Mood::Well);
        guest.wakes_up(&life);
        life.protection.set_machine_agent(&name("web"), Some(guest.place())).await.unwrap();
        guest.state.lock().refusals = 3;
        let run = life.protection.back_up(&name("nightly"), APP).await.unwrap();
        assert_eq!((run.state, run.note), (RunState::Done, None));
        assert!(!guest.is_still() && guest.state.lock().refusals == 0);
        assert_eq!(points(&life).await, (1, 0));
    });
}

/// Goal: a point of a guest that did not stay still does not say that it did.
#[test]
fn a_guest_that_went_on_by_itself_is_told() {
    Pool::new().life(|life| async move {
        source(&life).await;
        let guest = Guest::new(Mood::Restless);
        guest.wakes_up(&life);
        life.protection.set_machine_agent(&name("web"), Some(guest.place())).await.unwrap();
        let run = life.protection.back_up(&name("nightly"), APP).await.unwrap();
        assert_eq!(run.state, RunState::Done);
        assert!(run.note.unwrap().contains("had gone on by themselves"));
        assert_eq!(points(&life).await, (0, 1));
    });
}

/// Goal: whatever the server dies in, and whatever of its medium, the guest goes on when the next one makes its round, and no point says more than
/// is true.
#[test]
fn a_guest_that_is_left_goes_on() {
    for end in ENDS {
        for steps in 0.. {
            let (pool, guest) = (Pool::new(), Arc::new(Guest::new(Mood::Well)));
            let before = guest.clone();
            let ended = pool.life(|life| async move {
                source(&life).await;
                before.wakes_up(&life);
                life.protection.set_machine_agent(&name("web"), Some(before.place())).await.unwrap();
                life.cut_after(steps, life.protection.back_up(&name("nightly"), APP)).await
            });
            pool.ends(end);
            let whole = matches!(ended, Ended::Whole(_));
            pool.life(|life| async move {
                guest.wakes_up(&life);
                goes_on(&life, &guest, &format!("{end:?} after {steps}")).await;
                let (app, crash) = points(&life).await;
                assert!(app + crash <= 1 && (!whole || app == 1), "{end:?} after {steps}: {app} {crash}");
                assert_eq!(life.snapshots().len(), 2 * (app + crash), "{end:?} after {steps}");
                life.protection.back_up(&name("nightly"), APP).await.unwrap();
            });
            if whole {
                assert!(steps > 4, "{steps}");
                break;
            }
        }
    }
}

/// Goal: a run that comes while a guest that was left is told to go on waits for that, and is made.
#[test]
fn a_run_waits_for_a_guest_that_is_told_to_go_on() {
    Pool::new().life(|life| async move {
        source(&life).await;
        let guest = Guest::new(Mood::Well);
        guest.wakes_up(&life);
        life.protection.set_machine_agent(&name("web"), Some(guest.place())).await.unwrap();
        {
            let mut state = guest.state.lock();
            (state.still, state.thaw_takes) = (true, Duration::from_millis(300));
        }
        let left = json!({
            "version": 1, "machine": "web", "agent": guest.place().to_string(), "domain": "web", "asked": 1,
        });
        life.store.put_catalog_entry("standstills/web", &left.to_string(), None).await.unwrap();
        round(&life).await;
        // The round's task has the guest by now, and is answered later.
        while guest.state.lock().told == 0 {
            life.env.sleep(Duration::from_millis(1)).await;
        }
        assert!(guest.is_still());
        let run = life.protection.back_up(&name("nightly"), APP).await.unwrap();
        assert_eq!((run.state, run.note), (RunState::Done, None));
        assert!(guest.state.lock().told == 2, "by the round once, and by the run once");
        assert_eq!(points(&life).await, (1, 0));
    });
}

/// Goal: a guest on other storage that was left standing still goes on, too, though a machine has its source's name.
#[test]
fn a_guest_of_a_source_that_was_left_goes_on() {
    Pool::new().life(|life| async move {
        source(&life).await;
        let guest = Guest::new(Mood::Well);
        guest.wakes_up(&life);
        guest.state.lock().still = true;
        let left = json!({
            "version": 1, "machine": "web", "is_source": true, "agent": guest.place().to_string(), "domain": "web", "asked": 1,
        });
        life.store.put_catalog_entry("standstills/web/source", &left.to_string(), None).await.unwrap();
        goes_on(&life, &guest, "though its source is known").await;
    });
}

/// Goal: a guest whose machine has ended is not waited for.
#[test]
fn a_guest_that_has_gone_is_forgotten() {
    let was_left = (1..20).any(|steps| {
        let (pool, guest) = (Pool::new(), Arc::new(Guest::new(Mood::Falls)));
        let before = guest.clone();
        pool.life(|life| async move {
            source(&life).await;
            before.wakes_up(&life);
            life.protection.set_machine_agent(&name("web"), Some(before.place())).await.unwrap();
            life.cut_after(steps, life.protection.back_up(&name("nightly"), APP)).await;
        });
        pool.life(|life| async move {
            let left = life.store.catalog("standstills").await.unwrap().len();
            guest.state.lock().still = false;
            goes_on(&life, &guest, "and has gone").await;
            left == 1
        })
    });
    assert!(was_left, "no step leaves a guest");
}

/// Goal: a policy has guests stand still, and is applied only to what can.
#[test]
fn a_policy_has_guests_stand_still() {
    let pool = Pool::new();
    let clock = pool.clock.clone();
    pool.life(|life| async move {
        source(&life).await;
        let of_app = NewPolicy { consistency: Consistency::App, ..asked("1h", None) };
        life.protection.create_policy(name(HOURLY), of_app).await.unwrap();
        let sources = [name("nightly")];
        let error = life.protection.apply_policy(&name(HOURLY), &sources).await.unwrap_err();
        refused(&error, "machine set web --agent");
        let guest = Guest::new(Mood::Well);
        guest.wakes_up(&life);
        life.protection.set_machine_agent(&name("web"), Some(guest.place())).await.unwrap();
        life.protection.apply_policy(&name(HOURLY), &sources).await.unwrap();
        clock.passes(HOUR);
        assert_eq!(round(&life).await.begun, [(name(HOURLY), name("nightly"))]);
        for _ in 0..300 {
            if points(&life).await == (1, 0) {
                return;
            }
            life.env.sleep(Duration::from_millis(10)).await;
        }
        panic!("{:?}", life.protection.runs(None).await);
    });
}

/// Goal: a server that leaves waits for a guest that has begun to stand still until it goes on, and has no other begin; whose turn it was is not taken for
/// one that failed.
#[test]
fn a_server_that_leaves_has_its_guests_go_on() {
    let (pool, guest) = (Pool::new(), Guest::new(Mood::Well));
    guest.state.lock().thaw_takes = Duration::from_millis(300);
    pool.life(|life| async move {
        source(&life).await;
        guest.wakes_up(&life);
        life.protection.set_machine_agent(&name("web"), Some(guest.place())).await.unwrap();
        let leaves = async {
            while !guest.is_still() {
                life.env.sleep(Duration::from_millis(1)).await;
            }
            life.protection.end_copies(Duration::from_millis(10)).await;
            assert!(!guest.is_still(), "it is left standing still");
        };
        let nightly = name("nightly");
        let (run, ()) = futures::join!(life.protection.back_up(&nightly, APP), leaves);
        assert_eq!(run.unwrap().state, RunState::Done);
        let late = life.protection.back_up(&nightly, APP).await.unwrap_err();
        assert_eq!(late.kind(), Kind::Closed);
        assert_eq!(points(&life).await, (1, 0));
        assert_eq!(guest.state.lock().asked, 1);
        assert_eq!(
            life.protection.runs(None).await.unwrap().len(),
            1,
            "it is in the history as one that failed"
        );
    });
}
