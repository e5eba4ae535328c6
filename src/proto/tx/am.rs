//! Messages on a lane: a request's header, data and tail, in one record or several.

use crate::engine::datatype::Data;
use crate::engine::peer::{Peer, PeerTx};
use crate::engine::policy::Policy;
use crate::engine::request::{Request, TxPayload};
use crate::proto::select::message::{FRAGMENT, is_zcopy, longest_by_socket};
use crate::tl::Lane;
use crate::tl::ib::sender::IbSender;
use crate::tl::shm::outbox::Outbox;
use crate::tl::shm::ring::Unusable;
use crate::tl::tcp::sender::TcpSender;
use crate::tl::tofu::sender::TofuSender;
use crate::wire::header::{DataHdr, FragmentHdr, Kind};
use std::sync::atomic::Ordering;

/// Longest part of a longer message that is sent from user memory through a socket, bytes.
const TCP_PART: usize = 1 << 20;
/// Longest part of packed or stream data through a socket, bytes.
const TCP_PACKED: usize = 16 << 10;

/// Maximum length of messages that wait for others, bytes.
const COLLECTED: usize = 16 << 10;

const PUT: u8 = Kind::PutReq as u8;
pub(super) const GET: u8 = Kind::GetReq as u8;
pub(super) const AMO: u8 = Kind::AmoReq as u8;
pub(super) const FENCE: u8 = Kind::Fence as u8;
pub(super) const SIGNAL: u8 = Kind::Signal as u8;
const STREAM: u8 = Kind::StreamData as u8;
const AM_FRAGMENT: u8 = Kind::AmFragment as u8;
const TAG_FRAGMENT: u8 = Kind::TagFragment as u8;

/// Why a lane can send nothing any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendFailed {
    /// The peer has written malformed data into the ring in shared memory, or the ring cannot be mapped, which is
    /// logged.
    Unusable,
    /// The lane has not taken a record for which it had reported room.
    Refused,
}

impl SendFailed {
    /// Text for the log.
    pub(super) fn text(self) -> &'static str {
        match self {
            SendFailed::Unusable => {
                "cannot be sent to: the shared ring to it is corrupt, or cannot be mapped"
            }
            SendFailed::Refused => "cannot be sent to: its lane failed while a message was written",
        }
    }
}

impl From<Unusable> for SendFailed {
    fn from(_: Unusable) -> Self {
        SendFailed::Unusable
    }
}

/// Sends a request's messages as far as there is room; true when all of them are sent.
///
/// # Safety
/// The memory of the request's data and tail is readable.
pub(super) unsafe fn send(
    peer: &Peer,
    lane: &mut Lane,
    r: &mut Request,
) -> Result<bool, SendFailed> {
    let in_fragments = r.payload == TxPayload::Fragments;
    // SAFETY: the caller promises that data and tail are readable.
    unsafe {
        match lane {
            Lane::Shm(outbox) if in_fragments => send_parts(peer, &mut **outbox, r),
            Lane::Shm(outbox) => send_whole(&mut **outbox, r),
            Lane::Ib(sender) if in_fragments => send_parts(peer, &mut **sender, r),
            Lane::Ib(sender) => send_whole(&mut **sender, r),
            Lane::Tofu(sender) if in_fragments => send_parts(peer, &mut **sender, r),
            Lane::Tofu(sender) => send_whole(&mut **sender, r),
            Lane::Tcp(sender) if in_fragments => Ok(tcp_parts(peer, sender, r)),
            Lane::Tcp(sender) => Ok(tcp_whole(sender, r)),
        }
    }
}

/// A lane that copies records: a ring, or packets.
trait RecordSink {
    /// Error if a record is not taken for which there was room.
    const UNSENT: SendFailed;

    /// Whether a record of up to `len` bytes can be sent now, as the next one.
    fn has_room(&mut self, len: usize) -> Result<bool, SendFailed>;

