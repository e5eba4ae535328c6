//! Puts and gets of registered memory of a device of this host: by copies of this process's driver, without the owner.
//! Atomic operations are the owner's, by message.

use super::param::Param;
use super::rma::{self, RmaOp};
use super::traced_send::{self, LONG_RMA};
use crate::ctypes::*;
use crate::engine::datatype::Data;
use crate::engine::endpoint::Endpoint;
use crate::engine::peer::Peer;
use crate::engine::request::{Request, ZcopyRole};
use crate::engine::request_alloc;
use crate::engine::rkey::Rkey;
use crate::engine::worker::Worker;
use crate::proto::select::rma::{self as select, RmaPath};
use crate::proto::tx::device_copy::{self, CopyRequest};
use crate::proto::{answers, flush};
use crate::sys::cma::CmaDirection;
use crate::sys::cuda::MemoryInfo;
use crate::sys::trace;
use crate::tl::cuda::{CopyDirection, LocalMemory};
use crate::tl::rma::RmaDevice;
use crate::wire::stats::StatProtocol;

/// Whether a key has the handle of a device's memory that this process may be able to open, or keys by which an adapter
/// may read the local memory where it is: it is not first copied by this process.
///
/// # Safety
/// The key is valid or null.
pub(super) unsafe fn is_accessed_in_place(worker: &Worker, rkey: *const Rkey) -> bool {
    // SAFETY: the caller's promise.
    unsafe { rkey.as_ref() }.is_some_and(|rkey| {
        rkey.device.is_some() || rkey.tl.ib.is_some() && worker.ctx.tl.takes_gpu_memory()
    })
}

/// The path to memory of a device of the owner that the driver does not copy: by an HCA that has registered it, or by
/// message.
#[cold]
pub(super) fn path(worker: &Worker, peer: &Peer, rkey: &Rkey, addr: u64, len: usize) -> RmaPath {
    let keyed = rkey.tl.device_keys(addr, len).is_some() && select::ib_reaches(worker, peer, len);
    // After a fence nothing overtakes accesses by message, which the owner executes in order.
    let is_free = !worker.is_fenced() || answers::is_answered(peer);
    match keyed && is_free {
        true => RmaPath::Adapter(RmaDevice::Ib),
        false => RmaPath::Message,
    }
}

/// A put or a get whose memory, here or there, may be a device's.
///
/// # Safety
/// The requirements of [`rma::access`].
#[cold]
#[inline(never)]
pub(super) unsafe fn access(
    ep: *const Endpoint,
    direction: CmaDirection,
    data: impl FnOnce(&Worker) -> Result<Data, ucs_status_t>,
    addr: u64,
    rkey: *const Rkey,
    p: &Param,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's promises.
    unsafe {
        let copied = |a: &RmaOp| start(a, ep, p, direction, addr);
        rma::access(ep, direction, data, addr, rkey, p, copied)
    }
}

/// Starts an access by a copy. `None`: it goes by message.
///
/// # Safety
/// The endpoint is valid; the user's memory is valid until the request completes.
unsafe fn start(
    a: &RmaOp,
    ep: *const Endpoint,
    p: &Param,
    direction: CmaDirection,
    addr: u64,
) -> Option<ucs_status_ptr_t> {
    let handle = a.rkey.device.as_deref()?;
    if a.peer.status() != UCS_OK {
        return None;
    }
    // After a fence nothing overtakes accesses by message, which the owner executes in order.
    if a.worker.is_fenced() && !flush::is_settled(a.peer) {
        return None;
    }
    let (here, near) = match a.data {
        Data::Contig { ptr, .. } => (ptr as u64, MemoryInfo::HOST),
        // SAFETY: freed when the request completes.
        Data::Device { memory, .. } => unsafe { (*memory).as_contig() }?,
        Data::Iov { .. } | Data::Generic { .. } => return None,
    };
    let len = a.data.len();
    let what = CopyRequest {
        handle,
        remote_addr: addr,
        local: LocalMemory {
            addr: here,
            len,
            kind: near.kind,
        },
        near,
        direction: match direction {
            CmaDirection::Read => CopyDirection::FromRemote,
            CmaDirection::Write => CopyDirection::ToRemote,
        },
        role: ZcopyRole::Access,
    };
    // SAFETY: a new request, complete before the copy begins; freed if it does not begin.
    unsafe {
        let req = rma::request_for(a, ep, p);
        ((*req).notify, (*req).user_data) = (p.notify_send(), p.user_data());
        let begin = || device_copy::begin(a.worker, req, what);
        let begun = match trace::is_on() && len >= LONG_RMA {
            true => traced_send::begin_copy((a.worker, a.peer), direction, len, req, begin),
            false => begin(),
        };
        if !begun {
            request_alloc::recycle(req);
            return None;
        }
        a.peer.stats().of(StatProtocol::RmaCopy).add(len);
        Some(Request::handle(req))
    }
}
