//! Operations that requests wait for.

use crate::sys::sync::dma_mem;
use crate::tl::Token;
use crate::tl::rma_pieces::PieceTargets;

/// Number of no operation: ends a list.
pub const NONE: u32 = u32::MAX;

/// A read into a buffer of the queue, or several side by side, which are copied when they are complete.
#[derive(Clone, Copy, Debug)]
pub struct BcopyRead {
    pub buffer: u16,
    pub to: CopyTarget,
}

/// Destination of the copy.
#[derive(Clone, Copy, Debug)]
pub enum CopyTarget {
    One {
        into: *mut u8,
        /// Bytes.
        len: usize,
    },
    /// One read, and one notice, for each piece.
    Pieces(PieceTargets),
}

impl CopyTarget {
    /// Copies what has been read.
    ///
    /// # Safety
    /// The reads into the buffer at `from` are complete, and the request that they are for is valid.
    #[inline(always)]
    pub unsafe fn store(&self, from: *const u8) {
        match *self {
            CopyTarget::One { into, len } => {
                dma_mem::reads(from, len);
                dma_mem::writes(into, len);
                // SAFETY: the buffer and the request's memory have `len` bytes each.
                unsafe { into.copy_from_nonoverlapping(from, len) };
            }
            // SAFETY: the caller's promise.
            CopyTarget::Pieces(targets) => unsafe { scatter(targets, from) },
        }
    }
}

/// [`PieceTargets::scatter`], out of the way of a single read.
///
/// # Safety
/// Those of `scatter`.
#[inline(never)]
unsafe fn scatter(targets: PieceTargets, from: *const u8) {
    // SAFETY: the caller's promise.
    unsafe { targets.scatter(from) };
}

/// An outstanding operation.
#[derive(Clone, Copy, Debug)]
pub struct OutstandingOp {
    /// Number of its connection.
    pub conn: u32,
    /// The request that waits for it; null: it was detached.
    pub request: Token,
    /// The copy after a read into a buffer; `None`: zcopy.
    pub copy: Option<BcopyRead>,
    next: u32,
    /// False: the entry is free.
    taken: bool,
}

impl OutstandingOp {
    /// A zcopy operation: the TNI accesses the request's memory.
    pub fn in_place(conn: u32, request: Token) -> OutstandingOp {
        OutstandingOp {
            conn,
            request,
            copy: None,
            next: NONE,
            taken: true,
        }
    }

    /// A bcopy read.
    pub fn by_buffer(conn: u32, request: Token, copy: BcopyRead) -> OutstandingOp {
        OutstandingOp {
            copy: Some(copy),
            ..OutstandingOp::in_place(conn, request)
        }
    }

    #[cfg(test)]
    pub fn failed_requests(conn: u32) -> OutstandingOp {
        OutstandingOp::in_place(conn, Token::NONE)
    }
}

/// The outstanding operations of one VCQ.
#[derive(Default)]
pub struct Outstanding {
    all: Vec<OutstandingOp>,
    free: Vec<u32>,
}

// SAFETY: the pointers are followed only under the queue's lock, while the requests that own the memory wait.
unsafe impl Send for Outstanding {}

impl Outstanding {
    /// Number of outstanding operations.
    pub fn len(&self) -> usize {
        self.all.len() - self.free.len()
    }

    /// Adds an operation: returns its number.
    pub fn insert(&mut self, operation: OutstandingOp) -> u32 {
        if let Some(number) = self.free.pop() {
            self.all[number as usize] = operation;
            return number;
        }
        self.all.push(operation);
        self.all.len() as u32 - 1
    }

    /// Removes an operation that has completed.
    pub fn remove(&mut self, number: u32) -> OutstandingOp {
        let operation = &mut self.all[number as usize];
        operation.taken = false;
        self.free.push(number);
        *operation
    }

    /// Detaches the request that waits for the operation.
    pub fn detach_owner(&mut self, number: u32) {
        self.all[number as usize].request = Token::NONE;
    }

    /// Appends operation `next` to a list that ends with `last`.
    pub fn chain_behind(&mut self, last: u32, next: u32) {
        self.all[last as usize].next = next;
    }

    /// Removes all operations of a list, and passes each to `ended`.
    pub fn take_all(&mut self, first: u32, mut ended: impl FnMut(OutstandingOp)) {
        let mut next = first;
        while next != NONE {
            let operation = self.remove(next);
            next = operation.next;
            ended(operation);
        }
    }

    /// Whether an operation belongs to this connection, with or without a request.
    pub fn names(&self, conn: u32) -> bool {
        self.all.iter().any(|o| o.taken && o.conn == conn)
    }

    /// Operations of a connection that a request waits for.
    pub fn of_conn(&mut self, conn: u32) -> impl Iterator<Item = &mut OutstandingOp> {
        let all = self.all.iter_mut();
        all.filter(move |o| o.taken && o.conn == conn && !o.request.is_none())
    }
}
