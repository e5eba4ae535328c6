//! Contexts: creation, queries, printing.

use super::lib_info::VERSION;
use super::output::{self, invalid};
use crate::ctypes::*;
use crate::engine::cm::ConnRequest;
use crate::engine::context::{Context, ContextParams, Policy};
use crate::engine::request::REQUEST_SIZE;
use crate::options::Options;
use crate::proto::{proto_info, resources};
use crate::sys::{fork, host, log, mem_monitor, memtype_cache, other_ucx, process_monitor, trace};
use crate::tl::cm::deferred_close;
use crate::tl::lane_info;
use std::ffi::c_uint;

/// Held while a context is made: what is found out once for the process, here and in libraries such as libibverbs, is
/// not half done in a forked child.
static CREATION: fork::Mutex<()> = fork::Mutex::new(());

/// The context behind a handle.
///
/// # Safety
/// A handle of a context that was not cleaned up; it stays until then.
pub unsafe fn context_of(handle: ucp_context_h) -> &'static Context {
    // SAFETY: the caller's promise.
    unsafe { &*handle.cast::<Context>().cast_const() }
}

/// A context.
///
/// # Safety
/// Pointers are null or valid, `params` in the fields that its mask names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_init_version(
    api_major_version: c_uint,
    api_minor_version: c_uint,
    params: *const ucp_params_t,
    config: *const ucp_config_t,
    context_p: *mut ucp_context_h,
) -> ucs_status_t {
    if params.is_null() || context_p.is_null() {
        return invalid("ucp_init", "params or context_p is null");
    }
    if api_major_version != VERSION.0 {
        log::warn!(
            "UCP API version is incompatible: required >= {api_major_version}.{api_minor_version}, actual {}.{}.{}",
            VERSION.0,
            VERSION.1,
            VERSION.2
        );
    }
    fork::watch(|| {
        let [trace_writer, trace_buffer] = trace::locks_to_watch();
        vec![
            CREATION.lock_to_watch(),
            ConnRequest::lock_to_watch(),
            lane_info::lock_to_watch(),
            deferred_close::lock_to_watch(),
            memtype_cache::lock_to_watch(),
            process_monitor::lock_to_watch(),
            mem_monitor::lock_to_watch(),
            trace_writer,
            trace_buffer,
        ]
    });
    let _one_at_a_time = CREATION.lock();
    // SAFETY: the caller's configuration, or none.
    let options = match unsafe { options(config) } {
        Ok(options) => options,
        Err(status) => return status,
    };
    log::info!(
        "Version {}.{}.{} (loaded from {})",
        VERSION.0,
        VERSION.1,
        VERSION.2,
        host::library_path()
    );
    if log::enabled(log::LogLevel::Info) {
        for path in other_ucx::paths() {
            log::info!("another UCX is in this process: {path}");
        }
    }
    // SAFETY: the caller's structure.
    let params = unsafe { read_params(params, api_minor_version) };
    if params.features == 0 {
        log::warn!("empty features set passed to ucp context create");
    }
    let policy = match Policy::new(&options) {
        Ok(policy) => policy,
        Err(status) => return status,
    };
    let context = match Context::new(params, options, policy) {
        Ok(context) => Box::new(context),
        Err(status) => return status,
    };
    // SAFETY: checked above.
    unsafe { context_p.write(Box::into_raw(context).cast()) };
    UCS_OK
}

unsafe fn options(config: *const ucp_config_t) -> Result<Options, ucs_status_t> {
    if !config.is_null() {
        // SAFETY: the caller's configuration.
        return Ok(unsafe { super::config::options_of(config) }.clone());
    }
    super::config::read_options(None)
}

