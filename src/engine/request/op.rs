//! What a request holds beyond its message, one variant for each operation that has something to hold.

use super::Request;
use super::rndv_recv::RndvRecv;
use crate::ctypes::*;
use crate::sys::cma::CmaDirection;
use crate::tl::rma::{AmoKey, RmaKey, RmaKeyKind};
use crate::wire::ib_port::MAX_PORTS;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI8, AtomicU64, Ordering};

/// State of an operation. A tag receive has none until it becomes a transfer: [`init_full`](super::init_full) writes
/// the first value there.
#[derive(Debug)]
pub enum Op {
    /// All that the operation needs is in its message and its data.
    Message,
    /// A get by message that was sent. `turn`: its number among all RMA that was sent to the peer, counted from 1.
    AmGet { turn: u64 },
    /// The reply to a get of the peer, whose data are the memory that the peer reads.
    GetReply,
    /// A reply whose unsent data were copied: `copy` is as long as the data.
    GetReplyCopy { copy: NonNull<u8> },
    /// A stream receive that completes with at least one element of so many bytes, not 0.
    StreamRecv { element: usize },
    /// A stream receive that completes when its buffer is full.
    StreamRecvAll,
    /// A put or get that an adapter executes.
    Rma(Rma),
    /// Puts or gets of a list that an adapter executes. The pieces are in `extra`.
    RmaList(RmaList),
    /// An atomic operation that an adapter of the peer executes. The message has the rest.
    Amo { key: AmoKey, fetch: bool },
    /// A get or fetching atomic operation in one work request, which is posted: its completion is the request's.
    SinglePost,
    /// A put or get by CMA that waits to be executed together with others.
    Cma {
        remote_addr: u64,
        direction: CmaDirection,
    },
    /// A receive by rendezvous, from its RTS on.
    RndvRecv(RndvRecv),
    /// Completes when its child requests have completed: a flush of a worker, or a scatter-gather list.
    Parent(ChildOps),
    /// The part of a worker's flush for one peer.
    FlushChild { parent: *mut Request },
    /// The flush of an orderly close, and the session that it is part of.
    CloseFlush { token: u64 },
    /// A flushing close of an endpoint that is no client's or server's.
    EpClose(CloseFailure),
}

/// What a failure of the peer during the flush of a close makes of the status of the close.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CloseFailure {
    /// The close gives `UCS_OK`: the endpoint has no error handling, or its peer had closed first.
    Ignored,
    /// The close gives the status of the failure.
    Reported,
}

// Memory of the pool, and receives that were never a transfer, have values that are never dropped.
const _: () = assert!(!std::mem::needs_drop::<Op>());

/// A put or get by an adapter.
#[derive(Debug)]
pub struct Rma {
    /// Gets that are posted and have not completed, of data that are copied through registered buffers.
    pub outstanding: u32,
    pub direction: CmaDirection,
    /// The kind of the adapter's key.
    kind: RmaKeyKind,
    /// Address in the peer's address space.
    pub remote_addr: u64,
    /// The adapter's key, packed.
    words: [u32; MAX_PORTS],
}

impl Rma {
    /// An operation of which nothing is posted.
    pub fn new(direction: CmaDirection, remote_addr: u64, key: RmaKey) -> Rma {
        let (kind, words) = key.pack();
        Rma {
            outstanding: 0,
            direction,
            kind,
            remote_addr,
            words,
        }
    }

    /// What the adapter needs to access the memory.
    #[inline(always)]
    pub fn key(&self) -> RmaKey {
        RmaKey::unpack(self.kind, self.words)
    }
}

/// Puts or gets of a list by an adapter.
#[derive(Debug)]
pub struct RmaList {
    /// Operations that are posted and have not completed, of gets.
    pub outstanding: u32,
    pub direction: CmaDirection,
    /// No piece is posted any more.
    pub is_posted: bool,
}

