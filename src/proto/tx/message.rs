//! Messages: a request's header, data and tail, whole or in parts, in a ring or through a socket.

use crate::engine::datatype::Data;
use crate::engine::peer::{Peer, Tx};
use crate::engine::request::Request;
use crate::proto::select::FRAGMENT;
use crate::tl::shm::outbox::Outbox;
use crate::tl::shm::ring::Corrupt;
use crate::tl::tcp::sender::Sender;
use crate::tl::{Lane, ib, tofu};
use crate::wire::header::{DataHdr, Kind};
use std::sync::atomic::Ordering;

/// Longest part of a longer message that goes through a socket in one piece, bytes.
const TCP_PART: usize = 1 << 20;
/// Of what is packed first or is part of a stream, bytes.
const TCP_PACKED: usize = 16 << 10;

/// Longer messages do not wait for others, bytes.
const COLLECTED: usize = 16 << 10;

const PUT: u8 = Kind::PutReq as u8;
pub(super) const GET: u8 = Kind::GetReq as u8;
pub(super) const AMO: u8 = Kind::AmoReq as u8;
pub(super) const FENCE: u8 = Kind::Fence as u8;
pub(super) const SIGNAL: u8 = Kind::Signal as u8;
const STREAM: u8 = Kind::StreamData as u8;

/// Sends a request's messages as far as there is room; true when all of them are on their way.
///
/// # Safety
/// What the request's data and tail name is readable.
pub(super) unsafe fn send(peer: &Peer, lane: &mut Lane, r: &mut Request) -> Result<bool, Corrupt> {
    // SAFETY: the caller's promise.
    unsafe {
        match lane {
            Lane::Shm(outbox) if r.stream => send_parts(peer, &mut **outbox, r),
            Lane::Shm(outbox) => send_whole(&mut **outbox, r),
            Lane::Ib(sender) if r.stream => send_parts(peer, &mut **sender, r),
            Lane::Ib(sender) => send_whole(&mut **sender, r),
            Lane::Tofu(sender) if r.stream => send_parts(peer, &mut **sender, r),
            Lane::Tofu(sender) => send_whole(&mut **sender, r),
            Lane::Tcp(sender) if r.stream => Ok(tcp_parts(peer, sender, r)),
            Lane::Tcp(sender) => Ok(tcp_whole(sender, r)),
        }
    }
}

/// What takes records that are copied into it: a ring, or packets.
trait Records {
    /// Whether a record of `len` bytes, or any shorter one, can be sent now: it is sent next.
    fn has_room(&mut self, len: usize) -> Result<bool, Corrupt>;

    /// Sends one, which `fill` writes; false if there is no room: `fill` was not called.
    fn send(
        &mut self,
        kind: u8,
        aux: u8,
        imm: u64,
        len: usize,
        fill: impl FnOnce(*mut u8),
    ) -> Result<bool, Corrupt>;
}

impl Records for Outbox {
    fn has_room(&mut self, len: usize) -> Result<bool, Corrupt> {
        Outbox::has_room(self, len)
    }

    #[inline(always)]
    fn send(
        &mut self,
        kind: u8,
        aux: u8,
        imm: u64,
        len: usize,
        fill: impl FnOnce(*mut u8),
    ) -> Result<bool, Corrupt> {
        Outbox::send(self, kind, aux, imm, len, fill)
    }
}

impl Records for ib::sender::Sender {
    fn has_room(&mut self, len: usize) -> Result<bool, Corrupt> {
        Ok(ib::sender::Sender::has_room(self, len))
    }

    #[inline(always)]
    fn send(
        &mut self,
        kind: u8,
        aux: u8,
        imm: u64,
        len: usize,
        fill: impl FnOnce(*mut u8),
    ) -> Result<bool, Corrupt> {
        Ok(ib::sender::Sender::send(self, kind, aux, imm, len, fill))
    }
}

impl Records for tofu::sender::Sender {
    fn has_room(&mut self, len: usize) -> Result<bool, Corrupt> {
        Ok(tofu::sender::Sender::has_room(self, len))
    }

