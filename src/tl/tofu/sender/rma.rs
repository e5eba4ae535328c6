//! One-sided operations: puts, gets and atomic operations of the TNI on memory of the peer.

use super::{ReadGate, TofuSender};
use crate::tl::Token;
use crate::tl::tofu::amo::TofuAmo;
use crate::tl::tofu::tni::PIGGYBACK;
use crate::tl::tofu::utofu::{OpFlags, Stadd};
use crate::tl::tofu::vcq::RemoteAddr;

impl TofuSender {
    /// Maximum bytes of one bcopy operation.
    pub fn max_rma(&self) -> usize {
        self.iface.tuning.packet as usize
    }

    /// Puts the first part of `len` bytes to the peer's memory, as much as one operation carries: `fill` writes them
    /// into the descriptor or a buffer. Returns the bytes put; 0: no room now.
    pub fn write(&mut self, stadd: Stadd, len: usize, fill: impl FnOnce(*mut u8, usize)) -> usize {
        if self.is_held_back() {
            return 0;
        }
        let n = len.min(self.max_rma());
        let vcq = self.to.vcq;
        let to = RemoteAddr { vcq, stadd };
        let result = if n <= PIGGYBACK {
            let mut bytes = [0; PIGGYBACK];
            fill(bytes.as_mut_ptr(), n);
            let mut queue = self.iface.queue.lock();
            queue.send_short(self.tag, &bytes[..n], to, OpFlags::empty())
        } else {
            let mut queue = self.iface.queue.lock();
            let taken = queue
                .has_buffers(1)
                .then(|| queue.take_buffer(self.tag.conn));
            drop(queue);
            let Some((buffer, at)) = taken.flatten() else {
                return 0;
            };
            fill(at, n);
            self.iface
                .queue
                .lock()
                .send(self.tag, buffer, n, to, OpFlags::empty())
        };
        self.posts();
        if let Err(code) = result {
            self.fail(code);
        }
        n
    }

    /// Gets the first part of `len` bytes of the peer's memory through a buffer, as much as one operation carries;
    /// completes `request`. Returns the bytes; 0: no room now.
    pub fn read(&mut self, stadd: Stadd, into: *mut u8, len: usize, request: Token) -> usize {
        if self.is_held_back() || self.is_behind_writes() {
            return 0;
        }
        let n = len.min(self.max_rma());
        let from = RemoteAddr {
            vcq: self.to.vcq,
            stadd,
        };
        let read = (self.iface.queue.lock()).read(self.tag.conn, from, (into, n), request);
        self.has_posted_read(read, n)
    }

    /// Puts the first part of `len` bytes of registered memory of `request`, as much as one operation carries;
    /// completes it when the TNI has read them. Returns the bytes; 0: no room now.
    pub fn write_in_place(
        &mut self,
        stadd: Stadd,
        (from, len): (Stadd, usize),
        request: Token,
    ) -> usize {
        if self.is_held_back() {
            return 0;
        }
        let n = len.min(self.iface.longest);
        let vcq = self.to.vcq;
        let to = RemoteAddr { vcq, stadd };
        let written = (self.iface.queue.lock()).write_in_place(self.tag, (from, n), to, request);
        match written {
            Ok(true) => {
                self.posts();
                n
            }
            Ok(false) => 0,
            Err(code) => {
                self.fail(code);
                0
            }
        }
    }

    /// Gets the first part of `len` bytes into registered memory of `request`, as much as one operation carries;
    /// completes it when they have arrived. Returns the bytes; 0: no room now.
    pub fn read_in_place(
        &mut self,
        stadd: Stadd,
        (into, len): (Stadd, usize),
        request: Token,
    ) -> usize {
        if self.is_held_back() || self.is_behind_writes() {
            return 0;
        }
        let n = len.min(self.iface.longest);
        let vcq = self.to.vcq;
        let (conn, from) = (self.tag.conn, RemoteAddr { vcq, stadd });
        let read = (self.iface.queue.lock()).read_in_place(conn, from, (into, n), request);
        self.has_posted_read(read, n)
    }

    /// Number of rails to the peer.
    pub fn rails(&self) -> usize {
        self.rails.len()
    }

