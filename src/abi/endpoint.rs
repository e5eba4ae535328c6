//! Endpoints: creation, closing, flushing, queries.

use super::output::{self, invalid};
use super::worker::worker_of;
use crate::ctypes::*;
use crate::engine::endpoint::{Endpoint, FRESH};
use crate::op::param::{Param, status_ptr};
use crate::op::{self, endpoint};
use crate::proto::{failure, lanes, wireup};
use crate::sys::log;
use std::ffi::{CStr, CString, c_void};

/// The endpoint behind a handle.
#[inline(always)]
pub fn endpoint_of(handle: ucp_ep_h) -> *mut Endpoint {
    handle.cast()
}

/// An endpoint to a worker whose address is known.
///
/// # Safety
/// A live worker; `params` valid as far as its mask says; `ep_p` writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_ep_create(
    worker: ucp_worker_h,
    params: *const ucp_ep_params_t,
    ep_p: *mut ucp_ep_h,
) -> ucs_status_t {
    const NAME: &str = "ucp_ep_create";
    if worker.is_null() || params.is_null() || ep_p.is_null() {
        return invalid(NAME, "worker, params or ep_p is null");
    }
    // SAFETY: the caller's handle; each field is read only if its bit is set.
    unsafe {
        let (w, mask) = (worker_of(worker), (*params).field_mask);
        let has = |bit: ucp_ep_params_field| mask & bit as u64 != 0;
        let flags = if has(UCP_EP_PARAM_FIELD_FLAGS) {
            (*params).flags
        } else {
            0
        };
        let client = flags & UCP_EP_PARAMS_FLAGS_CLIENT_SERVER as u32 != 0;
        if client || has(UCP_EP_PARAM_FIELD_CONN_REQUEST) {
            if client && !has(UCP_EP_PARAM_FIELD_SOCK_ADDR) {
                return invalid(NAME, "CLIENT_SERVER without a socket address");
            }
            log::error!(
                "{NAME}: endpoints by socket address need a network transport, which this version has not"
            );
            return UCS_ERR_UNSUPPORTED;
        }
        if !has(UCP_EP_PARAM_FIELD_REMOTE_ADDRESS) || (*params).address.is_null() {
            return invalid(NAME, "no address");
        }
        let err_mode = if has(UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE) {
            enum_raw((*params).err_mode)
        } else {
            0
        };
        if err_mode > UCP_ERR_HANDLING_MODE_FAILOVER as u32 {
            return invalid(NAME, "unknown error handling mode");
        }
        let peer =
            match super::address::decode((*params).address).and_then(|a| wireup::peer_of(w, &a)) {
                Ok(peer) => &*peer,
                Err(status) => return status,
            };
        let ep = wireup::new_endpoint(w, peer, flags & UCP_EP_PARAMS_FLAGS_NO_LOOPBACK as u32 != 0);
        let e = &mut *ep;
        e.err_mode = err_mode as u8;
        if has(UCP_EP_PARAM_FIELD_ERR_HANDLER) {
            (e.err_cb, e.err_arg) = ((*params).err_handler.cb, (*params).err_handler.arg);
        }
        if has(UCP_EP_PARAM_FIELD_USER_DATA) {
            (e.user_data, e.err_arg) = ((*params).user_data, (*params).user_data);
        }
        if has(UCP_EP_PARAM_FIELD_NAME) && !(*params).name.is_null() {
            e.name = Some(CString::from(CStr::from_ptr((*params).name)));
        }
        if e.handles_errors() {
            e.set(FRESH);
        }
        if e.mismatched() {
            failure::refuse(w, e, peer);
        }
        op::stream::adopted(w, ep);
        failure::begin(w, e, peer);
        ep_p.write(ep.cast());
    }
    UCS_OK
}

/// Closes an endpoint; the handle is invalid at once.
///
/// # Safety
/// A live endpoint; `param` valid as far as its mask says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_ep_close_nbx(
    ep: ucp_ep_h,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    if ep.is_null() || param.is_null() {
        return status_ptr(invalid("ucp_ep_close_nbx", "ep or param is null"));
    }
    // SAFETY: the caller's handle and structure.
    unsafe {
        let p = Param::new(param, 0);
        endpoint::close(
            endpoint_of(ep),
            p.flags() & UCP_EP_CLOSE_FLAG_FORCE as u32 != 0,
            &p,
        )
    }
}

/// Completes when everything before it has.
///
/// # Safety
/// A live endpoint; `param` valid as far as its mask says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_ep_flush_nbx(
    ep: ucp_ep_h,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    if ep.is_null() || param.is_null() {
        return status_ptr(invalid("ucp_ep_flush_nbx", "ep or param is null"));
    }
    // SAFETY: the caller's handle and structure.
    unsafe { endpoint::flush(endpoint_of(ep), &Param::new(param, 0)) }
}

