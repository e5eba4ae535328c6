//! Hot path of put with signal: data are stored into mapped memory, and the entry of a completion queue of the target
//! is a message in the ring. In single-thread mode; less frequent cases are left to the slow path.

use super::length::SPECIAL;
use super::plain::is_plain;
use super::rma::copied;
use crate::ctypes::*;
use crate::engine::endpoint::Endpoint;
use crate::engine::rkey::Rkey;
use crate::op::param::Param;
use crate::op::signal::{self, Signal, SignalAim};
use crate::sys::copy;
use crate::tl::Lane;
use crate::tl::contract::MAX_SHORT;
use crate::wire::header::{Kind, SignalHdr};
use crate::wire::stats::StatProtocol;
use std::ffi::c_void;

const _: () = assert!(SignalHdr::SIZE <= MAX_SHORT);

/// Bits of `op_attr_mask` that exclude the fast path.
const SPECIAL_SIGNAL: u32 = SPECIAL | UCP_OP_ATTR_FIELD_REMOTE_DATATYPE as u32;

/// `ucpx_put_signal_nbx`, with the decoded signal, if all of it can be done at once: the value that the call returns.
/// `None`: nothing was done.
///
/// # Safety
/// The parameters are valid as UCPX requires.
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
    // SAFETY: a key that is not null is valid; the caller's other promises are those that the callee requires.
    unsafe {
        if rkey.is_null() || !(*rkey).is_mapped() {
            return None;
        }
        put_mapped(ep, (buffer, count), addr, rkey, &signal, param)
    }
}

/// [`put`] with a key of mapped memory.
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
    // SAFETY: the caller's endpoint, key and structure are valid.
    unsafe {
        // With a configuration that adds flags, `SLOW_PATH_RMA` is set in the endpoint.
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

/// Stores the data and sends the signal. `None`: nothing was done; false: the data are stored, and the ring has no room
/// for the signal.
#[inline(always)]
unsafe fn put_and_notify(
    ep: *const Endpoint,
    (local, buffer, len): (*mut u8, *const c_void, usize),
    addr: u64,
    cq: u8,
    value: u64,
) -> Option<bool> {
    // SAFETY: the caller's endpoint is valid; its peer outlives it.
    let peer = unsafe { (*ep).peer() };
    // The flags of an endpoint do not say whether threads share the peer: access to mapped memory needs no lock.
    if peer.tx.is_shared() || !peer.is_connected() {
        return None;
    }
    // SAFETY: single-thread mode; no callback runs here.
    let tx = unsafe { peer.tx.alone() };
    let ring = tx.lane.as_mut().and_then(Lane::ring)?;
    if !tx.pending.is_empty() {
        return None;
    }
    peer.stats().of(StatProtocol::RmaMapped).add(len);
    // SAFETY: `local` and the user's buffer have `len` bytes.
    unsafe { copied(local, buffer.cast(), len) };
    let head = SignalHdr {
        addr,
        len: len as u64,
        flag: 0,
        op: SignalHdr::NOTIFY,
        cq,
    };
    let head = head.encode();
    // Counted before the send: the reply can be handled before the store.
    peer.rma.add_sent_plain();
    let sent = ring.send(Kind::Signal as u8, 0, value, SignalHdr::SIZE, |record| {
        // SAFETY: the record has room for the header.
        unsafe { copy::to_shared(record, head.as_ptr(), SignalHdr::SIZE) };
    });
    // An error of the ring is found again by the slow path.
    let sent = sent == Ok(true);
    if !sent {
        peer.rma.cut_sent_plain();
    }
    Some(sent)
}
