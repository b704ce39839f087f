//! Replies on their way to the socket: small ones gathered in one buffer, large payloads between them by reference.

use bytes::Bytes;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::AsyncWrite;

/// Slices handed to the kernel at once: heads and payloads of a few megabytes.
const SLICES_MAX: usize = 32;
/// The small buffer's first size, in bytes.
const SMALL_BYTES_INITIAL: usize = 16 << 10;

/// Bytes in the order in which they will be sent.
#[derive(Default)]
pub(crate) struct Output {
    /// Initialised to its length and never cleared, so that a payload can be read into it without zeroing first.
    small: Vec<u8>,
    /// How much of `small` is filled.
    end: usize,
    /// How much of `small` is sent.
    sent: usize,
    large: VecDeque<Large>,
    large_bytes: usize,
    /// The stream has taken bytes that it may not have passed on: under TLS it keeps some.
    unflushed: bool,
}

/// A payload that follows the first `at` bytes of the small buffer.
struct Large {
    at: usize,
    data: Bytes,
}

impl Output {
    pub(crate) fn is_empty(&self) -> bool {
        self.sent == self.end && self.large.is_empty()
    }

    /// Whether nothing of it is left, here or in the stream.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_empty() && !self.unflushed
    }

    /// Bytes not yet taken by the socket.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.end - self.sent + self.large_bytes
    }

    /// Appends a copy.
    #[inline]
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.room(bytes.len()).copy_from_slice(bytes);
        self.commit(bytes.len());
    }

    /// `len` bytes of anything, to be filled and then [committed](Self::commit).
    #[inline]
    pub(crate) fn room(&mut self, len: usize) -> &mut [u8] {
        if self.small.len() - self.end < len {
            self.grow(len);
        }
        &mut self.small[self.end..self.end + len]
    }

    #[cold]
    fn grow(&mut self, len: usize) {
        let need = (self.end + len).next_power_of_two().max(SMALL_BYTES_INITIAL);
        self.small.resize(need, 0);
    }

    /// Makes the first `len` bytes of the [room](Self::room) part of the output.
    #[inline]
    pub(crate) fn commit(&mut self, len: usize) {
        self.end += len;
    }

    /// Appends a payload without copying it.
    pub(crate) fn put_large(&mut self, data: Bytes) {
        self.large_bytes += data.len();
        self.large.push_back(Large { at: self.end, data });
    }

    /// Writes until everything is gone, out of the stream too, or the socket is full.
    pub(crate) fn poll_write<S: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut S,
    ) -> Poll<io::Result<()>> {
        while !self.is_empty() {
            let stream = Pin::new(&mut *stream);
            let written = if self.large.is_empty() {
                ready!(stream.poll_write(cx, &self.small[self.sent..self.end]))?
            } else {
                let mut slices = [IoSlice::new(&[]); SLICES_MAX];
                let count = self.slices(&mut slices);
                ready!(stream.poll_write_vectored(cx, &slices[..count]))?
            };
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.unflushed = true;
            self.advance(written);
        }
        if self.unflushed {
            ready!(Pin::new(stream).poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>; SLICES_MAX]) -> usize {
        let mut count = 0;
        let mut push = |bytes: &'a [u8]| {
            if !bytes.is_empty() && count < SLICES_MAX {
                slices[count] = IoSlice::new(bytes);
                count += 1;
            }
        };
        let mut from = self.sent;
        for large in self.large.iter().take(SLICES_MAX) {
            push(&self.small[from..large.at]);
            push(&large.data);
            from = large.at;
        }
        if self.large.len() <= SLICES_MAX {
            push(&self.small[from..self.end]);
        }
        count
    }

    fn advance(&mut self, mut written: usize) {
        while let Some(large) = self.large.front_mut() {
            let before = (large.at - self.sent).min(written);
            self.sent += before;
            written -= before;
            let of_it = large.data.len().min(written);
            if self.sent < large.at {
                return;
            }
            bytes::Buf::advance(&mut large.data, of_it);
            self.large_bytes -= of_it;
            written -= of_it;
            if !large.data.is_empty() {
                return;
            }
            self.large.pop_front();
        }
        self.sent += written;
        if self.sent == self.end {
            (self.sent, self.end) = (0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Takes a limited number of bytes each time.
    struct Narrow(Vec<u8>, usize);

    impl AsyncWrite for Narrow {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
            let len = buf.len().min(self.1);
            self.0.extend_from_slice(&buf[..len]);
            Poll::Ready(Ok(len))
        }
        fn poll_write_vectored(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bufs: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            let mut left = self.1;
            for buf in bufs {
                let len = buf.len().min(left);
                self.0.extend_from_slice(&buf[..len]);
                left -= len;
            }
            Poll::Ready(Ok(self.1 - left))
        }
        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    proptest! {
        /// Whatever is put in comes out in order, whatever the socket takes at once.
        #[test]
        fn order_is_kept(pieces in prop::collection::vec((any::<bool>(), 1usize..300), 0..80), width in 1usize..700) {
            let mut output = Output::default();
            let mut expected = Vec::new();
            for (index, (large, len)) in pieces.iter().enumerate() {
                let bytes = vec![index as u8; *len];
                expected.extend_from_slice(&bytes);
                if *large { output.put_large(bytes.into()) } else { output.put(&bytes) }
            }
            prop_assert_eq!(output.len(), expected.len());
            let mut narrow = Narrow(Vec::new(), width);
            let mut cx = Context::from_waker(std::task::Waker::noop());
            prop_assert!(output.poll_write(&mut cx, &mut narrow).is_ready());
            prop_assert_eq!(narrow.0, expected);
            prop_assert!(output.is_empty());
            prop_assert_eq!(output.end, 0);
        }
    }
}
