//! libtofucom, opened at run time: a host without it has no Tofu interconnect, and the transport is not available.
//!
//! Names, constants and types follow the library's C interface (uTofu 1.0), for which there is no crate.

use crate::sys::library::{Library, functions};
use crate::sys::log;
use crate::sys::sync::OnceLock;
use bitflags::bitflags;
use std::ffi::{CStr, c_int, c_ulong, c_void};

/// File name of the library on systems with the interconnect.
const LIBRARY: &CStr = c"libtofucom.so";

/// `utofu_tni_id_t`: number of a TNI of this node.
pub type TniId = u16;
/// `utofu_vcq_hdl_t`: handle of a VCQ of this process, valid until `utofu_free_vcq`.
pub type VcqHdl = usize;
/// Coordinates, TNI, control queue and component id of a virtual control queue: unique in the machine.
pub type VcqId = u64;
/// Steering address: registered memory as TNIs address it.
pub type Stadd = u64;

bitflags! {
    /// Flags of a virtual control queue.
    #[repr(transparent)]
    #[derive(Clone, Copy, Debug)]
    pub struct VcqFlags: c_ulong {
        const THREAD_SAFE = 1 << 0;
        const EXCLUSIVE = 1 << 1;
    }

    /// Flags of registered memory.
    #[repr(transparent)]
    #[derive(Clone, Copy, Debug)]
    pub struct RegFlags: c_ulong {
        /// TNIs only read it.
        const READ_ONLY = 1 << 0;
    }

    /// Flags of one-sided operations.
    #[repr(transparent)]
    #[derive(Clone, Copy, Debug, Default)]
    pub struct OpFlags: c_ulong {
        const STRONG_ORDER = 1 << 0;
        const REMOTE_MRQ_NOTICE = 1 << 2;
        const CACHE_INJECTION = 1 << 5;
        const TCQ_NOTICE = 1 << 14;
        const LOCAL_MRQ_NOTICE = 1 << 15;
    }

    /// Capabilities of a TNI. The library sets others, too.
    #[repr(transparent)]
    #[derive(Clone, Copy, Debug, Default)]
    pub struct TniFlags: u64 {
        /// Atomic operations: [`ArmwOps`] says which.
        const ARMW = 1 << 1;
        const _ = !0;
    }

    /// Atomic operations of a TNI. The library sets others, too.
    #[repr(transparent)]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct ArmwOps: u64 {
        const CSWAP = 1 << 0;
        const SWAP = 1 << 1;
        const ADD = 1 << 2;
        const XOR = 1 << 3;
        const AND = 1 << 4;
        const OR = 1 << 5;
        const _ = !0;
    }
}

/// `UTOFU_SUCCESS`: the call has succeeded.
pub const SUCCESS: c_int = 0;
/// `UTOFU_ERR_NOT_FOUND`: of a poll, the queue is empty.
pub const NOT_FOUND: c_int = -1;
/// `UTOFU_ERR_BUSY`: of a post, the transmit order queue is full; the caller polls the TCQ and posts again.
pub const BUSY: c_int = -4;
/// `UTOFU_ERR_FULL`: all of a limited number, of VCQs or steering tags, are in use.
pub const FULL: c_int = -6;
/// `UTOFU_ERR_OUT_OF_RESOURCE`: a resource is missing; the call may succeed after others are freed.
pub const OUT_OF_RESOURCE: c_int = -640;
/// `UTOFU_ERR_OUT_OF_MEMORY`: memory is missing; the call may succeed after resources are freed.
pub const OUT_OF_MEMORY: c_int = -641;
/// Any other error, also a failure of the MRQ as a whole.
pub const MRQ_OTHER: c_int = -192;
/// The remote node, or its VCQ, does not exist.
pub const MRQ_PEER: c_int = -193;
/// The remote address is not registered.
pub const MRQ_RMT_STADD: c_int = -197;

/// Atomic operations.
///
/// `UTOFU_ARMW_OP_SWAP`: the operand replaces the word.
pub const ARMW_SWAP: c_int = 1;
/// `UTOFU_ARMW_OP_ADD`: the operand is added to the word, modulo its size.
pub const ARMW_ADD: c_int = 2;
/// `UTOFU_ARMW_OP_XOR`: the word becomes its exclusive or with the operand.
pub const ARMW_XOR: c_int = 3;
/// `UTOFU_ARMW_OP_AND`: the word becomes its bitwise and with the operand.
pub const ARMW_AND: c_int = 4;
/// `UTOFU_ARMW_OP_OR`: the word becomes its bitwise or with the operand.
pub const ARMW_OR: c_int = 5;

/// Types of notices: of local operations, and of peers' puts into local memory.
///
/// `UTOFU_MRQ_TYPE_LCL_PUT`: the data of a put by this VCQ have arrived in remote memory.
pub const LCL_PUT: u8 = 0;
/// `UTOFU_MRQ_TYPE_RMT_PUT`: the data of a peer's put have arrived in memory of this VCQ.
pub const RMT_PUT: u8 = 1;
/// `UTOFU_MRQ_TYPE_LCL_GET`: the data of a get by this VCQ have arrived.
pub const LCL_GET: u8 = 2;
/// `UTOFU_MRQ_TYPE_LCL_ARMW`: an atomic operation by this VCQ has returned the previous value of the word.
pub const LCL_ARMW: u8 = 4;
/// Not a type of uTofu: the library has written no notice, as with the code of an error that is not an operation's.
pub const NO_NOTICE: u8 = u8::MAX;

/// Capabilities of a TNI.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct TniCaps {
    pub flags: TniFlags,
    pub armw_ops: ArmwOps,
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

