//! Long eager active messages at the receiver: fragments are collected until the last one has arrived, then the handler
//! runs.
//!
//! The fragments of a message follow each other on the lane: the handler of a long message runs before that of each
//! message sent after it.

use super::{handler, offer};
use crate::ctypes::*;
use crate::engine::am::{AmDesc, AmPayload, PartialAm};
use crate::engine::peer::Peer;
use crate::engine::worker::Worker;
use crate::op::malformed::Malformed;
use crate::sys::log;
use crate::wire::header::{AmImm, FragmentHdr};

/// Stores a fragment: `body_len` bytes of data; in the last fragment the user's header follows the data.
///
/// # Errors
/// [`Malformed`]: the fragment is not the next one of its message.
///
/// # Safety
/// `body_len` bytes are readable at `body` during the call. Called by the progress thread.
pub unsafe fn on_fragment(
    worker: &Worker,
    peer: &Peer,
    imm: AmImm,
    h: FragmentHdr,
    body: *const u8,
    body_len: usize,
) -> Result<(), Malformed> {
    let mut partials = worker.peer_lists.partial_ams.lock();
    if h.offset == 0 {
        // A forced close of the sender's endpoint can leave the previous message unfinished.
        let unfinished = partials.insert(peer, begin(worker, imm, h.total)?);
        worker.am_descs.discard(unfinished);
    }
    let message = partials.get_mut(peer).ok_or(Malformed)?;
    if message.imm != imm || message.total != h.total || message.received != h.offset {
        return Err(Malformed);
    }
    let left = (message.total - message.received) as usize;
    let header_len = usize::from(imm.header_len);
    let last = body_len == left.saturating_add(header_len);
    if !last && body_len >= left {
        return Err(Malformed);
    }
    let data_len = if last { left } else { body_len };
    if let Some(desc) = message.desc {
        // SAFETY: the descriptor has room for `total` bytes, of which `left` are missing; the caller's bytes are
        // readable.
        unsafe {
            let at = AmDesc::data(desc).add(message.received as usize);
            at.copy_from_nonoverlapping(body, data_len);
        }
    }
    message.received += data_len as u64;
    if last {
        let desc = message.desc;
        partials.remove(peer);
        drop(partials);
        if let Some(desc) = desc {
            let handler = handler(worker, imm.id);
            let attr = if handler.persistent {
                UCP_AM_RECV_ATTR_FLAG_DATA as u64
            } else {
                0
            };
            // SAFETY: the header follows the data of the last fragment; the descriptor is complete.
            unsafe { offer(worker, peer, handler, imm, body.add(data_len), desc, attr) };
        }
    }
    Ok(())
}

/// The state of a message of which nothing was stored yet.
fn begin(worker: &Worker, imm: AmImm, total: u64) -> Result<PartialAm, Malformed> {
    let len = usize::try_from(total).map_err(|_| Malformed)?;
    if len == 0 {
        return Err(Malformed);
    }
    let desc = worker.am_descs.get(AmPayload::Here, len, len);
    if desc.is_none() {
        log::once!(
            Error,
            "no memory for an active message of {len} bytes: dropped"
        );
    }
    Ok(PartialAm {
        desc,
        imm,
        total,
        received: 0,
    })
}
