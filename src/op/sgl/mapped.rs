//! Lists whose pieces all lie in memory of the peer that is mapped here: loads and stores, without a request.
//!
//! Most lists use few keys and handles: one is looked at where it differs from that of the piece before. A list that is
//! not of this kind, or in which something is wrong, is left to the general way, which reports what is wrong.

use super::arrays::SglArrays;
use super::memory_of;
use crate::ctypes::*;
use crate::engine::peer::Peer;
use crate::engine::rkey::{Rkey, RkeyAccess};
use crate::engine::worker::Worker;
use crate::op::param::Param;
use crate::sys::cma::CmaDirection;
use crate::sys::copy;

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
    // SAFETY: the caller's promises; the pieces are copied after they were checked.
    unsafe {
        if !are_mapped(worker, peer, lists) {
            return false;
        }
        match direction {
            CmaDirection::Write => {
                copy_each(lists, |here, there, len| {
                    copy::overlapping(there, here, len)
                });
            }
            CmaDirection::Read => {
                copy_each(lists, |here, there, len| {
                    copy::overlapping(here, there, len)
                });
            }
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
    let agree = |i, len| {
        // SAFETY: an array that is not null has `count` entries.
        lists.remote_lengths.is_null() || unsafe { *lists.remote_lengths.add(i) } == len
    };
    // SAFETY: the caller's promise; arrays that are not null have `count` entries.
    unsafe {
        if lists.memhs.is_null() {
            return are_inside(peer, lists, |i, _, len| agree(i, len));
        }
        let handles = worker.ctx.handles.lock();
        let (mut memh, mut memory) = (std::ptr::null_mut(), None);
        are_inside(peer, lists, |i, buffer, len| {
            if *lists.memhs.add(i) != memh {
                memh = *lists.memhs.add(i);
                memory = memory_of(memh, &handles);
            }
            memory.is_some_and(|memory| memory.contains(buffer, len)) && agree(i, len)
        })
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
    if lists.count == 0 {
        return true;
    }
    // SAFETY: the caller's arrays have `count` entries; keys are valid, or null.
    unsafe {
        let mut key = *lists.rkeys;
        let Some(mut rkey) = mapped(key, peer) else {
            return false;
        };
        (0..lists.count).all(|i| {
            let (len, buffer) = (*lists.lengths.add(i), *lists.buffers.add(i) as u64);
            if *lists.rkeys.add(i) != key {
                key = *lists.rkeys.add(i);
                match mapped(key, peer) {
                    Some(other) => rkey = other,
                    None => return false,
                }
            }
            // A null buffer, and one that ends beyond the address space, are none.
            let is_buffer = buffer.wrapping_sub(1) < u64::MAX - len as u64;
            is_buffer
                && rkey.local(*lists.addrs.add(i), len).is_some()
                && is_allowed(i, buffer, len)
        })
    }
}

/// The key, if it is one of this peer, for memory that is mapped here.
///
/// # Safety
/// The key is valid as long as the result is used, or null.
#[inline(never)]
unsafe fn mapped<'a>(key: ucp_rkey_h, peer: &Peer) -> Option<&'a Rkey> {
    // SAFETY: the caller's promise.
    let rkey = unsafe { key.cast::<Rkey>().as_ref() }?;
    // A client can have unpacked the key before it had the server's uid: the general way knows that.
    let is_mapped =
        rkey.identity.owner == peer.uid && rkey.access == RkeyAccess::Any && rkey.len != 0;
    is_mapped.then_some(rkey)
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