/// Fills `attr` as its mask asks.
///
/// # Safety
/// A live endpoint; `attr` is null or valid as far as its mask says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_ep_query(ep: ucp_ep_h, attr: *mut ucp_ep_attr_t) -> ucs_status_t {
    if ep.is_null() || attr.is_null() {
        return invalid("ucp_ep_query", "ep or attr is null");
    }
    // SAFETY: the caller's handle; fields under the mask, through raw pointers.
    unsafe {
        let (e, mask) = (&*endpoint_of(ep), (*attr).field_mask);
        let has = |bit: ucp_ep_attr_field| mask & bit as u64 != 0;
        if has(UCP_EP_ATTR_FIELD_LOCAL_SOCKADDR) || has(UCP_EP_ATTR_FIELD_REMOTE_SOCKADDR) {
            return UCS_ERR_NOT_CONNECTED;
        }
        if has(UCP_EP_ATTR_FIELD_NAME) {
            let name = e
                .name
                .as_ref()
                .map_or_else(|| format!("{ep:p}"), |n| n.to_string_lossy().into_owned());
            output::name(&raw mut (*attr).name, &name);
        }
        if has(UCP_EP_ATTR_FIELD_USER_DATA) {
            (*attr).user_data = e.user_data;
        }
        if has(UCP_EP_ATTR_FIELD_TRANSPORTS) {
            let out = &mut (*attr).transports;
            if out.entries.is_null() && out.num_entries > 0 {
                return invalid("ucp_ep_query", "transports.entries is null");
            }
            let lanes = lanes::of(&*e.peer);
            let n = lanes.len().min(out.num_entries as usize);
            for (i, lane) in lanes.iter().take(n).enumerate() {
                write_entry(
                    out.entries.byte_add(i * out.entry_size),
                    out.entry_size,
                    lane.transport,
                    lane.device,
                );
            }
            out.num_entries = n as u32;
        }
    }
    UCS_OK
}

/// The caller's structure may be shorter than ours: what does not fit is left out.
unsafe fn write_entry(
    entry: *mut ucp_transport_entry_t,
    size: usize,
    tl: &'static CStr,
    device: &'static CStr,
) {
    // SAFETY: each field is inside of the `size` bytes of the caller's entry.
    unsafe {
        if size >= 8 {
            (&raw mut (*entry).transport_name).write_unaligned(tl.as_ptr());
        }
        if size >= 16 {
            (&raw mut (*entry).device_name).write_unaligned(device.as_ptr());
        }
    }
}

/// Prints what an endpoint is.
///
/// # Safety
/// A live endpoint, an open stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_ep_print_info(ep: ucp_ep_h, stream: *mut libc::FILE) {
    if ep.is_null() || stream.is_null() {
        invalid("ucp_ep_print_info", "ep or stream is null");
        return;
    }
    // SAFETY: the caller's handle and stream.
    unsafe {
        let e = &*endpoint_of(ep);
        let mut text = format!(
            "#\n# UCP endpoint {ep:p}\n#\n#               peer: worker {:#x}\n",
            (*e.peer).uid
        );
        for (i, lane) in lanes::of(&*e.peer).iter().enumerate() {
            text += &format!(
                "#            lane[{i}]:  {}/{}\n",
                lane.transport.to_string_lossy(),
                lane.device.to_string_lossy()
            );
        }
        output::write(stream, &(text + "#\n"));
    }
}

/// Estimates the time that a message takes.
///
/// # Safety
/// A live endpoint; both structures valid as far as their masks say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_ep_evaluate_perf(
    ep: ucp_ep_h,
    param: *const ucp_ep_evaluate_perf_param_t,
    attr: *mut ucp_ep_evaluate_perf_attr_t,
) -> ucs_status_t {
    const NAME: &str = "ucp_ep_evaluate_perf";
    if ep.is_null() || param.is_null() || attr.is_null() {
        return invalid(NAME, "ep, param or attr is null");
    }
    // SAFETY: fields under the masks.
    unsafe {
        if (*param).field_mask & UCP_EP_PERF_PARAM_FIELD_MESSAGE_SIZE as u64 == 0 {
            return invalid(NAME, "no message size");
        }
        if (*attr).field_mask & UCP_EP_PERF_ATTR_FIELD_ESTIMATED_TIME as u64 != 0 {
            let peer = &*(*endpoint_of(ep)).peer;
            (*attr).estimated_time = lanes::estimate(peer, (*param).message_size);
        }
    }
    UCS_OK
}

/// Changes what the user attached to an endpoint: `None` leaves it as it is. User data is also the
/// argument of the error handler.
///
/// # Safety
/// A live endpoint.
pub unsafe fn modify_ep(
    ep: ucp_ep_h,
    user_data: Option<*mut c_void>,
    err_handler: Option<ucp_err_handler_t>,
) {
    // SAFETY: the caller's handle.
    let e = unsafe { &mut *endpoint_of(ep) };
    if let Some(handler) = err_handler {
        (e.err_cb, e.err_arg) = (handler.cb, handler.arg);
    }
    if let Some(data) = user_data {
        (e.user_data, e.err_arg) = (data, data);
    }
}
