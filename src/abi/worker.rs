//! Workers: creation, destruction, queries, progress, fence and flush.

use super::context::context_of;
use super::output::{self, inherited, invalid, invalid_request};
use crate::ctypes::*;
use crate::engine::wakeup::WakeupParams;
use crate::engine::worker::{MAX_AM_HEADER, Worker, WorkerParams};
use crate::fast::progress;
use crate::op::param::Param;
use crate::op::{endpoint, worker_destroy};
use crate::proto::fence;
use crate::sys::log;
use crate::sys::trace::{self, ArgValue, EventArg};
use std::ffi::c_uint;

/// Longest text of `ucp_request_query` and the like, bytes.
const MAX_DEBUG_STRING: usize = 200;

/// The worker behind a handle.
///
/// # Safety
/// A handle of a worker that was not destroyed; it stays until then.
#[inline(always)]
pub unsafe fn worker_of(handle: ucp_worker_h) -> &'static Worker {
    // SAFETY: the caller's promise.
    unsafe { &*handle.cast::<Worker>().cast_const() }
}

/// The worker of an endpoint, null for null.
///
/// # Safety
/// Null, or a live endpoint.
pub unsafe fn worker_of_ep(ep: ucp_ep_h) -> ucp_worker_h {
    let ep = super::endpoint::endpoint_of(ep);
    // SAFETY: the caller's promise.
    unsafe { ep.as_ref() }.map_or(std::ptr::null_mut(), |e| {
        std::ptr::from_ref(e.worker.get()).cast_mut().cast()
    })
}

/// Creates a worker.
///
/// # Safety
/// A live context; `params` valid in the fields that its mask names; `worker_p` writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_worker_create(
    context: ucp_context_h,
    params: *const ucp_worker_params_t,
    worker_p: *mut ucp_worker_h,
) -> ucs_status_t {
    if context.is_null() || params.is_null() || worker_p.is_null() {
        return invalid("ucp_worker_create", "context, params or worker_p is null");
    }
    // SAFETY: the caller's handle and structure.
    let (ctx, params) = unsafe { (context_of(context), read_params(params)) };
    if ctx.is_inherited() {
        return inherited("ucp_worker_create");
    }
    let params = match params {
        Ok(params) => params,
        Err(what) => return invalid("ucp_worker_create", what),
    };
    if let Err(error) = ctx.options.check_worker() {
        log::error!("ucp_worker_create: {error}");
        return UCS_ERR_INVALID_PARAM;
    }
    if ctx.note_worker() {
        log::warn_unused_once(&ctx.options);
    }
    let began = trace::is_on().then(trace::now);
    match Worker::new(ctx, params) {
        Ok(worker) => {
            if let Some(began) = began {
                trace::slice("worker", "worker create", began, &record(&worker));
            }
            // SAFETY: checked above.
            unsafe { worker_p.write(Box::into_raw(worker).cast()) };
            UCS_OK
        }
        Err(e) => {
            log::error!("ucp_worker_create: {e}");
            UCS_ERR_NO_RESOURCE
        }
    }
}

/// What the timeline records of a worker.
#[cold]
fn record(worker: &Worker) -> [EventArg; 4] {
    [
        ("worker", ArgValue::Hex(worker.uid)),
        ("handle", ArgValue::Hex((&raw const *worker).addr() as u64)),
        (
            "name",
            worker.params.name.clone().unwrap_or_default().into(),
        ),
        ("thread mode", worker.params.thread_mode.into()),
    ]
}

unsafe fn read_params(params: *const ucp_worker_params_t) -> Result<WorkerParams, &'static str> {
    // SAFETY: each field is read only if its bit is set.
    unsafe {
        let mask = (*params).field_mask;
        let has = |bit: ucp_worker_params_field| mask & bit as u64 != 0;
        let thread_mode = if has(UCP_WORKER_PARAM_FIELD_THREAD_MODE) {
            enum_raw((*params).thread_mode)
        } else {
            0
        };
        let am_alignment = if has(UCP_WORKER_PARAM_FIELD_AM_ALIGNMENT) {
            (*params).am_alignment
        } else {
            1
        };
        let flags = if has(UCP_WORKER_PARAM_FIELD_FLAGS) {
            (*params).flags
        } else {
            0
        };
        let events = if has(UCP_WORKER_PARAM_FIELD_EVENTS) {
            (*params).events
        } else {
            0
        };
        if thread_mode > ucs_thread_mode_t::UCS_THREAD_MODE_MULTI as u32 {
            return Err("unknown thread mode");
        }
        if !am_alignment.is_power_of_two() || am_alignment > 1 << 20 {
            return Err("am_alignment is not a power of two, or above 1 MiB");
        }
        Ok(WorkerParams {
            thread_mode,
            name: if has(UCP_WORKER_PARAM_FIELD_NAME) {
                output::text((*params).name)
            } else {
                None
            },
            am_alignment,
            client_id: has(UCP_WORKER_PARAM_FIELD_CLIENT_ID).then(|| (*params).client_id),
            ignore_leaks: flags & UCP_WORKER_FLAG_IGNORE_REQUEST_LEAK as u64 != 0,
            wakeup: WakeupParams {
                user_data: if has(UCP_WORKER_PARAM_FIELD_USER_DATA) {
                    (*params).user_data
                } else {
                    std::ptr::null_mut()
                },
                event_fd: has(UCP_WORKER_PARAM_FIELD_EVENT_FD).then(|| (*params).event_fd),
                edge: events & UCP_WAKEUP_EDGE as u32 != 0,
            },
        })
    }
}

