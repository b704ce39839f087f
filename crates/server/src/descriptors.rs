//! How many files and sockets the process may have open, and who gets how many of them.
//!
//! Half of them are for the pool's objects (the engine keeps them open for reading, 4096 at most), a quarter for NBD clients, the
//! rest for everything else: journals, puts, calls of the API. So however many clients come, what is written finds a descriptor.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Enough for as many clients and open objects as there may be, and as much again.
const WANTED: u64 = 16 << 10;

/// Raises the process's own limit as far as it is wanted and allowed; returns how many it is then. Shells begin with 1024.
pub(crate) fn raise() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let (has, may) = (current.unwrap_or(u64::MAX), maximum.unwrap_or(u64::MAX));
    let wanted = WANTED.min(may);
    if has >= wanted {
        return has;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum }) {
        Ok(()) => wanted,
        Err(error) => {
            tracing::warn!("no more than {has} files and connections can be open: {error}");
            has
        }
    }
}

/// NBD clients that may be connected at one time.
pub(crate) fn for_clients(limit: u64) -> usize {
    usize::try_from(limit / 4).unwrap_or(usize::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: with the limits of a shell and of the systemd unit, clients leave room for what is written.
    #[test]
    fn clients_get_a_quarter() {
        assert_eq!(for_clients(1024), 256);
        assert_eq!(for_clients(WANTED), 4096);
        let raised = raise();
        assert_eq!(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX), raised);
        assert_eq!(raise(), raised, "a second time changes nothing");
    }
}
