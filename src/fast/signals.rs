//! THE HOT PATH of put with signal: data of mapped memory is stored, and the entry of a completion queue of the
//! target's is one message in the ring behind it. In single-thread mode; what is not the common case is handed back.

use super::{SPECIAL, copied, is_plain};
use crate::ctypes::*;
use crate::engine::endpoint::Endpoint;
use crate::engine::rkey::Rkey;
use crate::op::param::Param;
use crate::op::signal::{self, Signal, SignalAim};
use crate::sys::copy;
use crate::tl::Lane;
use crate::tl::shm::ring::INLINE;
use crate::wire::header::{Kind, SignalHdr};
use crate::wire::stats::StatProtocol;
use std::ffi::c_void;
use std::sync::atomic::Ordering;

const _: () = assert!(SignalHdr::SIZE <= INLINE);

/// With one of these bits in its mask a put with signal goes the long way.
const SPECIAL_SIGNAL: u32 = SPECIAL | UCP_OP_ATTR_FIELD_REMOTE_DATATYPE as u32;

/// `ucpx_put_signal_nbx`, of a signal that was read, if all of it can be done at once: what the call returns.
///
/// # Safety
/// As there.
#[inline(always)]
pub unsafe fn put(
    ep: *const Endpoint,
    buffer: *const c_void,
    count: usize,
    addr: u64,
    rkey: *const Rkey,
    signal: Signal,
    param: *const ucp_request_param_t,
) -> Option<ucs_status_ptr_t> {
    // SAFETY: passed on; a key is the caller's.
    unsafe {
        if rkey.is_null() || !(*rkey).is_mapped() {
            return None;
        }
        put_mapped(ep, (buffer, count), addr, rkey, &signal, param)
    }
}

/// As [`put`], with a key of mapped memory.
#[inline(always)]
unsafe fn put_mapped(
    ep: *const Endpoint,
    (buffer, count): (*const c_void, usize),
    addr: u64,
    rkey: *const Rkey,
    signal: &Signal,
    param: *const ucp_request_param_t,
) -> Option<ucs_status_ptr_t> {
    let SignalAim::Queue(cq) = signal.aim else {
        return None;
    };
    // SAFETY: passed on; the caller's endpoint, key and structure.
    unsafe {
        // An option that adds to the flags sends the endpoint's accesses the long way.
        if Param::new(param, 0).mask & SPECIAL_SIGNAL != 0
            || count == 0
            || buffer.is_null()
            || !is_plain(ep, rkey)
        {
            return None;
        }
        let local = (*rkey).local(addr, count)?;
        match put_and_notify(ep, (local, buffer, count), addr, cq, signal.value)? {
            true => Some(std::ptr::null_mut()),
            false => Some(signal::behind(ep, (addr, count), *signal, param)),
        }
    }
}

/// Stores the data, and sends the signal. `None`: nothing was done; false: the data is stored, and the signal has found
/// no room.
#[inline(always)]
unsafe fn put_and_notify(
    ep: *const Endpoint,
    (local, buffer, len): (*mut u8, *const c_void, usize),
    addr: u64,
    cq: u8,
    value: u64,
) -> Option<bool> {
    // SAFETY: the caller's endpoint, whose peer outlives it.
    let peer = unsafe { (*ep).peer() };
    // What is mapped needs no lock, so that the endpoint's flags do not say whether threads overlap.
    if peer.tx.is_shared() || !peer.is_connected() {
        return None;
    }
    // SAFETY: single-thread mode; no callback runs here.
    let tx = unsafe { peer.tx.alone() };
    let Some(Lane::Shm(outbox)) = tx.lane.as_mut() else {
        return None;
    };
    if !tx.pending.is_empty() {
        return None;
    }
    peer.stats().of(StatProtocol::RmaMapped).add(len);
    // SAFETY: so many bytes of the user's, here and there.
    unsafe { copied(local, buffer.cast(), len) };
    let head = SignalHdr {
        addr,
        len: len as u64,
        flag: 0,
        op: SignalHdr::NOTIFY,
        cq,
    };
    let head = head.encode();
    // Counted before: the answer can be faster than this thread. Relaxed, and no read-modify-write: only who has `tx`
    // counts here.
    let before = peer.rma_sent.load(Ordering::Relaxed);
    peer.rma_sent.store(before + 1, Ordering::Relaxed);
    let sent = outbox.send(Kind::Signal as u8, 0, value, SignalHdr::SIZE, |record| {
        // SAFETY: the record has room for the header.
        unsafe { copy::to_shared(record, head.as_ptr(), SignalHdr::SIZE) };
    });
    // What is wrong with the ring the long way sees as well.
    let sent = sent == Ok(true);
    if !sent {
        peer.rma_sent.store(before, Ordering::Relaxed);
    }
    Some(sent)
}
