//! A request: the state of one operation, in front of the user's own area.

mod begin;
mod flags;
mod op;
mod rndv_recv;
mod tx_msg;
mod zcopy;

use super::datatype::Data;
use super::matcher::PostedRecv;
use super::piece_list::PieceList;
use super::pointers::{EndpointId, PeerRef, WorkerRef};
use super::ptr_map::PtrMap;
use super::staged_pieces::StagedPieces;
use crate::ctypes::*;
use crate::engine::memory::memory_type_of;
use crate::sys::cma::IoSpan;
use crate::sys::lock::MtLock;
use crate::sys::pool::Pool;
use crate::tl::Token;
use crate::tl::rma::MrKeys;
use crate::wire::device_handle::DeviceHandle;
use crate::wire::rts_keys::RailStadds;
use std::ffi::c_void;
use std::fmt;
use std::mem::offset_of;
use std::sync::atomic::Ordering;

pub use begin::{clear, fill_receive, init_full, set_callback};
pub use flags::{AtomicReqFlags, ReqFlags};
pub use op::{ChildOps, CloseFailure, Op, Rma, RmaList, children_of, count_child};
pub use rndv_recv::RndvRecv;
pub use tx_msg::{TailOwner, TxMsg, TxPayload};
pub use zcopy::{Zcopy, ZcopyRole, ZcopyState};

/// What is called at completion.
#[derive(Clone, Copy)]
pub enum Callback {
    None,
    Send(unsafe extern "C" fn(*mut c_void, ucs_status_t, *mut c_void)),
    TagRecv(
        unsafe extern "C" fn(*mut c_void, ucs_status_t, *const ucp_tag_recv_info_t, *mut c_void),
    ),
    Length(unsafe extern "C" fn(*mut c_void, ucs_status_t, usize, *mut c_void)),
    /// Callback of an operation of the library; it frees the request or keeps it.
    Internal(unsafe fn(*mut Request, ucs_status_t)),
}

/// What becomes of a request in a peer's pending queue, and after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TxState {
    /// Its messages are all there is to do: when they are sent it is complete.
    Complete,
    /// The peer's reply, or a completion of a device, completes it.
    AwaitReply,
    /// A flush: completes when everything before it on this peer has been sent, and RMA has been answered.
    FlushMarker,
    /// Requests behind it wait until rails have completed what was posted before it.
    FenceMarker,
    /// A copy by CMA, in its turn (`proto::tx::rma_sw`). Then the operation is complete with `status`.
    Cma,
    /// A device executes it, in its turn (`proto::tx::rma`).
    Rma,
}

/// The state as the log prints it.
impl fmt::Display for TxState {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            TxState::Complete => "tx_complete",
            TxState::AwaitReply => "await_reply",
            TxState::FlushMarker => "flush_marker",
            TxState::FenceMarker => "fence_marker",
            TxState::Cma => "cma_queued",
            TxState::Rma => "rma_posting",
        })
    }
}

/// The state of an operation. A tag receive that has not become a transfer has only the fields before `info`, and
/// `extra`. `REQUEST_SIZE` bytes, 8-byte aligned because users place it on their stacks.
#[repr(C)]
pub struct Request {
    pub flags: AtomicReqFlags,
    pub status: ucs_status_t,
    pub sent: TxState,
    pub payload: TxPayload,
    /// The owner of the tail of `msg`.
    tail_owner: TailOwner,
    pub worker: WorkerRef,
    /// Owned by the matcher while a tag receive waits in it.
    pub posting: PostedRecv,
    pub notify: Callback,
    pub user_data: *mut c_void,
    pub data: Data,
    /// Tag and length received; the result of `ucp_request_test`.
    pub info: ucp_tag_recv_info_t,
    /// `None`: a receive that has not become a transfer, or a request that was not posted yet.
    pub peer: Option<PeerRef>,
    pub ep: EndpointId,
    /// What is sent for the operation, if anything is.
    pub msg: TxMsg,
    /// What the operation holds beyond that.
    pub op: Op,
    /// Memory that rare operations own. Not in `op`: what ends a request drops it, and a posted tag receive writes
    /// only its own fields, `None` here, but no `op`. So an [`Op`] owns nothing. And it belongs to several of them: a
    /// `Zcopy` to RMA, and to either side of a rendezvous.
    pub extra: Option<Box<Extra>>,
    /// Bytes moved so far.
    pub offset: u64,
    /// Links completed requests until their callbacks are called.
    pub next: *mut Request,
    /// The id by which the peer names this request, 0 if it does not.
    pub id: u64,
}

/// State of rare operations, which a request owns. Each replaces the one before: a receive has the `Rails`, the
/// `MrKeys` or the `DeviceHandle` of its RTS until its device begins, and a `Transfer` from then on.
pub enum Extra {
    /// The sender's list of pieces.
    Pieces(Box<[IoSpan]>),
    /// STADDs of a message at the sender's rails.
    Rails(RailStadds),
    /// The keys by which a message is read.
    MrKeys(MrKeys),
    /// The handle of the allocation that contains a message.
    DeviceHandle(DeviceHandle),
    /// A transfer by a device.
    Transfer(Zcopy),
    /// Pieces that an adapter puts or gets.
    List(PieceList),
    /// Host memory by way of which pieces of a list are accessed.
    Staged(StagedPieces),
}

/// Bytes of a request before the user's area, as `ucp_context_query` reports them.
pub const REQUEST_SIZE: usize = 272;
const _: () = assert!(
    size_of::<Request>() <= REQUEST_SIZE && align_of::<Request>() <= 8 && REQUEST_SIZE % 16 == 0
);

