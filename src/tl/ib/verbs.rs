//! libibverbs, opened at run time: a host without it has no InfiniBand, and nothing else changes.

use super::bindings::*;
use crate::sys::library::{Library, functions};
use crate::sys::sync::OnceLock;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::io::{self, Error};

/// The file name in every version of rdma-core.
const LIBRARY: &CStr = c"libibverbs.so.1";

functions! {
    /// The functions that the transport calls; those of the data path are in the device's context (`ops`).
    pub struct Verbs;
    get_device_list = c"ibv_get_device_list": fn(*mut c_int) -> *mut *mut ibv_device;
    free_device_list = c"ibv_free_device_list": fn(*mut *mut ibv_device);
    get_device_name = c"ibv_get_device_name": fn(*mut ibv_device) -> *const c_char;
    open_device = c"ibv_open_device": fn(*mut ibv_device) -> *mut ibv_context;
    close_device = c"ibv_close_device": fn(*mut ibv_context) -> c_int;
    query_device = c"ibv_query_device": fn(*mut ibv_context, *mut ibv_device_attr) -> c_int;
    query_port = c"ibv_query_port": fn(*mut ibv_context, u8, *mut ibv_port_attr) -> c_int;
    query_gid = c"ibv_query_gid": fn(*mut ibv_context, u8, c_int, *mut ibv_gid) -> c_int;
    query_pkey = c"ibv_query_pkey": fn(*mut ibv_context, u8, c_int, *mut u16) -> c_int;
    alloc_pd = c"ibv_alloc_pd": fn(*mut ibv_context) -> *mut ibv_pd;
    dealloc_pd = c"ibv_dealloc_pd": fn(*mut ibv_pd) -> c_int;
    reg_mr = c"ibv_reg_mr": fn(*mut ibv_pd, *mut c_void, usize, c_int) -> *mut ibv_mr;
    dereg_mr = c"ibv_dereg_mr": fn(*mut ibv_mr) -> c_int;
    create_comp_channel = c"ibv_create_comp_channel": fn(*mut ibv_context) -> *mut ibv_comp_channel;
    destroy_comp_channel = c"ibv_destroy_comp_channel": fn(*mut ibv_comp_channel) -> c_int;
    get_cq_event = c"ibv_get_cq_event":
        fn(*mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void) -> c_int;
    ack_cq_events = c"ibv_ack_cq_events": fn(*mut ibv_cq, c_uint);
    create_cq = c"ibv_create_cq":
        fn(*mut ibv_context, c_int, *mut c_void, *mut ibv_comp_channel, c_int) -> *mut ibv_cq;
    destroy_cq = c"ibv_destroy_cq": fn(*mut ibv_cq) -> c_int;
    create_srq = c"ibv_create_srq": fn(*mut ibv_pd, *mut ibv_srq_init_attr) -> *mut ibv_srq;
    destroy_srq = c"ibv_destroy_srq": fn(*mut ibv_srq) -> c_int;
    create_qp = c"ibv_create_qp": fn(*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp;
    modify_qp = c"ibv_modify_qp": fn(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int;
    destroy_qp = c"ibv_destroy_qp": fn(*mut ibv_qp) -> c_int;
    create_ah = c"ibv_create_ah": fn(*mut ibv_pd, *mut ibv_ah_attr) -> *mut ibv_ah;
    destroy_ah = c"ibv_destroy_ah": fn(*mut ibv_ah) -> c_int;
    wc_status_str = c"ibv_wc_status_str": fn(ibv_wc_status) -> *const c_char;
    // Returns the types of GIDs; libraries before rdma-core 33 do not have it. Arguments: context, array of entries,
    // their number, flags (0), bytes of an entry. Returns the number of entries written, or an error below 0.
    ? query_gid_table = c"_ibv_query_gid_table": fn(*mut ibv_context, *mut ibv_gid_entry, usize, u32, usize) -> isize;
    // Registers memory of another device by its descriptor; libraries before rdma-core 34 do not have it. Arguments:
    // protection domain, offset and length within the descriptor, address for work requests, descriptor, access.
    ? reg_dmabuf_mr = c"ibv_reg_dmabuf_mr": fn(*mut ibv_pd, u64, usize, u64, c_int, c_int) -> *mut ibv_mr;
}

/// The end of `struct verbs_context`, which `<infiniband/verbs.h>` extends only at its beginning: it contains the
/// context if `abi_compat` says so. The software HCA, which is compiled with that header, asserts the offset of the
/// function.
#[repr(C)]
struct Extended {
    query_device_ex: Option<QueryDeviceEx>,
    others: [*const c_void; 10],
    placeholder: u64,
    /// Bytes of the whole structure.
    size: usize,
    context: ibv_context,
}

type QueryDeviceEx = unsafe extern "C" fn(
    *mut ibv_context,
    *const ibv_query_device_ex_input,
    *mut ibv_device_attr_ex,
    usize,
) -> c_int;

/// Attributes of a device beyond `ibv_query_device`. `None`: the device has no extended query, or it fails.
///
/// # Safety
/// `context` is open.
pub unsafe fn query_device_ex(context: *mut ibv_context) -> Option<ibv_device_attr_ex> {
    const EXTENDED: usize = usize::MAX;
    // SAFETY: by the caller, the context is open. If `abi_compat` says that it is extended it lies in the structure, of
    // which `size` bytes exist.
    unsafe {
        if (*context).abi_compat as usize != EXTENDED {
            return None;
        }
        let extended = context
            .byte_sub(std::mem::offset_of!(Extended, context))
            .cast::<Extended>();
        if (*extended).size < size_of::<Extended>() {
            return None;
        }
        let query = (*extended).query_device_ex?;
        let mut attr = ibv_device_attr_ex::default();
        let answer = query(
            context,
            std::ptr::null(),
            &mut attr,
            size_of::<ibv_device_attr_ex>(),
        );
        (answer == 0).then_some(attr)
    }
}

impl Verbs {
    /// The library, if this host has it. It is never unloaded.
    pub fn get() -> Option<&'static Verbs> {
        static VERBS: OnceLock<Option<Verbs>> = OnceLock::new();
        // SAFETY: the library is libibverbs, whose functions have the declared types.
        let open = || unsafe { Verbs::resolve(Library::open(LIBRARY)?) };
        VERBS.get_or_init(open).as_ref()
    }

    /// The text of a completion's status.
    pub fn status_text(&self, status: ibv_wc_status) -> String {
        // SAFETY: the function returns a constant string for every number.
        let text = unsafe { CStr::from_ptr((self.wc_status_str)(status)) };
        text.to_string_lossy().into_owned()
    }
}

/// The result of a function that returns 0 or an error number.
///
/// # Errors
/// That number.
pub fn check(answer: c_int) -> io::Result<()> {
    match answer {
        0 => Ok(()),
        // Some providers return -1 and set errno, some the negative number.
        -1 => Err(Error::last_os_error()),
        n => Err(Error::from_raw_os_error(n.abs())),
    }
}

/// The result of a function that returns a new object, or null and sets errno.
///
/// # Errors
/// The value of errno.
pub fn made<T>(object: *mut T) -> io::Result<*mut T> {
    if object.is_null() {
        Err(Error::last_os_error())
    } else {
        Ok(object)
    }
}