/// Entry of an MRQ.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MrqNotice {
    pub notice_type: u8,
    padding: [u8; 7],
    pub vcq_id: VcqId,
    pub edata: u64,
    /// The value that an atomic operation has fetched.
    pub rmt_value: u64,
    pub lcl_stadd: Stadd,
    pub rmt_stadd: Stadd,
    reserved: [u64; 2],
}

impl MrqNotice {
    /// What is polled into.
    pub const NONE: MrqNotice = MrqNotice {
        notice_type: NO_NOTICE,
        padding: [0; 7],
        vcq_id: 0,
        edata: 0,
        rmt_value: 0,
        lcl_stadd: 0,
        rmt_stadd: 0,
        reserved: [0; 2],
    };
}

const _: () = assert!(size_of::<MrqNotice>() == 64 && size_of::<TniCaps>() == 88);

functions! {
    /// The functions that are called.
    pub struct Utofu;
    get_onesided_tnis = c"utofu_get_onesided_tnis": fn(*mut *mut TniId, *mut usize) -> c_int;
    query_onesided_caps = c"utofu_query_onesided_caps": fn(TniId, *mut *mut TniCaps) -> c_int;
    create_vcq = c"utofu_create_vcq": fn(TniId, VcqFlags, *mut VcqHdl) -> c_int;
    free_vcq = c"utofu_free_vcq": fn(VcqHdl) -> c_int;
    query_vcq_id = c"utofu_query_vcq_id": fn(VcqHdl, *mut VcqId) -> c_int;
    query_vcq_info = c"utofu_query_vcq_info":
        fn(VcqId, *mut u8, *mut TniId, *mut u16, *mut u16) -> c_int;
    set_vcq_id_path = c"utofu_set_vcq_id_path": fn(*mut VcqId, *mut u8) -> c_int;
    reg_mem = c"utofu_reg_mem": fn(VcqHdl, *mut c_void, usize, RegFlags, *mut Stadd) -> c_int;
    dereg_mem = c"utofu_dereg_mem": fn(VcqHdl, Stadd, c_ulong) -> c_int;
    put = c"utofu_put":
        fn(VcqHdl, VcqId, Stadd, Stadd, usize, u64, OpFlags, *mut c_void) -> c_int;
    get = c"utofu_get":
        fn(VcqHdl, VcqId, Stadd, Stadd, usize, u64, OpFlags, *mut c_void) -> c_int;
    put_piggyback = c"utofu_put_piggyback":
        fn(VcqHdl, VcqId, *mut c_void, Stadd, usize, u64, OpFlags, *mut c_void) -> c_int;
    put_piggyback8 = c"utofu_put_piggyback8":
        fn(VcqHdl, VcqId, u64, Stadd, usize, u64, OpFlags, *mut c_void) -> c_int;
    armw4 = c"utofu_armw4": fn(VcqHdl, VcqId, c_int, u32, Stadd, u64, OpFlags, *mut c_void) -> c_int;
    armw8 = c"utofu_armw8": fn(VcqHdl, VcqId, c_int, u64, Stadd, u64, OpFlags, *mut c_void) -> c_int;
    cswap4 = c"utofu_cswap4": fn(VcqHdl, VcqId, u32, u32, Stadd, u64, OpFlags, *mut c_void) -> c_int;
    cswap8 = c"utofu_cswap8": fn(VcqHdl, VcqId, u64, u64, Stadd, u64, OpFlags, *mut c_void) -> c_int;
    poll_tcq = c"utofu_poll_tcq": fn(VcqHdl, c_ulong, *mut *mut c_void) -> c_int;
    poll_mrq = c"utofu_poll_mrq": fn(VcqHdl, c_ulong, *mut MrqNotice) -> c_int;
}

impl Utofu {
    /// The library, if this host has it. It stays loaded.
    pub fn get() -> Option<&'static Utofu> {
        static UTOFU: OnceLock<Option<Utofu>> = OnceLock::new();
        let open = || {
            // SAFETY: libtofucom exports these functions with these signatures.
            let found = unsafe { Utofu::resolve(Library::open(LIBRARY)?) };
            if found.is_none() {
                log::diag!("libtofucom lacks functions of uTofu 1.0: it is not used");
            }
            found
        };
        #[cfg(all(test, loom))]
        let open = || Some(super::model::library()).or_else(open);
        UTOFU.get_or_init(open).as_ref()
    }
}

/// Whether a refused call may succeed after other resources are freed.
pub fn is_shortage(code: c_int) -> bool {
    matches!(code, FULL | OUT_OF_RESOURCE | OUT_OF_MEMORY)
}

/// The name of a result code, for messages.
pub fn code_name(code: c_int) -> &'static str {
    match code {
        SUCCESS => "UTOFU_SUCCESS",
        NOT_FOUND => "UTOFU_ERR_NOT_FOUND",
        -2 => "UTOFU_ERR_NOT_COMPLETED",
        -3 => "UTOFU_ERR_NOT_PROCESSED",
        BUSY => "UTOFU_ERR_BUSY",
        -5 => "UTOFU_ERR_USED",
        FULL => "UTOFU_ERR_FULL",
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
        MRQ_RMT_STADD => "UTOFU_ERR_MRQ_RMT_STADD",
        -198 => "UTOFU_ERR_MRQ_LCL_LENGTH",
        -199 => "UTOFU_ERR_MRQ_RMT_LENGTH",
        OUT_OF_RESOURCE => "UTOFU_ERR_OUT_OF_RESOURCE",
        OUT_OF_MEMORY => "UTOFU_ERR_OUT_OF_MEMORY",
        -768 => "UTOFU_ERR_FATAL",
        -533..=-512 => "UTOFU_ERR_INVALID",
        _ => "an unknown code",
    }
}
