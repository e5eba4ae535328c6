//! Atomic operations: by the processor where the memory is mapped, by an HCA or a TNI that has the operation, else by a
//! message that the peer executes.

use super::param::{self, Param, status_ptr};
use super::rma;
use crate::ctypes::*;
use crate::engine::completion;
use crate::engine::datatype::Data;
use crate::engine::endpoint::Endpoint;
use crate::engine::peer::Peer;
use crate::engine::pointers::{EndpointId, PeerRef};
use crate::engine::request::{Callback, Request, TxPayload, TxState};
use crate::engine::request_alloc;
use crate::engine::rkey::Rkey;
use crate::engine::worker::Worker;
use crate::proto::answers;
use crate::proto::select::amo::{self as select, AmoPath};
use crate::proto::tx::{self, PostResult};
use crate::sys::log;
use crate::tl::amo::{self, AmoOp, CSWAP, SWAP, XOR};
use crate::wire::header::{AmoHdr, Kind, UNNAMED};
use std::ffi::c_void;

const NAME: &str = "ucp_atomic_op_nbx";

/// The header of an operation as a message.
fn head(amo: AmoOp, fetch: bool) -> AmoHdr {
    AmoHdr {
        req: UNNAMED,
        value: amo.value,
        compare: amo.compare,
        op: amo.op,
        size: amo.size,
        fetch: fetch.into(),
    }
}

/// Whether a compare-and-swap found another value than the expected one.
fn has_failed(amo: AmoOp, old: u64) -> bool {
    amo.op == CSWAP && old != amo.compare
}

/// `ucp_atomic_op_nbx`: one atomic operation by any path.
///
/// # Safety
/// The parameters are those of `ucp_atomic_op_nbx`.
pub unsafe fn atomic(
    ep: *const Endpoint,
    op: u32,
    buffer: *const c_void,
    count: usize,
    addr: u64,
    rkey: *const Rkey,
    p: &Param,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's promises are those that the callee requires.
    unsafe {
        match p.is_kind_open() {
            false => atomic_by::<false>(ep, op, buffer, count, addr, rkey, p),
            true => atomic_open(ep, op, buffer, count, addr, rkey, p),
        }
    }
}

/// [`atomic_by`] where the kind of memory is open.
///
/// # Safety
/// The parameters are those of `ucp_atomic_op_nbx`.
#[cold]
#[inline(never)]
unsafe fn atomic_open(
    ep: *const Endpoint,
    op: u32,
    buffer: *const c_void,
    count: usize,
    addr: u64,
    rkey: *const Rkey,
    p: &Param,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's promises are those that the callee requires.
    unsafe { atomic_by::<true>(ep, op, buffer, count, addr, rkey, p) }
}

/// `ucp_atomic_op_nbx`. `OPEN`: operands and result may be in any kind of memory; else they are the host's.
///
/// # Safety
/// The parameters are those of `ucp_atomic_op_nbx`.
#[inline(always)]
unsafe fn atomic_by<const OPEN: bool>(
    ep: *const Endpoint,
    op: u32,
    buffer: *const c_void,
    count: usize,
    addr: u64,
    rkey: *const Rkey,
    p: &Param,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's endpoint, buffers and key are valid.
    unsafe {
        let reply = p.reply_buffer();
        let checked = param::open_endpoint(ep).and_then(|(worker, peer)| {
            let amo = check::<OPEN>(worker, op, buffer, count, addr, p, reply)?;
            let feature = if amo.size == 4 {
                UCP_FEATURE_AMO32
            } else {
                UCP_FEATURE_AMO64
            };
            p.check(worker, feature as u64, NAME)?;
            let rkey = rkey.as_ref().ok_or(UCS_ERR_INVALID_PARAM)?;
            Ok((
                worker,
                peer,
                rkey,
                amo,
                path(worker, peer, rkey, addr, amo)?,
            ))
        });
        let (worker, peer, rkey, amo, mut path) = match checked {
            Ok(ok) => ok,
            Err(status) => return status_ptr(status),
        };
        let fetch = !reply.is_null();
        let mut result = Data::EMPTY;
        if OPEN && fetch {
            (result, path) = match result_memory(worker, p, reply, path, amo) {
                Ok(ok) => ok,
                Err(status) => return status_ptr(status),
            };
        }
        if let AmoPath::Mapped(local) = path {
            let old = amo::execute(local, amo);
            let mut stored = UCS_OK;
            match OPEN {
                true => stored = result.finish(store_in(&result, old)),
                false => store(reply, old, amo.size),
            }
            if has_failed(amo, old) {
                worker.count_failed_swap();
            }
            let tally = peer.stats().of(path.counted());
            tally.add(amo.size.into());
            if !p.has(UCP_OP_ATTR_FLAG_NO_IMM_CMPL) || stored != UCS_OK {
                return status_ptr(stored);
            }
        }
        let req = request_alloc::take(worker, p.external());
        let r = &mut *req;
        (r.peer, r.ep) = (Some(PeerRef::new(peer)), EndpointId::of(ep));
        if let AmoPath::Mapped(_) = path {
            (r.notify, r.user_data) = (p.notify_send(), p.user_data());
            return param::finish(req, p, UCS_OK);
        }
        if OPEN {
            r.data = result;
        } else if fetch {
            r.data = Data::Contig {
                ptr: reply.cast(),
                len: amo.size.into(),
            };
        }
        set_sent(r, path, addr, &head(amo, fetch), rkey);
        if !fetch && !p.has(UCP_OP_ATTR_FLAG_NO_IMM_CMPL) && p.external().is_null() {
            return post(req);
        }
        param::start(req, p)
    }
}

