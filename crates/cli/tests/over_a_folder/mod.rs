//! The binary, run as people run it, against a server of this process over a pool in a folder.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};
use stonefold_server::{Running, Settings, start};

pub(crate) fn serve(folder: &Path) -> Running {
    serve_with(folder, Settings::default())
}

/// The same with more that is said of the server.
pub(crate) fn serve_with(folder: &Path, more: Settings) -> Running {
    let settings = Settings {
        pool: Some(format!("file://{}", folder.join("pool").display())),
        nbd: vec![format!("unix://{}", folder.join("nbd").display()).parse().unwrap()],
        api: vec!["127.0.0.1:0".parse().unwrap()],
        ..more
    };
    start(settings.resolve().unwrap()).unwrap()
}

pub(crate) fn run(running: &Running, line: &str, status: i32) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_stonefold"))
        .args(line.split_whitespace())
        .env("STONEFOLD_API", &running.ready().api[0])
        .env_remove("STONEFOLD_TOKEN")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(status), "{line}: {output:?}");
    output
}

pub(crate) fn text(running: &Running, line: &str) -> String {
    String::from_utf8(run(running, line, 0).stdout).unwrap()
}

pub(crate) fn json(running: &Running, line: &str) -> Value {
    serde_json::from_str(&text(running, &format!("{line} --json"))).unwrap()
}

pub(crate) fn error(running: &Running, line: &str) -> String {
    String::from_utf8(run(running, line, 1).stderr).unwrap()
}
