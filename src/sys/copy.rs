//! Copies into and out of memory that another core has just read or written: its lines are in that core's cache.
//!
//! What takes the time is to fetch them. A copy that asks for them a few hundred bytes ahead has several under way: 4 KiB
//! to 64 KiB through a ring take a tenth to a third less time than by `memcpy`, which leaves it to the processor to guess.

use std::ptr;

/// Shorter copies are no faster, bytes, to write or to read: 1 KiB takes a tenth longer.
const LONG_TO_WRITE: usize = 2 << 10;
const LONG_TO_READ: usize = 4 << 10;
/// How far ahead lines are asked for, bytes.
const AHEAD: usize = 512;

/// Copies within this core's own memory, up to [`TINY`] bytes without a call.
///
/// # Safety
/// `len` bytes are readable at `src` and writable at `dst`, not overlapping.
#[inline(always)]
pub unsafe fn short(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: passed on.
    unsafe {
        if len <= TINY {
            tiny(dst, src, len);
        } else {
            ptr::copy_nonoverlapping(src, dst, len);
        }
    }
}

/// As [`short`], to memory that another core has read.
///
/// # Safety
/// As [`short`].
#[inline(always)]
pub unsafe fn to_shared(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: passed on.
    unsafe { shared::<true>(dst, src, len) }
}

/// As [`short`], from memory that another core has written.
///
/// # Safety
/// As [`short`].
#[inline(always)]
pub unsafe fn from_shared(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: passed on.
    unsafe { shared::<false>(dst, src, len) }
}

#[inline(always)]
unsafe fn shared<const WRITE: bool>(dst: *mut u8, src: *const u8, len: usize) {
    if len <= TINY {
        // SAFETY: passed on.
        return unsafe { tiny(dst, src, len) };
    }
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    if len >= (if WRITE { LONG_TO_WRITE } else { LONG_TO_READ })
        && std::arch::is_x86_feature_detected!("avx2")
    {
        // SAFETY: the processor can; the rest is passed on.
        return unsafe { wide::<WRITE>(dst, src, len) };
    }
    // SAFETY: passed on.
    unsafe { ptr::copy_nonoverlapping(src, dst, len) }
}

/// Bytes that are copied as two overlapping words.
pub const TINY: usize = 16;

/// Copies up to [`TINY`] bytes.
///
/// # Safety
/// As [`short`].
#[inline(always)]
pub unsafe fn tiny(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: every access below stays within `len` bytes: two overlapping halves.
    unsafe {
        if len >= 8 {
            let last = src.add(len - 8).cast::<u64>().read_unaligned();
            let first = src.cast::<u64>().read_unaligned();
            dst.cast::<u64>().write_unaligned(first);
            dst.add(len - 8).cast::<u64>().write_unaligned(last);
        } else if len >= 4 {
            let last = src.add(len - 4).cast::<u32>().read_unaligned();
            let first = src.cast::<u32>().read_unaligned();
            dst.cast::<u32>().write_unaligned(first);
            dst.add(len - 4).cast::<u32>().write_unaligned(last);
        } else if len > 0 {
            // 1 to 3: first, middle, last.
            dst.write(src.read());
            dst.add(len / 2).write(src.add(len / 2).read());
            dst.add(len - 1).write(src.add(len - 1).read());
        }
    }
}

/// `WRITE`: the lines of `dst` are fetched ahead, about to be written; else those of `src`.
#[cfg(all(target_arch = "x86_64", not(loom)))]
#[target_feature(enable = "avx2")]
unsafe fn wide<const WRITE: bool>(dst: *mut u8, src: *const u8, n: usize) {
    use std::arch::x86_64::{_mm256_loadu_si256, _mm256_storeu_si256};
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
        // Not beyond the end: those lines are somebody's who is about to write them.
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
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    // SAFETY: a hint: it reads and writes nothing and cannot fault; processors without it ignore it.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags));
    }
    #[cfg(not(all(target_arch = "x86_64", not(loom))))]
    let _ = line;
}

/// Brings a line into this core's cache, about to be read.
#[inline(always)]
pub fn prefetch_to_read<T>(line: *const T) {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    // SAFETY: a hint, as above.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(line.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(loom))))]
    let _ = line;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_and_alignment_is_copied_and_nothing_else() {
        const ROOM: usize = 9000;
        let from: Vec<u8> = (0..ROOM).map(|i| (i * 7 + i / 256) as u8).collect();
        let lengths = (0..70).chain(1000..1300).chain(8190..8200);
        for n in lengths {
            for (a, b) in [(0, 0), (1, 0), (0, 8), (31, 33), (64, 16)] {
                for copy in [to_shared, from_shared] {
                    let mut to = vec![0xEE; ROOM];
                    // SAFETY: both ranges are inside of their vectors.
                    unsafe { copy(to.as_mut_ptr().add(a), from.as_ptr().add(b), n) };
                    assert_eq!(to[a..a + n], from[b..b + n], "{n} bytes");
                    assert!(to[..a].iter().chain(&to[a + n..]).all(|&x| x == 0xEE));
                }
            }
        }
    }
}
