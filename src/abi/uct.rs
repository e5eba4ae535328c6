//! The part of UCT that clients call. This library has no transport component, so nothing follows the query of
//! components. Where a genuine UCX is in the process, too, each call is passed on to its function: the components of
//! that are used as if this library were not preloaded.

use crate::ctypes::*;
use crate::sys::other_ucx::HiddenFn;
use std::ffi::{CStr, c_char, c_uint, c_void};
use std::ptr::null_mut;

/// In a process with a genuine UCX, the function of this name of its library that begins with `$library` is called, and
/// what it returns is returned.
macro_rules! pass_on {
    ($library:literal: $name:ident($($argument:ident),*)) => {
        static HIDDEN: HiddenFn = HiddenFn::new(
            match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!(),
            },
            $library,
        );
        if let Some(found) = HIDDEN.get() {
            // SAFETY: the function of this name, of the type that its header declares, which is that of the function
            // around it; the arguments are the caller's, as its contract says.
            return unsafe {
                let genuine: unsafe extern "C" fn($(pass_on!(type of $argument)),*) -> _ =
                    std::mem::transmute(found);
                genuine($($argument),*)
            };
        }
    };
    (type of $argument:ident) => { _ };
}

/// Lists the components: none.
///
/// # Safety
/// Each pointer is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uct_query_components(
    components_p: *mut *mut uct_component_h,
    num_components_p: *mut c_uint,
) -> ucs_status_t {
    pass_on!("libuct": uct_query_components(components_p, num_components_p));
    if components_p.is_null() || num_components_p.is_null() {
        return UCS_ERR_INVALID_PARAM;
    }
    // SAFETY: as the caller promises.
    unsafe {
        components_p.write(null_mut());
        num_components_p.write(0);
    }
    UCS_OK
}

/// Releases the list of components, which is NULL.
///
/// # Safety
/// As of the function in UCX.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uct_release_component_list(components: *mut uct_component_h) {
    pass_on!("libuct": uct_release_component_list(components));
}

/// Queries the attributes of a component: none exists.
///
/// # Safety
/// As of the function in UCX.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uct_component_query(
    component: uct_component_h,
    component_attr: *mut uct_component_attr_t,
) -> ucs_status_t {
    pass_on!("libuct": uct_component_query(component, component_attr));
    UCS_ERR_UNSUPPORTED
}

/// Reads the options of a memory domain: there is none.
///
/// # Safety
/// As of the function in UCX.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uct_md_config_read(
    component: uct_component_h,
    env_prefix: *const c_char,
    filename: *const c_char,
    config_p: *mut *mut uct_md_config_t,
) -> ucs_status_t {
    pass_on!("libuct": uct_md_config_read(component, env_prefix, filename, config_p));
    UCS_ERR_UNSUPPORTED
}

/// Releases options: there are none.
///
/// # Safety
/// As of the function in UCX.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uct_config_release(config: *mut c_void) {
    pass_on!("libuct": uct_config_release(config));
}

/// Opens a memory domain: there is none.
///
/// # Safety
/// As of the function in UCX.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uct_md_open(
    component: uct_component_h,
    md_name: *const c_char,
    config: *const uct_md_config_t,
    md_p: *mut uct_md_h,
) -> ucs_status_t {
    pass_on!("libuct": uct_md_open(component, md_name, config, md_p));
    UCS_ERR_UNSUPPORTED
}

/// Closes a memory domain: there is none.
///
/// # Safety
/// As of the function in UCX.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uct_md_close(md: uct_md_h) {
    pass_on!("libuct": uct_md_close(md));
}

/// Lists the transports of a memory domain: there is none.
///
/// # Safety
/// As of the function in UCX.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uct_md_query_tl_resources(
    md: uct_md_h,
    resources_p: *mut *mut uct_tl_resource_desc_t,
    num_resources_p: *mut c_uint,
) -> ucs_status_t {
    pass_on!("libuct": uct_md_query_tl_resources(md, resources_p, num_resources_p));
    UCS_ERR_UNSUPPORTED
}

/// Releases a list of transports: there is none.
///
/// # Safety
/// As of the function in UCX.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uct_release_tl_resource_list(resources: *mut uct_tl_resource_desc_t) {
    pass_on!("libuct": uct_release_tl_resource_list(resources));
}

/// Defines functions that a program built against UCX's libuct resolves when it is loaded. Each needs an object that
/// only a component makes: without a genuine UCX none is ever called, and one that were would refuse, whatever its
/// arguments are. No header of ours declares them.
///
/// They have up to six arguments, all of them integers and pointers, which are in registers on every processor, and
/// return such a value or nothing: a call with six integers passes them on as they are.
macro_rules! never_reached {
    ($library:literal: $($name:ident)+) => {$(
        /// Calls the function of a genuine UCX, or refuses: it takes an object of a component, and there is none.
        ///
        /// # Safety
        /// As of the function in UCX.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            a: usize,
            b: usize,
            c: usize,
            d: usize,
            e: usize,
            f: usize,
        ) -> usize {
            pass_on!($library: $name(a, b, c, d, e, f));
            UCS_ERR_UNSUPPORTED as isize as usize
        }
    )+};
}

never_reached! {
    "libuct":
    uct_ep_connect_to_ep uct_ep_create uct_ep_destroy uct_ep_get_address
    uct_iface_close uct_iface_get_address uct_iface_get_device_address uct_iface_open uct_iface_query
    uct_iface_set_am_handler
    uct_md_iface_config_read uct_md_mem_dereg uct_md_mem_reg uct_md_mkey_pack uct_md_query
    uct_rkey_release uct_rkey_unpack
    uct_worker_create uct_worker_destroy
}

never_reached! {
    "libucs":
    ucs_async_context_create ucs_async_context_destroy
}
