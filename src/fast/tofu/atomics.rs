//! THE HOT PATH of atomic operations that adapters of the Tofu interconnect execute. In single-thread mode; what is not
//! the common case is handed back.

use super::super::ib::{arm_completion, request_of};
use crate::ctypes::*;
use crate::engine::endpoint::{self, Endpoint};
use crate::engine::request::{self, Request};
use crate::engine::rkey::Rkey;
use crate::op::amo;
use crate::op::param::Param;
use crate::proto::tx::rma_tofu;
use crate::tl::tofu::amo::{AmoVerb, AmoWidth, TofuAmo};
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::Ordering;

/// As [`crate::fast::atomics::atomic`], if an adapter of the peer's executes it and nothing is in the way: what the
/// call returns.
///
/// # Safety
/// As there. The operation is one, its operand not null.
#[inline(always)]
pub unsafe fn atomic(
    ep: *const Endpoint,
    op: u32,
    operand: *const c_void,
    addr: u64,
    rkey: &Rkey,
    p: &Param,
) -> Option<ucs_status_ptr_t> {
    const FOUR: u64 = 4 << 3;
    const EIGHT: u64 = 8 << 3;
    let (width, long_way) = match p.datatype() {
        FOUR => (AmoWidth::Four, endpoint::LONG_WAY_AMO32),
        EIGHT => (AmoWidth::Eight, endpoint::LONG_WAY_AMO64),
        _ => return None,
    };
    let len = width.bytes();
    // SAFETY: the caller's endpoint, whose worker and peer outlive it, buffers and structure; a new request.
    unsafe {
        let (worker, peer) = (&*(*ep).worker, (*ep).peer());
        let plain = !peer.tx.is_shared()
            && !(*ep).has(endpoint::SPECIAL | long_way)
            && !worker.fenced.load(Ordering::Relaxed);
        // What is under way by message is not for an adapter now.
        if !plain || addr % len as u64 != 0 || !peer.rma_idle() {
            return None;
        }
        let stadd = rkey.stadd(addr, len)?;
        let step = step(op, width, operand, p)?;
        if !worker.ctx.offered.has(step.verb) {
            return None;
        }
        if !p.has(UCP_OP_ATTR_FIELD_REPLY_BUFFER) {
            return rma_tofu::change_now(peer, step, stadd).then_some(ptr::null_mut());
        }
        // The user's `request_init` may run here, which must not call us.
        let req = request_of(ep, p)?;
        arm_completion(&mut *req, p.reply_buffer().cast(), len);
        if !rma_tofu::fetch_now(peer, req, step, stadd) {
            request::recycle(req);
            return None;
        }
        Some(Request::handle(req))
    }
}

/// The operation, with the operands where UCP has them; `None`: it is none, or has not what it needs.
#[inline(always)]
unsafe fn step(op: u32, width: AmoWidth, operand: *const c_void, p: &Param) -> Option<TofuAmo> {
    let (verb, reply) = (rma_tofu::verb(u8::try_from(op).ok()?)?, p.reply_buffer());
    let fetches = p.has(UCP_OP_ATTR_FIELD_REPLY_BUFFER);
    if fetches == reply.is_null() || !fetches && verb.needs_reply() {
        return None;
    }
    // SAFETY: the caller's buffers. Of a compare-and-swap that of the reply holds the new value.
    let (value, compare) = unsafe {
        let operand = amo::load(operand, width.bytes() as u8);
        match verb {
            AmoVerb::CompareSwap => (amo::load(reply, width.bytes() as u8), operand),
            _ => (operand, 0),
        }
    };
    Some(TofuAmo {
        verb,
        width,
        value,
        compare,
    })
}
