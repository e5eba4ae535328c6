//! Hot path of atomic operations. The processor changes a word of mapped memory inside of the call, in any thread mode;
//! operations by an adapter are in [`adapter`], those that the peer executes in [`amo_message`].

use super::plain::{EIGHT, FOUR};
use super::{adapter, amo_message};
use crate::ctypes::*;
use crate::engine::core_yield;
use crate::engine::endpoint::{Endpoint, EpFlags};
use crate::engine::peer::Peer;
use crate::engine::rkey::{AmoExecutor, Rkey};
use crate::engine::worker::Worker;
use crate::engine::yield_policy::FAILURES_PER_LOOK;
use crate::op;
use crate::op::param::Param;
use crate::tl::adapter::{RkeySender, StaddSender};
use crate::tl::amo::{self, AmoOp};
use crate::wire::stats::StatProtocol;
use std::ffi::c_void;
use std::ptr;

/// Bits of `op_attr_mask` that the fast path accepts, besides the datatype, which must be there.
const SIMPLE: u32 = UCP_OP_ATTR_FIELD_REPLY_BUFFER as u32
    | UCP_OP_ATTR_FIELD_REQUEST as u32
    | UCP_OP_ATTR_FIELD_CALLBACK as u32
    | UCP_OP_ATTR_FIELD_USER_DATA as u32;

/// Numbers of operations, as in [`ucp_atomic_op_t`].
const ADD: u32 = amo::ADD as u32;
const SWAP: u32 = amo::SWAP as u32;
const CSWAP: u32 = amo::CSWAP as u32;
const XOR: u32 = amo::XOR as u32;

/// `ucp_atomic_op_nbx`
///
/// # Safety
/// The parameters are valid as UCP requires.
#[inline(always)]
pub unsafe fn atomic(
    ep: *const Endpoint,
    op: u32,
    buffer: *const c_void,
    count: usize,
    addr: u64,
    rkey: *const Rkey,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    // SAFETY: a key that is not null is valid; the caller's other promises are those that the callees require.
    unsafe {
        match rkey.as_ref().map(|key| key.executor) {
            Some(AmoExecutor::Processor) => mapped(ep, op, buffer, count, addr, rkey, param),
            _ => atomic_remote(ep, op, buffer, count, addr, rkey, param),
        }
    }
}

/// [`atomic`] with a key of memory whose words are changed by processors.
#[inline(never)]
unsafe fn mapped(
    ep: *const Endpoint,
    op: u32,
    buffer: *const c_void,
    count: usize,
    addr: u64,
    rkey: *const Rkey,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's endpoint, buffers, key and structure are valid.
    unsafe {
        let p = Param::new(param, 0);
        if is_simple(&p, buffer, count)
            && let Some(done) = by_processor(ep, op, buffer, addr, &*rkey, &p)
        {
            return done;
        }
        atomic_slow(ep, op, buffer, count, addr, rkey, param)
    }
}

/// Whether the fast path handles an operation with these parameters.
#[inline(always)]
fn is_simple(p: &Param, buffer: *const c_void, count: usize) -> bool {
    p.mask & !SIMPLE == UCP_OP_ATTR_FIELD_DATATYPE as u32 && count == 1 && !buffer.is_null()
}

/// [`atomic`] with a null key, or one of memory whose words are not changed by processors.
#[inline(never)]
unsafe fn atomic_remote(
    ep: *const Endpoint,
    op: u32,
    buffer: *const c_void,
    count: usize,
    addr: u64,
    rkey: *const Rkey,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's endpoint, buffers and structure are valid, and its key is null or valid.
    unsafe {
        let p = Param::new(param, 0);
        let key = rkey.as_ref().filter(|_| is_simple(&p, buffer, count));
        let Some(key) = key else {
            return atomic_slow(ep, op, buffer, count, addr, rkey, param);
        };
        let handle = match key.executor {
            // A function of its own: its variables would need registers of the adapters' operations.
            AmoExecutor::Peer => return atomic_message(ep, op, buffer, addr, rkey, param),
            AmoExecutor::Adapter => adapter::atomic::<StaddSender>(ep, op, buffer, addr, key, &p),
            _ => adapter::atomic::<RkeySender>(ep, op, buffer, addr, key, &p),
        };
        match handle {
            Some(handle) => handle,
            // The count is one: the variable need not be kept in a register.
            None => atomic_slow(ep, op, buffer, 1, addr, rkey, param),
        }
    }
}

/// [`atomic`] of one operand by a message to the peer, whose processor alone changes the words.
#[inline(never)]
unsafe fn atomic_message(
    ep: *const Endpoint,
    op: u32,
    operand: *const c_void,
    addr: u64,
    rkey: *const Rkey,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's endpoint, operand, key and structure are valid.
    unsafe {
        match amo_message::atomic(ep, op, operand, addr, &Param::new(param, 0)) {
            Some(handle) => handle,
            None => atomic_slow(ep, op, operand, 1, addr, rkey, param),
        }
    }
}

