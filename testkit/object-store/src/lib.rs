//! An S3 server of a test's own: moto's, from PyPI, behind a gate that can be told to lose answers, to refuse, or not to hear conditions
//! ([`server.py`](../server.py)).
//!
//! *Promises*: it listens on loopback only, has a bucket `pool`, and ends with whoever started it. *May be used by*: tests.
//!
//! # Panics
//! All of it does where the server cannot be installed or started: a test that cannot be run has not passed.

#![allow(clippy::missing_panics_doc, reason = "said once, above")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A server.
pub struct Server {
    process: Child,
    port: u16,
    credentials: String,
    _folder: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    /// Starts one; `said` are arguments of `server.py`.
    pub fn start(said: &[&str]) -> Server {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let installed = Command::new(here.join("../../setup/object-store")).output().unwrap();
        assert!(installed.status.success(), "{}", String::from_utf8_lossy(&installed.stderr));
        let python = String::from_utf8(installed.stdout).unwrap();
        let mut process = Command::new(python.trim())
            .arg(here.join("server.py"))
            .args(said)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.trim().parse().unwrap_or_else(|_| panic!("the server does not start: {line:?}"));
        let folder = tempfile::tempdir().unwrap();
        let credentials = folder.path().join("credentials");
        let keys = "[default]\naws_access_key_id = test\naws_secret_access_key = test\n";
        std::fs::write(&credentials, keys).unwrap();
        Server { process, port, credentials: credentials.to_str().unwrap().to_owned(), _folder: folder }
    }

    /// The URL of a pool in it.
    pub fn url(&self, prefix: &str) -> String {
        format!(
            "s3://pool/{prefix}?endpoint=http://127.0.0.1:{}&region=us-east-1&credentials={}",
            self.port, self.credentials
        )
    }

    /// Has it stand still (`-STOP`), or go on (`-CONT`).
    pub fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.process.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }

    /// Takes an object away behind everybody's back.
    pub fn remove(&self, name: &str) {
        let answer = self.ask("DELETE", name);
        assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
    }

    /// Whether anything lies below a prefix.
    pub fn has(&self, prefix: &str) -> bool {
        self.ask("GET", &format!("?list-type=2&prefix={prefix}&max-keys=1")).contains("<Key>")
    }

    fn ask(&self, method: &str, what: &str) -> String {
        let mut connection = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        // It looks whether a request is signed, and not by whom.
        let signed = "Authorization: AWS4-HMAC-SHA256 Credential=test/20261126/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0";
        let request = format!(
            "{method} /pool/{what} HTTP/1.1\r\nHost: localhost\r\n{signed}\r\nConnection: close\r\n\r\n"
        );
        connection.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        answer
    }
}