/// The memory of the result, and the path to it: adapters write to host memory only.
///
/// # Errors
/// Those of [`Param::target`].
///
/// # Safety
/// `reply` has as many writable bytes as the operation's word.
unsafe fn result_memory(
    worker: &Worker,
    p: &Param,
    reply: *mut c_void,
    path: AmoPath,
    amo: AmoOp,
) -> Result<(Data, AmoPath), ucs_status_t> {
    let (ptr, len) = (reply.cast(), amo.size.into());
    // SAFETY: the caller's promise.
    let result = unsafe { p.piece(worker, NAME, ptr, len) }?;
    match (path, result) {
        (AmoPath::Adapter(_), Data::Device { .. }) => Ok((result, AmoPath::Message)),
        _ => Ok((result, path)),
    }
}

/// Sets a request to execute the operation by the adapter, or else by a message.
#[inline(always)]
fn set_sent(r: &mut Request, path: AmoPath, addr: u64, head: &AmoHdr, rkey: &Rkey) {
    let key = (path.device()).and_then(|device| rkey.tl.amo_key(device, addr, head.size));
    if let Some(key) = key {
        return tx::rma::set_atomic(r, addr, head, key);
    }
    if head.fetch != 0 {
        (r.sent, r.payload) = (TxState::AwaitReply, TxPayload::HeaderOnly);
    }
    tx::set_message(r, Kind::AmoReq, 0, addr, &head.encode());
}

/// The fastest path on which an operation is atomic to all others on this memory.
///
/// # Errors
/// Those of [`rma::path`].
#[inline(always)]
fn path(
    worker: &Worker,
    peer: &Peer,
    rkey: &Rkey,
    addr: u64,
    amo: AmoOp,
) -> Result<AmoPath, ucs_status_t> {
    let len = amo.size.into();
    let rma = rma::path(worker, peer, rkey, addr, len)?;
    let executes = |device| {
        rkey.tl.amo_key(device, addr, amo.size).is_some() && worker.ctx.tl.has_amo(device, amo)
    };
    let answered = || answers::is_answered(peer);
    let alone = rkey.tl.is_amo_alone(amo.size);
    Ok(select::path(rkey.executor, rma, alone, executes, answered))
}

/// The address at which this process executes operations on a word of `size` bytes itself, if it does.
///
/// # Errors
/// Those of [`rma::path`].
pub(super) fn mapped(
    worker: &Worker,
    peer: &Peer,
    rkey: &Rkey,
    addr: u64,
    size: u8,
) -> Result<Option<*mut u8>, ucs_status_t> {
    let rma = rma::path(worker, peer, rkey, addr, size.into())?;
    let alone = rkey.tl.is_amo_alone(size);
    Ok(select::mapped(rkey.executor, rma, alone))
}

