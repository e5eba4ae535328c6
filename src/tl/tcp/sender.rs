//! The sending half of a connection: a buffer in front of a socket that never blocks.
//!
//! Messages are copied into the buffer and written at once while the socket takes them. When it does not, they collect
//! there and are written together as soon as there is room. Long payloads are written from the user's memory; the
//! sender keeps a reference to the rest until the socket has taken it.

use super::{SharedSocket, socket, stream};
use crate::wire::frame::{self, HEADER, MAX_RECORD};
use rustix::io::Errno;
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Minimum bytes that are buffered for a full socket before senders have to queue: writing them takes much longer than
/// the system call.
const LEAST: usize = 64 << 10;

/// The sending half of a connection. The thread that holds the peer's lock uses it.
pub struct TcpSender {
    link: Arc<SharedSocket>,
    /// Maximum bytes that are buffered for a full socket; any record fits.
    limit: usize,
    /// The bytes to write, from `start` on.
    out: Vec<u8>,
    start: usize,
    /// The rest of the frame whose beginning is at the end of `out`: memory of the request that is first in the peer's
    /// pending queue.
    rest: &'static [u8],
    /// The socket was full at the last write; the epoll set watches it for writability.
    blocked: bool,
    /// Nothing is written until `uncork`.
    corked: bool,
    /// A write has failed. The receiver reads what still arrives before the connection is treated as closed.
    broken: bool,
    /// It is broken because memory of a message cannot be read.
    unreadable: bool,
    /// The sending direction was shut down.
    finished: bool,
    /// Value of the worker's `turn` at the last write.
    written: u32,
}

impl TcpSender {
    /// `longest`: bytes of the longest record that will be sent.
    pub fn new(link: Arc<SharedSocket>, longest: usize) -> Self {
        debug_assert!(longest <= MAX_RECORD);
        Self {
            limit: LEAST.max(HEADER + longest),
            out: Vec::new(),
            start: 0,
            rest: &[],
            blocked: false,
            corked: false,
            broken: false,
            unreadable: false,
            finished: false,
            written: link.epoll.turn.load(Ordering::Relaxed).wrapping_sub(1),
            link,
        }
    }

    /// Whether everything that was accepted was given to the kernel.
    pub fn is_drained(&self) -> bool {
        self.start == self.out.len() && self.rest.is_empty()
    }

    /// Whether a frame is partly written whose payload is in the user's memory.
    pub fn is_midway(&self) -> bool {
        !self.rest.is_empty()
    }

    /// Whether the epoll set reports when there is something to do: room, or the end of the connection.
    pub fn is_watched(&self) -> bool {
        self.blocked || self.broken
    }

    /// Whether this worker has written to the socket since its last progress call: more may be sent before the next
    /// one.
    pub fn has_written(&self) -> bool {
        self.written == self.link.epoll.turn.load(Ordering::Relaxed)
    }

    /// Makes room for a frame of `len` bytes; false if there is none now.
    fn reserve(&mut self, len: usize) -> bool {
        if self.broken || self.is_midway() {
            return false;
        }
        if self.out.len() - self.start + len > self.limit {
            self.flush();
            if self.broken || self.out.len() - self.start + len > self.limit {
                return false;
            }
        }
        if self.out.len() + len > self.limit {
            self.out.drain(..self.start);
            self.start = 0;
        }
        self.out.reserve(len);
        true
    }

    /// Whether a record of `len` bytes, or any shorter one, can be sent now.
    pub fn has_room(&mut self, len: usize) -> bool {
        self.reserve(HEADER + len)
    }

    /// Sends a record of `len` bytes (up to [`MAX_RECORD`]), which `fill` writes. False: there is no room now, and
    /// `fill` was not called.
    pub fn send(
        &mut self,
        kind: u8,
        aux: u8,
        imm: u64,
        len: usize,
        fill: impl FnOnce(*mut u8),
    ) -> bool {
        debug_assert!(len <= MAX_RECORD);
        if !self.reserve(HEADER + len) {
            return false;
        }
        self.out.extend(frame::encode(kind, aux, imm, len));
        let end = self.out.len();
        fill(self.out.spare_capacity_mut().as_mut_ptr().cast());
        // SAFETY: `reserve` has made room for `len` bytes, and `fill` has written them.
        unsafe { self.out.set_len(end + len) };
        self.push(&[]);
        true
    }

    /// Sends a record of three parts (up to [`MAX_RECORD`] together) without copying what the socket takes at once.
    /// False: there is no room now.
    pub fn send_parts(&mut self, kind: u8, aux: u8, imm: u64, parts: [&[u8]; 3]) -> bool {
        let len = parts.iter().map(|p| p.len()).sum();
        debug_assert!(len <= MAX_RECORD);
        if !self.reserve(HEADER + len) {
            return false;
        }
        self.out.extend(frame::encode(kind, aux, imm, len));
        let mut written = self.push(&parts);
        for part in parts {
            let skip = written.min(part.len());
            written -= skip;
            self.out.extend(&part[skip..]);
        }
        true
    }

