//! What a send refers to until it completes, and operands of work requests.

use crate::sys::regcache::Handle;
use crate::tl::Token;
use crate::tl::amo::{ADD, AmoOp, CSWAP};
use crate::tl::ib::bindings::*;
use crate::tl::ib::buffers::Buffer;
use crate::tl::ib::mr::IbMr;
use crate::tl::rma_pieces::PieceTargets;

/// What is attached to a send until it completes.
pub(super) enum TxDesc {
    /// The buffer of a packet or of a write.
    Out(Buffer),
    /// The buffer of a read, and where its bytes are copied to.
    In(Buffer, ReadDesc),
    /// The buffer of several reads, one behind the other, and where their bytes are copied to.
    InPieces(Buffer, ScatterDesc),
    /// A flush marker: the request to complete after this send and all before it. Null: none any more.
    FlushMarker(Token),
    /// User memory of a zero-copy transfer.
    ZcopyDesc(ZcopyDesc),
}

// SAFETY: the pointers are only stored here; the code that completes the send ensures that they may be accessed.
unsafe impl Send for TxDesc {}

/// Target of a read or of an atomic operation's result, and the request to complete.
#[derive(Clone, Copy)]
pub struct ReadDesc {
    /// Null: the result is not wanted any more.
    pub into: *mut u8,
    pub len: usize,
    /// Not dereferenced here.
    pub owner: Token,
    /// The result is the old value of an atomic operation.
    pub atomic: bool,
}

/// Targets of several reads of one request.
#[derive(Clone, Copy)]
pub struct ScatterDesc {
    pub targets: PieceTargets,
    /// Null: the results are not wanted any more. Not dereferenced here.
    pub owner: Token,
}

/// An atomic operation of a device on 8 bytes; it returns the old value.
#[derive(Clone, Copy)]
pub enum AmoDesc {
    Add(u64),
    CompareSwap { compare: u64, swap: u64 },
}

// SAFETY: the pointers are only stored here; the code that completes the read ensures that they may be accessed.
unsafe impl Send for ReadDesc {}

/// User memory that the device accesses until the work request completes.
#[derive(Clone, Copy)]
pub struct ZcopyDesc {
    pub ptr: *mut u8,
    pub len: usize,
    /// The local key of the memory.
    pub key: u32,
    /// The memory is the target of a read from the peer's memory; otherwise it is the source of a write.
    pub reads: bool,
    /// Not dereferenced here.
    pub owner: Token,
}

// SAFETY: the pointers are only stored here; the owner keeps the memory until the work request completes.
unsafe impl Send for ZcopyDesc {}

/// Remote memory: its address and remote key.
#[derive(Clone, Copy)]
pub struct RemoteMem {
    pub addr: u64,
    pub key: u32,
}

impl AmoDesc {
    /// `None`: HCAs do not have the operation.
    #[inline(always)]
    pub fn new(amo: AmoOp) -> Option<AmoDesc> {
        match (amo.size, amo.op) {
            (8, ADD) => Some(AmoDesc::Add(amo.value)),
            (8, CSWAP) => Some(AmoDesc::CompareSwap {
                compare: amo.compare,
                swap: amo.value,
            }),
            _ => None,
        }
    }

    /// The opcode of its work requests.
    pub fn opcode(self) -> ibv_wr_opcode {
        match self {
            AmoDesc::Add(_) => IBV_WR_ATOMIC_FETCH_AND_ADD,
            AmoDesc::CompareSwap { .. } => IBV_WR_ATOMIC_CMP_AND_SWP,
        }
    }

    /// Writes its operands into a work request.
    pub fn fill(self, wr: &mut ibv_send_wr, at: RemoteMem) {
        let (compare_add, swap) = match self {
            AmoDesc::Add(n) => (n, 0),
            AmoDesc::CompareSwap { compare, swap } => (compare, swap),
        };
        wr.wr.atomic = ibv_send_wr__bindgen_ty_2__bindgen_ty_2 {
            remote_addr: at.addr,
            compare_add,
            swap,
            rkey: at.key,
        };
    }
}

/// What a zero-copy transfer keeps.
pub struct IbZcopy {
    /// Registrations of the memory: one for each piece that is not empty.
    pub memory: Vec<Handle<IbMr>>,
    /// Parts that a rail that was closed has not moved.
    pub again: Vec<Unmoved>,
}

/// A part of a transfer that is to be posted again.
#[derive(Clone, Copy, Debug)]
pub struct Unmoved {
    /// Its first byte.
    pub offset: u64,
    /// Bytes.
    pub len: usize,
}

impl IbZcopy {
    /// A transfer of which nothing is posted.
    pub fn new(memory: Vec<Handle<IbMr>>) -> IbZcopy {
        IbZcopy {
            memory,
            again: Vec::new(),
        }
    }
}
