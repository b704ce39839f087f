//! Who is told what, by a command and by a server of this process.

use super::*;
use std::io::Read;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

fn outcome(failure: Option<&str>) -> Outcome {
    Outcome {
        policy: "nightly".parse().unwrap(),
        source: "web".parse().unwrap(),
        run: Some("web@20261123T184005Z".parse().unwrap()),
        failure: failure.map(str::to_owned),
        at: 1_795_459_205_000_000_000,
        webhook: None,
        sending: false,
    }
}

fn event(failure: Option<&str>) -> PolicyEvent {
    event_of(outcome(failure), "memory:".to_owned())
}

fn script(folder: &Path, text: &str) -> std::path::PathBuf {
    let path = folder.join("tell");
    std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
    path
}

/// Runs it; again, while a thread of another test that is starting something still has it open for writing.
fn run(command: &Path, event: &PolicyEvent) -> Result<()> {
    loop {
        match run_command(command, event) {
            Err(error) if error.to_string().contains("Text file busy") => {}
            ran => return ran,
        }
    }
}

#[test]
fn an_event_says_in_a_line_what_has_happened() {
    let failed = event(Some("disk 'a' does not exist"));
    assert_eq!(failed.text, "policy 'nightly', source 'web' failed: disk 'a' does not exist");
    assert_eq!((failed.event, failed.event.name()), (PolicyEventKind::Failed, "failed"));
    let again = event(None);
    assert_eq!(again.text, "policy 'nightly', source 'web' works again: web@20261123T184005Z");
    let json = serde_json::to_value(&again).unwrap();
    assert_eq!((&json["event"], json.get("why")), (&again.event.name().into(), None));
    let long = event(Some(&"ä".repeat(WHY_BYTES_MAX)));
    assert_eq!(long.why.unwrap().len(), WHY_BYTES_MAX);
}

/// Goal: the command has the event on its stdin and in its variables; that it failed, or is not there, is an error.
#[test]
fn a_command_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let told = folder.path().join("told");
    let text = format!(
        "echo \"$STONEFOLD_EVENT $STONEFOLD_POLICY $STONEFOLD_RUN\" > '{0}'; cat >> '{0}'",
        told.display()
    );
    run(&script(folder.path(), &text), &event(Some("x"))).unwrap();
    let told = std::fs::read_to_string(told).unwrap();
    let (variables, json) = told.split_once('\n').unwrap();
    assert_eq!(variables, "failed nightly web@20261123T184005Z");
    assert_eq!(serde_json::from_str::<PolicyEvent>(json).unwrap(), event(Some("x")));
    // It need not read.
    run(&script(folder.path(), "exit 0"), &event(None)).unwrap();
    let failed = run(&script(folder.path(), "exit 3"), &event(None)).unwrap_err();
    assert!(failed.to_string().contains('3'), "{failed}");
    assert!(run_command(Path::new("/nowhere"), &event(None)).is_err());
}

/// Goal: a webhook that answers with an error is told again, and no more once it has taken it.
#[test]
fn a_webhook_is_told_until_it_takes_it() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let hook = Webhook::new(&format!("http://{}/secret", listener.local_addr().unwrap())).unwrap();
    let answers = ["500 No", "302 Found\r\nlocation: http://127.0.0.1:1/", "204 Yes"];
    let server = std::thread::Builder::new().spawn(move || answers.map(|answer| answered(&listener, answer)));
    let server = server.unwrap();
    let failed = hook.post(&event(None)).unwrap_err();
    assert!(
        failed.to_string().contains("it answered 500") && !failed.to_string().contains("secret"),
        "{failed}"
    );
    hook.post(&event(None)).unwrap_err();
    hook.post(&event(Some("x"))).unwrap();
    let asked = server.join().unwrap();
    assert!(asked[2].starts_with("POST /secret HTTP/1.1\r\n"), "{}", asked[2]);
    let body = asked[2].split_once("\r\n\r\n").unwrap().1;
    assert_eq!(serde_json::from_str::<PolicyEvent>(body).unwrap(), event(Some("x")));
}

/// Answers one request, and returns it.
fn answered(listener: &TcpListener, status: &str) -> String {
    let (mut stream, _) = listener.accept().unwrap();
    let mut asked = Vec::new();
    loop {
        let mut part = [0; 4096];
        let length = stream.read(&mut part).unwrap();
        asked.extend(&part[..length]);
        let text = String::from_utf8_lossy(&asked).into_owned();
        if length == 0 || text.split_once("\r\n\r\n").is_some_and(|(_, body)| body.ends_with('}')) {
            let answer = format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
            stream.write_all(answer.as_bytes()).unwrap();
            return text;
        }
    }
}
