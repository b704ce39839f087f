//! Ctrl-C during long work: the work stops, and what was half made is taken away.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::SeqCst};
use stonefold_types::{Error, Kind, Result};
use tokio::signal::unix::{SignalKind, signal};

/// Does something at each SIGINT, SIGTERM and SIGHUP from now on, instead of ending the process.
pub(crate) fn on_stop(mut act: impl FnMut() + Send + 'static) -> Result<()> {
    let failed = |e| Error::io("listening for signals", e);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let listen = || {
        Ok((
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
            signal(SignalKind::hangup())?,
        ))
    };
    let (mut int, mut term, mut hangup) = runtime.block_on(async { listen() }).map_err(failed)?;
    let wait = move || loop {
        runtime.block_on(async {
            tokio::select! { _ = int.recv() => {} _ = term.recv() => {} _ = hangup.recv() => {} }
        });
        act();
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(wait).map(drop).map_err(failed)
}

/// Catches SIGINT, SIGTERM and SIGHUP from now to the end of the process; a program started meanwhile is told, too.
#[derive(Clone)]
pub(crate) struct Interrupt {
    happened: Arc<AtomicBool>,
    /// The program to tell; 0 when there is none.
    child: Arc<AtomicI32>,
}

impl Interrupt {
    pub(crate) fn catch() -> Result<Self> {
        let this = Interrupt { happened: Arc::default(), child: Arc::default() };
        let of_thread = this.clone();
        on_stop(move || {
            of_thread.happened.store(true, SeqCst);
            of_thread.stop_child();
        })?;
        Ok(this)
    }

    /// An error when it happened.
    pub(crate) fn check(&self) -> Result<()> {
        if self.happened.load(SeqCst) { Err(Error::new(Kind::Closed, "interrupted")) } else { Ok(()) }
    }

    /// Names the program to tell, until the answer is dropped.
    pub(crate) fn watch(&self, child: u32) -> Watched<'_> {
        let child = i32::try_from(child).unwrap_or(0);
        self.child.store(child, SeqCst);
        if self.happened.load(SeqCst) {
            self.stop_child();
        }
        Watched { interrupt: self, child }
    }

    fn stop_child(&self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.child.load(SeqCst)) {
            // It may have ended meanwhile, and then needs no telling.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
    }
}

/// While it lives, the program is told.
pub(crate) struct Watched<'a> {
    interrupt: &'a Interrupt,
    child: i32,
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        // Another may have been named since, which is not this one's to forget.
        let _ = self.interrupt.child.compare_exchange(self.child, 0, SeqCst, SeqCst);
    }
}
