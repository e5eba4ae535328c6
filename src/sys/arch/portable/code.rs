//! Stand-in for machine code of processors without a module: changes no code, so that nothing is kept registered.

/// Bytes that are read.
pub const BLOCK: usize = 4;
/// Bytes from one end of a jump to the other, at most.
pub const REACH: usize = 1 << 30;
/// Bytes of a thunk.
pub const THUNK: usize = 16;

/// The first bytes of a function.
pub type Block = [u8; BLOCK];

/// Zeros; no entry leads there.
pub fn thunk(_target: usize) -> [u8; THUNK] {
    [0; THUNK]
}

/// Returns `old`: the caller finds by a call that the function does not lead to the hook.
pub fn with_jump(old: Block, _entry: usize, _target: usize) -> Block {
    old
}

/// Target of a jump at the entry of a function: not known.
///
/// # Safety
/// None is needed; implementations for other processors read code.
pub unsafe fn jump_target(_entry: usize) -> Option<usize> {
    None
}

/// Changes nothing.
///
/// # Safety
/// None is needed; implementations for other processors write code.
pub unsafe fn exchange(_entry: usize, old: Block, new: Block) -> bool {
    old == new
}

/// No code was written that a processor could have fetched.
pub fn flush(_start: usize, _len: usize) {}
