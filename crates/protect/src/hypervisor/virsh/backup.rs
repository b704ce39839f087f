//! Backups of libvirt's domains, as `virsh` has them: pull mode, and checkpoints.

use super::Virsh;
use std::path::Path;
use stonefold_types::{Error, Kind, Result};

impl Virsh<'_> {
    /// A domain's UUID, by its name or by itself; never by the number that it has while it runs.
    ///
    /// # Errors
    /// [`Kind::NotFound`] where there is none.
    pub(crate) async fn uuid_of(&self, domain: &str) -> Result<String> {
        let listed = self.run(&["list", "--all", "--uuid", "--name"], "").await?;
        let found = listed.lines().filter_map(|line| line.trim().split_once(char::is_whitespace));
        let mut found = found.filter(|(uuid, name)| name.trim() == domain || *uuid == domain);
        found.next().map(|(uuid, _)| uuid.to_owned()).ok_or_else(|| {
            let what = format!("libvirt at '{}' has no domain '{domain}'", self.uri);
            Error::new(Kind::NotFound, what)
                .remedy(format!("'virsh --connect {} list --all' lists them", self.uri))
        })
    }

    /// A domain's description: as it is now, or as it is when it starts the next time.
    pub(crate) async fn describe(&self, domain: &str, now: bool) -> Result<String> {
        let words = ["dumpxml", domain, "--inactive"];
        self.run(if now { &words[..2] } else { &words }, "").await
    }

    /// Begins a backup, and a checkpoint with it where one is described. Both are files.
    pub(crate) async fn begin_backup(
        &self,
        domain: &str,
        backup: &Path,
        checkpoint: Option<&Path>,
    ) -> Result<()> {
        let backup = backup.to_string_lossy();
        let checkpoint = checkpoint.map(Path::to_string_lossy);
        let mut words = vec!["backup-begin", domain, "--backupxml", &backup];
        words.extend(checkpoint.iter().flat_map(|checkpoint| ["--checkpointxml", checkpoint]));
        self.run(&words, "").await.map(drop)
    }

    /// The description of the backup that a domain is in; nothing where it is in none, does not run, or is not there.
    pub(crate) async fn backup_of(&self, domain: &str) -> Result<Option<String>> {
        if self.state(domain).await? != Some(true) {
            return Ok(None);
        }
        match self.run(&["backup-dumpxml", domain], "").await {
            Ok(description) => Ok(Some(description)),
            Err(error) if error.what().contains("no domain backup job present") => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Ends the job that a domain is in.
    pub(crate) async fn abort_job(&self, domain: &str) -> Result<()> {
        self.run(&["domjobabort", domain], "").await.map(drop)
    }

    /// The names of a domain's checkpoints.
    pub(crate) async fn checkpoints(&self, domain: &str) -> Result<Vec<String>> {
        let listed = self.run(&["checkpoint-list", domain, "--name"], "").await?;
        Ok(listed.split_whitespace().map(str::to_owned).collect())
    }

    /// The description of one.
    pub(crate) async fn checkpoint(&self, domain: &str, name: &str) -> Result<String> {
        self.run(&["checkpoint-dumpxml", domain, name, "--no-domain"], "").await
    }

    /// Removes one, with its bitmaps as far as they are there.
    pub(crate) async fn remove_checkpoint(&self, domain: &str, name: &str) -> Result<()> {
        match self.run(&["checkpoint-delete", domain, name], "").await {
            // A bitmap that is lost cannot be removed, and would keep the checkpoint for ever.
            Err(error) if error.what().contains("not found in backing chain") => {
                self.run(&["checkpoint-delete", domain, name, "--metadata"], "").await.map(drop)
            }
            removed => removed.map(drop),
        }
    }
}
