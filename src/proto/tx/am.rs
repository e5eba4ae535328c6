//! Messages on a lane: a request's header, data and tail, in one record or several.

use crate::ctypes::UCS_ERR_IO_ERROR;
use crate::engine::datatype::Data;
use crate::engine::peer::{Peer, PeerTx};
use crate::engine::request::{Request, TxPayload};
use crate::proto::select::message::{is_zcopy, longest_by_socket};
use crate::tl::Lane;
use crate::tl::contract::{LaneError, LaneOps, RecordHdr, ZcopyResult};
use crate::tl::cuda::DeviceData;
use crate::tl::with_sender;
use crate::wire::header::{ASKED, DataHdr, FragmentHdr, Kind, PutRest};

/// Longest part of a longer message that is sent from user memory, bytes.
const MAX_ZCOPY_PART: usize = 1 << 20;

/// Maximum length of messages that wait for others, bytes.
const COLLECTED: usize = 16 << 10;

const PUT: u8 = Kind::PutReq as u8;
/// `raw_kind` of a get by message; its request waits for the data.
pub(super) const GET: u8 = Kind::GetReq as u8;
/// `raw_kind` of an atomic operation by message; its request waits for the reply.
pub(super) const AMO: u8 = Kind::AmoReq as u8;
/// `raw_kind` of a fence by message: what the peer executes behind it is not visible to gets before it.
pub(super) const FENCE: u8 = Kind::Fence as u8;
/// `raw_kind` of the signal of a put, which is sent behind the data of the put and replied to like a put.
pub(super) const SIGNAL: u8 = Kind::Signal as u8;
const STREAM: u8 = Kind::StreamData as u8;
const AM_FRAGMENT: u8 = Kind::AmFragment as u8;
const TAG_FRAGMENT: u8 = Kind::TagFragment as u8;

/// Sends a request's messages as far as there is room; true when all of them are sent.
///
/// # Safety
/// The memory of the request's data and tail is readable.
// Inlined in its only caller however many kinds of lanes there are: a call took 20 instructions more over TCP.
#[inline(always)]
pub(super) unsafe fn send(
    peer: &Peer,
    lane: &mut Lane,
    r: &mut Request,
) -> Result<bool, LaneError> {
    // SAFETY: the caller promises that data and tail are readable.
    with_sender!(lane, sender => unsafe {
        match r.payload {
            TxPayload::Fragments => send_parts(peer, &mut **sender, r),
            TxPayload::Whole | TxPayload::HeaderOnly => send_whole(&mut **sender, r),
        }
    })
}

/// Whether a message waits to be sent together with those behind it.
pub(super) fn is_collected(tx: &PeerTx, r: &Request) -> bool {
    let is_collecting = tx.lane.as_ref().is_some_and(Lane::is_collecting);
    is_collecting && whole_len(r) <= COLLECTED
}

