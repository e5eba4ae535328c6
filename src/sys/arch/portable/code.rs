//! Machine code of processors that nobody has described yet: nothing is changed, and so nothing is kept registered.

/// Bytes that are looked at.
pub const BLOCK: usize = 4;
/// Bytes from one end of a jump to the other, at most.
pub const REACH: usize = 1 << 30;
/// Bytes of a thunk.
pub const THUNK: usize = 16;

/// The first bytes of a function.
pub type Block = [u8; BLOCK];

/// Nothing that could run; no entry leads there.
pub fn thunk(_target: usize) -> [u8; THUNK] {
    [0; THUNK]
}

/// `old`, as it is: who tries the function afterwards finds that it does not lead to us.
pub fn with_jump(old: Block, _entry: usize, _target: usize) -> Block {
    old
}

/// Where a function leads to whose entry somebody has replaced by a jump: not known.
///
/// # Safety
/// None is needed; other processors read code.
pub unsafe fn jump_target(_entry: usize) -> Option<usize> {
    None
}

/// Changes nothing.
///
/// # Safety
/// None is needed; other processors write code.
pub unsafe fn exchange(_entry: usize, old: Block, new: Block) -> bool {
    old == new
}

/// Nothing was written that a processor could have fetched.
pub fn flush(_start: usize, _len: usize) {}
