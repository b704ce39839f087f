//! QEMU's test protocol: a line, and a line in answer (QEMU, system/qtest.c).

use anyhow::{Context, Result, bail};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// A connection to a QEMU.
pub(crate) struct Wire {
    stream: UnixStream,
}

impl Wire {
    /// # Errors
    ///
    /// When nobody listens there.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let stream =
            UnixStream::connect(path).with_context(|| format!("{}: no QEMU listens", path.display()))?;
        Ok(Self { stream })
    }

    /// A command; what follows the `OK` of its answer.
    ///
    /// # Errors
    ///
    /// When QEMU has gone, or refuses.
    pub(crate) fn say(&mut self, line: &str) -> Result<String> {
        self.stream.write_all(format!("{line}\n").as_bytes())?;
        let mut answer = Vec::new();
        let mut byte = [0];
        while answer.last() != Some(&b'\n') {
            self.stream.read_exact(&mut byte).context("the QEMU has gone")?;
            answer.push(byte[0]);
        }
        let answer = String::from_utf8_lossy(&answer);
        let Some(rest) = answer.strip_prefix("OK") else { bail!("{line}: {}", answer.trim()) };
        Ok(rest.trim().to_owned())
    }

    /// The value that a command answers with.
    ///
    /// # Errors
    ///
    /// As of [`Wire::say`].
    pub(crate) fn read(&mut self, line: &str) -> Result<u32> {
        let answer = self.say(line)?;
        let value = u64::from_str_radix(answer.trim_start_matches("0x"), 16)
            .with_context(|| format!("{line}: {answer}"))?;
        u32::try_from(value).with_context(|| format!("{line}: {answer}"))
    }

    /// A command of whose answer nothing is wanted.
    ///
    /// # Errors
    ///
    /// When QEMU has gone.
    pub(crate) fn ring(&mut self, line: &[u8]) -> Result<()> {
        self.stream.write_all(line).context("the QEMU has gone")
    }

    /// Takes the answers to what was rung: unread, some hundreds of them stop QEMU.
    ///
    /// # Errors
    ///
    /// When QEMU has gone.
    pub(crate) fn hear(&mut self) -> Result<()> {
        let mut answers = [0; 4096];
        match recv(&self.stream, &mut answers, RecvFlags::DONTWAIT) {
            Ok((0, _)) => bail!("the QEMU has gone"),
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            Err(error) => Err(error).context("the QEMU has gone"),
        }
    }
}
