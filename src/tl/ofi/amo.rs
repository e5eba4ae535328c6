//! Atomic operations of a provider: each fetches the value before it, so that its completion says that it was executed.

use super::bindings::*;
use super::buffers::MAX_PACKET;
use super::endpoint::{CLOSED, OfiEndpoint, PostError, UNSUPPORTED, posted};
use super::endpoint_rma::{OfiLocalMem, OfiRemoteMem};
use crate::options::{AtomicMode, Options};
use crate::tl::amo::{ADD, AND, AmoOp, CSWAP, OR, SWAP, XOR};
use crate::tl::program::Program;
use std::ffi::c_void;

/// Bytes of the longest word.
const WORD: usize = size_of::<u64>();
/// Where a buffer has the value before the operation, the operand, and the value that a compare-and-swap expects.
const RESULT: usize = 0;
const OPERAND: usize = WORD;
const COMPARE: usize = 2 * WORD;
/// Bytes of an operation in a buffer.
pub const AMO_BYTES: usize = 3 * WORD;
const _: () = assert!(AMO_BYTES <= MAX_PACKET);

/// All operations.
const ALL: [u8; 6] = [ADD, SWAP, CSWAP, AND, OR, XOR];

/// libfabric's operation for a number of `ucp_atomic_op_t`.
fn op_of(op: u8) -> Option<fi_op> {
    Some(match op {
        ADD => FI_SUM,
        SWAP => FI_ATOMIC_WRITE,
        CSWAP => FI_CSWAP,
        AND => FI_BAND,
        OR => FI_BOR,
        XOR => FI_BXOR,
        _ => return None,
    })
}

/// libfabric's type of a word of so many bytes.
fn type_of(size: u8) -> Option<fi_datatype> {
    match size {
        4 => Some(FI_UINT32),
        8 => Some(FI_UINT64),
        _ => None,
    }
}

/// Whether the program of a context has providers execute atomic operations on its memory, if they have all of them.
pub fn wanted(options: &Options, program: Program) -> bool {
    (program.amo32 || program.amo64)
        && match options.atomic_mode {
            AtomicMode::Cpu => false,
            AtomicMode::Device => true,
            AtomicMode::Guess => !(program.one_host && program.shm),
        }
}

impl OfiEndpoint {
    /// Whether the provider has all operations on words of 4 and 8 bytes.
    pub fn has_atomics(&self) -> bool {
        let has = |size: u8, op: u8| {
            let (Some(type_), Some(fi_op)) = (type_of(size), op_of(op)) else {
                return false;
            };
            let mut count = 0;
            // SAFETY: the endpoint is open; a provider without such operations leaves null.
            let answer = unsafe {
                let Some(atomic) = self.open_ep().and_then(|ep| ep.atomic.as_ref()) else {
                    return false;
                };
                let valid = if op == CSWAP {
                    atomic.compwritevalid
                } else {
                    atomic.readwritevalid
                };
                valid.map_or(-1, |valid| valid(self.ep, type_, fi_op, &mut count))
            };
            answer == 0 && count > 0
        };
        self.device.has_atomics()
            && [4, 8]
                .into_iter()
                .all(|size| ALL.iter().all(|&op| has(size, op)))
    }

    /// Executes an operation on a word of a peer, which a completion with this context reports. The value before it is
    /// at the begin of the buffer then.
    ///
    /// # Errors
    /// It was not posted.
    ///
    /// # Safety
    /// The buffer has [`AMO_BYTES`], which are the provider's until the completion, and are registered where it wants
    /// that; so is `context`.
    pub unsafe fn atomic(
        &mut self,
        buffer: OfiLocalMem,
        there: OfiRemoteMem,
        amo: AmoOp,
        context: *mut c_void,
    ) -> Result<(), PostError> {
        let OfiRemoteMem { peer, offset, key } = there;
        let (type_, op) = (
            type_of(amo.size).ok_or(UNSUPPORTED)?,
            op_of(amo.op).ok_or(UNSUPPORTED)?,
        );
        // SAFETY: the caller's buffer; the endpoint is open.
        unsafe {
            let store = |at: usize, value: u64| {
                let word = buffer.ptr.add(at);
                match amo.size {
                    4 => word.cast::<u32>().write_unaligned(value as u32),
                    _ => word.cast::<u64>().write_unaligned(value),
                }
                word.cast::<c_void>()
            };
            let operand = store(OPERAND, amo.value);
            let result = buffer.ptr.add(RESULT).cast::<c_void>();
            let (ep, desc) = (self.ep, buffer.desc);
            let open_ep = self.open_ep().ok_or(CLOSED)?;
            let atomic = open_ep.atomic.as_ref().ok_or(UNSUPPORTED)?;
            posted(if amo.op == CSWAP {
                let compare = store(COMPARE, amo.compare);
                let swap = atomic.compwrite.ok_or(UNSUPPORTED)?;
                swap(
                    ep, operand, 1, desc, compare, desc, result, desc, peer, offset, key, type_,
                    op, context,
                )
            } else {
                let fetch = atomic.readwrite.ok_or(UNSUPPORTED)?;
                fetch(
                    ep, operand, 1, desc, result, desc, peer, offset, key, type_, op, context,
                )
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_wanted(mode: &str, amo: bool, one_host: bool, shm: bool) -> bool {
        let mut options = Options::default();
        options.set("ATOMIC_MODE", mode).expect("an option");
        let program = Program {
            sleeps: false,
            num_eps: None,
            processes: None,
            amo32: false,
            amo64: amo,
            one_host,
            shm,
        };
        wanted(&options, program)
    }

    #[test]
    fn providers_execute_where_processors_do_not_reach_the_memory() {
        assert!(is_wanted("guess", true, false, true) && is_wanted("guess", true, true, false));
        assert!(!is_wanted("guess", true, true, true) && is_wanted("device", true, true, true));
        assert!(!is_wanted("cpu", true, false, false) && !is_wanted("device", false, false, false));
    }

    #[test]
    fn each_operation_has_its_own() {
        let ops: Vec<fi_op> = ALL.iter().filter_map(|&op| op_of(op)).collect();
        let expected = [FI_SUM, FI_ATOMIC_WRITE, FI_CSWAP, FI_BAND, FI_BOR, FI_BXOR];
        assert_eq!(ops, expected);
        assert_eq!((op_of(99), type_of(2)), (None, None));
        assert_eq!([4, 8].map(type_of), [Some(FI_UINT32), Some(FI_UINT64)]);
    }
}