    #[inline(always)]
    fn send(
        &mut self,
        kind: u8,
        aux: u8,
        imm: u64,
        len: usize,
        fill: impl FnOnce(*mut u8),
    ) -> Result<bool, Corrupt> {
        Ok(tofu::sender::Sender::send(self, kind, aux, imm, len, fill))
    }
}

/// Whether a message waits for those that come behind it: the socket has got one since the last progress call, so
/// that the peer is busy with that, and a system call for several costs little more than for one.
pub(super) fn is_collected(tx: &Tx, r: &Request) -> bool {
    match &tx.lane {
        Some(Lane::Tcp(sender)) => sender.has_written() && whole_len(r) <= COLLECTED,
        _ => false,
    }
}

/// One message: header, data, tail.
unsafe fn send_whole(outbox: &mut impl Records, r: &Request) -> Result<bool, Corrupt> {
    outbox.send(r.kind, r.aux, r.imm, whole_len(r), |dst| {
        // SAFETY: the record has room for the three parts.
        unsafe { write_whole(r, dst) }
    })
}

fn whole_len(r: &Request) -> usize {
    let len = if r.bare { 0 } else { r.data.len() };
    r.head_len as usize + len + r.tail_len as usize
}

unsafe fn write_whole(r: &Request, dst: *mut u8) {
    let len = if r.bare { 0 } else { r.data.len() };
    let (head, tail) = (r.head_len as usize, r.tail_len as usize);
    // SAFETY: the caller has room for the three parts.
    unsafe {
        dst.copy_from_nonoverlapping(r.head.as_ptr(), head);
        r.data.pack(0, dst.add(head), len);
        if tail > 0 {
            dst.add(head + len).copy_from_nonoverlapping(r.tail, tail);
        }
    }
}

/// Messages of up to [`FRAGMENT`] bytes of data each.
unsafe fn send_parts(
    peer: &Peer,
    outbox: &mut impl Records,
    r: &mut Request,
) -> Result<bool, Corrupt> {
    let total = r.data.len();
    loop {
        let offset = r.offset as usize;
        // Packing functions are called in order, each byte once: not before there is room.
        if !outbox.has_room(FRAGMENT + DataHdr::SIZE)? {
            return Ok(false);
        }
        // SAFETY: the range is inside the data.
        let part = unsafe { Part::cut(&r.data, offset, FRAGMENT.min(total - offset)) };
        let head = DataHdr { offset: r.offset }.encode();
        let (imm, head) = part_head(r, &head);
        let sent = outbox.send(r.kind, r.aux, imm, head.len() + part.len, |dst| {
            // SAFETY: the record has room for both; the range is inside the data.
            unsafe {
                dst.copy_from_nonoverlapping(head.as_ptr(), head.len());
                part.write(&r.data, offset, dst.add(head.len()));
            }
        })?;
        // There was room. What is packed is not packed again.
        if !sent {
            return Err(Corrupt);
        }
        if r.kind == PUT {
            peer.rma_sent.fetch_add(1, Ordering::Relaxed);
        }
        r.offset += part.len as u64;
        if r.offset as usize >= total {
            return Ok(true);
        }
    }
}

/// One message through a socket.
unsafe fn tcp_whole(sender: &mut Sender, r: &Request) -> bool {
    let len = whole_len(r);
    match r.data.as_contig() {
        Some(data) if !r.bare && r.data.len() >= in_place(r) => {
            // SAFETY: the user's data and header.
            let (data, tail) = unsafe {
                let tail = if r.tail_len > 0 {
                    r.tail
                } else {
                    data.cast_const()
                };
                (
                    std::slice::from_raw_parts(data, r.data.len()),
                    std::slice::from_raw_parts(tail, r.tail_len as usize),
                )
            };
            let head = &r.head[..r.head_len as usize];
            sender.send_parts(r.kind, r.aux, r.imm, [head, data, tail])
        }
        // SAFETY: the record has room for the three parts.
        _ => sender.send(r.kind, r.aux, r.imm, len, |dst| unsafe {
            write_whole(r, dst)
        }),
    }
}

