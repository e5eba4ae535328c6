//! Put with signal.

use super::endpoint::endpoint_of;
use super::output::invalid_request;
use crate::ctypes::*;
use crate::engine::rkey::Rkey;
use crate::fast::signals;
use crate::op::param::Param;
use crate::op::signal::{self, Signal, SignalAim};
use std::ffi::c_void;

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
    const NAME: &str = "ucpx_put_signal_nbx";
    if ep.is_null() || signal.is_null() || param.is_null() {
        return invalid_request(NAME, "ep, signal or param is null");
    }
    // SAFETY: the caller's promises.
    unsafe {
        let signal = match read(signal, rkey) {
            Ok(signal) => signal,
            Err(what) => return invalid_request(NAME, what),
        };
        let (ep, rkey) = (endpoint_of(ep), rkey.cast::<Rkey>());
        if let Some(done) = signals::put(ep, buffer, count, remote_addr, rkey, signal, param) {
            return done;
        }
        let p = &Param::new(param, (*ep).worker.get().extra_op_flags());
        signal::put(ep, (buffer, count), remote_addr, rkey, signal, p)
    }
}
