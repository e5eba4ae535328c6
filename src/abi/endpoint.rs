//! Endpoints: creation, closing, flushing, queries.

use super::output::{self, inherited, invalid, invalid_request};
use super::socket_address;
use super::worker::worker_of;
use crate::ctypes::*;
use crate::engine::cm::ConnRequest;
use crate::engine::endpoint::{Endpoint, EndpointRef, EpFlags};
use crate::engine::worker::Worker;
use crate::fast::flush;
use crate::op::param::Param;
use crate::op::{self, endpoint, listener};
use crate::proto::{cm, endpoints, failure, lane_info, proto_info, resolve};
use crate::sys::trace::{self, ArgValue};
use std::ffi::{CStr, CString, c_void};

/// The endpoint behind a handle.
#[inline(always)]
pub fn endpoint_of(handle: ucp_ep_h) -> *mut Endpoint {
    handle.cast()
}

/// Creates an endpoint to a worker by its address, to a listener, or to the client of a connection request.
///
/// # Safety
/// A live worker; `params` valid in the fields that its mask names; `ep_p` writable.
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
        if w.is_inherited() {
            return inherited(NAME);
        }
        let has = |bit: ucp_ep_params_field| mask & bit as u64 != 0;
        let flags = if has(UCP_EP_PARAM_FIELD_FLAGS) {
            (*params).flags
        } else {
            0
        };
        let err_mode = if has(UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE) {
            enum_raw((*params).err_mode)
        } else {
            0
        };
        if err_mode > UCP_ERR_HANDLING_MODE_FAILOVER as u32 {
            return invalid(NAME, "unknown error handling mode");
        }
        let began = trace::is_on().then(trace::now);
        let made = if flags & UCP_EP_PARAMS_FLAGS_CLIENT_SERVER as u32 != 0 {
            to_listener(w, params, flags)
        } else if has(UCP_EP_PARAM_FIELD_CONN_REQUEST) {
            to_client(w, params)
        } else {
            to_worker(w, params, flags)
        };
        match made {
            Ok(ep) => {
                if let Some(began) = began {
                    let args = [
                        ("worker", ArgValue::Hex(w.uid)),
                        ("endpoint", ArgValue::Hex(ep.as_ptr().addr() as u64)),
                        ("peer", ArgValue::Hex(ep.get().peer().uid)),
                        ("error handling mode", err_mode.into()),
                    ];
                    trace::slice("endpoint", "endpoint create", began, &args);
                }
                ep_p.write(ep.as_ptr().cast());
                UCS_OK
            }
            Err(status) => status,
        }
    }
}

/// Sets the fields of an endpoint that do not depend on its peer.
unsafe fn fill_in(e: &Endpoint, params: *const ucp_ep_params_t) {
    // SAFETY: the caller's structure; each field is read only if its bit is set.
    unsafe {
        let has = |bit: ucp_ep_params_field| (*params).field_mask & bit as u64 != 0;
        if has(UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE) {
            e.set_err_mode(enum_raw((*params).err_mode) as u8);
        }
        if has(UCP_EP_PARAM_FIELD_ERR_HANDLER) {
            e.set_err_handler((*params).err_handler);
        }
        if has(UCP_EP_PARAM_FIELD_USER_DATA) {
            e.set_user_data((*params).user_data);
        }
        if has(UCP_EP_PARAM_FIELD_NAME) && !(*params).name.is_null() {
            // A new endpoint has no name yet.
            e.set_name(CString::from(CStr::from_ptr((*params).name)));
        }
    }
}

