//! What is called most of a virtual control queue, at hand for whoever calls it: no pointer is followed to find it.

use super::utofu::{MrqNotice, Stadd, Utofu, VcqHdl, VcqId};
use super::vcq::{PostFlags, RemoteAddr};
use crate::sys::sync::{Ordering, fence};
use std::ffi::{c_int, c_ulong, c_void};
use std::mem::MaybeUninit;

type PutWord =
    unsafe extern "C" fn(VcqHdl, VcqId, u64, Stadd, usize, u64, c_ulong, *mut c_void) -> c_int;
type PutBytes = unsafe extern "C" fn(
    VcqHdl,
    VcqId,
    *mut c_void,
    Stadd,
    usize,
    u64,
    c_ulong,
    *mut c_void,
) -> c_int;
type PollMrq = unsafe extern "C" fn(VcqHdl, c_ulong, *mut MrqNotice) -> c_int;

/// What is done from now on is done after what the library has just told of. It looks for that with loads of its own,
/// of which it promises nothing.
#[inline(always)]
pub fn has_notice() {
    // Acquire: pairs with the adapter, which writes a notice, or an entry of an ended transmission, after what that
    // tells of. No instruction on x86-64.
    fence(Ordering::Acquire);
}

/// What was read is read before what is posted from now on. The library writes a post with stores of its own, and keeps
/// but stores in front of it.
#[inline(always)]
pub fn read_before_post() {
    // Release: pairs with the adapter that does what is posted, and with the acquire of whoever sees that
    // (`cells::Cell::credit`). No instruction on x86-64.
    fence(Ordering::Release);
}

/// Of a queue, as long as that is there. One thread at a time, as the queue.
#[derive(Clone, Copy)]
pub struct VcqOps {
    hdl: VcqHdl,
    put_piggyback8: PutWord,
    put_piggyback: PutBytes,
    poll_mrq: PollMrq,
}

impl VcqOps {
    pub fn new(lib: &Utofu, hdl: VcqHdl) -> VcqOps {
        VcqOps {
            hdl,
            put_piggyback8: lib.put_piggyback8,
            put_piggyback: lib.put_piggyback,
            poll_mrq: lib.poll_mrq,
        }
    }

    /// Writes the first `len` bytes of a word, at most 8. What the library answers: success, busy or an error.
    ///
    /// # Safety
    /// The queue is there, and no other thread is at it.
    #[inline(always)]
    pub unsafe fn put_word(&self, word: u64, len: usize, to: RemoteAddr, told: PostFlags) -> c_int {
        // SAFETY: the caller's queue; nothing is lent.
        unsafe {
            (self.put_piggyback8)(
                self.hdl,
                to.vcq,
                word,
                to.stadd,
                len,
                told.edata.into(),
                told.flags,
                told.cbdata as *mut c_void,
            )
        }
    }

    /// As [`put_word`](Self::put_word), of at most 32 bytes.
    ///
    /// # Safety
    /// As there, and the bytes are readable.
    #[inline(always)]
    pub unsafe fn put_bytes(
        &self,
        bytes: *const u8,
        len: usize,
        to: RemoteAddr,
        told: PostFlags,
    ) -> c_int {
        // SAFETY: the caller's queue; the bytes are copied before the function returns.
        unsafe {
            (self.put_piggyback)(
                self.hdl,
                to.vcq,
                bytes.cast_mut().cast(),
                to.stadd,
                len,
                told.edata.into(),
                told.flags,
                told.cbdata as *mut c_void,
            )
        }
    }

    /// The next notice: the answer.
    ///
    /// # Safety
    /// As of [`put_word`](Self::put_word).
    #[inline(always)]
    pub unsafe fn poll_mrq(&self, notice: &mut MaybeUninit<MrqNotice>) -> c_int {
        // SAFETY: the caller's queue; room for the notice.
        let code = unsafe { (self.poll_mrq)(self.hdl, 0, notice.as_mut_ptr()) };
        has_notice();
        code
    }
}
