//! Copies by AVX2 with prefetch.

use std::arch::asm;
use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch, _mm256_loadu_si256, _mm256_storeu_si256};
use std::ptr;

/// Distance of the prefetch, bytes.
const AHEAD: usize = 512;

/// Whether [`ahead`] may be called.
#[inline(always)]
pub fn has_ahead() -> bool {
    std::arch::is_x86_feature_detected!("avx2")
}

/// Copies more than [`AHEAD`] bytes. `WRITE`: the lines of `dst` are fetched ahead, about to be written; else those of
/// `src`.
///
/// # Safety
/// [`has_ahead`] has returned true. `n` bytes are readable at `src` and writable at `dst`, not overlapping.
#[target_feature(enable = "avx2")]
pub unsafe fn ahead<const WRITE: bool>(dst: *mut u8, src: *const u8, n: usize) {
    const VECTOR: usize = 32;
    const STEP: usize = 4 * VECTOR;
    const LINE: usize = 64;

    let fetch = |at: usize| {
        if WRITE {
            prefetch_to_write(dst.wrapping_add(at));
        } else {
            prefetch_to_read(src.wrapping_add(at));
        }
    };
    let vector = |at: usize| {
        // SAFETY: `at + VECTOR <= n` wherever it is called.
        unsafe { _mm256_storeu_si256(dst.add(at).cast(), _mm256_loadu_si256(src.add(at).cast())) }
    };
    (0..AHEAD.min(n)).step_by(LINE).for_each(fetch);
    vector(0);
    // From here on no store crosses a line.
    let mut at = VECTOR - dst as usize % VECTOR;
    while at + STEP <= n {
        // Not beyond the end: another core may be about to write those lines.
        if at + AHEAD + STEP <= n {
            fetch(at + AHEAD);
            fetch(at + AHEAD + LINE);
        }
        (0..4).for_each(|i| vector(at + i * VECTOR));
        at += STEP;
    }
    // SAFETY: the rest.
    unsafe { ptr::copy_nonoverlapping(src.add(at), dst.add(at), n - at) };
}

/// Brings a line into this core's cache, about to be written.
#[inline(always)]
pub fn prefetch_to_write<T>(line: *const T) {
    // SAFETY: a hint: it reads and writes nothing and cannot fault; processors without it ignore it.
    unsafe {
        asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags));
    }
}

/// Brings a line into this core's cache, about to be read.
#[inline(always)]
pub fn prefetch_to_read<T>(line: *const T) {
    // SAFETY: a hint: it reads and writes nothing and cannot fault.
    unsafe {
        _mm_prefetch::<_MM_HINT_T0>(line.cast());
    }
}