/// Destroys a worker; outstanding operations are cancelled.
///
/// # Safety
/// Null, or a worker that is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_worker_destroy(worker: ucp_worker_h) {
    // A forked child does not change its parent's worker.
    // SAFETY: the caller's handle.
    if !worker.is_null() && !unsafe { worker_of(worker) }.is_inherited() {
        // SAFETY: made by `ucp_worker_create`, freed once.
        unsafe {
            let began = trace::is_on().then(trace::now);
            let args = began.map(|_| record(worker_of(worker)));
            worker_destroy::worker(Box::from_raw(worker.cast::<Worker>()));
            if let (Some(began), Some(args)) = (began, args) {
                trace::slice("worker", "worker destroy", began, &args);
            }
        };
    }
}

/// Fills the fields of `attr` that its mask names. The address is freed with `ucp_worker_release_address`.
///
/// # Safety
/// A live worker; `attr` is null or valid in the fields that its mask names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_worker_query(
    worker: ucp_worker_h,
    attr: *mut ucp_worker_attr_t,
) -> ucs_status_t {
    if worker.is_null() || attr.is_null() {
        return invalid("ucp_worker_query", "worker or attr is null");
    }
    // SAFETY: the caller's handle; fields under the mask, through raw pointers.
    unsafe {
        let w = worker_of(worker);
        let mask = (*attr).field_mask;
        let has = |bit: ucp_worker_attr_field| mask & bit as u64 != 0;
        if has(UCP_WORKER_ATTR_FIELD_THREAD_MODE) {
            let mode = match w.params.thread_mode {
                0 => ucs_thread_mode_t::UCS_THREAD_MODE_SINGLE,
                1 => ucs_thread_mode_t::UCS_THREAD_MODE_SERIALIZED,
                _ => ucs_thread_mode_t::UCS_THREAD_MODE_MULTI,
            };
            (&raw mut (*attr).thread_mode).write(mode);
        }
        if has(UCP_WORKER_ATTR_FIELD_ADDRESS) {
            let flags = if has(UCP_WORKER_ATTR_FIELD_ADDRESS_FLAGS) {
                (*attr).address_flags
            } else {
                0
            };
            let net_only = flags & UCP_WORKER_ADDRESS_FLAG_NET_ONLY as u32 != 0;
            let Some((ptr, len)) = super::address::allocate(w, net_only) else {
                return UCS_ERR_NO_MEMORY;
            };
            ((*attr).address, (*attr).address_length) = (ptr, len);
        }
        if has(UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER) {
            (*attr).max_am_header = if w.ctx.has(UCP_FEATURE_AM) {
                MAX_AM_HEADER
            } else {
                0
            };
        }
        if has(UCP_WORKER_ATTR_FIELD_NAME) {
            let name = w
                .params
                .name
                .clone()
                .unwrap_or_else(|| format!("{worker:p}"));
            output::name(&raw mut (*attr).name, &name);
        }
        if has(UCP_WORKER_ATTR_FIELD_MAX_INFO_STRING) {
            (*attr).max_debug_string = MAX_DEBUG_STRING;
        }
    }
    UCS_OK
}

/// Prints the state of a worker and its peers.
///
/// # Safety
/// A live worker, an open stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_worker_print_info(worker: ucp_worker_h, stream: *mut libc::FILE) {
    if worker.is_null() || stream.is_null() {
        invalid("ucp_worker_print_info", "worker or stream is null");
        return;
    }
    // SAFETY: the caller's handle and stream.
    unsafe {
        let w = worker_of(worker);
        if w.is_inherited() {
            inherited("ucp_worker_print_info");
            return;
        }
        let name = w
            .params
            .name
            .clone()
            .unwrap_or_else(|| format!("{worker:p}"));
        let (address, peers) = (w.address(false).encode().len(), w.peers.lock().len());
        let text = format!(
            "#\n# UCP worker '{name}'\n#\n#                 address: {address} bytes\n\
             #                   peers: {peers}\n#\n"
        );
        output::write(stream, &text);
    }
}

/// Progresses the worker; not 0 if something happened.
///
/// # Safety
/// A live worker.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_worker_progress(worker: ucp_worker_h) -> c_uint {
    // SAFETY: the caller's handle.
    progress::progress(unsafe { worker_of(worker) })
}

/// Remote accesses after this take effect after those before it.
///
/// # Safety
/// A live worker.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_worker_fence(worker: ucp_worker_h) -> ucs_status_t {
    if worker.is_null() {
        return invalid("ucp_worker_fence", "worker is null");
    }
    // SAFETY: the caller's handle.
    fence::start(unsafe { worker_of(worker) })
}

/// Completes when everything before it has: locally, and remote accesses at their targets.
///
/// # Safety
/// A live worker; `param` valid in the fields that its mask names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_worker_flush_nbx(
    worker: ucp_worker_h,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    if worker.is_null() || param.is_null() {
        return invalid_request("ucp_worker_flush_nbx", "worker or param is null");
    }
    // SAFETY: the caller's handle and structure.
    unsafe { endpoint::flush_worker(worker_of(worker), &Param::new(param, 0)) }
}
