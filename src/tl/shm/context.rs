//! What a context knows of shared memory.

use crate::tl::program::Program;

/// Shared memory's part of a context.
#[derive(Clone, Copy, Debug)]
pub struct ShmContext {
    /// Processes of this host may map each other's memory.
    pub is_allowed: bool,
}

impl ShmContext {
    /// Shared memory as the options and the program allow it.
    pub fn new(program: Program) -> ShmContext {
        ShmContext {
            is_allowed: program.shm,
        }
    }
}
