//! Hot path of put with signal: data are stored into mapped memory, and the entry of a completion queue of the target
//! is a message in the ring, which the target does not answer ([`crate::proto::answers`]). In single-thread mode, and
//! not in a worker that may sleep: only an answer would wake it. Less frequent cases are left to the slow path.

use super::length::SPECIAL;
use super::plain::is_plain;
use super::rma::copied;
use super::sender::send_counted;
use crate::ctypes::*;
use crate::engine::endpoint::Endpoint;
use crate::engine::peer::Peer;
use crate::engine::rkey::Rkey;
use crate::op::param::Param;
use crate::op::signal::{self, Signal, SignalAim};
use crate::proto::tx::ready_ring;
use crate::tl::RingSender;
use crate::tl::contract::MAX_SHORT;
use crate::wire::header::{Kind, NoteHdr, SignalHdr};
use crate::wire::stats::StatProtocol;
use std::ffi::c_void;

const _: () = assert!(SignalHdr::SIZE <= MAX_SHORT);

/// Bits of `op_attr_mask` that exclude the fast path.
const SPECIAL_SIGNAL: u32 = SPECIAL | UCP_OP_ATTR_FIELD_REMOTE_DATATYPE as u32;

/// An entry of a completion queue of the target.
#[derive(Clone, Copy)]
pub struct PlainSignal {
    pub cq: u8,
    pub value: u64,
}

/// `ucpx_put_signal_nbx` of 8 bytes to mapped memory, if all of it can be done at once: the value that
/// the call returns. `None`: nothing was done.
///
/// # Safety
/// The parameters are valid as UCPX requires.
#[inline(always)]
pub unsafe fn put_word(
    ep: *const Endpoint,
    buffer: *const c_void,
    count: usize,
    addr: u64,
    rkey: *const Rkey,
    signal: PlainSignal,
    param: *const ucp_request_param_t,
) -> Option<ucs_status_ptr_t> {
    // The code for one length calls no function, and so needs no stack frame.
    if count != size_of::<u64>() {
        return None;
    }
    // SAFETY: the caller's promises are those that the callee requires.
    unsafe { put_mapped(ep, (buffer, size_of::<u64>()), addr, rkey, signal, param) }
}

/// [`put_word`] for any length.
///
/// # Safety
/// The parameters are valid as UCPX requires.
pub unsafe fn put_bytes(
    ep: *const Endpoint,
    buffer: *const c_void,
    count: usize,
    addr: u64,
    rkey: *const Rkey,
    signal: PlainSignal,
    param: *const ucp_request_param_t,
) -> Option<ucs_status_ptr_t> {
    // SAFETY: the caller's promises are those that the callee requires.
    unsafe { put_mapped(ep, (buffer, count), addr, rkey, signal, param) }
}

#[inline(always)]
unsafe fn put_mapped(
    ep: *const Endpoint,
    (buffer, count): (*const c_void, usize),
    addr: u64,
    rkey: *const Rkey,
    signal: PlainSignal,
    param: *const ucp_request_param_t,
) -> Option<ucs_status_ptr_t> {
    // SAFETY: the caller's endpoint and structure are valid, and its key if it is not null; the peer outlives the
    // endpoint. The user's buffer has `count` bytes, as many as there are at `local`.
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
        let peer = (*ep).peer();
        let ring = ready_ring(peer)?;
        peer.stats().of(StatProtocol::RmaMapped).add(count);
        copied(local, buffer.cast(), count);
        let behind = NoteHdr {
            addr,
            len: count as u64,
        };
        if (*ep).worker.get().may_sleep() || !ring.send_signal(signal.cq, signal.value, behind) {
            return Some(send_slow(ep, count, addr, signal.cq, signal.value, param));
        }
        peer.rma.add_signal();
        peer.note_unflushed();
        Some(std::ptr::null_mut())
    }
}

/// Sends the signal behind data that were stored: a signal that begins an epoch, for which the target's position has to
/// be read first, that wakes the target, or that is answered. A function of its own with as many parameters as there
/// are registers: the fast path needs no stack frame.
///
/// # Safety
/// The endpoint is valid, its peer has a [`ready_ring`], and the structure is valid.
#[inline(never)]
unsafe fn send_slow(
    ep: *const Endpoint,
    len: usize,
    addr: u64,
    cq: u8,
    value: u64,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's endpoint; peer and worker outlive it.
    let (peer, worker) = unsafe { ((*ep).peer(), (*ep).worker.get()) };
    let behind = NoteHdr {
        addr,
        len: len as u64,
    };
    // SAFETY: no callback runs here, and the caller does not use the ring any more.
    let ring = unsafe { ready_ring(peer) };
    let sent = ring.is_some_and(|ring| match worker.may_sleep() {
        true => send_answered(peer, ring, cq, value, behind),
        false => {
            ring.send_signal_in_turn(cq, value, behind) && {
                peer.note_unflushed();
                peer.rma.add_signal();
                true
            }
        }
    });
    if sent {
        return std::ptr::null_mut();
    }
    // An error of the ring is found again there.
    let aim = SignalAim::Queue(cq);
    // SAFETY: the caller's endpoint and structure. No request is required (`SPECIAL_SIGNAL`).
    unsafe { signal::behind(ep, (addr, len), Signal { value, aim }, param) }
}

/// Sends a signal that the target answers: the answer wakes this worker if it sleeps until a flush ends. False: the
/// ring has no room for it.
fn send_answered(
    peer: &Peer,
    ring: &mut RingSender,
    cq: u8,
    value: u64,
    NoteHdr { addr, len }: NoteHdr,
) -> bool {
    let op = SignalHdr::NOTIFY;
    let head = SignalHdr {
        addr,
        len,
        flag: 0,
        op,
        cq,
    };
    send_counted(peer, ring, Kind::Signal, value, &head.encode())
}
