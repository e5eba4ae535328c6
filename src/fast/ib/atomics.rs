//! Hot path of atomic operations that HCAs execute, in single-thread mode. All other cases take the slow path.

use super::super::plain::{EIGHT, is_plain_remote};
use super::super::request::{arm_completion, request_of};
use super::slot_of;
use crate::ctypes::*;
use crate::engine::endpoint::{Endpoint, EpFlags};
use crate::engine::request::Request;
use crate::engine::rkey::Rkey;
use crate::op::param::Param;
use crate::tl::Token;
use crate::tl::ib::rc::{AmoDesc, RemoteMem};
use crate::wire::stats::StatProtocol;
use std::ffi::c_void;
use std::ptr;

/// `ucp_atomic_op_nbx`, if the peer's HCA executes the operation and it can be posted now: the value that the call
/// returns. `None`: nothing was done.
///
/// # Safety
/// The requirements of [`atomic`](super::super::atomics::atomic). The count is one, the operand not null, the memory
/// not mapped here.
#[inline(always)]
pub unsafe fn atomic(
    ep: *const Endpoint,
    op: u32,
    operand: *const c_void,
    addr: u64,
    rkey: &Rkey,
    p: &Param,
) -> Option<ucs_status_ptr_t> {
    if p.datatype() != EIGHT {
        return None;
    }
    // SAFETY: the caller's promises are those that the callees require.
    unsafe {
        let step = step_of(op, operand.cast(), p.reply_buffer().cast())?;
        atomic_short(ep, step, addr, rkey, p)
    }
}

/// The HCA's operation for a UCP operation on 8 bytes, if it has one. The new value of a compare-and-swap is in
/// `reply`.
#[inline(always)]
unsafe fn step_of(op: u32, operand: *const u64, reply: *const u64) -> Option<AmoDesc> {
    const ADD: u32 = ucp_atomic_op_t::UCP_ATOMIC_OP_ADD as u32;
    const CSWAP: u32 = ucp_atomic_op_t::UCP_ATOMIC_OP_CSWAP as u32;
    // SAFETY: the caller's operand has 8 bytes.
    let operand = unsafe { operand.read_unaligned() };
    match op {
        ADD => Some(AmoDesc::Add(operand)),
        CSWAP if !reply.is_null() => Some(AmoDesc::CompareSwap {
            compare: operand,
            // SAFETY: the caller's reply buffer has 8 bytes.
            swap: unsafe { reply.read_unaligned() },
        }),
        _ => None,
    }
}

/// Posts an atomic operation to the peer's HCA, if that is possible now: the value that the call returns.
#[inline(always)]
unsafe fn atomic_short(
    ep: *const Endpoint,
    step: AmoDesc,
    addr: u64,
    rkey: &Rkey,
    p: &Param,
) -> Option<ucs_status_ptr_t> {
    const LEN: usize = size_of::<u64>();
    // SAFETY: the caller's endpoint, buffers and structure are valid, worker and peer outlive the endpoint; the request
    // is new.
    unsafe {
        let (worker, peer) = ((*ep).worker.get(), (*ep).peer());
        if !is_plain_remote(&*ep, worker, peer, EpFlags::SLOW_PATH_AMO64, addr, LEN) {
            return None;
        }
        let keys = rkey.tl.device_keys(addr, LEN)?;
        let (sender, rc_ep) = slot_of(peer)?;
        let port = (*sender).remote_port();
        let key = keys.of_port(port)?;
        if !keys.atomics.has_port(port) || !(*sender).has_atomics() {
            return None;
        }
        let reply: *mut u8 = p.reply_buffer().cast();
        let fetches = p.has(UCP_OP_ATTR_FIELD_REPLY_BUFFER);
        if fetches == reply.is_null() {
            return None;
        }
        let at = RemoteMem { addr, key };
        let tally = peer.stats().of(StatProtocol::AmoMapped);
        if !fetches {
            // Counted as mapped: the target's processor executes nothing.
            tally.add(LEN);
            if !(*rc_ep).atomic_short(step, at, ptr::null_mut(), Token::NONE) {
                (*sender).fail();
            }
            return Some(ptr::null_mut());
        }
        let req = request_of(ep, p)?;
        tally.add(LEN);
        arm_completion(&mut *req, reply, LEN);
        if !(*rc_ep).atomic_short(step, at, reply, Request::token(req)) {
            (*sender).fail();
        }
        Some(Request::handle(req))
    }
}
