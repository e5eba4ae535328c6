//! Cross-memory attach: one process copies from or to the memory of another (`process_vm_*`).

use super::fork::{Mutex, Origin};
use rustix::process::{PTracer, set_ptracer};
use std::io;
use std::mem::{self, MaybeUninit};
use std::slice;

/// Direction of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CmaDirection {
    /// From the peer.
    Read,
    /// To the peer.
    Write,
}

/// One piece of memory: address and bytes, laid out as `struct iovec` and `ucp_dt_iov_t`. The address may
/// be another process's.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoSpan {
    pub addr: u64,
    pub len: usize,
}

const _: () = assert!(size_of::<IoSpan>() == size_of::<libc::iovec>());

/// Most pieces of one system call: more gain nothing, and the list is on the stack.
pub const MAX_SPANS: usize = 64;

/// The pieces behind the first `offset` bytes of a list, each with its number. Empty ones are left out.
pub fn behind(pieces: &[IoSpan], offset: usize) -> impl Iterator<Item = (usize, IoSpan)> {
    let mut left = offset;
    let rest = pieces.iter().enumerate().map(move |(number, piece)| {
        let skipped = left.min(piece.len);
        left -= skipped;
        let piece = IoSpan {
            addr: piece.addr.wrapping_add(skipped as u64),
            len: piece.len - skipped,
        };
        (number, piece)
    });
    rest.filter(|(_, piece)| piece.len > 0)
}

/// A short list of pieces, none of which is empty, consumed from the front.
pub struct Spans {
    /// Initialised in `first..end`.
    list: [MaybeUninit<IoSpan>; MAX_SPANS],
    first: usize,
    /// At most [`MAX_SPANS`], at least `first`.
    end: usize,
    /// Of all pieces.
    bytes: usize,
}

impl Spans {
    pub const fn new() -> Self {
        Self {
            list: [const { MaybeUninit::uninit() }; MAX_SPANS],
            first: 0,
            end: 0,
            bytes: 0,
        }
    }

    /// A list of one piece.
    pub fn one(addr: u64, len: usize) -> Self {
        let mut spans = Self::new();
        spans.push(IoSpan { addr, len });
        spans
    }

    /// Appends a piece; false if there is no room. An empty one is ignored.
    pub fn push(&mut self, span: IoSpan) -> bool {
        if span.len == 0 {
            return true;
        }
        let Some(place) = self.list.get_mut(self.end) else {
            return false;
        };
        place.write(span);
        self.end += 1;
        self.bytes += span.len;
        true
    }

    /// [`push`](Self::push), but a piece right behind the last one extends that.
    pub fn extend(&mut self, span: IoSpan) -> bool {
        match self.as_mut_slice().last_mut() {
            Some(last) if last.addr.wrapping_add(last.len as u64) == span.addr => {
                last.len += span.len;
                self.bytes += span.len;
                true
            }
            _ => self.push(span),
        }
    }

    pub fn clear(&mut self) {
        (self.first, self.end, self.bytes) = (0, 0, 0);
    }

    pub fn as_slice(&self) -> &[IoSpan] {
        let places = &self.list[self.first..self.end];
        // SAFETY: these places are initialised, by the type's invariant.
        unsafe { slice::from_raw_parts(places.as_ptr().cast(), places.len()) }
    }

    fn as_mut_slice(&mut self) -> &mut [IoSpan] {
        let places = &mut self.list[self.first..self.end];
        // SAFETY: these places are initialised, by the type's invariant.
        unsafe { slice::from_raw_parts_mut(places.as_mut_ptr().cast(), places.len()) }
    }

    /// Bytes of all pieces.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Drops `n` bytes from the front, or all if there are fewer.
    pub fn advance(&mut self, mut n: usize) {
        if n >= self.bytes {
            return self.clear();
        }
        self.bytes -= n;
        while n > 0 {
            let span = &mut self.as_mut_slice()[0];
            let part = n.min(span.len);
            span.addr = span.addr.wrapping_add(part as u64);
            span.len -= part;
            n -= part;
            if span.len == 0 {
                self.first += 1;
            }
        }
    }
}

