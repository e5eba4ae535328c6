//! librdmacm, opened at run time. On a host without it listeners and clients connect by TCP alone.

use crate::sys::library::{Library, functions};
use crate::sys::log;
use crate::sys::sync::OnceLock;
use crate::tl::ib::bindings::*;
use std::ffi::{CStr, c_int, c_void};

/// The file name in every version of rdma-core.
const LIBRARY: &CStr = c"librdmacm.so.1";

functions! {
    /// The functions that rucp calls.
    pub struct Rdmacm;
    create_event_channel = c"rdma_create_event_channel": fn() -> *mut rdma_event_channel;
    destroy_event_channel = c"rdma_destroy_event_channel": fn(*mut rdma_event_channel);
    create_id = c"rdma_create_id":
        fn(*mut rdma_event_channel, *mut *mut rdma_cm_id, *mut c_void, rdma_port_space) -> c_int;
    destroy_id = c"rdma_destroy_id": fn(*mut rdma_cm_id) -> c_int;
    migrate_id = c"rdma_migrate_id": fn(*mut rdma_cm_id, *mut rdma_event_channel) -> c_int;
    set_option = c"rdma_set_option": fn(*mut rdma_cm_id, c_int, c_int, *mut c_void, usize) -> c_int;
    bind_addr = c"rdma_bind_addr": fn(*mut rdma_cm_id, *mut sockaddr) -> c_int;
    listen = c"rdma_listen": fn(*mut rdma_cm_id, c_int) -> c_int;
    resolve_addr = c"rdma_resolve_addr": fn(*mut rdma_cm_id, *mut sockaddr, *mut sockaddr, c_int) -> c_int;
    resolve_route = c"rdma_resolve_route": fn(*mut rdma_cm_id, c_int) -> c_int;
    init_qp_attr = c"rdma_init_qp_attr": fn(*mut rdma_cm_id, *mut ibv_qp_attr, *mut c_int) -> c_int;
    connect = c"rdma_connect": fn(*mut rdma_cm_id, *mut rdma_conn_param) -> c_int;
    establish = c"rdma_establish": fn(*mut rdma_cm_id) -> c_int;
    accept = c"rdma_accept": fn(*mut rdma_cm_id, *mut rdma_conn_param) -> c_int;
    reject = c"rdma_reject": fn(*mut rdma_cm_id, *const c_void, u8) -> c_int;
    get_event = c"rdma_get_cm_event": fn(*mut rdma_event_channel, *mut *mut rdma_cm_event) -> c_int;
    ack_event = c"rdma_ack_cm_event": fn(*mut rdma_cm_event) -> c_int;
}

impl Rdmacm {
    /// The library, if this host has it. It is never unloaded.
    pub fn get() -> Option<&'static Rdmacm> {
        static RDMACM: OnceLock<Option<Rdmacm>> = OnceLock::new();
        let open = || {
            let Some(library) = Library::open(LIBRARY) else {
                log::diag!("no librdmacm: listeners and clients use TCP only");
                return None;
            };
            // SAFETY: the library is librdmacm, whose functions have the declared types.
            let found = unsafe { Rdmacm::resolve(library) };
            if found.is_none() {
                log::diag!("librdmacm is too old: listeners and clients use TCP only");
            }
            found
        };
        RDMACM.get_or_init(open).as_ref()
    }
}