    /// Sends a record, which `fill` writes; false if there is no room: `fill` was not called.
    fn send(
        &mut self,
        kind: u8,
        aux: u8,
        imm: u64,
        len: usize,
        fill: impl FnOnce(*mut u8),
    ) -> Result<bool, SendFailed>;
}

/// Implements [`RecordSink`] by the sender's own functions of these names, whose results `$result` converts.
macro_rules! record_sink {
    ($sender:ty, $unsent:expr, $result:expr) => {
        impl RecordSink for $sender {
            const UNSENT: SendFailed = $unsent;

            fn has_room(&mut self, len: usize) -> Result<bool, SendFailed> {
                $result(<$sender>::has_room(self, len))
            }

            #[inline(always)]
            fn send(
                &mut self,
                kind: u8,
                aux: u8,
                imm: u64,
                len: usize,
                fill: impl FnOnce(*mut u8),
            ) -> Result<bool, SendFailed> {
                $result(<$sender>::send(self, kind, aux, imm, len, fill))
            }
        }
    };
}

record_sink!(Outbox, SendFailed::Unusable, |sent| Ok(sent?));
record_sink!(IbSender, SendFailed::Refused, Ok);
record_sink!(TofuSender, SendFailed::Refused, Ok);

/// Whether a message waits to be sent together with those behind it: the socket has sent one since the last progress
/// call, which the peer handles now, and a system call for several costs little more than for one.
pub(super) fn is_collected(tx: &PeerTx, r: &Request) -> bool {
    match &tx.lane {
        Some(Lane::Tcp(sender)) => sender.has_written() && whole_len(r) <= COLLECTED,
        _ => false,
    }
}

/// Sends one message: header, data, tail.
unsafe fn send_whole(outbox: &mut impl RecordSink, r: &Request) -> Result<bool, SendFailed> {
    let (kind, aux, imm) = (r.msg.raw_kind(), r.msg.aux, r.msg.imm);
    outbox.send(kind, aux, imm, whole_len(r), |dst| {
        // SAFETY: the record has room for the three parts.
        unsafe { write_whole(r, dst) }
    })
}

/// Bytes of the data that go with the message.
fn payload_len(r: &Request) -> usize {
    match r.payload {
        TxPayload::HeaderOnly => 0,
        TxPayload::Whole | TxPayload::Fragments => r.data.len(),
    }
}

fn whole_len(r: &Request) -> usize {
    r.msg.head().len() + payload_len(r) + r.msg.tail_len()
}

unsafe fn write_whole(r: &Request, dst: *mut u8) {
    let (head, len) = (r.msg.head(), payload_len(r));
    // SAFETY: `dst` has room for the three parts.
    unsafe {
        dst.copy_from_nonoverlapping(head.as_ptr(), head.len());
        r.data.pack(0, dst.add(head.len()), len);
        if r.msg.tail_len() > 0 {
            let tail = r.msg.tail();
            dst.add(head.len() + len)
                .copy_from_nonoverlapping(tail.as_ptr(), tail.len());
        }
    }
}

/// Checks that a record was taken for which there was room.
fn taken<R: RecordSink>(sent: bool) -> Result<(), SendFailed> {
    match sent {
        true => Ok(()),
        false => Err(R::UNSENT),
    }
}

/// Sends messages of up to [`FRAGMENT`] bytes of data each; the user's header of an active message follows its last
/// data.
unsafe fn send_parts<R: RecordSink>(
    peer: &Peer,
    outbox: &mut R,
    r: &mut Request,
) -> Result<bool, SendFailed> {
    let total = r.data.len();
    loop {
        let offset = r.offset as usize;
        // Packing functions are called in order, once for each byte: not before there is room.
        if !outbox.has_room(FRAGMENT + FragmentHdr::SIZE + r.msg.tail_len())? {
            return Ok(false);
        }
        // SAFETY: the range is inside the data.
        let part = unsafe { Fragment::next_part(r, FRAGMENT.min(total - offset)) };
        let sent = outbox.send(r.msg.raw_kind(), r.msg.aux, part.imm, part.len(), |dst| {
            // SAFETY: the record has room for the part.
            unsafe { part.write(r, dst) }
        })?;
        // Packed data cannot be packed again: a refusal is an error.
        taken::<R>(sent)?;
        if r.msg.raw_kind() == PUT {
            peer.rma_sent.fetch_add(1, Ordering::Relaxed);
        }
        r.offset += part.data_len as u64;
        if r.offset as usize >= total {
            return Ok(true);
        }
    }
}

