//! libtofucom, opened at run time: a host without it has no Tofu interconnect, and nothing else changes.
//!
//! Names, numbers and types are those of the library's C interface (uTofu 1.0), which no registry carries.

use crate::sys::log;
use crate::sys::sync::OnceLock;
use std::ffi::{CStr, c_int, c_ulong, c_void};

/// The name that every system with the interconnect gives it.
const LIBRARY: &CStr = c"libtofucom.so";

pub type TniId = u16;
pub type VcqHdl = usize;
/// Coordinates, TNI, control queue and component of a virtual control queue: unique in the machine.
pub type VcqId = u64;
/// Steering address: how adapters name memory.
pub type Stadd = u64;

/// Flags of a virtual control queue.
pub const VCQ_EXCLUSIVE: c_ulong = 1 << 1;

/// Flags of one-sided operations.
pub const STRONG_ORDER: c_ulong = 1 << 0;
pub const REMOTE_MRQ_NOTICE: c_ulong = 1 << 2;
pub const CACHE_INJECTION: c_ulong = 1 << 5;
pub const TCQ_NOTICE: c_ulong = 1 << 14;
pub const LOCAL_MRQ_NOTICE: c_ulong = 1 << 15;

pub const SUCCESS: c_int = 0;
pub const NOT_FOUND: c_int = -1;
pub const BUSY: c_int = -4;
/// What no other code says; of a queue that has failed as a whole, too.
pub const MRQ_OTHER: c_int = -192;
/// The node, or the queue there, is not there.
pub const MRQ_PEER: c_int = -193;

/// What an atomic operation does.
pub const ARMW_ADD: c_int = 2;

/// Kinds of notices: of our own operations, and of peers' on our memory.
pub const LCL_PUT: u8 = 0;
pub const RMT_PUT: u8 = 1;
pub const LCL_GET: u8 = 2;
pub const LCL_ARMW: u8 = 4;

/// What an adapter can.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Caps {
    pub flags: u64,
    pub armw_ops: u64,
    pub num_cmp_ids: u32,
    pub num_reserved_stags: u32,
    pub cache_line_size: usize,
    pub stag_address_alignment: usize,
    pub max_toq_desc_size: usize,
    pub max_putget_size: usize,
    pub max_piggyback_size: usize,
    pub max_edata_size: usize,
    pub max_mtu: usize,
    pub max_gap: usize,
}

/// What a message receive queue holds.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Notice {
    pub notice_type: u8,
    padding: [u8; 7],
    pub vcq_id: VcqId,
    pub edata: u64,
    /// Of an atomic operation: what was there before.
    pub rmt_value: u64,
    pub lcl_stadd: Stadd,
    pub rmt_stadd: Stadd,
    reserved: [u64; 2],
}

const _: () = assert!(size_of::<Notice>() == 64 && size_of::<Caps>() == 88);

/// Writes the table of functions, and how it is filled.
macro_rules! functions {
    ($($field:ident = $name:literal: fn($($argument:ty),*) -> $result:ty;)+) => {
        /// The functions that are called.
        pub struct Utofu {
            $(pub $field: unsafe extern "C" fn($($argument),*) -> $result,)+
        }

        impl Utofu {
            /// # Safety
            /// `library` is what `dlopen` gave for libtofucom.
            unsafe fn resolve(library: *mut c_void) -> Option<Utofu> {
                Some(Utofu {
                    // SAFETY: the library's own function of this name, whose type its manual tells.
                    $($field: unsafe {
                        std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) -> $result>(
                            symbol(library, $name)?,
                        )
                    },)+
                })
            }
        }
    };
}

