//! Machine code of aarch64: a jump at the entry of a function. Decodes jumps that other code wrote there: branches with
//! an offset, and four moves with a branch to a register.

use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes that are exchanged at once; functions begin at a multiple of 4.
pub const BLOCK: usize = 4;
/// Bytes from one end of a branch to the other, at most: 26 bits of words.
pub const REACH: usize = (1 << 27) - (8 << 20);
/// Bytes of a thunk.
pub const THUNK: usize = 16;

/// The first instruction of a function.
pub type Block = [u8; BLOCK];

/// A jump to anywhere by x16, which calls may change: `ldr x16, .+8; br x16; .quad target`.
pub fn thunk(target: usize) -> [u8; THUNK] {
    let mut code = [0; THUNK];
    code[..4].copy_from_slice(&0x5800_0050u32.to_le_bytes());
    code[4..8].copy_from_slice(&0xd61f_0200u32.to_le_bytes());
    code[8..].copy_from_slice(&target.to_le_bytes());
    code
}

/// A branch in the place of the first instruction, to `target`, `REACH` bytes away at most. It is one instruction: no
/// thread can be inside of it.
pub fn with_jump(_old: Block, entry: usize, target: usize) -> Block {
    let words = (target.wrapping_sub(entry) as isize) >> 2;
    (0x1400_0000 | (words as u32 & 0x03ff_ffff)).to_le_bytes()
}

/// Target of the jump that other code wrote at the entry of a function; `None` if there is none.
///
/// # Safety
/// 20 bytes at `entry` are code.
pub unsafe fn jump_target(entry: usize) -> Option<usize> {
    // SAFETY: the caller's promise.
    let code: [u32; 5] = unsafe { (entry as *const [u32; 5]).read_volatile() };
    if code[0] & 0xfc00_0000 == 0x1400_0000 {
        // Sign of 26 bits.
        let words = ((code[0] << 6) as i32 >> 6) as isize;
        return Some(entry.wrapping_add_signed(words * 4));
    }
    // movz, movk (64 bits), of any shift, into one register; then br.
    let register = code[0] & 31;
    let mut target = 0;
    for (at, move_) in code[..4].iter().enumerate() {
        let kind = if at == 0 { 0xd280_0000 } else { 0xf280_0000 };
        if move_ & 0xff80_0000 != kind || move_ & 31 != register {
            return None;
        }
        let shift = (move_ >> 21 & 3) * 16;
        target |= ((move_ >> 5 & 0xffff) as usize) << shift;
    }
    (code[4] == 0xd61f_0000 | register << 5).then_some(target)
}

/// Replaces `old` by `new` in one step: a thread that gets there executes either (the architecture allows this for a
/// branch only if the old instruction is one of a few; processors do it for all). False if the code is not `old`.
///
/// # Safety
/// A block at `entry` is writable code.
pub unsafe fn exchange(entry: usize, old: Block, new: Block) -> bool {
    let [old, new] = [old, new].map(u32::from_le_bytes);
    // SAFETY: the caller's promise; instructions are aligned.
    let place = unsafe { AtomicU32::from_ptr(entry as *mut u32) };
    // SeqCst: code is no data and pairs with nothing.
    let exchanged = place.compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst);
    flush(entry, BLOCK);
    exchanged.is_ok()
}

/// Makes processors that have fetched the old code fetch it again.
pub fn flush(start: usize, len: usize) {
    // The shortest cache lines that exist.
    for line in (start & !15..start + len).step_by(16) {
        // SAFETY: cleans a line of data and drops a line of code, at an address that is mapped.
        unsafe {
            std::arch::asm!("dc cvau, {0}", "dsb ish", "ic ivau, {0}", "dsb ish", in(reg) line)
        };
    }
    // SAFETY: a barrier for instruction fetches of this thread; no memory involved.
    unsafe { std::arch::asm!("isb") };
}