/// Makes two lists of pieces with these addresses and the same lengths, none of which is 0, as many as there is room
/// for. Returns their number. The three slices are equally long.
pub fn fill_pair(
    (first, second): (&mut Spans, &mut Spans),
    addrs: (&[u64], &[u64]),
    lens: &[usize],
) -> usize {
    let pieces = addrs.0.iter().zip(addrs.1).zip(lens);
    let places = first.list.iter_mut().zip(&mut second.list);
    let (mut filled, mut bytes) = (0, 0);
    for ((one, other), ((&here, &there), &len)) in places.zip(pieces) {
        one.write(IoSpan { addr: here, len });
        other.write(IoSpan { addr: there, len });
        filled += 1;
        bytes += len;
    }
    for spans in [first, second] {
        (spans.first, spans.end, spans.bytes) = (0, filled, bytes);
    }
    filled
}

impl Default for Spans {
    fn default() -> Self {
        Self::new()
    }
}

/// Copies from `remote` of process `pid` to `local` of this one, one list filling the other; returns the bytes copied,
/// which can be fewer than requested when a remote piece ends.
///
/// # Errors
/// `EPERM` (no right to attach: containers, Yama, another user), `ESRCH` (the process is gone),
/// `EFAULT` (an address is not mapped), `ENOSYS` (seccomp).
///
/// # Safety
/// `local` must be writable memory of this process.
pub unsafe fn read(pid: u32, local: &[IoSpan], remote: &[IoSpan]) -> io::Result<usize> {
    let (l, r) = (iov(local), iov(remote));
    // SAFETY: the caller vouches for `local`; the kernel checks `remote` in the other process.
    count(unsafe { libc::process_vm_readv(pid as i32, l.0, l.1, r.0, r.1, 0) })
}

/// Copies from `local` of this process to `remote` of process `pid`. Errors are those of [`read`].
///
/// # Safety
/// `local` must be readable memory of this process.
pub unsafe fn write(pid: u32, local: &[IoSpan], remote: &[IoSpan]) -> io::Result<usize> {
    let (l, r) = (iov(local), iov(remote));
    // SAFETY: the caller's promise; the kernel checks the remote addresses.
    count(unsafe { libc::process_vm_writev(pid as i32, l.0, l.1, r.0, r.1, 0) })
}

fn iov(spans: &[IoSpan]) -> (*const libc::iovec, libc::c_ulong) {
    (spans.as_ptr().cast(), spans.len() as libc::c_ulong)
}

fn count(ret: isize) -> io::Result<usize> {
    if ret < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(ret as usize)
    }
}

/// Where Yama restricts attaching to descendants (`ptrace_scope` 1), declares that processes of this user may attach to
/// this one, as UCX does. Without Yama it has no effect. Once for each process: a forked child does not inherit it.
pub fn allow_peers() {
    static ALLOWED: Mutex<Option<Origin>> = Mutex::new(None);
    let here = Some(Origin::here());
    if mem::replace(&mut *ALLOWED.lock(), here) == here {
        return;
    }
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    if scope.trim() == "1" {
        let _ = set_ptracer(PTracer::Any);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(addr: u64, len: usize) -> IoSpan {
        IoSpan { addr, len }
    }

    #[test]
    fn spans_are_consumed_from_the_front() {
        let mut spans = Spans::one(10, 4);
        assert!(spans.push(span(0, 0)) && spans.push(span(100, 6)));
        assert_eq!((spans.as_slice().len(), spans.bytes()), (2, 10));
        spans.advance(3);
        assert_eq!(spans.as_slice(), [span(13, 1), span(100, 6)]);
        spans.advance(2);
        assert_eq!(spans.as_slice(), [span(101, 5)]);
        spans.advance(9);
        assert_eq!(spans.bytes(), 0);
    }

    #[test]
    fn a_full_list_takes_no_more() {
        let mut spans = Spans::new();
        assert!((0..MAX_SPANS).all(|i| spans.push(span(i as u64, 1))));
        assert!(!spans.push(span(0, 1)) && spans.push(span(0, 0)));
        assert_eq!(spans.bytes(), MAX_SPANS);
    }

    /// Lists cut differently, from this process itself, which is always permitted.
    #[test]
    fn pieces_fill_pieces() {
        let source: Vec<u8> = (0..30).collect();
        let mut target = [0u8; 30];
        let (from, to) = (source.as_ptr() as u64, target.as_mut_ptr() as u64);
        let remote = [span(from, 7), span(from + 7, 23)];
        let local = [span(to, 20), span(to + 20, 10)];
        // SAFETY: inside of `target`.
        let got = unsafe { read(std::process::id(), &local, &remote) };
        assert_eq!(got.unwrap(), 30);
        assert_eq!(target[..], source[..]);
    }
}