unsafe fn read_params(params: *const ucp_params_t, api_minor: u32) -> ContextParams {
    // SAFETY: each field is read only if its bit is set.
    unsafe {
        let mask = (*params).field_mask;
        let has = |bit: ucp_params_field| mask & bit as u64 != 0;
        ContextParams {
            name: if has(UCP_PARAM_FIELD_NAME) {
                output::text((*params).name)
            } else {
                None
            },
            features: if has(UCP_PARAM_FIELD_FEATURES) {
                (*params).features
            } else {
                0
            },
            request_size: if has(UCP_PARAM_FIELD_REQUEST_SIZE) {
                (*params).request_size
            } else {
                0
            },
            request_init: if has(UCP_PARAM_FIELD_REQUEST_INIT) {
                (*params).request_init
            } else {
                None
            },
            request_cleanup: if has(UCP_PARAM_FIELD_REQUEST_CLEANUP) {
                (*params).request_cleanup
            } else {
                None
            },
            mt_workers_shared: has(UCP_PARAM_FIELD_MT_WORKERS_SHARED)
                && (*params).mt_workers_shared != 0,
            num_eps: has(UCP_PARAM_FIELD_ESTIMATED_NUM_EPS).then(|| (*params).estimated_num_eps),
            api_minor,
            num_ppn: has(UCP_PARAM_FIELD_ESTIMATED_NUM_PPN).then(|| (*params).estimated_num_ppn),
        }
    }
}

/// Frees a context whose workers are destroyed and whose memory is unmapped.
///
/// # Safety
/// Null, or a context that is used no more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_cleanup(context_p: ucp_context_h) {
    // A forked child leaves its parent's context as it is.
    // SAFETY: the caller's handle.
    if !context_p.is_null() && !unsafe { context_of(context_p) }.is_inherited() {
        // SAFETY: made by `ucp_init_version`, freed once.
        let context = unsafe { Box::from_raw(context_p.cast::<Context>()) };
        proto_info::print_copies(&context);
    }
}

/// Fills the fields of `attr` that its mask names.
///
/// # Safety
/// A live context; `attr` is null or valid in the fields that its mask names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_context_query(
    context_p: ucp_context_h,
    attr: *mut ucp_context_attr_t,
) -> ucs_status_t {
    if context_p.is_null() || attr.is_null() {
        return invalid("ucp_context_query", "context or attr is null");
    }
    // SAFETY: the caller's handle; fields under the mask, through raw pointers.
    unsafe {
        let context = context_of(context_p);
        let mask = (*attr).field_mask;
        let has = |bit: ucp_context_attr_field| mask & bit as u64 != 0;
        if has(UCP_ATTR_FIELD_REQUEST_SIZE) {
            (*attr).request_size = REQUEST_SIZE;
        }
        if has(UCP_ATTR_FIELD_THREAD_MODE) {
            let multi = context.mt_workers_shared;
            let mode = if multi {
                ucs_thread_mode_t::UCS_THREAD_MODE_MULTI
            } else {
                ucs_thread_mode_t::UCS_THREAD_MODE_SINGLE
            };
            (&raw mut (*attr).thread_mode).write(mode);
        }
        if has(UCP_ATTR_FIELD_MEMORY_TYPES) {
            (*attr).memory_types = context.memory_types();
        }
        if has(UCP_ATTR_FIELD_NAME) {
            output::name(&raw mut (*attr).name, &context.name);
        }
        if has(UCP_ATTR_FIELD_DEVICE_COUNTER_SIZE) {
            (*attr).device_counter_size = size_of::<u64>();
        }
    }
    UCS_OK
}

/// Lists transports and devices. Open MPI reads the `resource` lines.
///
/// # Safety
/// A live context, an open stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_context_print_info(context: ucp_context_h, stream: *mut libc::FILE) {
    if context.is_null() || stream.is_null() {
        invalid("ucp_context_print_info", "context or stream is null");
        return;
    }
    // SAFETY: the caller's handle.
    let context = unsafe { context_of(context) };
    let mut text = "#\n# UCP context\n#\n".to_owned();
    let resources = resources::of(&context.options, &context.policy);
    let mut domains: Vec<&str> = resources.iter().map(|r| r.transport).collect();
    domains.dedup();
    for (i, name) in domains.iter().enumerate() {
        text += &format!("#            md {i}  :  {name}\n");
    }
    text += "#\n";
    for (i, r) in resources.iter().enumerate() {
        let md = domains
            .iter()
            .position(|name| *name == r.transport)
            .unwrap_or(0);
        text += &format!(
            "#      resource {i}  :  md {md}  dev {i}  flags -- {}/{}\n",
            r.transport, r.device
        );
    }
    text += "#\n";
    // SAFETY: the caller's stream.
    unsafe { output::write(stream, &text) };
}