/// From this size on data is given to the socket where it lies, bytes.
fn in_place(r: &Request) -> usize {
    // SAFETY: requests do not outlive their worker.
    unsafe { &*r.worker }.ctx.policy.zcopy_thresh
}

/// Messages through a socket: long ones from the user's memory, if that is one piece.
unsafe fn tcp_parts(peer: &Peer, sender: &mut Sender, r: &mut Request) -> bool {
    let total = r.data.len();
    loop {
        if sender.is_midway() {
            sender.flush();
            if sender.is_midway() {
                return false;
            }
        }
        let offset = r.offset as usize;
        if offset > 0 && offset >= total {
            return true;
        }
        // SAFETY: the request's data is the user's promise until it ends; what ends it early settles first.
        let Some(n) = (unsafe { tcp_part(sender, r, offset, total - offset) }) else {
            return false;
        };
        if r.kind == PUT {
            peer.rma_sent.fetch_add(1, Ordering::Relaxed);
        }
        r.offset += n as u64;
        if r.offset as usize >= total && !sender.is_midway() {
            return true;
        }
    }
}

/// One part: how many bytes it has, if there was room.
unsafe fn tcp_part(sender: &mut Sender, r: &Request, offset: usize, left: usize) -> Option<usize> {
    let head = DataHdr { offset: r.offset }.encode();
    let (imm, head) = part_head(r, &head);
    let in_place = r.data.as_contig().filter(|_| left >= in_place(r));
    if let Some(data) = in_place {
        let max = if r.kind == STREAM {
            TCP_PACKED
        } else {
            TCP_PART
        };
        let n = max.min(left);
        // SAFETY: inside the user's data.
        let sent = unsafe {
            let payload = std::slice::from_raw_parts(data.add(offset), n);
            if r.kind == STREAM {
                sender.send_parts(r.kind, r.aux, imm, [head, payload, &[]])
            } else {
                sender.send_in_place(r.kind, r.aux, imm, head, payload)
            }
        };
        return sent.then_some(n);
    }
    // Packing functions are called in order, each byte once: not before there is room.
    if !sender.has_room(TCP_PACKED + DataHdr::SIZE) {
        return None;
    }
    // SAFETY: the range is inside the data.
    let part = unsafe { Part::cut(&r.data, offset, TCP_PACKED.min(left)) };
    sender.send(r.kind, r.aux, imm, head.len() + part.len, |dst| {
        // SAFETY: the record has room for both; the range is inside the data.
        unsafe {
            dst.copy_from_nonoverlapping(head.as_ptr(), head.len());
            part.write(&r.data, offset, dst.add(head.len()));
        }
    });
    Some(part.len)
}

/// The immediate and the header of the next part. A put names the address in its immediate, a stream needs
/// no more than the order, the others name the offset in their header.
fn part_head<'a>(r: &Request, head: &'a [u8]) -> (u64, &'a [u8]) {
    match r.kind {
        PUT => (r.imm + r.offset, &[]),
        STREAM => (r.imm, &[]),
        _ => (r.imm, head),
    }
}

/// What goes into one message. The user's packing functions decide where a part ends: some (yaksa,
/// MPICH's) cannot cut an element, so that what they pack has to be known before room is taken.
struct Part {
    len: usize,
    packed: Vec<u8>,
}

impl Part {
    unsafe fn cut(data: &Data, offset: usize, max: usize) -> Part {
        let Data::Generic { .. } = data else {
            return Part {
                len: max,
                packed: Vec::new(),
            };
        };
        let mut packed = vec![0; max];
        // SAFETY: the buffer has room for `max`.
        let len = unsafe { data.pack_some(offset, packed.as_mut_ptr(), max) };
        Part { len, packed }
    }

    unsafe fn write(&self, data: &Data, offset: usize, dst: *mut u8) {
        // SAFETY: the caller has room for `len`.
        unsafe {
            if self.packed.is_empty() {
                data.pack(offset, dst, self.len);
            } else {
                dst.copy_from_nonoverlapping(self.packed.as_ptr(), self.len);
            }
        }
    }
}
