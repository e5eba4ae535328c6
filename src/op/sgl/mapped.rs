//! Lists whose pieces all lie in memory of the peer that is mapped here: loads and stores, without a request.
//!
//! Most lists use few keys and handles: what one of them allows is looked up when it differs from that of the piece
//! before. A list that is not of this kind, or that something is wrong with, is left to the general way, which says so.

use super::arrays::SglArrays;
use crate::ctypes::*;
use crate::engine::memory::MemHandle;
use crate::engine::peer::Peer;
use crate::engine::rkey::{Rkey, RkeyAccess};
use crate::engine::worker::Worker;
use crate::op::param::Param;
use crate::sys::cma::CmaDirection;
use std::collections::HashSet;

/// A range of addresses: its start, and its length in bytes.
#[derive(Clone, Copy)]
struct AddrRange {
    start: u64,
    len: u64,
}

impl AddrRange {
    /// All of the address space.
    const ALL: AddrRange = AddrRange {
        start: 0,
        len: u64::MAX,
    };

    /// Whether `len` bytes at `addr` are inside, and end within the address space.
    #[inline(always)]
    fn contains(self, addr: u64, len: usize) -> bool {
        let at = addr.wrapping_sub(self.start);
        at <= self.len && len as u64 <= self.len - at
    }
}

/// Copies the pieces of a list. False: nothing was done, because some piece is not mapped here, is not of the host's
/// memory, is not contiguous, has to wait for a fence, or is refused.
///
/// # Safety
/// The arrays are valid, and so is the memory that they name.
pub(super) unsafe fn copy(
    worker: &Worker,
    peer: &Peer,
    direction: CmaDirection,
    lists: &SglArrays,
    p: &Param,
) -> bool {
    if !lists.counts.is_null() || p.is_kind_open() || worker.is_fenced() {
        return false;
    }
    // SAFETY: the caller's promises; the second function is called for lists that the first has checked.
    unsafe {
        if !are_mapped(worker, peer, lists) {
            return false;
        }
        match direction {
            CmaDirection::Write => {
                copy_each(lists, |here, there, len| copy_piece(here, there, len))
            }
            CmaDirection::Read => copy_each(lists, |here, there, len| copy_piece(there, here, len)),
        }
    }
    true
}

/// Whether all pieces are inside of mapped regions of the peer and of their memory handles, and the lengths of the two
/// sides agree.
///
/// # Safety
/// The arrays are valid.
unsafe fn are_mapped(worker: &Worker, peer: &Peer, lists: &SglArrays) -> bool {
    let (mut memh, mut memory) = (std::ptr::null_mut(), AddrRange::ALL);
    let handles;
    // SAFETY: the caller's promise; the arrays that are not null have `count` entries.
    unsafe {
        match (lists.memhs.is_null(), lists.remote_lengths.is_null()) {
            (true, true) => are_inside(peer, lists, |_, _, _| true),
            (true, false) => {
                are_inside(peer, lists, |i, _, len| *lists.remote_lengths.add(i) == len)
            }
            (false, _) => {
                handles = worker.ctx.handles.lock();
                are_inside(peer, lists, |i, buffer, len| {
                    if *lists.memhs.add(i) != memh {
                        memh = *lists.memhs.add(i);
                        match memory_of(memh, &handles) {
                            Some(found) => memory = found,
                            None => return false,
                        }
                    }
                    let remote = lists.remote_lengths;
                    memory.contains(buffer, len) && (remote.is_null() || *remote.add(i) == len)
                })
            }
        }
    }
}

