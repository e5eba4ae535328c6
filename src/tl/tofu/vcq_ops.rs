//! The calls of the hot path of a VCQ: a copy of handle and functions, found without following a pointer.

use super::utofu::{MrqNotice, OpFlags, Stadd, Utofu, VcqHdl, VcqId};
use super::vcq::{PostFlags, RemoteAddr};
use crate::sys::sync::{Ordering, fence};
use std::ffi::{c_int, c_ulong, c_void};

type PutWord =
    unsafe extern "C" fn(VcqHdl, VcqId, u64, Stadd, usize, u64, OpFlags, *mut c_void) -> c_int;
type PutBytes = unsafe extern "C" fn(
    VcqHdl,
    VcqId,
    *mut c_void,
    Stadd,
    usize,
    u64,
    OpFlags,
    *mut c_void,
) -> c_int;
type PollMrq = unsafe extern "C" fn(VcqHdl, c_ulong, *mut MrqNotice) -> c_int;

/// Orders what follows after what the library has just reported. The library polls by loads of its own, and promises no
/// order.
#[inline(always)]
pub fn has_notice() {
    // Acquire: pairs with the TNI, which writes a notice, or a TCQ entry, after what it reports. No instruction on
    // x86-64.
    fence(Ordering::Acquire);
}

/// Orders earlier reads before later posts. The library writes a descriptor by stores of its own, and orders only
/// stores before it.
#[inline(always)]
pub fn read_before_post() {
    // Release: pairs with the TNI that executes the post, and with the acquire of a thread that sees its effect
    // (`ctrl_words::CtrlWord::credit`). No instruction on x86-64.
    fence(Ordering::Release);
}

/// Valid as long as the VCQ. Used by one thread at a time.
#[derive(Clone, Copy)]
pub struct VcqOps {
    hdl: VcqHdl,
    put_piggyback8: PutWord,
    put_piggyback: PutBytes,
    poll_mrq: PollMrq,
}

impl VcqOps {
    /// Copies the functions of `lib` that are called for the VCQ of this handle. Calls none of them.
    pub fn new(lib: &Utofu, hdl: VcqHdl) -> VcqOps {
        VcqOps {
            hdl,
            put_piggyback8: lib.put_piggyback8,
            put_piggyback: lib.put_piggyback,
            poll_mrq: lib.poll_mrq,
        }
    }

    /// Puts the first `len` bytes of a word, at most 8. Returns success, busy or an error.
    ///
    /// # Safety
    /// The VCQ exists, and no other thread uses it.
    #[inline(always)]
    pub unsafe fn put_word(
        &self,
        word: u64,
        len: usize,
        to: RemoteAddr,
        post_flags: PostFlags,
    ) -> c_int {
        // SAFETY: the caller's VCQ; no pointer is passed, as `cbdata` is a number.
        unsafe {
            (self.put_piggyback8)(
                self.hdl,
                to.vcq,
                word,
                to.stadd,
                len,
                post_flags.edata.into(),
                post_flags.flags,
                post_flags.cbdata as *mut c_void,
            )
        }
    }

    /// Puts `len` bytes, at most 32. Returns success, busy or an error.
    ///
    /// # Safety
    /// The VCQ exists, no other thread uses it, and `len` bytes at `bytes` are readable.
    #[inline(always)]
    pub unsafe fn put_bytes(
        &self,
        bytes: *const u8,
        len: usize,
        to: RemoteAddr,
        post_flags: PostFlags,
    ) -> c_int {
        // SAFETY: the caller's VCQ; the bytes are copied before the function returns.
        unsafe {
            (self.put_piggyback)(
                self.hdl,
                to.vcq,
                bytes.cast_mut().cast(),
                to.stadd,
                len,
                post_flags.edata.into(),
                post_flags.flags,
                post_flags.cbdata as *mut c_void,
            )
        }
    }

    /// Polls the MRQ: the result code. The notice is written on success; on an error that is not an operation's it may
    /// not be, so its type was [`NO_NOTICE`](super::utofu::NO_NOTICE) before.
    ///
    /// # Safety
    /// The VCQ exists, and no other thread uses it.
    #[inline(always)]
    pub unsafe fn poll_mrq(&self, notice: &mut MrqNotice) -> c_int {
        // SAFETY: the caller's VCQ; the notice is writable.
        let code = unsafe { (self.poll_mrq)(self.hdl, 0, notice) };
        has_notice();
        code
    }
}
