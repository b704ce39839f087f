//! The target that answers at once: what the load engine itself can do.

use super::{Backend, Completion, Request};
use std::io;
use std::time::Duration;

/// Completes every request at the next reaping, in order. What is read is whatever the buffer held.
#[derive(Default)]
pub(crate) struct Null {
    done: Vec<Completion>,
}

impl Backend for Null {
    fn submit(&mut self, request: Request) {
        self.done.push(Completion { slot: request.slot, error: 0 });
    }

    fn push(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn reap(&mut self, done: &mut Vec<Completion>) -> io::Result<()> {
        done.append(&mut self.done);
        Ok(())
    }

    fn wait(&mut self, at_most: Duration) -> io::Result<()> {
        if self.done.is_empty() {
            std::thread::sleep(at_most);
        }
        Ok(())
    }
}
