//! An NBD server of the test's own: what it holds can be changed between reads, and it fails, falls silent or goes when it is told to.

use crate::life::Life;
use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use stonefold_env::Env;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

const BLOCK: usize = 4096;

/// What it does when so many reads were answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// Answers that it could not read.
    Fail,
    /// Says nothing until it is well again.
    Hang,
    /// Hangs up.
    Vanish,
}

/// See the module. It ends with the life that it was made in.
pub(crate) struct Exporter {
    socket: PathBuf,
    _folder: Option<TempDir>,
    state: Arc<Mutex<State>>,
}

struct State {
    bytes: Vec<u8>,
    after: Option<(usize, Then)>,
    /// Only the oldest part of the protocol.
    plain: bool,
    reads: usize,
}

impl Exporter {
    pub(crate) fn start(life: &Life, bytes: Vec<u8>) -> Exporter {
        let folder = tempfile::tempdir().unwrap();
        let exporter = Exporter::start_in(life, &folder, bytes);
        Exporter { _folder: Some(folder), ..exporter }
    }

    /// In a folder that outlives it, so that the next one is found at the same place.
    pub(crate) fn start_in(life: &Life, folder: &TempDir, bytes: Vec<u8>) -> Exporter {
        let socket = folder.path().join("socket");
        // One of an earlier life listens no more.
        let _ = std::fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket).unwrap();
        let state = Arc::new(Mutex::new(State { bytes, after: None, plain: false, reads: 0 }));
        let (env, of_all) = (life.env.clone(), state.clone());
        life.env.spawn("exporter", async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (state, of_client) = (of_all.clone(), env.clone());
                // A client that goes is no error.
                env.spawn("exporter's client", async move { drop(serve(stream, state, of_client).await) });
            }
        });
        Exporter { socket, _folder: None, state }
    }

    pub(crate) fn uri(&self) -> String {
        format!("nbd+unix:///x?socket={}", self.socket.display())
    }

    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        change(&mut self.state.lock().bytes)
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.state.lock().bytes.clone()
    }

    /// After so many reads from now on; well again with nothing.
    pub(crate) fn after(&self, then: Option<(usize, Then)>) {
        let mut state = self.state.lock();
        (state.after, state.reads) = (then, 0);
    }

    pub(crate) fn speaks_plainly(&self) {
        self.state.lock().plain = true;
    }

    /// Reads that were tried since it was told what to do after so many.
    pub(crate) fn reads(&self) -> usize {
        self.state.lock().reads
    }
}

async fn serve(mut stream: UnixStream, state: Arc<Mutex<State>>, env: Env) -> std::io::Result<()> {
    let plain = state.lock().plain;
    stream.write_all(b"NBDMAGICIHAVEOPT\0\x03").await?;
    stream.read_u32().await?;
    loop {
        stream.read_u64().await?;
        let (option, len) = (stream.read_u32().await?, stream.read_u32().await?);
        stream.read_exact(&mut vec![0; len as usize]).await?;
        let size = state.lock().bytes.len() as u64;
        let info = [&[0, 0][..], &size.to_be_bytes(), &[0, 1]].concat();
        let context = [&7u32.to_be_bytes()[..], b"base:allocation"].concat();
        let replies: Vec<(u32, Vec<u8>)> = match option {
            7 => vec![(3, info), (1, Vec::new())],
            8 if !plain => vec![(1, Vec::new())],
            10 if !plain => vec![(4, context), (1, Vec::new())],
            _ => vec![((1 << 31) | 1, Vec::new())],
        };
        for (kind, data) in replies {
            stream.write_u64(0x0003_e889_0455_65a9).await?;
            stream.write_u32(option).await?;
            stream.write_u32(kind).await?;
            stream.write_u32(data.len() as u32).await?;
            stream.write_all(&data).await?;
        }
        if option == 7 {
            break;
        }
    }
    requests(stream, state, plain, env).await
}

async fn requests(
    mut stream: UnixStream,
    state: Arc<Mutex<State>>,
    plain: bool,
    env: Env,
) -> std::io::Result<()> {
    loop {
        stream.read_u32().await?;
        let kind = stream.read_u32().await?;
        let cookie = stream.read_u64().await?;
        let (offset, len) = (stream.read_u64().await? as usize, stream.read_u32().await? as usize);
        let (kind, data) = match kind {
            0 => loop {
                match read(&state, offset, len) {
                    Ok(bytes) => break (1, [&(offset as u64).to_be_bytes()[..], &bytes].concat()),
                    Err(Then::Vanish) => return Ok(()),
                    Err(Then::Hang) => env.sleep(Duration::from_millis(2)).await,
                    Err(Then::Fail) => break ((1 << 15) | 1, b"\0\0\0\x05\0\x04worn".to_vec()),
                }
            },
            7 => (5, runs(&state.lock().bytes[offset..offset + len])),
            _ => return Ok(()),
        };
        let is_error = kind >> 15 != 0;
        if plain {
            stream.write_u32(0x6744_6698).await?;
            stream.write_u32(if is_error { 5 } else { 0 }).await?;
            stream.write_u64(cookie).await?;
            stream.write_all(if is_error { &[] } else { &data[8..] }).await?;
            continue;
        }
        stream.write_u32(0x668e_33ef).await?;
        stream.write_u32((1 << 16) | kind).await?;
        stream.write_u64(cookie).await?;
        stream.write_u32(data.len() as u32).await?;
        stream.write_all(&data).await?;
    }
}

fn read(state: &Mutex<State>, offset: usize, len: usize) -> Result<Vec<u8>, Then> {
    let mut state = state.lock();
    state.reads += 1;
    match &mut state.after {
        Some((0, then)) => return Err(*then),
        Some((left, _)) => *left -= 1,
        None => {}
    }
    Ok(state.bytes[offset..offset + len].to_vec())
}

/// Block by block what is a hole, all zeros, and what is not.
fn runs(bytes: &[u8]) -> Vec<u8> {
    let mut runs = 7u32.to_be_bytes().to_vec();
    for block in bytes.chunks(BLOCK) {
        let is_zero = block.iter().all(|byte| *byte == 0);
        runs.extend_from_slice(&(block.len() as u32).to_be_bytes());
        runs.extend_from_slice(&(if is_zero { 3u32 } else { 0 }).to_be_bytes());
    }
    runs
}
