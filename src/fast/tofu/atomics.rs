//! Hot path of atomic operations that TNIs execute, in single-thread mode. All other cases take the slow path.

use super::super::plain::{EIGHT, FOUR, is_plain_remote};
use super::super::request::{arm_completion, request_of};
use crate::ctypes::*;
use crate::engine::endpoint::{Endpoint, EpFlags};
use crate::engine::request::{self, Request};
use crate::engine::rkey::Rkey;
use crate::op::amo;
use crate::op::param::Param;
use crate::proto::tx::rma_tofu;
use crate::tl::tofu::amo::{AmoVerb, AmoWidth, TofuAmo};
use std::ffi::c_void;
use std::ptr;

/// `ucp_atomic_op_nbx`, if a TNI of the peer executes it and nothing has to be waited for. `None`: the slow path is to
/// be taken.
///
/// # Safety
/// The arguments are those of `ucp_atomic_op_nbx`, with a count of 1 and an operand that is not null.
#[inline(always)]
pub unsafe fn atomic(
    ep: *const Endpoint,
    op: u32,
    operand: *const c_void,
    addr: u64,
    rkey: &Rkey,
    p: &Param,
) -> Option<ucs_status_ptr_t> {
    let (width, slow_path) = match p.datatype() {
        FOUR => (AmoWidth::Four, EpFlags::SLOW_PATH_AMO32),
        EIGHT => (AmoWidth::Eight, EpFlags::SLOW_PATH_AMO64),
        _ => return None,
    };
    let len = width.bytes();
    // SAFETY: the caller's endpoint, whose worker and peer outlive it, buffers and parameters; the request is new.
    unsafe {
        let (worker, peer) = ((*ep).worker.get(), (*ep).peer());
        if !is_plain_remote(&*ep, worker, peer, slow_path, addr, len) {
            return None;
        }
        let stadd = rkey.tl.tofu.stadd(addr, len)?;
        let step = step(op, width, operand, p)?;
        if !worker.ctx.tl.tofu.offered.has(step.verb) {
            return None;
        }
        if !p.has(UCP_OP_ATTR_FIELD_REPLY_BUFFER) {
            return rma_tofu::change_now(peer, step, stadd).then_some(ptr::null_mut());
        }
        // The user's `request_init` may run here; it must not call UCP functions.
        let req = request_of(ep, p)?;
        arm_completion(&mut *req, p.reply_buffer().cast(), len);
        if !rma_tofu::fetch_now(peer, req, step, stadd) {
            request::recycle(req);
            return None;
        }
        Some(Request::handle(req))
    }
}

/// The operation with its operands. `None`: it is unknown, or lacks a reply buffer that it needs.
#[inline(always)]
unsafe fn step(op: u32, width: AmoWidth, operand: *const c_void, p: &Param) -> Option<TofuAmo> {
    let (verb, reply) = (AmoVerb::of(u8::try_from(op).ok()?)?, p.reply_buffer());
    let fetches = p.has(UCP_OP_ATTR_FIELD_REPLY_BUFFER);
    if fetches == reply.is_null() || !fetches && verb.needs_reply() {
        return None;
    }
    // SAFETY: the caller's buffers, readable for the width. The reply buffer of a compare-and-swap holds the new value.
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