    /// Puts like [`write_in_place`](Self::write_in_place), by one of the [rails](Self::rails), whose steering addresses
    /// these are; completes `request` when the data have arrived. Ordered with other operations only by fences.
    pub fn write_by_rail(
        &mut self,
        rail: usize,
        stadd: Stadd,
        (from, len): (Stadd, usize),
        request: Token,
    ) -> usize {
        if self.is_held_back() || self.is_behind_writes() {
            return 0;
        }
        let n = len.min(self.iface.longest);
        let vcq = self.rails[rail];
        let (conn, to) = (self.tag.conn, RemoteAddr { vcq, stadd });
        let mut queue = self.iface.rails[rail].queue.lock();
        let written = queue.write_apart(conn, (from, n), to, request);
        drop(queue);
        self.apart |= written == Ok(true);
        self.has_posted_read(written, n)
    }

    /// Gets like [`read_in_place`](Self::read_in_place), by one of the rails, whose steering addresses these are.
    pub fn read_by_rail(
        &mut self,
        rail: usize,
        stadd: Stadd,
        (into, len): (Stadd, usize),
        request: Token,
    ) -> usize {
        if self.is_held_back() || self.is_behind_writes() {
            return 0;
        }
        let n = len.min(self.iface.longest);
        let vcq = self.rails[rail];
        let (conn, from) = (self.tag.conn, RemoteAddr { vcq, stadd });
        let mut queue = self.iface.rails[rail].queue.lock();
        let read = queue.read_in_place(conn, from, (into, n), request);
        drop(queue);
        self.has_posted_read(read, n)
    }

    /// Whether everything that rails have written has arrived. Called while nothing more is posted.
    pub fn is_contiguous(&mut self) -> bool {
        self.apart &= !self.has_read();
        !self.apart
    }

    /// Maximum bytes of one zcopy operation.
    pub fn longest(&self) -> usize {
        self.iface.longest
    }

    /// Counts a read of `n` bytes, if it was posted: returns its bytes, or 0.
    pub(super) fn has_posted_read(&mut self, read: Result<bool, i32>, n: usize) -> usize {
        match read {
            Ok(true) => {
                self.reads = self.reads.wrapping_add(1);
                n
            }
            Ok(false) => 0,
            Err(code) => {
                self.fail(code);
                0
            }
        }
    }

    /// Posts an atomic operation on a word of the peer's memory. With `reply`, the fetched value's destination and the
    /// request that completes with it. False: it cannot be posted now.
    pub fn change(&mut self, step: TofuAmo, stadd: Stadd, reply: Option<(*mut u8, Token)>) -> bool {
        if self.is_held_back() || self.is_behind_writes() {
            return false;
        }
        let (conn, vcq) = (self.tag.conn, self.to.vcq);
        let to = RemoteAddr { vcq, stadd };
        let mut queue = self.iface.queue.lock();
        let posted = match reply {
            Some(reply) => queue.fetch(conn, step, to, reply),
            None => queue.change(conn, step, to, &mut self.slot),
        };
        drop(queue);
        let posted = posted.unwrap_or_else(|code| {
            self.fail(code);
            false
        });
        self.reads = self.reads.wrapping_add(u32::from(posted));
        posted
    }

    /// Whether puts before a fence may not have arrived yet. If not, a read can be posted.
    #[inline(always)]
    pub(super) fn is_behind_writes(&mut self) -> bool {
        self.gate != ReadGate::Open && self.is_gated()
    }

    /// [`is_behind_writes`](Self::is_behind_writes) after a fence or a flush.
    #[inline(never)]
    fn is_gated(&mut self) -> bool {
        if let ReadGate::Fence { posted } = self.gate
            && !self.flow.is_past(posted)
        {
            if !self.is_acked(posted) {
                self.post_flush();
            }
            return true;
        }
        self.seal_flushes();
        self.gate = ReadGate::Open;
        false
    }

    /// Whether all reads, atomic operations and writes by rails have completed.
    pub(super) fn has_read(&self) -> bool {
        self.flow.reads_done() == self.reads
    }
}