impl RmaList {
    /// A list of which nothing is posted.
    pub fn new(direction: CmaDirection) -> RmaList {
        RmaList {
            outstanding: 0,
            direction,
            is_posted: false,
        }
    }

    /// Counts a completed operation. Returns whether it was the last.
    #[inline(never)]
    pub fn end_one(&mut self) -> bool {
        self.outstanding -= 1;
        self.outstanding == 0 && self.is_posted
    }
}

impl Request {
    /// Whether an operation of a device brings data to this process.
    pub fn is_read(&self) -> bool {
        match &self.op {
            Op::Rma(rma) => rma.direction == CmaDirection::Read,
            Op::RmaList(list) => list.direction == CmaDirection::Read,
            Op::Amo { fetch, .. } => *fetch,
            Op::RndvRecv(_) => true,
            _ => false,
        }
    }
}

/// Child requests of a request, which complete on any thread.
#[derive(Debug)]
pub struct ChildOps {
    /// Those that have not completed, and 1 until all are posted.
    outstanding: AtomicU64,
    /// The first failure; `UCS_OK`: none.
    failure: AtomicI8,
}

impl ChildOps {
    /// A parent that expects so many completions.
    pub fn new(outstanding: u64) -> ChildOps {
        ChildOps {
            outstanding: AtomicU64::new(outstanding),
            failure: AtomicI8::new(UCS_OK as i8),
        }
    }

    /// Expects one more completion. The caller has not called [`completed`](Self::completed) for its own share yet.
    pub fn expect_one_more(&self) {
        // Relaxed: the caller's own share keeps the count above 0, and its `completed` publishes the addition.
        self.outstanding.fetch_add(1, Ordering::Relaxed);
    }

    /// Keeps the first failure.
    fn note(&self, status: ucs_status_t) {
        if status != UCS_OK {
            let ok = UCS_OK as i8;
            // Relaxed: published by the `completed` that the caller has to call yet.
            let _ = (self.failure).compare_exchange(
                ok,
                status as i8,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
        }
    }

    /// Counts a completion. Returns the status of the parent if it was the last: then the caller owns the parent.
    fn completed(&self) -> Option<ucs_status_t> {
        // AcqRel: the partners are the other calls; the last one sees what all others have noted.
        if self.outstanding.fetch_sub(1, Ordering::AcqRel) != 1 {
            return None;
        }
        // Relaxed: ordered by the subtraction.
        Some(match self.failure.load(Ordering::Relaxed) {
            0 => UCS_OK,
            failure => ucs_status_t::from_raw(failure),
        })
    }
}

/// The children of a parent.
///
/// # Safety
/// The request is not freed while the reference lives: the caller has to count a completion yet.
pub unsafe fn children_of<'a>(parent: *const Request) -> Option<&'a ChildOps> {
    // SAFETY: the caller's promise. From the first child on only atomics of `op` change.
    match unsafe { &(*parent).op } {
        Op::Parent(children) => Some(children),
        _ => None,
    }
}

/// Counts a completion of a parent, with its status. Returns the status of the parent if it was the last: then the
/// caller owns the parent.
///
/// # Safety
/// The caller has to count this completion yet.
pub unsafe fn count_child(parent: *const Request, status: ucs_status_t) -> Option<ucs_status_t> {
    // SAFETY: the parent is not freed before its last completion is counted.
    let children = unsafe { children_of(parent) }?;
    children.note(status);
    children.completed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parent_completes_with_the_first_failure_after_its_last_child() {
        let children = ChildOps::new(1);
        children.expect_one_more();
        children.expect_one_more();
        children.note(UCS_OK);
        assert_eq!(children.completed(), None);
        children.note(UCS_ERR_INVALID_ADDR);
        children.note(UCS_ERR_CONNECTION_RESET);
        assert_eq!(children.completed(), None);
        assert_eq!(children.completed(), Some(UCS_ERR_INVALID_ADDR));
        assert_eq!(ChildOps::new(1).completed(), Some(UCS_OK));
    }
}
