//! Machine code of x86-64: a jump at the entry of a function. Decodes jumps that other code wrote there.

use std::arch::asm;

/// Bytes that are exchanged at once. Functions begin at such an address.
pub const BLOCK: usize = 16;
/// Bytes from one end of a jump to the other, at most.
pub const REACH: usize = i32::MAX as usize - (16 << 20);
/// Bytes of a thunk.
pub const THUNK: usize = 16;

/// `endbr64`: marks a valid target of an indirect branch.
const ENDBR: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
/// `jmp` to an address relative to the next instruction.
const JMP: u8 = 0xe9;

/// The first bytes of a function.
pub type Block = [u8; BLOCK];

/// A jump to any address, placed near libc, where the short jump at an entry reaches it.
pub fn thunk(target: usize) -> [u8; THUNK] {
    // jmp [rip]; the address follows.
    let mut code = [0xff, 0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xcc, 0xcc];
    code[6..14].copy_from_slice(&target.to_le_bytes());
    code
}

/// `old`, which is at `entry`, with a jump to `target`, `REACH` bytes away at most.
///
/// The jump takes 5 bytes, behind `endbr64` where there is one. In the system call stubs of glibc these are exactly the
/// first instruction (`mov $number, %eax`), and of the jumps that others write they are part of the first: no thread
/// can be between. In `mmap` and `mremap` as they are in the library, and in no other, the first instruction is
/// shorter.
pub fn with_jump(old: Block, entry: usize, target: usize) -> Block {
    let at = jump_offset(&old);
    let next = entry + at + 5;
    let relative = (target.wrapping_sub(next) as i32).to_le_bytes();
    let mut new = old;
    new[at] = JMP;
    new[at + 1..at + 5].copy_from_slice(&relative);
    new
}

fn jump_offset(code: &[u8]) -> usize {
    if code.starts_with(&ENDBR) { 4 } else { 0 }
}

/// Target of the jump that other code wrote at the entry of a function; `None` if there is none.
///
/// # Safety
/// 32 bytes at `entry` are code.
pub unsafe fn jump_target(entry: usize) -> Option<usize> {
    // SAFETY: the caller's promise.
    let code: [u8; 32] = unsafe { (entry as *const [u8; 32]).read_volatile() };
    let at = jump_offset(&code);
    let word = |at: usize| usize::from_le_bytes(code[at..at + 8].try_into().unwrap_or_default());
    let half = |at: usize| i32::from_le_bytes(code[at..at + 4].try_into().unwrap_or_default());
    match code[at..] {
        [JMP, ..] => Some((entry + at + 5).wrapping_add_signed(half(at + 1) as isize)),
        // jmp [rip + half]
        [0xff, 0x25, ..] => {
            let place = (entry + at + 6).wrapping_add_signed(half(at + 2) as isize);
            // SAFETY: the address is what the jump would read.
            Some(unsafe { (place as *const usize).read_unaligned() })
        }
        // movabs $word, %r8..%r15; jmp *%r8..%r15
        [
            0x49,
            mov @ 0xb8..=0xbf,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            0x41,
            0xff,
            jmp,
            ..,
        ] => (jmp == mov + 0x28).then(|| word(at + 2)),
        // movabs $word, %rax..%rdi; jmp *%rax..%rdi
        [
            0x48,
            mov @ 0xb8..=0xbf,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            0xff,
            jmp,
            ..,
        ] => (jmp == mov + 0x28).then(|| word(at + 2)),
        _ => None,
    }
}

/// Replaces `old` by `new` in one step: a thread that gets there executes either. False if the code is not `old`.
///
/// # Safety
/// A block at `entry` is writable code.
pub unsafe fn exchange(entry: usize, old: Block, new: Block) -> bool {
    if !std::is_x86_feature_detected!("cmpxchg16b") {
        return false;
    }
    let halves = |block: Block| {
        let block = u128::from_le_bytes(block);
        (block as u64, (block >> 64) as u64)
    };
    let ((old_low, old_high), (new_low, new_high)) = (halves(old), halves(new));
    let (found_low, found_high): (u64, u64);
    // SAFETY: the processor has the instruction; the rest is the caller's promise; a block is aligned. rbx, which the
    // compiler reserves, is restored at the end. No operand is in it: each has a register of its own.
    unsafe {
        asm!(
            "xchg rsi, rbx",
            "lock cmpxchg16b [rdi]",
            "mov rbx, rsi",
            in("rdi") entry,
            inout("rsi") new_low => _,
            in("rcx") new_high,
            inout("rax") old_low => found_low,
            inout("rdx") old_high => found_high,
            options(nostack),
        );
    }
    (found_low, found_high) == (old_low, old_high)
}

/// Makes processors that have fetched the old code fetch it again: x86 does so by itself.
pub fn flush(_start: usize, _len: usize) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(align(16))]
    struct Code([u8; 32]);

    fn target(bytes: &[u8]) -> (Option<usize>, usize) {
        let mut code = Code([0xcc; 32]);
        code.0[..bytes.len()].copy_from_slice(bytes);
        let entry = code.0.as_ptr() as usize;
        // SAFETY: 32 bytes.
        (unsafe { jump_target(entry) }, entry)
    }

    #[test]
    fn our_jumps_are_read_back() {
        for head in [&[0xb8, 11, 0, 0, 0][..], &[0xf3, 0x0f, 0x1e, 0xfa, 0xb8]] {
            for distance in [-5000isize, 70_000] {
                let mut code = Code([0x90; 32]);
                code.0[..head.len()].copy_from_slice(head);
                let entry = code.0.as_ptr() as usize;
                let old: Block = code.0[..16].try_into().unwrap();
                let to = entry.wrapping_add_signed(distance);
                let new = with_jump(old, entry, to);
                // SAFETY: 32 writable bytes.
                unsafe {
                    assert!(exchange(entry, old, new));
                    assert_eq!(jump_target(entry), Some(to));
                    assert!(!exchange(entry, old, new), "something else is there");
                }
                assert_eq!(code.0[0] == 0xf3, head[0] == 0xf3, "endbr64 stays");
            }
        }
    }

    #[test]
    fn jumps_of_others_are_understood() {
        let to = 0x7f12_3456_789au64.to_le_bytes();
        let of = |parts: &[&[u8]]| target(&parts.concat()).0;
        let expected = Some(0x7f12_3456_789a);
        assert_eq!(of(&[&[0x49, 0xbb], &to, &[0x41, 0xff, 0xe3]]), expected);
        assert_eq!(of(&[&[0x48, 0xb8], &to, &[0xff, 0xe0]]), expected);
        assert_eq!(of(&[&[0xff, 0x25, 0, 0, 0, 0], &to]), expected);
        assert_eq!(of(&[&thunk(0x7f12_3456_789a)]), expected);
        let (near, entry) = target(&[0xe9, 0xfb, 0xff, 0xff, 0xff]);
        assert_eq!(near, Some(entry));
        assert_eq!(of(&[&[0x49, 0xbb], &to, &[0x41, 0xff, 0xe2]]), None);
        assert_eq!(of(&[&[0xb8, 11, 0, 0, 0, 0x0f, 5]]), None, "munmap itself");
        assert_eq!(of(&[&[0x41, 0x89, 0xca, 0x41]]), None, "mmap itself");
    }
}