/// Requests that are allocated together: as many as UCX allocates.
pub const REQUESTS_PER_CHUNK: usize = 128;

/// A worker's requests. A free one keeps `flags`, `status` and `info`: programs that query the status of a request that
/// they have freed get its final one until an operation takes its memory. The pool's link overlays `posting`, which is
/// unused after completion.
pub type RequestPool = Pool<{ offset_of!(Request, posting) }>;

impl Request {
    /// The user's handle: the address of the user's area, behind the request.
    #[inline(always)]
    pub fn handle(this: *mut Request) -> *mut c_void {
        this.cast::<u8>().wrapping_add(REQUEST_SIZE).cast()
    }

    /// Whether its completion needs more than that all of it is sent.
    pub fn is_answered(&self) -> bool {
        let by_device = self.sent == TxState::Rma && (self.is_read() || self.transfer().is_some());
        self.sent == TxState::AwaitReply || by_device
    }

    /// The list of the sender's pieces, if it was fetched.
    pub fn pieces(&self) -> Option<&[IoSpan]> {
        match self.extra.as_deref() {
            Some(Extra::Pieces(pieces)) => Some(pieces),
            _ => None,
        }
    }

    /// The STADDs of the message at the sender's rails, if there are any.
    pub fn rails(&self) -> RailStadds {
        match self.extra.as_deref() {
            Some(Extra::Rails(addresses)) => *addresses,
            _ => RailStadds::default(),
        }
    }

    /// The keys by which the message is read, if there are any.
    pub fn mr_keys(&self) -> Option<MrKeys> {
        match self.extra.as_deref() {
            Some(Extra::MrKeys(keys)) => Some(*keys),
            _ => None,
        }
    }

    /// The transfer by a device, if there is one.
    pub fn transfer(&self) -> Option<&Zcopy> {
        match self.extra.as_deref() {
            Some(Extra::Transfer(transfer)) => Some(transfer),
            _ => None,
        }
    }

    /// The transfer by a device, if there is one.
    pub fn transfer_mut(&mut self) -> Option<&mut Zcopy> {
        match self.extra.as_deref_mut() {
            Some(Extra::Transfer(transfer)) => Some(transfer),
            _ => None,
        }
    }

    /// The pieces that an adapter puts or gets, if they are a list.
    pub fn piece_list(&self) -> Option<&PieceList> {
        match self.extra.as_deref() {
            Some(Extra::List(pieces)) => Some(pieces),
            _ => None,
        }
    }

    /// The request that contains a posted receive.
    #[inline(always)]
    pub fn of_posting(posting: *mut PostedRecv) -> *mut Request {
        posting
            .wrapping_byte_sub(offset_of!(Request, posting))
            .cast()
    }

    /// The request behind a handle.
    #[inline(always)]
    pub fn of(handle: *mut c_void) -> *mut Request {
        handle.cast::<u8>().wrapping_sub(REQUEST_SIZE).cast()
    }

    /// Names the request to a lane.
    #[inline(always)]
    pub fn token(req: *mut Request) -> Token {
        Token::new(req)
    }

    /// The request that a lane's token names; null for [`Token::NONE`]. Every token of a lane is one of
    /// [`token`](Self::token).
    #[inline(always)]
    pub fn by_token(token: Token) -> *mut Request {
        token.address()
    }

    /// `UCS_INPROGRESS`, or the final status.
    #[inline(always)]
    pub fn state(&self) -> ucs_status_t {
        // Acquire: pairs with the AcqRel of `raise(COMPLETED)`; `status` and `info` come before.
        let flags = self.flags.load(Ordering::Acquire);
        if flags.contains(ReqFlags::COMPLETED) {
            self.status
        } else {
            UCS_INPROGRESS
        }
    }
}

/// Requests of a worker, by the ids with which peers name them.
pub type RequestIds = MtLock<PtrMap<*mut Request>>;

/// Assigns the id by which the peer names the request in its reply. All fields must be complete: from here on any
/// thread with the lock of the table finds the request, and that lock publishes it.
///
/// # Safety
/// The request is exclusively the caller's and has no id.
pub unsafe fn name(ids: &RequestIds, req: *mut Request) -> u64 {
    let mut ids = ids.lock();
    let id = ids.insert(req);
    // SAFETY: the caller's promise; no other thread finds it before the lock is released.
    unsafe { (*req).id = id };
    id
}

/// Removes the id.
///
/// # Safety
/// The request lives and no message with the id was sent.
pub unsafe fn clear_wire_id(ids: &RequestIds, req: *mut Request) {
    let mut ids = ids.lock();
    // SAFETY: the caller's promise. Under the lock, as threads that search the table read the field.
    unsafe {
        ids.remove((*req).id);
        (*req).id = 0;
    }
}

/// Describes the operation of a request for the log.
pub fn describe(r: &Request) -> String {
    let what = if r.flags.has(ReqFlags::TAG_RECV) {
        "recv"
    } else {
        "send"
    };
    let how = if r.sent == TxState::Cma {
        "copied by the kernel"
    } else if r.transfer().is_some() {
        "zero-copy"
    } else if r.sent == TxState::Rma {
        "bcopy"
    } else if r.payload == TxPayload::Fragments {
        "fragments"
    } else if r.payload == TxPayload::HeaderOnly {
        "rendezvous"
    } else {
        "eager"
    };
    let state = if r.flags.has(ReqFlags::COMPLETED) {
        "completed"
    } else {
        "in progress"
    };
    let memory = memory_text(memory_type_of(r.data.kind()) as u32);
    let len = r.piece_list().map_or(r.data.len(), PieceList::bytes);
    format!("{what} length {len} {memory}, {how}, {state}")
}
