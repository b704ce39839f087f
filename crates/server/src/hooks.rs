//! Telling of policies' runs: to the webhook that a policy names, and to the command that the server was started with.
//!
//! *Promises*: no run waits for it. Each try ends after a time, and a few are made; what nobody took then is in the log. *Never*: runs a command that came
//! through the API: what runs as the server's user is said where the server is started, by who may start it. What was not told when the server ends is lost, and
//! the runs themselves say how they ended. *May be called by*: the data thread.

use crate::Config;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use stonefold_api::{PolicyEvent, PolicyEventKind, Time, Webhook};
use stonefold_env::Env;
use stonefold_protect::{Outcome, Protection};
use stonefold_types::{Error, Kind, Result};
use tokio::sync::oneshot;

/// What is waited between one try and the next: who is being restarted is there after a minute.
const WAITS: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(10), Duration::from_secs(60)];
/// Events that are being told at one time: each may have a thread. What comes beyond is not told.
const ABREAST_MAX: usize = 64;
/// How long the command may run, in looks of so long each: a minute, in which a mail is sent.
const COMMAND_LOOKS: u32 = 600;
const COMMAND_LOOK: Duration = Duration::from_millis(100);
/// Why a run failed, in bytes; so the whole fits into a pipe, and who does not read it is not waited for.
const WHY_BYTES_MAX: usize = 8192;

/// One way to tell, which may block.
type Way = Arc<dyn Fn() -> Result<()> + Send + Sync>;

/// Has everything told from now on.
pub(crate) fn listen(config: &Config, env: &Env, protection: &Protection) {
    let (pool, command, env) = (config.pool.clone(), config.notify_command.clone(), env.clone());
    let under_way = Arc::new(AtomicUsize::new(0));
    protection.listen(Box::new(move |outcome: Outcome| {
        let webhook = outcome.webhook.clone();
        let event = Arc::new(event_of(outcome, pool.clone()));
        let mut ways: Vec<Way> = Vec::new();
        match webhook.as_deref().map(Webhook::new) {
            Some(Ok(hook)) => {
                let event = event.clone();
                ways.push(Arc::new(move || hook.post(&event)));
            }
            Some(Err(error)) => tracing::warn!("policy '{}': nobody is told: {error}", event.policy),
            None => {}
        }
        if let Some(command) = command.clone() {
            let event = event.clone();
            ways.push(Arc::new(move || run_command(&command, &event)));
        }
        for way in ways {
            if under_way.fetch_add(1, Ordering::Relaxed) < ABREAST_MAX {
                env.spawn("notify", deliver(env.clone(), event.clone(), way, under_way.clone()));
            } else {
                under_way.fetch_sub(1, Ordering::Relaxed);
                tracing::warn!("not told, because too much is being told: {}", event.text);
            }
        }
    }));
}

fn event_of(outcome: Outcome, pool: String) -> PolicyEvent {
    let Outcome { policy, source, run, failure, sending, at, .. } = outcome;
    let why = failure.map(|why| shortened(&why, WHY_BYTES_MAX).to_owned());
    let text = match (&why, &run) {
        (Some(why), _) if sending => {
            format!("policy '{policy}', source '{source}': points are not sent to the other pool: {why}")
        }
        (None, _) if sending => {
            format!("policy '{policy}', source '{source}': points are sent to the other pool again")
        }
        (Some(why), _) => format!("policy '{policy}', source '{source}' failed: {why}"),
        (None, Some(run)) => format!("policy '{policy}', source '{source}' works again: {run}"),
        (None, None) => format!("policy '{policy}', source '{source}' works again"),
    };
    let event = match (why.is_some(), sending) {
        (true, false) => PolicyEventKind::Failed,
        (false, false) => PolicyEventKind::WorksAgain,
        (true, true) => PolicyEventKind::NotSent,
        (false, true) => PolicyEventKind::SentAgain,
    };
    PolicyEvent { event, text, policy, source, run, why, at: Time::from_nanos(at), pool }
}

fn shortened(text: &str, bytes_max: usize) -> &str {
    let end = (0..=text.len().min(bytes_max)).rev().find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or(0)]
}

/// Tries until somebody has taken it.
async fn deliver(env: Env, event: Arc<PolicyEvent>, way: Way, under_way: Arc<AtomicUsize>) {
    let mut waits = WAITS.into_iter();
    loop {
        let Err(error) = in_a_thread(way.clone()).await else { break };
        let Some(wait) = waits.next() else {
            tracing::warn!("not told, after {} tries: {}: {error}", 1 + WAITS.len(), event.text);
            break;
        };
        tracing::info!("policy '{}': to be told again in {} s: {error}", event.policy, wait.as_secs());
        env.sleep(wait).await;
    }
    under_way.fetch_sub(1, Ordering::Relaxed);
}

/// On a thread of its own: the workers are the fold's.
async fn in_a_thread(way: Way) -> Result<()> {
    let (tell, told) = oneshot::channel();
    // Whoever waits may have gone with the server.
    let work = move || drop(tell.send(way()));
    let thread = std::thread::Builder::new().name("notify".to_owned()).spawn(work);
    thread.map_err(|e| Error::io("starting a thread to tell of a run", e))?;
    told.await
        .unwrap_or_else(|_| Err(Error::new(Kind::Io, "telling of a run ended by a defect of Stonefold")))
}

/// Runs the command with the event on its stdin, and what is in it in variables.
fn run_command(command: &Path, event: &PolicyEvent) -> Result<()> {
    let failed = |why: String| Error::new(Kind::Io, format!("'{}' {why}", command.display()));
    let run = event.run.as_ref().map(ToString::to_string).unwrap_or_default();
    let started = Command::new(command)
        .env("STONEFOLD_EVENT", event.event.name())
        .env("STONEFOLD_TEXT", &event.text)
        .env("STONEFOLD_POLICY", event.policy.as_str())
        .env("STONEFOLD_SOURCE", event.source.as_str())
        .env("STONEFOLD_RUN", run)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        // Its children end with it where it takes too long.
        .process_group(0)
        .spawn();
    let mut child = started.map_err(|e| failed(format!("cannot be run: {e}")))?;
    let body = serde_json::to_vec(event).expect("an event is plain JSON");
    if let Some(mut stdin) = child.stdin.take() {
        // It need not read it.
        let _ = stdin.write_all(&body);
    }
    for _ in 0..COMMAND_LOOKS {
        match child.try_wait().map_err(|e| failed(e.to_string()))? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(failed(format!("failed: {status}"))),
            None => std::thread::sleep(COMMAND_LOOK),
        }
    }
    end(&mut child);
    Err(failed("took longer than a minute, and was ended".to_owned()))
}

fn end(child: &mut Child) {
    let group = rustix::process::Pid::from_child(child);
    // One that has ended meanwhile is only waited for.
    let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    let _ = child.wait();
}

#[cfg(test)]
mod tests;