/// Whether all pieces are inside of mapped regions of the peer, and `is_allowed` is true for the number, the local
/// address and the length of each.
///
/// # Safety
/// The arrays are valid.
#[inline(always)]
unsafe fn are_inside(
    peer: &Peer,
    lists: &SglArrays,
    mut is_allowed: impl FnMut(usize, u64, usize) -> bool,
) -> bool {
    // SAFETY: the caller's arrays have `count` entries.
    let Some(mut key) = (lists.count > 0).then(|| unsafe { *lists.rkeys }) else {
        return true;
    };
    // SAFETY: the key is valid, or null.
    let Some(mut region) = (unsafe { region_of(key, peer) }) else {
        return false;
    };
    (0..lists.count).all(|i| {
        // SAFETY: the caller's arrays have `count` entries.
        unsafe {
            let (len, buffer) = (*lists.lengths.add(i), *lists.buffers.add(i) as u64);
            if *lists.rkeys.add(i) != key {
                key = *lists.rkeys.add(i);
                match region_of(key, peer) {
                    Some(found) => region = found,
                    None => return false,
                }
            }
            // A null buffer, and one that ends beyond the address space.
            let is_buffer = buffer.wrapping_sub(1) < u64::MAX - len as u64;
            is_buffer && region.contains(*lists.addrs.add(i), len) && is_allowed(i, buffer, len)
        }
    })
}

/// The region of a key of this peer, if it is mapped here.
///
/// # Safety
/// The key is valid, or null.
#[inline(never)]
unsafe fn region_of(key: ucp_rkey_h, peer: &Peer) -> Option<AddrRange> {
    // SAFETY: the caller's promise.
    let rkey = unsafe { key.cast::<Rkey>().as_ref() }?;
    // A client can have unpacked the key before it had the server's uid: the general way knows that.
    let is_mapped =
        rkey.identity.owner == peer.uid && rkey.access == RkeyAccess::Any && rkey.len != 0;
    is_mapped.then_some(AddrRange {
        start: rkey.base,
        len: rkey.len,
    })
}

/// The memory of a handle, if that is mapped.
#[inline(never)]
fn memory_of(memh: ucp_mem_h, handles: &HashSet<usize>) -> Option<AddrRange> {
    handles.contains(&(memh as usize)).then(|| {
        // SAFETY: the handle is mapped, and cannot be unmapped while the set is locked.
        let memory = unsafe { &*memh.cast::<MemHandle>() };
        AddrRange {
            start: memory.addr,
            len: memory.len as u64,
        }
    })
}

/// Calls `copy` for each piece: its local address, where the remote memory is mapped, and its length in bytes.
///
/// # Safety
/// [`are_mapped`] has returned true for the list.
#[inline(always)]
unsafe fn copy_each(lists: &SglArrays, copy: impl Fn(*mut u8, *mut u8, usize)) {
    for i in 0..lists.count {
        // SAFETY: the caller's arrays have `count` entries, with valid keys.
        unsafe {
            let delta = (*(*lists.rkeys.add(i)).cast::<Rkey>()).delta;
            let there = (*lists.addrs.add(i)).wrapping_add(delta) as *mut u8;
            let here = (*lists.buffers.add(i)).cast::<u8>();
            copy(here, there, *lists.lengths.add(i));
        }
    }
}

/// Copies memory that may overlap; the shortest pieces without a call.
///
/// # Safety
/// `len` bytes are readable at `src`, and writable at `dst`.
#[inline(always)]
unsafe fn copy_piece(src: *const u8, dst: *mut u8, len: usize) {
    const WORD: usize = size_of::<u64>();
    const PAIR: usize = size_of::<u128>();
    // SAFETY: the accesses are inside of `len` bytes; all loads come before the stores.
    unsafe {
        match len {
            WORD..=PAIR => copy_ends::<u64>(src, dst, len),
            17..=32 => copy_ends::<u128>(src, dst, len),
            _ => std::ptr::copy(src, dst, len),
        }
    }
}

/// Copies the first and the last `T` of a piece, which cover it.
///
/// # Safety
/// As [`copy_piece`]; `len` is at least the size of `T` and at most twice that.
#[inline(always)]
unsafe fn copy_ends<T: Copy>(src: *const u8, dst: *mut u8, len: usize) {
    let last = len - size_of::<T>();
    // SAFETY: the caller's promise.
    unsafe {
        let ends = (
            src.cast::<T>().read_unaligned(),
            src.add(last).cast::<T>().read_unaligned(),
        );
        dst.cast::<T>().write_unaligned(ends.0);
        dst.add(last).cast::<T>().write_unaligned(ends.1);
    }
}
