//! What `virsh` does with the disks of a domain that runs: copies of them (block jobs), standing still, and what its devices have counted.

use super::Virsh;
use stonefold_types::{Kind, Result};

impl Virsh<'_> {
    /// Begins to copy a disk to a place that is there, in libvirt's words (`<disk>`); the guest's writes go to both from then on.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] where libvirt is too old for the latter.
    pub(crate) async fn begin_block_copy(
        &self,
        (domain, target): (&str, &str),
        to: &str,
        speed_bytes: u64,
    ) -> Result<()> {
        let speed = speed_bytes.to_string();
        let words =
            ["blockcopy", domain, target, "--xml", "/dev/stdin", "--reuse-external", "--transient-job"];
        let how = ["--synchronous-writes", "--bandwidth", &speed, "--bytes"];
        let begun = self.run(&[&words[..], &how].concat(), to).await;
        begun.map(drop).map_err(|error| match is_too_old(&error.what()) {
            true => error
                .with_kind(Kind::Unsupported)
                .remedy("machines are moved by libvirt 8.0 or newer, and its virsh"),
            false => error,
        })
    }

    /// How far the job of a disk is: bytes done, and in all. Nothing where there is none.
    pub(crate) async fn block_job(&self, (domain, target): (&str, &str)) -> Result<Option<(u64, u64)>> {
        let told = self.run(&["blockjob", domain, target, "--raw", "--bytes"], "").await?;
        Ok(done_and_total(&told))
    }

    /// Lets the job of a disk do so much in a second.
    pub(crate) async fn set_block_speed(&self, (domain, target): (&str, &str), bytes: u64) -> Result<()> {
        let bytes = bytes.to_string();
        self.run(&["blockjob", domain, target, "--bandwidth", &bytes, "--bytes"], "").await.map(drop)
    }

    /// Ends the job of a disk: the domain goes on with the old one. On return it has ended.
    pub(crate) async fn abort_block_job(&self, (domain, target): (&str, &str)) -> Result<()> {
        self.run(&["blockjob", domain, target, "--abort"], "").await.map(drop)
    }

    /// Goes over to the copy of a disk. On return the domain has.
    pub(crate) async fn pivot_block_job(&self, (domain, target): (&str, &str)) -> Result<()> {
        self.run(&["blockjob", domain, target, "--pivot"], "").await.map(drop)
    }

    /// What the devices of a domain have counted since it was started: requests, and the nanoseconds that they took together.
    pub(crate) async fn block_counters(&self, domain: &str) -> Result<(u64, u64)> {
        Ok(counters(&self.run(&["domstats", domain, "--block"], "").await?))
    }

    /// Whether a domain stands still.
    pub(crate) async fn is_suspended(&self, domain: &str) -> Result<bool> {
        Ok(self.run(&["domstate", domain], "").await?.trim() == "paused")
    }

    /// Has a domain stand still: what it has written is written then.
    pub(crate) async fn suspend(&self, domain: &str) -> Result<()> {
        self.run(&["suspend", domain], "").await.map(drop)
    }

    /// Has it go on.
    pub(crate) async fn resume(&self, domain: &str) -> Result<()> {
        self.run(&["resume", domain], "").await.map(drop)
    }
}

/// Whether virsh, or the libvirt that it speaks to, does not know of synchronous writes (8.0).
fn is_too_old(complaint: &str) -> bool {
    complaint.contains("synchronous-writes") || complaint.contains("unsupported flags")
}

/// Of ` cur=N` and ` end=N`, a line each.
fn done_and_total(told: &str) -> Option<(u64, u64)> {
    let of = |name: &str| told.lines().find_map(|line| line.trim().strip_prefix(name)?.parse().ok());
    Some((of("cur=")?, of("end=")?))
}

/// Of `block.N.rd.reqs=N`, `block.N.wr.times=N` and the like, a line each.
fn counters(told: &str) -> (u64, u64) {
    let (mut requests, mut nanos) = (0, 0);
    for (name, number) in told.lines().filter_map(|line| line.trim().split_once('=')) {
        let sum = match name.rsplit_once('.') {
            Some((of, "reqs")) if of.starts_with("block.") => &mut requests,
            Some((of, "times")) if of.starts_with("block.") => &mut nanos,
            _ => continue,
        };
        *sum += number.parse().unwrap_or(0);
    }
    (requests, nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_virsh_tells_of_a_job_is_read() {
        let told = " type=Block Copy\n bandwidth=67108864\n cur=1048576\n end=67108864\n\n";
        assert_eq!(done_and_total(told), Some((1 << 20, 64 << 20)));
        for none in ["", "No current block job for vda\n", " cur=1\n", " cur=x\n end=2\n"] {
            assert_eq!(done_and_total(none), None, "{none}");
        }
    }

    #[test]
    fn what_devices_have_counted_is_added_up() {
        let told = "Domain: 'again'\n  block.count=2\n  block.0.name=vda\n  block.0.rd.reqs=10\n  block.0.rd.bytes=40960\n  \
            block.0.rd.times=1000\n  block.0.wr.reqs=5\n  block.0.wr.times=500\n  block.0.fl.reqs=1\n  block.0.fl.times=70\n  \
            block.0.capacity=67108864\n  block.1.name=vdb.reqs=9\n  block.1.rd.reqs=2\n  block.1.rd.times=x\n  vcpu.0.times=9\n\n";
        assert_eq!(counters(told), (18, 1570));
        assert_eq!(counters(""), (0, 0));
    }

    #[test]
    fn a_libvirt_that_is_too_old_is_known() {
        assert!(is_too_old("command 'blockcopy' doesn't support option --synchronous-writes"));
        assert!(is_too_old("unsupported flags (0x8) in function qemuDomainBlockCopy"));
        assert!(!is_too_old("block copy still active: disk 'vda' already in active block job"));
    }
}
