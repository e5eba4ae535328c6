//! Puts and gets of the pieces of a peer's list, a message each, in memory of devices of this process. They are
//! collected up to the last message of the list, and copied together: the driver's calls for one piece would take
//! longer than its copy. What the thread that posts the list sends behind it comes after its last piece.

use super::{device_target, get_reply, keep, registered};
use crate::ctypes::*;
use crate::engine::peer::Peer;
use crate::engine::peer_pieces::{PeerPiece, PeerPieces, PieceAccess};
use crate::engine::worker::Worker;
use crate::proto::tx;
use crate::sys::cuda::MemoryInfo;
use crate::tl::cuda::{DeviceData, DevicePieces, Lookup};
use crate::wire::header::GetHdr;
use crate::wire::list_piece::{ListPiece, MAX_COLLECTED_PIECE};
use std::ptr::NonNull;

/// Handles a put of a piece.
///
/// # Safety
/// `len` bytes are readable at `bytes`.
#[cold]
pub unsafe fn put(
    worker: &Worker,
    peer: &Peer,
    addr: u64,
    (bytes, len): (*const u8, usize),
    position: ListPiece,
) {
    // The last part of a put that came in several continues its partial put.
    let is_whole = || (worker.peer_lists.partial_puts.lock().get_mut(peer)).is_none();
    if is_collected(worker, addr, len as u64) && is_whole() {
        // SAFETY: the caller's promise.
        let bytes = unsafe { std::slice::from_raw_parts(bytes, len) };
        add(worker, peer, |pieces| pieces.add_put(addr, bytes));
    } else {
        // SAFETY: the caller's promise.
        let written = unsafe { registered::write(worker, peer, addr, (bytes, len), 0) };
        tx::answer_put(peer, written.err().unwrap_or(UCS_OK));
    }
    if position == ListPiece::Last {
        execute(worker, peer);
    }
}

/// Handles a get of a piece.
#[cold]
pub fn get(worker: &Worker, peer: &Peer, addr: u64, h: GetHdr, position: ListPiece) {
    if is_collected(worker, addr, h.len) {
        let len = h.len as usize;
        add(worker, peer, |pieces| pieces.add_get(addr, len, h.req));
    } else {
        get_reply::send(worker, peer, addr, h);
    }
    if position == ListPiece::Last {
        execute(worker, peer);
    }
}

fn is_collected(worker: &Worker, addr: u64, len: u64) -> bool {
    (1..=MAX_COLLECTED_PIECE as u64).contains(&len) && device_target::permits(worker, addr, len)
}

/// Adds a piece to those of the peer, which are executed if there are enough of them.
fn add(worker: &Worker, peer: &Peer, add: impl FnOnce(&mut PeerPieces)) {
    let mut lists = worker.peer_lists.list_pieces.lock();
    let is_full = match lists.get_mut(peer) {
        Some(pieces) => {
            add(pieces);
            pieces.is_full()
        }
        None => {
            let mut pieces = PeerPieces::default();
            add(&mut pieces);
            lists.insert(peer, pieces);
            false
        }
    };
    drop(lists);
    if is_full {
        execute(worker, peer);
    }
}

/// Executes the pieces of a peer that are collected.
#[cold]
pub fn execute(worker: &Worker, peer: &Peer) {
    let Some(pieces) = worker.peer_lists.list_pieces.lock().remove(peer) else {
        return;
    };
    let (pieces, bytes) = pieces.into_parts();
    // Mostly of one kind: threads of the peer can post a list of puts and one of gets at a time.
    let is_put = |piece: &PeerPiece| matches!(piece.access, PieceAccess::Put { .. });
    let (puts, gets): (Vec<_>, Vec<_>) = pieces.into_iter().partition(is_put);
    execute_puts(worker, peer, &puts, &bytes);
    execute_gets(worker, peer, &gets);
}

/// The memory of pieces. What cannot be accessed is empty.
struct PieceMemory {
    list: Vec<ucp_dt_iov_t>,
    lookup: Lookup,
    /// The memory of one piece; `None`: all are empty.
    sample: Option<MemoryInfo>,
}