#[cold]
#[inline(never)]
unsafe fn atomic_slow(
    ep: *const Endpoint,
    op: u32,
    buffer: *const c_void,
    count: usize,
    addr: u64,
    rkey: *const Rkey,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's endpoint is valid, its worker outlives it, and the caller's other promises are those that
    // the callee requires.
    unsafe {
        let worker = (*ep).worker.get();
        let p = Param::new(param, worker.extra_op_flags());
        let before = worker.failed_swaps();
        let result = op::amo::atomic(ep, op, buffer, count, addr, rkey, &p);
        let failures = worker.failed_swaps();
        if failures != before {
            back_off_at_times(worker, failures);
        }
        result
    }
}

/// Counts a compare-and-swap that found another value than the expected one.
#[cold]
#[inline(never)]
fn note_failure(worker: &Worker) {
    back_off_at_times(worker, worker.count_failed_swap());
}

/// Backs off at one of [`FAILURES_PER_LOOK`] failed compare-and-swaps.
fn back_off_at_times(worker: &Worker, failures: u32) {
    if failures % FAILURES_PER_LOOK == 0 {
        core_yield::back_off(worker, failures, super::progress::progress);
    }
}

/// Executes an operation on a word of mapped memory: the value that the call returns. `None`: the parameters are
/// invalid or the operation has to wait, and nothing was done.
#[inline(always)]
unsafe fn by_processor(
    ep: *const Endpoint,
    op: u32,
    operand: *const c_void,
    addr: u64,
    rkey: &Rkey,
    p: &Param,
) -> Option<ucs_status_ptr_t> {
    // SAFETY: the caller's promises are those that the callees require.
    unsafe {
        match p.datatype() {
            EIGHT => change::<8>(ep, op, operand, addr, rkey, p),
            FOUR => change::<4>(ep, op, operand, addr, rkey, p),
            _ => None,
        }
    }
}

/// [`by_processor`] for a word of `SIZE` bytes, 4 or 8.
#[inline(always)]
unsafe fn change<const SIZE: u8>(
    ep: *const Endpoint,
    op: u32,
    operand: *const c_void,
    addr: u64,
    rkey: &Rkey,
    p: &Param,
) -> Option<ucs_status_ptr_t> {
    let slow_path = match SIZE {
        4 => EpFlags::SLOW_PATH_AMO32,
        _ => EpFlags::SLOW_PATH_AMO64,
    };
    // SAFETY: the caller's endpoint is valid; worker and peer outlive it.
    let (e, worker, peer) = unsafe { (&*ep, (*ep).worker.get(), (*ep).peer()) };
    if e.has(EpFlags::SPECIAL | slow_path) || !peer.is_connected() || worker.is_fenced() {
        return None;
    }
    let word = rkey.word(addr, SIZE.into())?;
    let reply = p.reply_buffer();
    let needed = p.has(UCP_OP_ATTR_FIELD_REPLY_BUFFER) || matches!(op, SWAP | CSWAP);
    if reply.is_null() && needed {
        return None;
    }
    // SAFETY: the caller's buffers have `SIZE` bytes; that of the reply holds the new value of a compare-and-swap. The
    // word is aligned, in a region that is mapped as long as its key exists, and only processors change it.
    unsafe {
        let operand = op::amo::load(operand, SIZE);
        let (op, value, compare) = match op {
            ADD => (amo::ADD, operand, 0),
            CSWAP => (amo::CSWAP, op::amo::load(reply, SIZE), operand),
            SWAP..=XOR => return Some(change_otherwise::<SIZE>(peer, op, word, operand, reply)),
            _ => return None,
        };
        let change = AmoOp {
            op,
            size: SIZE,
            value,
            compare,
        };
        let old = execute(peer, word, change, reply);
        if op == amo::CSWAP && old != compare {
            note_failure(worker);
        }
        Some(ptr::null_mut())
    }
}

/// Changes a word and counts the operation. Returns the previous value.
///
/// # Safety
/// `word` has `change.size` bytes; `reply` as many, or it is null.
#[inline(always)]
unsafe fn execute(peer: &Peer, word: *mut u8, change: AmoOp, reply: *mut c_void) -> u64 {
    // SAFETY: the caller's promises are those that the callees require.
    let old = unsafe {
        let old = amo::execute(word, change);
        op::amo::store(reply, old, change.size);
        old
    };
    peer.stats()
        .of(StatProtocol::AmoMapped)
        .add(change.size.into());
    old
}

/// [`change`] for the less frequent operations, never [`CSWAP`].
///
/// # Safety
/// `word` has `SIZE` bytes; `reply` too, or it is null where the operation needs none.
#[inline(never)]
unsafe fn change_otherwise<const SIZE: u8>(
    peer: &Peer,
    op: u32,
    word: *mut u8,
    value: u64,
    reply: *mut c_void,
) -> ucs_status_ptr_t {
    let change = AmoOp {
        op: op as u8,
        size: SIZE,
        value,
        compare: 0,
    };
    // SAFETY: the caller's word and buffer are valid.
    unsafe { execute(peer, word, change, reply) };
    ptr::null_mut()
}
