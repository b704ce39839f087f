//! What an engine does wrong, and when: by the kind of operation and the beginning of the object's key, so that a test meets
//! the moment it means, every time.

use crate::pool::env;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use stonefold_engine::wrap::{Ask, Decision, FaultEngine, Operation, Subject};
use stonefold_engine::{Engine, MemoryEngine};
use stonefold_env::Env;

/// Longer than anything that a test does beside.
const SLOW: Duration = Duration::from_millis(1500);

/// Done at once, and told when a [`MOMENT`] has long gone by.
pub(crate) const TOLD_LATE: Decision =
    Decision { delay_after: Duration::from_millis(80), ..Decision::PROCEED };
pub(crate) const MOMENT: Duration = Duration::from_millis(20);

/// What shall happen to operations of a kind on objects whose keys begin so; those on a journal have an empty key.
struct Rule {
    ask: Ask,
    prefix: &'static str,
    /// So many pass first.
    skip: usize,
    lasting: bool,
    decision: Decision,
}

/// The rules that still hold; of several for one operation the oldest.
#[derive(Clone)]
pub(crate) struct Script {
    rules: Arc<Mutex<Vec<Rule>>>,
    env: Env,
}

/// An engine that does as the script says; at first as `memory` does.
pub(crate) fn scripted(memory: &Arc<MemoryEngine>) -> (Arc<dyn Engine>, Script) {
    let script = Script { rules: Arc::default(), env: env() };
    let by = script.clone();
    (Arc::new(FaultEngine::new(memory.clone(), env(), move |operation| by.decide(operation))), script)
}

impl Script {
    /// The next operation of that kind.
    pub(crate) fn on(&self, ask: Ask, prefix: &'static str, decision: Decision) {
        self.after(0, ask, prefix, decision);
    }

    /// The next one after so many.
    pub(crate) fn after(&self, skip: usize, ask: Ask, prefix: &'static str, decision: Decision) {
        self.rules.lock().push(Rule { ask, prefix, skip, lasting: false, decision });
    }

    /// Every one from now on, until the script is cleared.
    pub(crate) fn always(&self, ask: Ask, prefix: &'static str, decision: Decision) {
        self.rules.lock().push(Rule { ask, prefix, skip: 0, lasting: true, decision });
    }

    /// The next one begins so late that all else is done before.
    pub(crate) fn slow(&self, ask: Ask, prefix: &'static str) {
        self.on(ask, prefix, Decision { delay_before: SLOW, ..Decision::PROCEED });
    }

    /// From now on nothing goes wrong.
    pub(crate) fn clear(&self) {
        self.rules.lock().clear();
    }

    /// Waits until everything that happens once has begun to.
    pub(crate) async fn played(&self) {
        while !self.is_over() {
            self.env.sleep(Duration::from_millis(1)).await;
        }
    }

    /// Whether everything that happens once has begun to.
    pub(crate) fn is_over(&self) -> bool {
        self.rules.lock().iter().all(|rule| rule.lasting)
    }

    fn decide(&self, operation: &Operation<'_>) -> Decision {
        let key = match operation.subject {
            Subject::Object(key) => key.as_str(),
            _ => "",
        };
        let mut rules = self.rules.lock();
        let fits = |rule: &Rule| rule.ask == operation.ask && key.starts_with(rule.prefix);
        let Some(at) = rules.iter().position(fits) else { return Decision::PROCEED };
        if rules[at].skip > 0 {
            rules[at].skip -= 1;
            return Decision::PROCEED;
        }
        match rules[at].lasting {
            true => rules[at].decision,
            false => rules.remove(at).decision,
        }
    }
}
