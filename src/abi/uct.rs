//! The part of UCT that clients call: there is no transport component, so nothing follows the query of components.

use crate::ctypes::*;
use std::ffi::{c_char, c_uint, c_void};
use std::ptr::null_mut;

/// Lists the components: none.
///
/// # Safety
/// Each pointer is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uct_query_components(
    components_p: *mut *mut uct_component_h,
    num_components_p: *mut c_uint,
) -> ucs_status_t {
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
#[unsafe(no_mangle)]
pub extern "C" fn uct_release_component_list(components: *mut uct_component_h) {
    let _ = components;
}

/// Queries the attributes of a component: none exists.
#[unsafe(no_mangle)]
pub extern "C" fn uct_component_query(
    component: uct_component_h,
    component_attr: *mut uct_component_attr_t,
) -> ucs_status_t {
    let _ = (component, component_attr);
    UCS_ERR_UNSUPPORTED
}

/// Reads the options of a memory domain: there is none.
#[unsafe(no_mangle)]
pub extern "C" fn uct_md_config_read(
    component: uct_component_h,
    env_prefix: *const c_char,
    filename: *const c_char,
    config_p: *mut *mut uct_md_config_t,
) -> ucs_status_t {
    let _ = (component, env_prefix, filename, config_p);
    UCS_ERR_UNSUPPORTED
}

/// Releases options: there are none.
#[unsafe(no_mangle)]
pub extern "C" fn uct_config_release(config: *mut c_void) {
    let _ = config;
}

/// Opens a memory domain: there is none.
#[unsafe(no_mangle)]
pub extern "C" fn uct_md_open(
    component: uct_component_h,
    md_name: *const c_char,
    config: *const uct_md_config_t,
    md_p: *mut uct_md_h,
) -> ucs_status_t {
    let _ = (component, md_name, config, md_p);
    UCS_ERR_UNSUPPORTED
}

/// Closes a memory domain: there is none.
#[unsafe(no_mangle)]
pub extern "C" fn uct_md_close(md: uct_md_h) {
    let _ = md;
}

/// Lists the transports of a memory domain: there is none.
#[unsafe(no_mangle)]
pub extern "C" fn uct_md_query_tl_resources(
    md: uct_md_h,
    resources_p: *mut *mut uct_tl_resource_desc_t,
    num_resources_p: *mut c_uint,
) -> ucs_status_t {
    let _ = (md, resources_p, num_resources_p);
    UCS_ERR_UNSUPPORTED
}

/// Releases a list of transports: there is none.
#[unsafe(no_mangle)]
pub extern "C" fn uct_release_tl_resource_list(resources: *mut uct_tl_resource_desc_t) {
    let _ = resources;
}

/// Defines functions that a program built against UCX's libuct resolves when it is loaded. Each needs an
/// object that only a component makes, so none is ever called; one that were would refuse, whatever its
/// arguments are. No header declares them.
macro_rules! never_reached {
    ($($name:ident)+) => {$(
        /// Refuses: it takes an object of a component, and there is none.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> ucs_status_t {
            UCS_ERR_UNSUPPORTED
        }
    )+};
}

never_reached! {
    uct_ep_connect_to_ep uct_ep_create uct_ep_destroy uct_ep_get_address
    uct_iface_close uct_iface_get_address uct_iface_get_device_address uct_iface_open uct_iface_query
    uct_iface_set_am_handler
    uct_md_iface_config_read uct_md_mem_dereg uct_md_mem_reg uct_md_mkey_pack uct_md_query
    uct_rkey_release uct_rkey_unpack
    uct_worker_create uct_worker_destroy
    ucs_async_context_create ucs_async_context_destroy
}
