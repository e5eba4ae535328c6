//! Atomics, deprecated forms.

use super::compat_params::{EMPTY, discard_request, typed, wait, with_send_cb};
use crate::abi::amo::ucp_atomic_op_nbx;
use crate::abi::worker::worker_of_ep;
use crate::ctypes::*;
use std::ffi::c_void;
use std::mem::MaybeUninit;

/// Target of an atomic.
#[derive(Copy, Clone)]
struct Target {
    ep: ucp_ep_h,
    addr: u64,
    rkey: ucp_rkey_h,
}

impl Target {
    fn new(ep: ucp_ep_h, addr: u64, rkey: ucp_rkey_h) -> Target {
        Target { ep, addr, rkey }
    }

    /// Starts an atomic of `size` bytes; the operand is read before this returns.
    ///
    /// # Safety
    /// The conditions of [`ucp_atomic_op_nbx`].
    unsafe fn start(
        self,
        op: ucp_atomic_op_t,
        value: u64,
        size: usize,
        param: ucp_request_param_t,
    ) -> ucs_status_ptr_t {
        let narrow = value as u32;
        let operand: *const c_void = match size {
            4 => (&raw const narrow).cast(),
            8 => (&raw const value).cast(),
            _ => return UCS_STATUS_PTR(UCS_ERR_INVALID_PARAM),
        };
        let param = typed(param, ucp_dt_make_contig(size));
        let op = MaybeUninit::new(op);
        // SAFETY: the caller keeps the contract of the function called.
        unsafe { ucp_atomic_op_nbx(self.ep, op, operand, 1, self.addr, self.rkey, &param) }
    }

    /// Starts an atomic without a reply.
    ///
    /// # Safety
    /// The conditions of [`ucp_atomic_op_nbx`].
    unsafe fn post(self, op: ucp_atomic_op_t, value: u64, size: usize) -> ucs_status_t {
        // SAFETY: the caller keeps the contract; no other reference to the request exists.
        let status = unsafe { discard_request(self.start(op, value, size, EMPTY)) };
        // The operand is copied; a flush completes the operation: the caller has requested no more.
        if status == UCS_INPROGRESS {
            UCS_OK
        } else {
            status
        }
    }

    /// Does an atomic and progresses until the old value is in `result`.
    ///
    /// # Safety
    /// The conditions of [`ucp_atomic_op_nbx`]; not from a callback.
    unsafe fn fetch<T>(self, op: ucp_atomic_op_t, value: u64, result: *mut T) -> ucs_status_t {
        let param = answered(EMPTY, result.cast());
        // SAFETY: the caller keeps the contract; no other reference to the request exists.
        unsafe {
            wait(
                worker_of_ep(self.ep),
                self.start(op, value, size_of::<T>(), param),
            )
        }
    }

    /// Does a compare-and-swap and progresses until the old value is in `result`.
    ///
    /// # Safety
    /// The conditions of [`ucp_atomic_op_nbx`]; `result` is null or writable; not from a callback.
    unsafe fn compare_swap<T>(self, compare: u64, swap: T, result: *mut T) -> ucs_status_t {
        if result.is_null() {
            return UCS_ERR_INVALID_PARAM;
        }
        // SAFETY: `result` is writable, and the caller keeps the contract of the function called.
        unsafe {
            result.write_unaligned(swap);
            self.fetch(UCP_ATOMIC_OP_CSWAP, compare, result)
        }
    }
}

/// Adds the buffer for the old value.
fn answered(param: ucp_request_param_t, reply_buffer: *mut c_void) -> ucp_request_param_t {
    let op_attr_mask = param.op_attr_mask | UCP_OP_ATTR_FIELD_REPLY_BUFFER as u32;
    ucp_request_param {
        op_attr_mask,
        reply_buffer,
        ..param
    }
}