/// Sends one message through a socket.
unsafe fn tcp_whole(sender: &mut TcpSender, r: &Request) -> bool {
    let len = whole_len(r);
    match r.data.as_contig() {
        Some(data) if r.payload != TxPayload::HeaderOnly && is_zcopy(policy(r), r.data.len()) => {
            // SAFETY: the user's data and header are readable.
            let (data, tail) =
                unsafe { (std::slice::from_raw_parts(data, r.data.len()), r.msg.tail()) };
            let parts = [r.msg.head(), data, tail];
            sender.send_parts(r.msg.raw_kind(), r.msg.aux, r.msg.imm, parts)
        }
        // SAFETY: the record has room for the three parts.
        _ => sender.send(r.msg.raw_kind(), r.msg.aux, r.msg.imm, len, |dst| unsafe {
            write_whole(r, dst)
        }),
    }
}

/// The options of a request's context.
fn policy(r: &Request) -> &Policy {
    &r.worker.get().ctx.policy
}

/// Longest fragment of an eager message that is sent from user memory, bytes. At most a whole message, for which the
/// sender's buffer has room.
fn longest_fragment(r: &Request) -> usize {
    longest_by_socket(policy(r), true)
}

/// Sends messages through a socket: long contiguous ones from user memory.
unsafe fn tcp_parts(peer: &Peer, sender: &mut TcpSender, r: &mut Request) -> bool {
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
        // SAFETY: the user's memory is valid until the request completes; a request that is cancelled is settled first.
        let Some(n) = (unsafe { tcp_part(sender, r, offset, total - offset) }) else {
            return false;
        };
        if r.msg.raw_kind() == PUT {
            peer.rma_sent.fetch_add(1, Ordering::Relaxed);
        }
        r.offset += n as u64;
        if r.offset as usize >= total && !sender.is_midway() {
            return true;
        }
    }
}

/// Sends one part. Returns its bytes of data, if there was room.
unsafe fn tcp_part(
    sender: &mut TcpSender,
    r: &Request,
    offset: usize,
    left: usize,
) -> Option<usize> {
    let zcopy = r.data.as_contig().filter(|_| is_zcopy(policy(r), left));
    if let Some(data) = zcopy {
        let max = match r.msg.raw_kind() {
            STREAM => TCP_PACKED,
            AM_FRAGMENT | TAG_FRAGMENT => longest_fragment(r),
            _ => TCP_PART,
        };
        let n = max.min(left);
        let part = Fragment::of(r, n, Vec::new());
        // SAFETY: the ranges are inside the user's data and header.
        let sent = unsafe {
            let payload = std::slice::from_raw_parts(data.add(offset), n);
            if matches!(r.msg.raw_kind(), STREAM | AM_FRAGMENT | TAG_FRAGMENT) {
                let parts = [part.head(), payload, part.tail(r)];
                sender.send_parts(r.msg.raw_kind(), r.msg.aux, part.imm, parts)
            } else {
                sender.send_in_place(r.msg.raw_kind(), r.msg.aux, part.imm, part.head(), payload)
            }
        };
        return sent.then_some(n);
    }
    // Packing functions are called in order, once for each byte: not before there is room.
    if !sender.has_room(TCP_PACKED + FragmentHdr::SIZE + r.msg.tail_len()) {
        return None;
    }
    // SAFETY: the range is inside the data.
    let part = unsafe { Fragment::next_part(r, TCP_PACKED.min(left)) };
    sender.send(r.msg.raw_kind(), r.msg.aux, part.imm, part.len(), |dst| {
        // SAFETY: the record has room for the part.
        unsafe { part.write(r, dst) }
    });
    Some(part.data_len)
}

