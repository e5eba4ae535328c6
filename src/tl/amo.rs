//! Atomic operations on memory of this process: by the processor, or by a unit of a device.

use crate::ctypes::ucp_atomic_op_t;
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// `UCP_ATOMIC_OP_ADD` as a byte, also on the wire: the operand is added, modulo the size of the word.
pub const ADD: u8 = ucp_atomic_op_t::UCP_ATOMIC_OP_ADD as u8;
/// `UCP_ATOMIC_OP_SWAP` as a byte, also on the wire: the operand replaces the word.
pub const SWAP: u8 = ucp_atomic_op_t::UCP_ATOMIC_OP_SWAP as u8;
/// `UCP_ATOMIC_OP_CSWAP` as a byte, also on the wire: the operand replaces the word if that has the expected value.
pub const CSWAP: u8 = ucp_atomic_op_t::UCP_ATOMIC_OP_CSWAP as u8;
/// `UCP_ATOMIC_OP_AND` as a byte, also on the wire: bitwise and.
pub const AND: u8 = ucp_atomic_op_t::UCP_ATOMIC_OP_AND as u8;
/// `UCP_ATOMIC_OP_OR` as a byte, also on the wire: bitwise or.
pub const OR: u8 = ucp_atomic_op_t::UCP_ATOMIC_OP_OR as u8;
/// `UCP_ATOMIC_OP_XOR` as a byte, also on the wire: bitwise exclusive or.
pub const XOR: u8 = ucp_atomic_op_t::UCP_ATOMIC_OP_XOR as u8;

/// An operation as the target executes it.
#[derive(Clone, Copy)]
pub struct AmoOp {
    pub op: u8,
    /// 4 or 8 bytes.
    pub size: u8,
    /// Operand; for CSWAP the new value.
    pub value: u64,
    /// Expected value of a CSWAP.
    pub compare: u64,
}

macro_rules! apply {
    ($atomic:ty, $int:ty, $ptr:expr, $amo:expr) => {{
        // SAFETY: the caller of `execute` promises aligned, valid memory.
        let a = unsafe { <$atomic>::from_ptr($ptr.cast()) };
        let v = $amo.value as $int;
        // AcqRel: programs build locks from these; the partner is an atomic operation of another process on this word.
        let old = match $amo.op {
            ADD => a.fetch_add(v, Ordering::AcqRel),
            AND => a.fetch_and(v, Ordering::AcqRel),
            OR => a.fetch_or(v, Ordering::AcqRel),
            XOR => a.fetch_xor(v, Ordering::AcqRel),
            SWAP => a.swap(v, Ordering::AcqRel),
            _ => match a.compare_exchange($amo.compare as $int, v, Ordering::AcqRel, Ordering::Acquire) {
                Ok(old) | Err(old) => old,
            },
        };
        u64::from(old)
    }};
}

/// Executes an operation by the processor. Returns the previous value.
///
/// # Safety
/// `ptr` points to `size` valid bytes and is aligned to `size`.
#[inline(always)]
pub unsafe fn execute(ptr: *mut u8, amo: AmoOp) -> u64 {
    if amo.size == 4 {
        apply!(AtomicU32, u32, ptr, amo)
    } else {
        apply!(AtomicU64, u64, ptr, amo)
    }
}

/// Reads an operand of 4 or 8 bytes.
///
/// # Safety
/// `ptr` has `size` readable bytes.
#[inline(always)]
pub unsafe fn load(ptr: *const u8, size: u8) -> u64 {
    // SAFETY: `size` bytes are readable.
    unsafe {
        if size == 4 {
            ptr.cast::<u32>().read_unaligned().into()
        } else {
            ptr.cast::<u64>().read_unaligned()
        }
    }
}

/// A unit of a device for one word. It executes some operations in one step, at least compare-and-swap.
pub trait AmoUnit {
    /// Executes an operation and waits for its result, the previous value. `None`: the unit does not have the
    /// operation.
    fn step(&mut self, amo: AmoOp) -> Option<io::Result<u64>>;

    /// Executes an operation and returns the previous value. Operations that the unit does not have are done by
    /// repeated compare-and-swap.
    ///
    /// # Errors
    /// The unit failed, or it is unknown whether the operation was executed.
    ///
    /// # Safety
    /// `addr` points to the word, `amo.size` valid bytes, and is aligned to them.
    unsafe fn execute(&mut self, addr: u64, amo: AmoOp) -> io::Result<u64> {
        if let Some(done) = self.step(amo) {
            return done;
        }
        // SAFETY: the caller's memory is valid. Relaxed: a first guess for the compare-and-swap.
        let mut expected = unsafe {
            match amo.size {
                4 => AtomicU32::from_ptr(addr as *mut u32)
                    .load(Ordering::Relaxed)
                    .into(),
                _ => AtomicU64::from_ptr(addr as *mut u64).load(Ordering::Relaxed),
            }
        };
        loop {
            let attempt = AmoOp {
                op: CSWAP,
                value: outcome(amo, expected),
                compare: expected,
                ..amo
            };
            let old = self
                .step(attempt)
                .unwrap_or_else(|| Err(io::ErrorKind::Unsupported.into()))?;
            if old == expected {
                return Ok(old);
            }
            expected = old;
        }
    }
}

/// The value that an operation leaves where `old` was; of 4 bytes the lower half counts.
fn outcome(amo: AmoOp, old: u64) -> u64 {
    match amo.op {
        ADD => old.wrapping_add(amo.value),
        AND => old & amo.value,
        OR => old | amo.value,
        XOR => old ^ amo.value,
        CSWAP if old != amo.compare => old,
        _ => amo.value,
    }
}