/// The operation without a reply that has this number.
fn post_op(raw: u32) -> Option<ucp_atomic_op_t> {
    Some(match ucp_atomic_post_op::from_raw(raw)? {
        UCP_ATOMIC_POST_OP_ADD => UCP_ATOMIC_OP_ADD,
        UCP_ATOMIC_POST_OP_AND => UCP_ATOMIC_OP_AND,
        UCP_ATOMIC_POST_OP_OR => UCP_ATOMIC_OP_OR,
        UCP_ATOMIC_POST_OP_XOR => UCP_ATOMIC_OP_XOR,
        UCP_ATOMIC_POST_OP_LAST => return None,
    })
}

/// The operation with a reply that has this number.
fn fetch_op(raw: u32) -> Option<ucp_atomic_op_t> {
    Some(match ucp_atomic_fetch_op::from_raw(raw)? {
        UCP_ATOMIC_FETCH_OP_FADD => UCP_ATOMIC_OP_ADD,
        UCP_ATOMIC_FETCH_OP_SWAP => UCP_ATOMIC_OP_SWAP,
        UCP_ATOMIC_FETCH_OP_CSWAP => UCP_ATOMIC_OP_CSWAP,
        UCP_ATOMIC_FETCH_OP_FAND => UCP_ATOMIC_OP_AND,
        UCP_ATOMIC_FETCH_OP_FOR => UCP_ATOMIC_OP_OR,
        UCP_ATOMIC_FETCH_OP_FXOR => UCP_ATOMIC_OP_XOR,
        UCP_ATOMIC_FETCH_OP_LAST => return None,
    })
}

/// Starts an atomic without a reply, on 4 or 8 bytes; deprecated for `ucp_atomic_op_nbx`.
///
/// # Safety
/// The conditions of [`ucp_atomic_op_nbx`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_atomic_post(
    ep: ucp_ep_h,
    opcode: MaybeUninit<ucp_atomic_post_op_t>,
    value: u64,
    op_size: usize,
    remote_addr: u64,
    rkey: ucp_rkey_h,
) -> ucs_status_t {
    // SAFETY: an argument that C passed by value is initialised.
    let Some(op) = post_op(unsafe { enum_raw(opcode) }) else {
        return UCS_ERR_INVALID_PARAM;
    };
    // SAFETY: the caller keeps the contract of the function called.
    unsafe { Target::new(ep, remote_addr, rkey).post(op, value, op_size) }
}

/// Starts an atomic that puts the old value into `result`; deprecated for `ucp_atomic_op_nbx`.
///
/// # Safety
/// The conditions of [`ucp_atomic_op_nbx`]; `result` has `op_size` bytes, for CSWAP with the new value in them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_atomic_fetch_nb(
    ep: ucp_ep_h,
    opcode: MaybeUninit<ucp_atomic_fetch_op_t>,
    value: u64,
    result: *mut c_void,
    op_size: usize,
    remote_addr: u64,
    rkey: ucp_rkey_h,
    cb: ucp_send_callback_t,
) -> ucs_status_ptr_t {
    // SAFETY: an argument that C passed by value is initialised.
    let Some(op) = fetch_op(unsafe { enum_raw(opcode) }) else {
        return UCS_STATUS_PTR(UCS_ERR_INVALID_PARAM);
    };
    let param = answered(with_send_cb(cb), result);
    // SAFETY: the caller keeps the contract of the function called.
    unsafe { Target::new(ep, remote_addr, rkey).start(op, value, op_size, param) }
}

/// Adds to 4 remote bytes; deprecated for `ucp_atomic_op_nbx`.
///
/// # Safety
/// The conditions of [`ucp_atomic_op_nbx`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_atomic_add32(
    ep: ucp_ep_h,
    add: u32,
    remote_addr: u64,
    rkey: ucp_rkey_h,
) -> ucs_status_t {
    // SAFETY: the caller keeps the contract of the function called.
    unsafe { Target::new(ep, remote_addr, rkey).post(UCP_ATOMIC_OP_ADD, add.into(), 4) }
}

/// Adds to 8 remote bytes; deprecated for `ucp_atomic_op_nbx`.
///
/// # Safety
/// The conditions of [`ucp_atomic_op_nbx`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_atomic_add64(
    ep: ucp_ep_h,
    add: u64,
    remote_addr: u64,
    rkey: ucp_rkey_h,
) -> ucs_status_t {
    // SAFETY: the caller keeps the contract of the function called.
    unsafe { Target::new(ep, remote_addr, rkey).post(UCP_ATOMIC_OP_ADD, add, 8) }
}