/// # Safety
/// As `ucp_ep_create`.
unsafe fn to_worker(
    w: &Worker,
    params: *const ucp_ep_params_t,
    flags: u32,
) -> Result<EndpointRef, ucs_status_t> {
    // SAFETY: each field is read only if its bit is set.
    unsafe {
        let given = (*params).field_mask & UCP_EP_PARAM_FIELD_REMOTE_ADDRESS as u64 != 0;
        if !given || (*params).address.is_null() {
            return Err(invalid("ucp_ep_create", "no address"));
        }
        let address = super::address::decode((*params).address)?;
        let found = resolve::peer_of(w, &address)?;
        let peer = &*found;
        failure::exists(peer)?;
        let ep =
            endpoints::new_endpoint(w, peer, flags & UCP_EP_PARAMS_FLAGS_NO_LOOPBACK as u32 != 0);
        let e = ep.get();
        fill_in(e, params);
        if e.handles_errors() {
            e.set(EpFlags::FRESH);
        }
        if e.mismatched() {
            failure::refuse(w, e, peer);
        }
        op::stream::adopted(w, e);
        failure::begin(w, e, peer);
        Ok(ep)
    }
}

/// # Safety
/// As `ucp_ep_create`.
unsafe fn to_listener(
    w: &Worker,
    params: *const ucp_ep_params_t,
    flags: u32,
) -> Result<EndpointRef, ucs_status_t> {
    const NAME: &str = "ucp_ep_create";
    // SAFETY: each field is read only if its bit is set.
    unsafe {
        let has = |bit: ucp_ep_params_field| (*params).field_mask & bit as u64 != 0;
        if !has(UCP_EP_PARAM_FIELD_SOCK_ADDR) {
            return Err(invalid(NAME, "CLIENT_SERVER without a socket address"));
        }
        let Some(to) = socket_address::read(&(*params).sockaddr) else {
            return Err(invalid(NAME, "no address of a family that is known"));
        };
        let from = if has(UCP_EP_PARAM_FIELD_LOCAL_SOCK_ADDR) {
            let from = socket_address::read(&(*params).local_sockaddr);
            Some(from.ok_or_else(|| invalid(NAME, "no local address of a family that is known"))?)
        } else {
            None
        };
        let asked = flags & UCP_EP_PARAMS_FLAGS_SEND_CLIENT_ID as u32 != 0;
        let client_id = w.params.client_id.filter(|_| asked).unwrap_or(0);
        let ep = cm::client_endpoint(w)?;
        fill_in(ep.get(), params);
        cm::connect(w, ep.get(), to, from, client_id);
        Ok(ep)
    }
}

/// # Safety
/// As `ucp_ep_create`.
unsafe fn to_client(
    w: &Worker,
    params: *const ucp_ep_params_t,
) -> Result<EndpointRef, ucs_status_t> {
    // SAFETY: the caller's structure; the request is looked for in a list.
    unsafe {
        let request = ConnRequest::take((*params).conn_request as usize).ok_or_else(|| {
            invalid(
                "ucp_ep_create",
                "this connection request was answered before",
            )
        })?;
        let given = (*params).field_mask & UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE as u64 != 0;
        let err_mode = given.then(|| enum_raw((*params).err_mode) as u8);
        listener::accept(w, request, err_mode, |e| fill_in(e, params))
    }
}

/// Closes an endpoint; the handle is invalid at once.
///
/// # Safety
/// A live endpoint; `param` valid in the fields that its mask names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_ep_close_nbx(
    ep: ucp_ep_h,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    if ep.is_null() || param.is_null() {
        return invalid_request("ucp_ep_close_nbx", "ep or param is null");
    }
    // SAFETY: the caller's handle and structure.
    unsafe {
        if (*endpoint_of(ep)).worker.get().is_inherited() {
            // A forked child leaves its parent's endpoint as it is.
            return std::ptr::null_mut();
        }
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
/// A live endpoint; `param` valid in the fields that its mask names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_ep_flush_nbx(
    ep: ucp_ep_h,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    if ep.is_null() || param.is_null() {
        return invalid_request("ucp_ep_flush_nbx", "ep or param is null");
    }
    // SAFETY: the caller's handle and structure.
    unsafe { flush::flush(endpoint_of(ep), param) }
}