impl PieceMemory {
    /// Asks for the memory of pieces, once for each allocation: the program may have freed or unmapped it.
    fn new(worker: &Worker, pieces: &[PeerPiece]) -> PieceMemory {
        let (mut lookup, mut sample) = (Lookup::default(), None);
        let list = pieces.iter().map(|piece| {
            let cuda = (worker.ctx.cuda.as_ref())
                .filter(|_| device_target::permits(worker, piece.addr, piece.len as u64));
            let memory = cuda.and_then(|cuda| lookup.device_at(cuda, piece.addr));
            sample = memory.or(sample);
            ucp_dt_iov_t {
                buffer: piece.addr as *mut _,
                length: memory.map_or(0, |_| piece.len),
            }
        });
        PieceMemory {
            list: list.collect(),
            lookup,
            sample,
        }
    }

    /// Calls `copy` for each piece that is not empty, with the data of all and the piece's offset there. Returns the
    /// status of all copies, which have ended, and the list.
    fn copy_each(
        self,
        worker: &Worker,
        mut copy: impl FnMut(&DeviceData, usize, usize) -> Result<(), ucs_status_t>,
    ) -> (ucs_status_t, Vec<ucp_dt_iov_t>) {
        let PieceMemory { list, lookup, .. } = self;
        let (Some(cuda), Some(sample)) = (&worker.ctx.cuda, self.sample) else {
            return (UCS_OK, list);
        };
        let (iov, count) = (list.as_ptr(), list.len());
        let total = list.iter().map(|piece| piece.length).sum();
        let data = DeviceData::new(
            cuda,
            (DevicePieces::Iov { iov, count }, total),
            lookup,
            sample,
        );
        let (mut offset, mut copied) = (0, Ok(()));
        for (i, piece) in list
            .iter()
            .enumerate()
            .filter(|(_, piece)| piece.length > 0)
        {
            copied = copied.and_then(|()| copy(&data, offset, i));
            offset += piece.length;
        }
        // SAFETY: registered memory, which the user does not free before; the data end here, before their list.
        let status = unsafe { data.finish(copied.err().unwrap_or(UCS_OK)) };
        (status, list)
    }
}

fn execute_puts(worker: &Worker, peer: &Peer, pieces: &[PeerPiece], bytes: &[u8]) {
    if pieces.is_empty() {
        return;
    }
    keep::keep_before_change(peer);
    let memory = PieceMemory::new(worker, pieces);
    let (status, list) = memory.copy_each(worker, |data, offset, i| {
        let PieceAccess::Put { start } = pieces[i].access else {
            return Ok(());
        };
        let bytes = &bytes[start..start + pieces[i].len];
        // SAFETY: the range is that of the piece in the data; registered memory.
        unsafe { data.unpack(offset, bytes.as_ptr(), bytes.len()) }
    });
    for (piece, accessed) in pieces.iter().zip(list) {
        let status = match accessed.length {
            0 => device_target::refuse(peer, piece.addr, piece.len as u64, "write"),
            _ => status,
        };
        tx::answer_put(peer, status);
    }
}

fn execute_gets(worker: &Worker, peer: &Peer, pieces: &[PeerPiece]) {
    if pieces.is_empty() {
        return;
    }
    let mut copies: Vec<Option<NonNull<u8>>> = vec![None; pieces.len()];
    let memory = PieceMemory::new(worker, pieces);
    let (status, list) = memory.copy_each(worker, |data, offset, i| {
        let copy = keep::room_for(pieces[i].len).ok_or(UCS_ERR_NO_MEMORY)?;
        copies[i] = Some(copy);
        // SAFETY: the range is that of the piece in the data; the copy has room for it; registered memory.
        unsafe { data.pack(offset, copy.as_ptr(), pieces[i].len) };
        Ok(())
    });
    for ((piece, accessed), copy) in pieces.iter().zip(list).zip(copies) {
        let PieceAccess::Get { req } = piece.access else {
            continue;
        };
        let status = match accessed.length {
            0 => device_target::refuse(peer, piece.addr, piece.len as u64, "read"),
            _ => status,
        };
        match copy {
            // SAFETY: a block of its own, with the bytes of the piece.
            Some(copy) if status == UCS_OK => unsafe {
                get_reply::send_copy(worker, peer, req, (copy, piece.len));
            },
            _ => {
                // SAFETY: allocated above, and not used again.
                copy.into_iter()
                    .for_each(|copy| unsafe { get_reply::free_copy(copy, piece.len) });
                get_reply::refuse(peer, req, status);
            }
        }
    }
}