/// Sends one message: header, data, tail.
unsafe fn send_whole<L: LaneOps>(lane: &mut L, r: &Request) -> Result<bool, LaneError> {
    let hdr = RecordHdr {
        kind: r.msg.raw_kind(),
        aux: r.msg.aux,
        imm: r.msg.imm,
    };
    if r.payload != TxPayload::HeaderOnly
        && let Some(data) = zcopy_data(r, r.data.len())
    {
        // SAFETY: the user's data and header are readable.
        let (data, tail) =
            unsafe { (std::slice::from_raw_parts(data, r.data.len()), r.msg.tail()) };
        match lane.am_zcopy(hdr, [r.msg.head(), data, tail]) {
            ZcopyResult::Sent => return Ok(true),
            ZcopyResult::NoRoom => return Ok(false),
            ZcopyResult::Unsupported => {}
        }
    }
    lane.am_bcopy(hdr, whole_len(r), |dst| {
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
        if len > 0 {
            r.data.pack(0, dst.add(head.len()), len);
        }
        if r.msg.tail_len() > 0 {
            let tail = r.msg.tail();
            dst.add(head.len() + len)
                .copy_from_nonoverlapping(tail.as_ptr(), tail.len());
        }
    }
}

/// Checks that a record was taken for which there was room.
fn taken<L: LaneOps>(sent: bool) -> Result<(), LaneError> {
    if sent { Ok(()) } else { Err(L::REFUSED) }
}

/// Sends messages of one part of the data each; the user's header of an active message follows its last data.
unsafe fn send_parts<L: LaneOps>(
    peer: &Peer,
    lane: &mut L,
    r: &mut Request,
) -> Result<bool, LaneError> {
    let total = r.data.len();
    loop {
        if lane.is_midway() {
            lane.continue_record();
            if lane.is_midway() {
                return Ok(false);
            }
        }
        let offset = r.offset as usize;
        if offset > 0 && offset >= total {
            return Ok(true);
        }
        // SAFETY: the user's memory is valid until the request completes; a request that is cancelled is settled first.
        let n = match unsafe { send_part(lane, r, total - offset) } {
            Ok(Some(n)) => n,
            Ok(None) => return Ok(false),
            Err(LaneError::Unreadable) => return end_unreadable(peer, lane, r),
            Err(error) => return Err(error),
        };
        if r.msg.raw_kind() == PUT {
            note_put(peer);
        }
        r.offset += n as u64;
        if r.offset as usize >= total && !lane.is_midway() {
            return Ok(true);
        }
    }
}

/// Counts a part of a put, which the peer answers.
#[inline(always)]
fn note_put(peer: &Peer) {
    peer.note_unflushed();
    peer.rma.add_sent();
}

/// Waits until a device has read `n` bytes of a source.
///
/// # Errors
/// `Unreadable`: it cannot.
///
/// # Safety
/// The range is inside the data, which are the user's.
#[cold]
#[inline(never)]
unsafe fn wait_for(memory: &DeviceData, offset: usize, n: usize) -> Result<(), LaneError> {
    // SAFETY: the caller's promise.
    unsafe { memory.wait_for(offset, n) }.map_err(|_| LaneError::Unreadable)
}

/// Ends a message whose data a device cannot read: the peer learns that the rest does not come. The request completes
/// with the failure of its data.
///
/// # Errors
/// `Unreadable` of a message for which there is no such notice: the connection has to end.
#[cold]
#[inline(never)]
fn end_unreadable<L: LaneOps>(
    peer: &Peer,
    lane: &mut L,
    r: &mut Request,
) -> Result<bool, LaneError> {
    match r.msg.kind() {
        Some(Kind::Data) => r.msg.set(Kind::RndvCancel, ASKED, r.msg.imm, &[]),
        Some(Kind::GetRep) => {
            let (status, head) = (UCS_ERR_IO_ERROR as i8 as u8, DataHdr { offset: 0 }.encode());
            r.msg.set(Kind::GetRep, status, r.msg.imm, &head);
        }
        // What was written stays. Nothing of a put of which nothing was sent.
        Some(Kind::PutReq) if r.offset == 0 => return Ok(true),
        Some(Kind::PutReq) => {
            let end = r.msg.imm + r.offset;
            r.msg.set(Kind::PutReq, PutRest::NONE.aux(), end, &[]);
            note_put(peer);
        }
        _ => return Err(LaneError::Unreadable),
    }
    r.payload = TxPayload::HeaderOnly;
    // SAFETY: neither data nor a tail are sent.
    unsafe { send_whole(lane, r) }
}

/// Sends the part at the request's offset, of `left` bytes at most: long contiguous data from user memory where the
/// lane can. Returns its bytes of data, if there was room.
///
/// # Safety
/// The data and tail of the request are readable, the data until its record is not midway any more.
unsafe fn send_part<L: LaneOps>(
    lane: &mut L,
    r: &Request,
    left: usize,
) -> Result<Option<usize>, LaneError> {
    if let Some(data) = zcopy_data(r, left) {
        // SAFETY: the caller's promise; the offset is inside the data.
        let (result, n) = unsafe { send_part_zcopy(lane, r, data.add(r.offset as usize), left) };
        match result {
            ZcopyResult::Sent => return Ok(Some(n)),
            ZcopyResult::NoRoom => return Ok(None),
            ZcopyResult::Unsupported => {}
        }
    }
    // Packing functions are called in order, once for each byte: not before there is room.
    if !lane.has_room(L::MAX_PART + FragmentHdr::SIZE + r.msg.tail_len())? {
        return Ok(None);
    }
    if let Data::Device { memory, .. } = r.data {
        // SAFETY: freed when the request completes; the range is inside the data.
        unsafe { wait_for(&*memory, r.offset as usize, L::MAX_PART.min(left)) }?;
    }
    // SAFETY: the range is inside the data.
    let part = unsafe { Fragment::next_part(r, L::MAX_PART.min(left)) };
    let sent = lane.am_bcopy(part.hdr(r), part.len(), |dst| {
        // SAFETY: the record has room for the part.
        unsafe { part.write(r, dst) }
    })?;
    // Packed data cannot be packed again: a refusal is an error.
    taken::<L>(sent)?;
    Ok(Some(part.data_len))
}

/// Sends the part of a request that begins at `data`, of `left` bytes at most, from user memory. Returns its bytes.
///
/// # Safety
/// The requirements of [`send_part`], and `left` bytes are readable at `data`.
unsafe fn send_part_zcopy<L: LaneOps>(
    lane: &mut L,
    r: &Request,
    data: *const u8,
    left: usize,
) -> (ZcopyResult, usize) {
    let (max, is_kept) = match r.msg.raw_kind() {
        STREAM => (L::MAX_PART, false),
        AM_FRAGMENT | TAG_FRAGMENT => (longest_fragment(r), false),
        _ => (MAX_ZCOPY_PART, true),
    };
    let n = max.min(left);
    let part = Fragment::of(r, n, Vec::new());
    let hdr = part.hdr(r);
    // SAFETY: the ranges are inside the user's data and header; the caller's promise for what is kept.
    let result = unsafe {
        let payload = std::slice::from_raw_parts(data, n);
        if is_kept {
            lane.am_zcopy_kept(hdr, part.head(), payload)
        } else {
            lane.am_zcopy(hdr, [part.head(), payload, part.tail(r)])
        }
    };
    (result, n)
}

/// The data of a request, if they are contiguous and `len` bytes of them are sent from user memory where the lane can.
fn zcopy_data(r: &Request, len: usize) -> Option<*const u8> {
    r.data
        .as_contig()
        .filter(|_| is_zcopy(&r.worker.get().ctx.policy, len))
        .map(|data| data.cast_const())
}

/// Longest fragment of an eager message that is sent from user memory, bytes. At most a whole message, for which the
/// sender's buffer has room.
fn longest_fragment(r: &Request) -> usize {
    longest_by_socket(&r.worker.get().ctx.tl.tcp.policy.am_limits, true)
}

/// One record of a request that has several. The user's packing functions decide where a part ends: some (yaksa,
/// MPICH's) cannot split an element, so that their data are packed before room is taken.
struct Fragment {
    imm: u64,
    aux: u8,
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

    /// The part of `len` bytes at the request's offset. A put has the address in its immediate and what follows in its
    /// auxiliary byte, that of the request if nothing does; a stream needs only the order, other kinds have the offset
    /// in their header.
    fn of(r: &Request, data_len: usize, packed: Vec<u8>) -> Fragment {
        let (offset, total) = (r.offset, r.data.len() as u64);
        let (imm, aux) = if r.msg.raw_kind() == PUT {
            let aux = match PutRest::of(total - offset - data_len as u64) {
                PutRest::NONE => r.msg.aux,
                rest => rest.aux(),
            };
            (r.msg.imm + offset, aux)
        } else {
            (r.msg.imm, r.msg.aux)
        };
        let head_len = match r.msg.raw_kind() {
            PUT | STREAM => 0,
            AM_FRAGMENT | TAG_FRAGMENT => FragmentHdr::SIZE,
            _ => DataHdr::SIZE,
        };
        Fragment {
            imm,
            aux,
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

    fn hdr(&self, r: &Request) -> RecordHdr {
        RecordHdr {
            kind: r.msg.raw_kind(),
            aux: self.aux,
            imm: self.imm,
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
    use crate::tl::RingSender;
    use crate::tl::adapter::StaddSender;

    #[test]
    fn a_record_that_is_not_taken_is_the_error_of_the_lane() {
        assert_eq!(taken::<RingSender>(true), Ok(()));
        assert_eq!(taken::<RingSender>(false), Err(LaneError::Unusable));
        assert_eq!(taken::<StaddSender>(false), Err(LaneError::Refused));
    }
}