/// One record of a request that has several. The user's packing functions decide where a part ends: some (yaksa,
/// MPICH's) cannot split an element, so that their data are packed before room is taken.
struct Fragment {
    imm: u64,
    head: [u8; FragmentHdr::SIZE],
    head_len: usize,
    data_len: usize,
    /// Data packed by the user's functions; empty: the data are packed into the record.
    packed: Vec<u8>,
    /// Bytes of the user's header after the data.
    tail_len: usize,
}

impl Fragment {
    /// The next part of a request's data, at most `max` bytes.
    ///
    /// # Safety
    /// The request's data are readable, and `max` bytes are left.
    unsafe fn next_part(r: &Request, max: usize) -> Fragment {
        let Data::Generic { .. } = r.data else {
            return Self::of(r, max, Vec::new());
        };
        let mut packed = vec![0; max];
        // SAFETY: the buffer has room for `max`.
        let len = unsafe {
            r.data
                .pack_some(r.offset as usize, packed.as_mut_ptr(), max)
        };
        Self::of(r, len, packed)
    }

    /// The part of `len` bytes at the request's offset. A put has the address in its immediate, a stream needs only the
    /// order, other kinds have the offset in their header.
    fn of(r: &Request, data_len: usize, packed: Vec<u8>) -> Fragment {
        let (offset, total) = (r.offset, r.data.len() as u64);
        let imm = if r.msg.raw_kind() == PUT {
            r.msg.imm + offset
        } else {
            r.msg.imm
        };
        let head_len = match r.msg.raw_kind() {
            PUT | STREAM => 0,
            AM_FRAGMENT | TAG_FRAGMENT => FragmentHdr::SIZE,
            _ => DataHdr::SIZE,
        };
        Fragment {
            imm,
            // A `DataHdr` is the first field of it.
            head: FragmentHdr { offset, total }.encode(),
            head_len,
            data_len,
            packed,
            tail_len: match r.msg.raw_kind() {
                AM_FRAGMENT if offset + data_len as u64 == total => r.msg.tail_len(),
                _ => 0,
            },
        }
    }

    /// Bytes of the record.
    fn len(&self) -> usize {
        self.head_len + self.data_len + self.tail_len
    }

    fn head(&self) -> &[u8] {
        &self.head[..self.head_len]
    }

    /// # Safety
    /// The request's tail is readable.
    unsafe fn tail<'a>(&self, r: &'a Request) -> &'a [u8] {
        if self.tail_len == 0 {
            return &[];
        }
        // SAFETY: the caller promises that the tail is readable.
        unsafe { r.msg.tail() }
    }

    /// Writes the record.
    ///
    /// # Safety
    /// `len` bytes are writable at `dst`; the request's data and tail are readable.
    unsafe fn write(&self, r: &Request, dst: *mut u8) {
        // SAFETY: the caller has room for the three parts.
        unsafe {
            dst.copy_from_nonoverlapping(self.head.as_ptr(), self.head_len);
            let at = dst.add(self.head_len);
            if self.packed.is_empty() {
                r.data.pack(r.offset as usize, at, self.data_len);
            } else {
                at.copy_from_nonoverlapping(self.packed.as_ptr(), self.data_len);
            }
            let tail = self.tail(r);
            at.add(self.data_len)
                .copy_from_nonoverlapping(tail.as_ptr(), tail.len());
        }
    }
}

const _: () = assert!(DataHdr::SIZE <= FragmentHdr::SIZE);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_ring_in_shared_memory_is_called_corrupt() {
        assert_eq!(taken::<Outbox>(true), Ok(()));
        assert_eq!(taken::<Outbox>(false), Err(SendFailed::Unusable));
        let others = [taken::<IbSender>(false), taken::<TofuSender>(false)];
        for failed in others {
            assert_eq!(failed, Err(SendFailed::Refused));
            assert!(!SendFailed::Refused.text().contains("ring"));
        }
    }
}
