//! Put with signal.

use super::endpoint::endpoint_of;
use super::output::invalid_request;
use crate::ctypes::*;
use crate::engine::rkey::Rkey;
use crate::fast::signals::{self, PlainSignal};
use crate::op::param::Param;
use crate::op::signal::{self, Signal, SignalAim};
use std::ffi::c_void;
use std::hint::assert_unchecked;

const NAME: &str = "ucpx_put_signal_nbx";

/// Reads the parameters of a signal. `rkey`: that of the data.
///
/// # Safety
/// Valid in the fields that its mask names; the keys live.
unsafe fn read<'a>(
    signal: *const ucpx_signal_t,
    rkey: ucp_rkey_h,
) -> Result<Signal<'a>, &'static str> {
    // SAFETY: each field is read only if its bit is set.
    unsafe {
        let mask = (*signal).field_mask;
        let has = |bit: ucpx_signal_field| mask & bit as u64 != 0;
        let op = if has(UCPX_SIGNAL_FIELD_OP) {
            ucpx_signal_op_t::from_raw(enum_raw((*signal).op))
        } else {
            Some(UCPX_SIGNAL_OP_NOTIFY)
        };
        let value = if has(UCPX_SIGNAL_FIELD_VALUE) {
            (*signal).value
        } else {
            0
        };
        let aim = match op.ok_or("an unknown op")? {
            UCPX_SIGNAL_OP_NOTIFY if has(UCPX_SIGNAL_FIELD_CQ_ID) => {
                SignalAim::Queue((*signal).cq_id)
            }
            UCPX_SIGNAL_OP_NOTIFY => SignalAim::Queue(0),
            op if has(UCPX_SIGNAL_FIELD_FLAG_ADDR) => {
                let own = has(UCPX_SIGNAL_FIELD_FLAG_RKEY);
                let key = if own { (*signal).flag_rkey } else { rkey };
                let rkey = key.cast::<Rkey>().as_ref();
                SignalAim::Flag {
                    op,
                    addr: (*signal).flag_addr,
                    rkey: rkey.ok_or("a flag without a key")?,
                }
            }
            _ => return Err("no flag_addr"),
        };
        Ok(Signal { value, aim })
    }
}

/// Whether the data can be stored by this process.
///
/// # Safety
/// A live key, or null.
#[inline(always)]
unsafe fn is_mapped(rkey: ucp_rkey_h) -> bool {
    // SAFETY: the caller's key.
    unsafe { rkey.cast::<Rkey>().as_ref() }.is_some_and(Rkey::is_mapped)
}

/// The signal, if it is an entry of a completion queue.
///
/// # Safety
/// Valid in the fields that its mask names.
#[inline(always)]
unsafe fn plain(signal: *const ucpx_signal_t) -> Option<PlainSignal> {
    const FIELDS: u64 = UCPX_SIGNAL_FIELD_OP as u64
        | UCPX_SIGNAL_FIELD_CQ_ID as u64
        | UCPX_SIGNAL_FIELD_VALUE as u64;
    // SAFETY: each field is read only if its bit is set.
    unsafe {
        let mask = (*signal).field_mask;
        let has = |bit: ucpx_signal_field| mask & bit as u64 != 0;
        let is_notify = || enum_raw((*signal).op) == UCPX_SIGNAL_OP_NOTIFY as _;
        if mask & !FIELDS != 0 || has(UCPX_SIGNAL_FIELD_OP) && !is_notify() {
            return None;
        }
        Some(PlainSignal {
            cq: if has(UCPX_SIGNAL_FIELD_CQ_ID) {
                (*signal).cq_id
            } else {
                0
            },
            value: if has(UCPX_SIGNAL_FIELD_VALUE) {
                (*signal).value
            } else {
                0
            },
        })
    }
}

/// As `ucp_put_nbx`, with a signal that is visible at the target only behind the data. No data: the signal alone.
///
/// # Safety
/// A live endpoint and key (null for no data); `param` and `signal` valid in the fields that their masks name; the
/// buffer readable until completion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucpx_put_signal_nbx(
    ep: ucp_ep_h,
    buffer: *const c_void,
    count: usize,
    remote_addr: u64,
    rkey: ucp_rkey_h,
    signal: *const ucpx_signal_t,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's promises.
    unsafe {
        // Two jumps: neither function has the other's stack frame.
        if is_mapped(rkey) {
            put_mapped(ep, buffer, count, remote_addr, rkey, signal, param)
        } else {
            put_any(ep, buffer, count, remote_addr, rkey, signal, param)
        }
    }
}

/// [`ucpx_put_signal_nbx`] in all cases.
///
/// # Safety
/// The promises of the caller of `ucpx_put_signal_nbx`.
#[inline(never)]
unsafe extern "C" fn put_any(
    ep: ucp_ep_h,
    buffer: *const c_void,
    count: usize,
    remote_addr: u64,
    rkey: ucp_rkey_h,
    signal: *const ucpx_signal_t,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's promises.
    unsafe {
        if ep.is_null() || signal.is_null() || param.is_null() {
            return invalid_request(NAME, "ep, signal or param is null");
        }
        let signal = match read(signal, rkey) {
            Ok(signal) => signal,
            Err(what) => return invalid_request(NAME, what),
        };
        let (ep, rkey) = (endpoint_of(ep), rkey.cast());
        let p = &Param::new(param, (*ep).worker.get().extra_op_flags());
        signal::put(ep, (buffer, count), remote_addr, rkey, signal, p)
    }
}

/// [`ucpx_put_signal_nbx`] to mapped memory.
///
/// # Safety
/// The promises of the caller of `ucpx_put_signal_nbx`; the key is one of mapped memory.
#[inline(never)]
unsafe extern "C" fn put_mapped(
    ep: ucp_ep_h,
    buffer: *const c_void,
    count: usize,
    remote_addr: u64,
    rkey: ucp_rkey_h,
    signal: *const ucpx_signal_t,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    if ep.is_null() || signal.is_null() || param.is_null() {
        return invalid_request(NAME, "ep, signal or param is null");
    }
    // SAFETY: the caller's promises; a key of mapped memory is not null.
    unsafe {
        assert_unchecked(!rkey.is_null());
        if let Some(signal) = plain(signal)
            && let (ep, rkey) = (endpoint_of(ep), rkey.cast())
            && let Some(done) =
                signals::put_word(ep, buffer, count, remote_addr, rkey, signal, param)
        {
            return done;
        }
        put_slow(ep, buffer, count, remote_addr, rkey, signal, param)
    }
}

/// [`put_mapped`] of any length, and of any signal.
///
/// # Safety
/// The promises of the caller of `put_mapped`; no pointer is null but the buffer.
#[inline(never)]
unsafe fn put_slow(
    ep: ucp_ep_h,
    buffer: *const c_void,
    count: usize,
    addr: u64,
    rkey: ucp_rkey_h,
    signal: *const ucpx_signal_t,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's promises.
    unsafe {
        if let Some(signal) = plain(signal)
            && let (ep, rkey) = (endpoint_of(ep), rkey.cast())
            && let Some(done) = signals::put_bytes(ep, buffer, count, addr, rkey, signal, param)
        {
            return done;
        }
        put_any(ep, buffer, count, addr, rkey, signal, param)
    }
}