/// Adds to 4 remote bytes and progresses until the old value is in `result`; deprecated for `ucp_atomic_op_nbx`.
///
/// # Safety
/// The conditions of [`ucp_atomic_op_nbx`]; `result` is writable; not from a callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_atomic_fadd32(
    ep: ucp_ep_h,
    add: u32,
    remote_addr: u64,
    rkey: ucp_rkey_h,
    result: *mut u32,
) -> ucs_status_t {
    // SAFETY: the caller keeps the contract of the function called.
    unsafe { Target::new(ep, remote_addr, rkey).fetch(UCP_ATOMIC_OP_ADD, add.into(), result) }
}

/// Adds to 8 remote bytes and progresses until the old value is in `result`; deprecated for `ucp_atomic_op_nbx`.
///
/// # Safety
/// The conditions of [`ucp_atomic_op_nbx`]; `result` is writable; not from a callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_atomic_fadd64(
    ep: ucp_ep_h,
    add: u64,
    remote_addr: u64,
    rkey: ucp_rkey_h,
    result: *mut u64,
) -> ucs_status_t {
    // SAFETY: the caller keeps the contract of the function called.
    unsafe { Target::new(ep, remote_addr, rkey).fetch(UCP_ATOMIC_OP_ADD, add, result) }
}

/// Replaces 4 remote bytes and progresses until the old value is in `result`; deprecated for `ucp_atomic_op_nbx`.
///
/// # Safety
/// The conditions of [`ucp_atomic_op_nbx`]; `result` is writable; not from a callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_atomic_swap32(
    ep: ucp_ep_h,
    swap: u32,
    remote_addr: u64,
    rkey: ucp_rkey_h,
    result: *mut u32,
) -> ucs_status_t {
    // SAFETY: the caller keeps the contract of the function called.
    unsafe { Target::new(ep, remote_addr, rkey).fetch(UCP_ATOMIC_OP_SWAP, swap.into(), result) }
}

/// Replaces 8 remote bytes and progresses until the old value is in `result`; deprecated for `ucp_atomic_op_nbx`.
///
/// # Safety
/// The conditions of [`ucp_atomic_op_nbx`]; `result` is writable; not from a callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_atomic_swap64(
    ep: ucp_ep_h,
    swap: u64,
    remote_addr: u64,
    rkey: ucp_rkey_h,
    result: *mut u64,
) -> ucs_status_t {
    // SAFETY: the caller keeps the contract of the function called.
    unsafe { Target::new(ep, remote_addr, rkey).fetch(UCP_ATOMIC_OP_SWAP, swap, result) }
}

/// Replaces 4 remote bytes when they equal `compare` and progresses until the old value is in `result`.
///
/// # Safety
/// The conditions of [`ucp_atomic_op_nbx`]; `result` is writable; not from a callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_atomic_cswap32(
    ep: ucp_ep_h,
    compare: u32,
    swap: u32,
    remote_addr: u64,
    rkey: ucp_rkey_h,
    result: *mut u32,
) -> ucs_status_t {
    // SAFETY: the caller keeps the contract of the function called.
    unsafe { Target::new(ep, remote_addr, rkey).compare_swap(compare.into(), swap, result) }
}

/// Replaces 8 remote bytes when they equal `compare` and progresses until the old value is in `result`.
///
/// # Safety
/// The conditions of [`ucp_atomic_op_nbx`]; `result` is writable; not from a callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_atomic_cswap64(
    ep: ucp_ep_h,
    compare: u64,
    swap: u64,
    remote_addr: u64,
    rkey: ucp_rkey_h,
    result: *mut u64,
) -> ucs_status_t {
    // SAFETY: the caller keeps the contract of the function called.
    unsafe { Target::new(ep, remote_addr, rkey).compare_swap(compare, swap, result) }
}