functions! {
    get_onesided_tnis = c"utofu_get_onesided_tnis": fn(*mut *mut TniId, *mut usize) -> c_int;
    query_onesided_caps = c"utofu_query_onesided_caps": fn(TniId, *mut *mut Caps) -> c_int;
    query_my_coords = c"utofu_query_my_coords": fn(*mut u8) -> c_int;
    create_vcq = c"utofu_create_vcq": fn(TniId, c_ulong, *mut VcqHdl) -> c_int;
    free_vcq = c"utofu_free_vcq": fn(VcqHdl) -> c_int;
    query_vcq_id = c"utofu_query_vcq_id": fn(VcqHdl, *mut VcqId) -> c_int;
    reg_mem = c"utofu_reg_mem": fn(VcqHdl, *mut c_void, usize, c_ulong, *mut Stadd) -> c_int;
    dereg_mem = c"utofu_dereg_mem": fn(VcqHdl, Stadd, c_ulong) -> c_int;
    put = c"utofu_put":
        fn(VcqHdl, VcqId, Stadd, Stadd, usize, u64, c_ulong, *mut c_void) -> c_int;
    get = c"utofu_get":
        fn(VcqHdl, VcqId, Stadd, Stadd, usize, u64, c_ulong, *mut c_void) -> c_int;
    put_piggyback = c"utofu_put_piggyback":
        fn(VcqHdl, VcqId, *mut c_void, Stadd, usize, u64, c_ulong, *mut c_void) -> c_int;
    put_piggyback8 = c"utofu_put_piggyback8":
        fn(VcqHdl, VcqId, u64, Stadd, usize, u64, c_ulong, *mut c_void) -> c_int;
    armw8 = c"utofu_armw8": fn(VcqHdl, VcqId, c_int, u64, Stadd, u64, c_ulong, *mut c_void) -> c_int;
    poll_tcq = c"utofu_poll_tcq": fn(VcqHdl, c_ulong, *mut *mut c_void) -> c_int;
    poll_mrq = c"utofu_poll_mrq": fn(VcqHdl, c_ulong, *mut Notice) -> c_int;
}

impl Utofu {
    /// The library, if this host has it. It stays loaded.
    pub fn get() -> Option<&'static Utofu> {
        static UTOFU: OnceLock<Option<Utofu>> = OnceLock::new();
        let open = || {
            // SAFETY: a string; what the library does when it is loaded is what every program that uses it has it do.
            let library =
                unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
            if library.is_null() {
                return None;
            }
            // SAFETY: just opened.
            let found = unsafe { Utofu::resolve(library) };
            if found.is_none() {
                log::diag!("libtofucom lacks functions of uTofu 1.0: it is not used");
            }
            found
        };
        UTOFU.get_or_init(open).as_ref()
    }
}

fn symbol(library: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: an open library.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// The name of what a function answers, for people.
pub fn code_name(code: c_int) -> &'static str {
    match code {
        SUCCESS => "UTOFU_SUCCESS",
        NOT_FOUND => "UTOFU_ERR_NOT_FOUND",
        -2 => "UTOFU_ERR_NOT_COMPLETED",
        -3 => "UTOFU_ERR_NOT_PROCESSED",
        BUSY => "UTOFU_ERR_BUSY",
        -5 => "UTOFU_ERR_USED",
        -6 => "UTOFU_ERR_FULL",
        -7 => "UTOFU_ERR_NOT_AVAILABLE",
        -8 => "UTOFU_ERR_NOT_SUPPORTED",
        -128 => "UTOFU_ERR_TCQ_OTHER",
        -129 => "UTOFU_ERR_TCQ_DESC",
        -130 => "UTOFU_ERR_TCQ_MEMORY",
        -131 => "UTOFU_ERR_TCQ_STADD",
        -132 => "UTOFU_ERR_TCQ_LENGTH",
        MRQ_OTHER => "UTOFU_ERR_MRQ_OTHER",
        MRQ_PEER => "UTOFU_ERR_MRQ_PEER",
        -194 => "UTOFU_ERR_MRQ_LCL_MEMORY",
        -195 => "UTOFU_ERR_MRQ_RMT_MEMORY",
        -196 => "UTOFU_ERR_MRQ_LCL_STADD",
        -197 => "UTOFU_ERR_MRQ_RMT_STADD",
        -198 => "UTOFU_ERR_MRQ_LCL_LENGTH",
        -199 => "UTOFU_ERR_MRQ_RMT_LENGTH",
        -640 => "UTOFU_ERR_OUT_OF_RESOURCE",
        -641 => "UTOFU_ERR_OUT_OF_MEMORY",
        -768 => "UTOFU_ERR_FATAL",
        -533..=-512 => "UTOFU_ERR_INVALID",
        _ => "an unknown code",
    }
}
