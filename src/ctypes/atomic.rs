//! Atomic operations on remote memory.

use super::from_raw;

/// Atomic operations on remote memory.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucp_atomic_op {
    /// Add.
    UCP_ATOMIC_OP_ADD,
    /// Replace.
    UCP_ATOMIC_OP_SWAP,
    /// Replace when equal.
    UCP_ATOMIC_OP_CSWAP,
    /// Bitwise and.
    UCP_ATOMIC_OP_AND,
    /// Bitwise or.
    UCP_ATOMIC_OP_OR,
    /// Bitwise exclusive or.
    UCP_ATOMIC_OP_XOR,
    /// Number of operations.
    UCP_ATOMIC_OP_LAST,
}
pub use ucp_atomic_op::*;
/// Atomic operations on remote memory.
pub type ucp_atomic_op_t = ucp_atomic_op;

from_raw!(ucp_atomic_op: UCP_ATOMIC_OP_ADD, UCP_ATOMIC_OP_SWAP, UCP_ATOMIC_OP_CSWAP, UCP_ATOMIC_OP_AND,
    UCP_ATOMIC_OP_OR, UCP_ATOMIC_OP_XOR);