/// Sends an operation without a result. It completes inside of the call, even if its message waits in the pending
/// queue.
unsafe fn post(req: *mut Request) -> ucs_status_ptr_t {
    // SAFETY: the caller's new request, which is in no list.
    unsafe {
        (*req).notify = Callback::Internal(completion::discard);
        match tx::post(req) {
            PostResult::Queued => {}
            PostResult::Done => request_alloc::recycle(req),
            PostResult::Failed(status) => {
                request_alloc::recycle(req);
                return status_ptr(status);
            }
        }
    }
    status_ptr(UCS_OK)
}

unsafe fn check<const OPEN: bool>(
    worker: &Worker,
    op: u32,
    buffer: *const c_void,
    count: usize,
    addr: u64,
    p: &Param,
    reply: *mut c_void,
) -> Result<AmoOp, ucs_status_t> {
    let size = (p.datatype() >> 3) as u8;
    let fetch = p.has(UCP_OP_ATTR_FIELD_REPLY_BUFFER);
    let wrong = if !p.has(UCP_OP_ATTR_FIELD_DATATYPE) {
        "no datatype"
    } else if p.datatype() != 4 << 3 && p.datatype() != 8 << 3 {
        "a datatype that is not contiguous of 4 or 8 bytes"
    } else if count != 1 {
        "a count other than 1"
    } else if addr % u64::from(size) != 0 {
        "an address that is not a multiple of the size"
    } else if op > u32::from(XOR) {
        "an unknown operation"
    } else if buffer.is_null() || (fetch && reply.is_null()) {
        "a null buffer"
    } else if !fetch && (op == u32::from(SWAP) || op == u32::from(CSWAP)) {
        "a swap without a reply buffer"
    } else {
        // SAFETY: the caller promises `size` bytes.
        let word = |ptr| unsafe { p.word(worker, NAME, ptr, size) };
        let operand = match OPEN {
            true => word(buffer)?,
            // SAFETY: the caller promises `size` bytes.
            false => unsafe { load(buffer, size) },
        };
        // CSWAP: `buffer` holds the expected value, the reply buffer the new one.
        let (value, compare) = if op == u32::from(CSWAP) {
            let value = match OPEN {
                true => word(reply)?,
                // SAFETY: the caller promises `size` bytes in the reply buffer.
                false => unsafe { load(reply, size) },
            };
            (value, operand)
        } else {
            (operand, 0)
        };
        return Ok(AmoOp {
            op: op as u8,
            size,
            value,
            compare,
        });
    };
    log::error!("ucp_atomic_op_nbx: {wrong}");
    Err(UCS_ERR_INVALID_PARAM)
}

/// Reads an operand of 4 or 8 bytes.
///
/// # Safety
/// `ptr` has `size` readable bytes.
#[inline(always)]
pub unsafe fn load(ptr: *const c_void, size: u8) -> u64 {
    // SAFETY: `size` bytes are readable.
    unsafe { amo::load(ptr.cast(), size) }
}

/// Stores a result of 4 or 8 bytes, unless `ptr` is null.
///
/// # Safety
/// `ptr` is null or has `size` writable bytes.
#[inline(always)]
pub unsafe fn store(ptr: *mut c_void, value: u64, size: u8) {
    if ptr.is_null() {
        return;
    }
    // SAFETY: `ptr` has `size` writable bytes.
    unsafe {
        if size == 4 {
            ptr.cast::<u32>().write_unaligned(value as u32)
        } else {
            ptr.cast::<u64>().write_unaligned(value)
        }
    }
}

/// Stores a result in memory of 4 or 8 bytes, or nowhere, if that is empty.
///
/// # Safety
/// The memory is writable.
#[inline(always)]
pub unsafe fn store_in(result: &Data, value: u64) -> ucs_status_t {
    // SAFETY: the caller's memory is writable.
    unsafe {
        match *result {
            Data::Contig { len: 0, .. } => {}
            Data::Contig { ptr, len } => store(ptr.cast(), value, len as u8),
            // The lowest bytes of a word come first on all processors that this library supports.
            _ => {
                let bytes = value.to_le_bytes();
                let stored = result.unpack(0, bytes.as_ptr(), result.len());
                return stored.err().unwrap_or(UCS_OK);
            }
        }
    }
    UCS_OK
}