/// Fills the fields of `attr` that its mask names.
///
/// # Safety
/// A live endpoint; `attr` is null or valid in the fields that its mask names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_ep_query(ep: ucp_ep_h, attr: *mut ucp_ep_attr_t) -> ucs_status_t {
    if ep.is_null() || attr.is_null() {
        return invalid("ucp_ep_query", "ep or attr is null");
    }
    // SAFETY: the caller's handle; fields under the mask, through raw pointers.
    unsafe {
        let (e, mask) = (&*endpoint_of(ep), (*attr).field_mask);
        let has = |bit: ucp_ep_attr_field| mask & bit as u64 != 0;
        if e.worker.get().is_inherited() {
            return inherited("ucp_ep_query");
        }
        if has(UCP_EP_ATTR_FIELD_LOCAL_SOCKADDR) || has(UCP_EP_ATTR_FIELD_REMOTE_SOCKADDR) {
            let Some(cm::CmAddresses { local, remote }) = cm::addresses(e.worker.get(), e) else {
                return UCS_ERR_NOT_CONNECTED;
            };
            if has(UCP_EP_ATTR_FIELD_LOCAL_SOCKADDR) {
                socket_address::write(&raw mut (*attr).local_sockaddr, local);
            }
            if has(UCP_EP_ATTR_FIELD_REMOTE_SOCKADDR) {
                socket_address::write(&raw mut (*attr).remote_sockaddr, remote);
            }
        }
        if has(UCP_EP_ATTR_FIELD_NAME) {
            let name = e
                .name()
                .map_or_else(|| format!("{ep:p}"), |n| n.to_string_lossy().into_owned());
            output::name(&raw mut (*attr).name, &name);
        }
        if has(UCP_EP_ATTR_FIELD_USER_DATA) {
            (*attr).user_data = e.queried_user_data();
        }
        if has(UCP_EP_ATTR_FIELD_TRANSPORTS) {
            let out = &mut (*attr).transports;
            if out.entries.is_null() && out.num_entries > 0 {
                return invalid("ucp_ep_query", "transports.entries is null");
            }
            let lanes = lane_info::of(e.peer());
            let mut n = 0;
            for (i, lane) in lanes.take(out.num_entries as usize).enumerate() {
                n += 1;
                write_entry(
                    out.entries.byte_add(i * out.entry_size),
                    out.entry_size,
                    lane.name.transport,
                    lane.name.device,
                );
            }
            out.num_entries = n;
        }
    }
    UCS_OK
}

/// Writes an entry, which may be shorter than ours: fields behind its end are left out.
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
        if e.worker.get().is_inherited() {
            inherited("ucp_ep_print_info");
            return;
        }
        let mut text = format!(
            "#\n# UCP endpoint {ep:p}\n#\n#               peer: worker {:#x}\n",
            e.peer().uid
        );
        for (i, lane) in lane_info::of(e.peer()).enumerate() {
            text += &format!("#            lane[{i}]:  {}\n", lane.name);
        }
        let (worker, peer) = (e.worker.get(), e.peer());
        let title = format!("{} {}", worker.ctx.name, proto_info::kind(worker, peer));
        for table in proto_info::tables(worker, peer) {
            text += "#\n";
            for line in proto_info::draw(&title, &table).lines() {
                text += &format!("# {line}\n");
            }
        }
        output::write(stream, &(text + "#\n"));
    }
}

/// Estimates the time that a message takes.
///
/// # Safety
/// A live endpoint; both structures valid in the fields that their masks name.
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
        if (*endpoint_of(ep)).worker.get().is_inherited() {
            return inherited(NAME);
        }
        if (*param).field_mask & UCP_EP_PERF_PARAM_FIELD_MESSAGE_SIZE as u64 == 0 {
            return invalid(NAME, "no message size");
        }
        if (*attr).field_mask & UCP_EP_PERF_ATTR_FIELD_ESTIMATED_TIME as u64 != 0 {
            let peer = (*endpoint_of(ep)).peer();
            (*attr).estimated_time = lane_info::estimate(peer, (*param).message_size);
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
    let e = unsafe { &*endpoint_of(ep) };
    if let Some(handler) = err_handler {
        e.set_err_handler(handler);
    }
    if let Some(data) = user_data {
        e.set_user_data(data);
    }
}
