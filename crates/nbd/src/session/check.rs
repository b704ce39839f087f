//! Whether a request can be carried out at all.

use std::borrow::Cow;

use super::{Refusal, Session};
use crate::limits::{CONTEXTS_MAX, PART_BYTES, REQUEST_BYTES_MAX};
use crate::target::Target;
use crate::wire::request::{Command, Request, flag};
use crate::wire::{Errno, Style};

impl<T: Target> Session<T> {
    /// Whether the request can be carried out at all.
    pub(super) fn check(&self, request: &Request) -> Result<(), Refusal> {
        let invalid = |what: &'static str| Err((Errno::Inval, Cow::Borrowed(what)));
        let Request { command, length, .. } = *request;
        let mut flags_valid = command.flags_valid();
        if self.style == Style::Extended && matches!(command, Command::Write | Command::BlockStatus) {
            flags_valid |= flag::PAYLOAD_LEN;
        }
        if request.flags & !flags_valid != 0 {
            return invalid("the request carries flags that do not belong to it");
        }
        match command {
            Command::Unknown(_) => return invalid("unknown command"),
            Command::Disconnect | Command::Flush => return Ok(()),
            Command::BlockStatus => return self.check_status(request),
            Command::Write | Command::Trim | Command::WriteZeroes if self.read_only => {
                return Err((Errno::Perm, "the export is read-only".into()));
            }
            Command::Read | Command::Write if length > u64::from(REQUEST_BYTES_MAX) => {
                return invalid("the request is longer than 32 MiB");
            }
            Command::Read if request.has(flag::DF) && length > PART_BYTES as u64 => {
                return Err((Errno::Overflow, "too long for a reply in one piece".into()));
            }
            _ => {}
        }
        if self.contains(request.offset, length) {
            return Ok(());
        }
        // The protocol wants ENOSPC where writing is tried beyond the end, and EINVAL elsewhere.
        let grows = matches!(command, Command::Write | Command::WriteZeroes);
        let errno = if grows { Errno::NoSpc } else { Errno::Inval };
        Err((errno, format!("the export ends at {} bytes", self.size_bytes).into()))
    }

    #[inline]
    pub(super) fn contains(&self, offset: u64, length: u64) -> bool {
        offset.checked_add(length).is_some_and(|end| end <= self.size_bytes)
    }

    fn check_status(&self, request: &Request) -> Result<(), Refusal> {
        let invalid = |what: &'static str| Err((Errno::Inval, Cow::Borrowed(what)));
        if self.contexts.is_empty() {
            return invalid("no meta context was selected");
        }
        if request.payload_bytes(self.style) > 0 {
            if request.length < 8 || request.length > 8 + 4 * CONTEXTS_MAX as u64 {
                return invalid("malformed status request");
            }
            return Ok(());
        }
        if request.length == 0 || !self.contains(request.offset, request.length) {
            return invalid("the range is empty or not within the export");
        }
        Ok(())
    }

    /// Indices of the contexts with these ids, each once; `None` when one is unknown or named twice.
    pub(super) fn contexts_named(&self, ids: &[u32]) -> Option<Vec<usize>> {
        let mut indices: Vec<usize> = Vec::with_capacity(ids.len());
        for id in ids {
            let index = (0..self.contexts.len()).find(|i| crate::negotiation::context_id(*i) == *id)?;
            if indices.contains(&index) {
                return None;
            }
            indices.push(index);
        }
        (!indices.is_empty()).then_some(indices)
    }
}