    /// Starts to send `head` and `payload`, which is not copied. False: there is no room now. After true,
    /// [`is_midway`](Self::is_midway) returns whether the payload is still needed.
    ///
    /// # Safety
    /// `payload` stays readable until `is_midway` is false or `settle` was called.
    pub unsafe fn send_in_place(
        &mut self,
        kind: u8,
        aux: u8,
        imm: u64,
        head: &[u8],
        payload: *const [u8],
    ) -> bool {
        if !self.reserve(HEADER + head.len()) {
            return false;
        }
        // SAFETY: by the caller's promise the payload is readable until `is_midway` is false or `settle` was called;
        // either empties `rest`.
        let payload: &'static [u8] = unsafe { &*payload };
        let len = head.len() + payload.len();
        self.out.extend(frame::encode(kind, aux, imm, len));
        self.out.extend(head);
        self.rest = payload;
        self.push(&[]);
        true
    }

    /// Copies the rest of a partly written frame, so that the user's memory can be released.
    #[cold]
    pub fn settle(&mut self) {
        // Nothing is sent any more by a broken connection, perhaps because these bytes cannot be read.
        if !self.broken {
            self.out.extend(self.rest);
        }
        self.rest = &[];
    }

    /// Writes nothing until [`uncork`](Self::uncork): several messages follow.
    pub fn cork(&mut self) {
        self.corked = true;
    }

    /// Writes the messages that have collected.
    pub fn uncork(&mut self) {
        self.corked = false;
        self.flush();
    }

    /// Tries to write again: the epoll set has reported room, or the caller wants to find out.
    pub fn on_room(&mut self) {
        if std::mem::take(&mut self.blocked) {
            self.link
                .epoll
                .watch_room(&self.link.socket, self.link.token, false);
        }
        self.flush();
    }

    /// Writes as much as the socket takes.
    pub fn flush(&mut self) {
        if !self.is_drained() && !self.blocked && !self.broken {
            self.write(&[]);
        }
    }

    /// Writes what has collected and `extra` behind it, unless the sender is corked or blocked. Returns how many bytes
    /// of `extra` were written.
    fn push(&mut self, extra: &[&[u8]]) -> usize {
        if self.corked || self.blocked || self.broken {
            return 0;
        }
        self.write(extra)
    }

    /// Writes `out`, `rest` and `extra` with one system call; returns how many bytes of `extra` were written.
    fn write(&mut self, extra: &[&[u8]]) -> usize {
        self.written = self.link.epoll.turn.load(Ordering::Relaxed);
        let out = &self.out[self.start..];
        let mut others = [self.rest, &[], &[], &[]];
        others[1..=extra.len()].copy_from_slice(extra);
        let total = out.len() + others.iter().map(|p| p.len()).sum::<usize>();
        let mut left = match stream::write(self.link.fd(), out, &others) {
            Ok(written) => written,
            Err(e) => {
                self.fail(e);
                return 0;
            }
        };
        if left < total {
            self.blocked = true;
            self.link
                .epoll
                .watch_room(&self.link.socket, self.link.token, true);
        }
        let from_out = left.min(out.len());
        left -= from_out;
        self.start += from_out;
        if self.start == self.out.len() {
            self.out.clear();
            self.out.shrink_to(self.limit);
            self.start = 0;
        }
        let from_rest = left.min(self.rest.len());
        self.rest = &self.rest[from_rest..];
        left - from_rest
    }

    /// A write has failed.
    #[cold]
    fn fail(&mut self, e: Errno) {
        self.broken = true;
        // What was to be sent cannot be read. The connection works, and reports nothing; but the peer has the beginning
        // of the message, behind which nothing else can follow.
        if e == Errno::FAULT {
            self.unreadable = true;
            let _ = self.link.socket.shutdown(Shutdown::Both);
        }
    }

    /// Whether it is broken because memory of a message cannot be read.
    pub fn has_unreadable(&self) -> bool {
        self.unreadable
    }

    /// Writes what is left and shuts down the sending direction: the peer reads the end of the stream and shuts down
    /// its own. True if there is nothing to wait for: the peer's kernel has acknowledged everything, or the connection
    /// has failed.
    pub fn finish(&mut self) -> bool {
        if !self.is_drained() {
            self.on_room();
        }
        if self.broken || !self.is_drained() {
            return self.broken;
        }
        // The FIN counts as one byte of the stream.
        let end = usize::from(self.finished);
        if socket::unconfirmed(&self.link.socket) <= end {
            return true;
        }
        if !self.finished {
            self.finished = true;
            self.broken = self.link.socket.shutdown(Shutdown::Write).is_err();
        }
        self.broken
    }

    /// Whether this is the sending half of that connection.
    pub fn is_of(&self, link: &Arc<SharedSocket>) -> bool {
        Arc::ptr_eq(&self.link, link)
    }

    /// Shuts down the connection for both halves: the receiver reads the end.
    pub fn shut(&mut self) {
        self.broken = true;
        self.link.shut();
    }
}

impl Drop for TcpSender {
    fn drop(&mut self) {
        if self.blocked {
            self.link
                .epoll
                .watch_room(&self.link.socket, self.link.token, false);
        }
    }
}
