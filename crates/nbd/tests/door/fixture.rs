//! A server on a thread of its own, on a Unix socket in a folder of its own.

use std::path::PathBuf;
use std::thread::JoinHandle;
use stonefold_env::{Env, SystemWorld};
use stonefold_nbd::{Address, Counts, Listener, Server, Tls};
use tokio::sync::{mpsc, oneshot};

use crate::client::Client;
use crate::memory::MemoryExports;

pub(crate) struct Fixture {
    pub(crate) exports: MemoryExports,
    pub(crate) folder: tempfile::TempDir,
    stop: Option<oneshot::Sender<()>>,
    counts: mpsc::UnboundedSender<oneshot::Sender<Counts>>,
    thread: Option<JoinHandle<()>>,
    pub(crate) address: Address,
}

impl Fixture {
    /// Serves one disk, named "disk", of `size_bytes`.
    pub(crate) fn with_disk(size_bytes: usize) -> (Self, std::sync::Arc<crate::memory::MemoryDisk>) {
        let fixture = Self::start(None);
        let disk = fixture.exports.create("disk", size_bytes);
        (fixture, disk)
    }

    pub(crate) fn start(address: Option<Address>) -> Self {
        Self::start_with(address, |_env| None)
    }

    /// The same with TLS, which is made where the server runs.
    pub(crate) fn start_with(
        address: Option<Address>,
        tls: impl FnOnce(&Env) -> Option<Tls> + Send + 'static,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let address = address.unwrap_or_else(|| Address::Unix(folder.path().join("nbd.sock")));
        let exports = MemoryExports::default();
        let (stop, stopped) = oneshot::channel();
        let (counts, asked) = mpsc::unbounded_channel();
        let (ready, started) = std::sync::mpsc::channel();
        let served = exports.clone();
        let thread = std::thread::Builder::new()
            .name("door".into())
            .spawn(move || run(&address, tls, served, stopped, asked, &ready))
            .unwrap();
        let address = started.recv().expect("the server starts");
        Fixture { exports, folder, stop: Some(stop), counts, thread: Some(thread), address }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("nbd.sock")
    }

    pub(crate) fn uri(&self, export: &str) -> String {
        format!("nbd+unix:///{export}?socket={}", self.socket().display())
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(&self.socket())
    }

    pub(crate) fn counts(&self) -> Counts {
        let (tell, told) = oneshot::channel();
        self.counts.send(tell).unwrap();
        told.blocking_recv().unwrap()
    }

    /// Waits until as many clients are connected.
    pub(crate) fn wait_for_connections(&self, count: u64) {
        for _ in 0..500 {
            if self.counts().connections == count {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("there are {} connections, not {count}", self.counts().connections);
    }

    /// Tells the server to stop, without waiting.
    pub(crate) fn tell_to_stop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
    }

    /// Stops the server and waits for its end.
    pub(crate) fn stop(&mut self) {
        self.tell_to_stop();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the server ends in peace");
        }
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.tell_to_stop();
        if !std::thread::panicking() {
            self.stop();
        }
    }
}

fn run(
    address: &Address,
    tls: impl FnOnce(&Env) -> Option<Tls>,
    exports: MemoryExports,
    stopped: oneshot::Receiver<()>,
    mut asked: mpsc::UnboundedReceiver<oneshot::Sender<Counts>>,
    ready: &std::sync::mpsc::Sender<Address>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let env = Env::new(SystemWorld::new(tokio::runtime::Handle::current(), 1).unwrap());
        let mut listener = Listener::bind(address).await.unwrap();
        if let Some(tls) = tls(&env) {
            listener = listener.with_tls(tls);
        }
        let server = Server::new(env.clone(), exports);
        ready.send(listener.address().clone()).unwrap();
        let metrics = server.metrics().clone();
        env.spawn("counts", async move {
            while let Some(tell) = asked.recv().await {
                let _ = tell.send(metrics.read());
            }
        });
        server
            .serve(listener, async {
                let _ = stopped.await;
            })
            .await;
    });
}
