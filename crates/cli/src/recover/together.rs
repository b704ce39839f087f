//! A plan's machines, begun: those of one priority together, and those of the next when these are all there.
//!
//! *Promises*: what became of them is told in the plan's order, whichever was first; where one fails, or gives no sign of life, the next do not
//! begin. *Never*: more than [`AT_ONCE_MAX`] are under way.

use super::Asked;
use crate::failure::Beside;
use crate::waiting::wait_for;
use serde::Serialize;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use stonefold_api::{Client, Recovered};
use stonefold_types::{Error, Name, PointName};

/// Each has a thread here and a request at the server while it boots. Machines that read from one pool at the same time slow each other's
/// boots down long before there are so many.
const AT_ONCE_MAX: usize = 16;

/// What became of a machine that was begun.
pub(super) struct Outcome {
    asked: Asked,
    /// Nothing where it is not there.
    pub(super) made: Option<Recovered>,
    /// Why it is not, or gave no sign of life.
    pub(super) error: Option<Error>,
}

/// The same for who reads JSON.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Told<'a> {
    Made(&'a Recovered),
    Lacking { name: &'a Name, point: &'a PointName },
}

impl Outcome {
    fn of(asked: Asked, came: Result<Recovered, Error>) -> Outcome {
        match came {
            Ok(made) if asked.is_alive(&made) => Outcome { asked, made: Some(made), error: None },
            Ok(made) => {
                let remedy =
                    "look at its console; nothing of a later priority was begun, for it may need this one";
                let error = Some(asked.silent().remedy(remedy));
                Outcome { asked, made: Some(made), error }
            }
            Err(error) => {
                let error = Some(error.context(format!("recovering '{}'", asked.name)));
                Outcome { asked, made: None, error }
            }
        }
    }

    pub(super) fn told(&self) -> Beside<Told<'_>> {
        let Asked { name, point, .. } = &self.asked;
        let told = self.made.as_ref().map_or(Told::Lacking { name, point }, Told::Made);
        Beside::new(told, self.error.as_ref())
    }
}

/// Brings back machines that are sorted by their priorities.
pub(super) fn carry_out(client: &Client, wanted: &[(u32, Asked)]) -> Vec<Outcome> {
    let mut outcomes: Vec<Outcome> = Vec::new();
    for of_one_priority in wanted.chunk_by(|(one, _), (other, _)| one == other) {
        let all: Vec<Asked> = of_one_priority.iter().map(|(_, asked)| asked.clone()).collect();
        let of_thread = all.clone();
        let came = wait_for(client, "recover", move |client| {
            Ok(at_once(&of_thread, |asked| asked.carry_out(client)))
        });
        let came = came.unwrap_or_else(|error| vec![Err(error); all.len()]);
        outcomes.extend(all.into_iter().zip(came).map(|(asked, came)| Outcome::of(asked, came)));
        if outcomes.iter().any(|outcome| outcome.error.is_some()) {
            break;
        }
    }
    outcomes
}

/// What `act` makes of each, in their order; of so many at once.
fn at_once<T: Sync, R: Send + Sync>(all: &[T], act: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let done: Vec<OnceLock<R>> = all.iter().map(|_| OnceLock::new()).collect();
    let work = || loop {
        let at = next.fetch_add(1, Ordering::Relaxed);
        let Some((one, done)) = all.get(at).zip(done.get(at)) else { return };
        // Nobody else has this number.
        let _ = done.set(act(one));
    };
    thread::scope(|scope| {
        for _ in 1..all.len().min(AT_ONCE_MAX) {
            // Where no more threads are to be had, fewer are under way.
            let _ = thread::Builder::new().name("recover".to_owned()).spawn_scoped(scope, work);
        }
        work();
    });
    done.into_iter().map(|one| one.into_inner().expect("each was somebody's")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recover::How;
    use std::sync::Barrier;
    use stonefold_types::Kind;

    /// Goal: they are under way together, no more than are allowed, and what comes of them is in their order. The barrier lets nobody go on
    /// before all that can be under way are.
    #[test]
    fn so_many_are_under_way_and_their_order_is_kept() {
        let all: Vec<usize> = (0..2 * AT_ONCE_MAX).collect();
        let (under_way, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let together = Barrier::new(AT_ONCE_MAX);
        let came = at_once(&all, |number| {
            most.fetch_max(1 + under_way.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
            together.wait();
            under_way.fetch_sub(1, Ordering::SeqCst);
            *number
        });
        assert_eq!((came, most.into_inner()), (all, AT_ONCE_MAX));
        assert_eq!(at_once(&[7], |number| number + 1), [8]);
        assert!(at_once(&[0; 0], |number| *number).is_empty());
    }

    #[test]
    fn one_that_is_not_there_is_told_by_name_and_with_why() {
        let asked =
            Asked::new("web@20261123T184005Z".parse().unwrap(), "again".parse().unwrap(), How::default());
        let outcome = Outcome::of(asked, Err(Error::new(Kind::Io, "it is full").remedy("wait")));
        let told = serde_json::to_value(outcome.told()).unwrap();
        let why = serde_json::json!({ "what": "recovering 'again': it is full", "remedy": "wait" });
        assert_eq!(
            told,
            serde_json::json!({ "name": "again", "point": "web@20261123T184005Z", "error": why })
        );
    }
}
