//! Remote accesses that the adapter of the Tofu interconnect carries out: queued as messages are, because a ring has to be there, and
//! posted in their turn. What is written goes by the queues that messages go by, in order with them.

use crate::engine::peer::Peer;
use crate::engine::request::{Request, Sent};
use crate::proto::attach::Direction;
use crate::tl::Lane;
use crate::tl::tofu::sender::Sender;
use crate::wire::stats::Protocol;

/// Where a request keeps the steering address.
const STADD: std::ops::Range<usize> = 0..8;

/// Makes a request, whose data (one piece) and peer are set, an access of the adapter's.
pub fn by_adapter(r: &mut Request, direction: Direction, addr: u64, stadd: u64) {
    (r.sent, r.imm, r.kind) = (Sent::Device, addr, 0);
    r.stream = direction == Direction::Write;
    r.info.length = r.data.len();
    (r.offset, r.remote) = (0, 0);
    r.head_len = 0;
    r.head[STADD].copy_from_slice(&stadd.to_le_bytes());
}

/// Writes what one operation does at once. False: it has to wait, or is longer.
///
/// # Safety
/// `len` bytes are readable at `data`.
pub unsafe fn write_now(peer: &Peer, stadd: u64, data: *const u8, len: usize) -> bool {
    let mut tx = peer.tx.lock();
    if !tx.pending.is_empty() {
        return false;
    }
    let Some(Lane::Tofu(sender)) = tx.lane.as_mut() else {
        return false;
    };
    // SAFETY: the caller's bytes.
    let fill = |to: *mut u8, n: usize| unsafe { to.copy_from_nonoverlapping(data, n) };
    let written = len <= sender.most_at_once() && sender.write(stadd, len, fill) == len;
    if written {
        peer.stats().of(Protocol::RmaCopy).add(len);
    }
    written
}

fn stadd(r: &Request) -> u64 {
    let bytes = r.head[STADD].first_chunk();
    bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// Posts as much of a request as there is room for; true when that was all of it. `None`: it cannot be done this way.
///
/// # Safety
/// The request's memory is the user's promise until it ends.
pub(super) unsafe fn advance(sender: &mut Sender, req: *mut Request) -> Option<bool> {
    // SAFETY: the caller's request.
    let r = unsafe { &mut *req };
    let (data, len) = (r.data.as_contig()?, r.data.len());
    while (r.offset as usize) < len {
        let (at, left) = (r.offset as usize, len - r.offset as usize);
        let there = stadd(r).wrapping_add(r.offset);
        // SAFETY: inside of the user's memory.
        let n = unsafe {
            let here = data.add(at);
            match r.stream {
                true => sender.write(there, left, |to, n| to.copy_from_nonoverlapping(here, n)),
                false => sender.read(there, here, left, req.cast()),
            }
        };
        if n == 0 {
            return Some(false);
        }
        r.offset += n as u64;
        r.remote += u64::from(!r.stream);
    }
    // The end of a read is the adapter's to tell.
    r.sent = match r.stream {
        true => Sent::Complete,
        false => Sent::Await,
    };
    Some(true)
}
