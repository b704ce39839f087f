//! Recoveries that something is done to between which nothing else may come: their machine is started; it begins to be moved; it is
//! kept.
//!
//! *Never*: a recovery goes while its machine is being started, which nobody would know of then. It is refused, not waited for: what is under way may take
//! a minute, and change what was asked for.

use crate::Protection;
use parking_lot::Mutex as Memory;
use std::collections::HashSet;
use stonefold_types::{Error, Kind, Name, Result};

/// For as long as this is kept nothing else is done to that recovery.
pub(crate) struct Held<'a> {
    all: &'a Memory<HashSet<Name>>,
    name: Name,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.all.lock().remove(&self.name);
    }
}

impl Protection {
    /// Fails with [`Kind::Busy`] while somebody else has it.
    pub(crate) fn hold_recovery(&self, recovery: &Name) -> Result<Held<'_>> {
        if self.held.lock().insert(recovery.clone()) {
            return Ok(Held { all: &self.held, name: recovery.clone() });
        }
        let what = format!("the machine of recovery '{recovery}' is just being started, moved or kept");
        Err(Error::new(Kind::Busy, what).remedy("try again in a moment"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StopRequest;
    use std::sync::Arc;
    use stonefold_engine::MemoryEngine;
    use stonefold_env::{Env, SystemWorld};
    use stonefold_store::{Options, Store};

    /// Goal: whoever comes in between is refused, and changes nothing; afterwards he is not, and others never.
    #[tokio::test]
    async fn nothing_comes_in_between() {
        let env = Env::new(SystemWorld::new(tokio::runtime::Handle::current(), 1).unwrap());
        let store =
            Store::open(env.clone(), Arc::new(MemoryEngine::default()), Options::default()).await.unwrap();
        let protection = Protection::new(env, store);
        let (web, other) = (Name::new("web").unwrap(), Name::new("other").unwrap());
        let held = protection.hold_recovery(&web).unwrap();
        for refused in [
            protection.stop_recovery(&web, StopRequest::default()).await.map(drop),
            protection.keep_recovery(&web).await.map(drop),
        ] {
            assert_eq!(refused.unwrap_err().kind(), Kind::Busy);
        }
        drop(protection.hold_recovery(&other).unwrap());
        drop(held);
        let gone = protection.stop_recovery(&web, StopRequest::default()).await.unwrap_err();
        assert_eq!(gone.kind(), Kind::NotFound);
    }
}
