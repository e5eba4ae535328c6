//! Lists whose pieces all lie in memory of the peer that is mapped here: loads and stores, without a request.
//!
//! A list that is not of this kind, or in which something is wrong, is left to the general way, which reports what is
//! wrong.

use super::arrays::SglArrays;
use super::check::{self, Bounds, CheckedList, ListKeys};
use crate::engine::peer::Peer;
use crate::engine::rkey::{Rkey, RkeyAccess};
use crate::engine::worker::Worker;
use crate::op::param::Param;
use crate::sys::cma::CmaDirection;
use crate::sys::copy;

/// Pieces that are copied without a branch between them.
const BLOCK: usize = 16;

/// The keys of regions that are mapped here.
struct MappedKeys;

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
        let Some(list) = check::check(lists, (worker, peer), true, &mut MappedKeys) else {
            return false;
        };
        match direction {
            CmaDirection::Write => copy_list(&list, |here, there| (here, there)),
            CmaDirection::Read => copy_list(&list, |here, there| (there, here)),
        }
    }
    true
}

impl ListKeys for MappedKeys {
    #[inline(always)]
    fn bounds(&mut self, rkey: &Rkey) -> Option<Bounds> {
        let is_mapped = rkey.access == RkeyAccess::Any && rkey.len != 0;
        is_mapped.then_some(Bounds {
            base: rkey.base,
            len: rkey.len,
        })
    }
}

/// Copies the pieces, from the first to the second address that `order` makes of those here and there.
///
/// # Safety
/// The list was checked; the user's memory is valid.
#[inline(always)]
unsafe fn copy_list(
    list: &CheckedList,
    order: impl Fn(*mut u8, *mut u8) -> (*const u8, *mut u8) + Copy,
) {
    // SAFETY: the caller's promise: all keys are valid.
    let delta_of = |i| unsafe { (*(*list.arrays.rkeys.add(i)).cast::<Rkey>()).delta };
    // SAFETY: the caller's promise: all keys are mapped.
    unsafe {
        match list.key.map(|key| key.delta) {
            Some(delta) => copy_pieces(list, |_| delta, order),
            None => copy_pieces(list, delta_of, order),
        }
    }
}

/// Copies the pieces. `delta_of`: the difference of addresses of a piece's key.
///
/// # Safety
/// The list was checked; the user's memory is valid.
#[inline(always)]
unsafe fn copy_pieces(
    list: &CheckedList,
    delta_of: impl Fn(usize) -> u64 + Copy,
    order: impl Fn(*mut u8, *mut u8) -> (*const u8, *mut u8) + Copy,
) {
    let arrays = list.arrays;
    // SAFETY: the caller's promise: all keys are mapped.
    unsafe {
        match list.len {
            Some(4) => copy_equal::<4>(arrays, delta_of, order),
            Some(8) => copy_equal::<8>(arrays, delta_of, order),
            Some(16) => copy_equal::<16>(arrays, delta_of, order),
            Some(32) => copy_equal::<32>(arrays, delta_of, order),
            Some(64) => copy_equal::<64>(arrays, delta_of, order),
            _ => {
                for i in 0..arrays.count {
                    let (from, to) = order(here(arrays, i), there(arrays, i, delta_of(i)));
                    copy::overlapping(to, from, *arrays.lengths.add(i));
                }
            }
        }
    }
}

/// Copies pieces of `N` bytes each. `delta_of`: the difference of addresses of a piece's key.
///
/// # Safety
/// The list was checked; the user's memory is valid.
unsafe fn copy_equal<const N: usize>(
    arrays: &SglArrays,
    delta_of: impl Fn(usize) -> u64 + Copy,
    order: impl Fn(*mut u8, *mut u8) -> (*const u8, *mut u8) + Copy,
) {
    // SAFETY: the caller's promise; a piece is read before it is written, as the two places may overlap.
    let one = |i| unsafe {
        let (from, to) = order(here(arrays, i), there(arrays, i, delta_of(i)));
        let bytes = from.cast::<[u8; N]>().read_unaligned();
        to.cast::<[u8; N]>().write_unaligned(bytes);
    };
    let mut next = 0;
    while next + BLOCK <= arrays.count {
        for i in 0..BLOCK {
            one(next + i);
        }
        next += BLOCK;
    }
    (next..arrays.count).for_each(one);
}

/// The local address of a piece.
///
/// # Safety
/// The arrays have a piece with this number.
#[inline(always)]
unsafe fn here(arrays: &SglArrays, i: usize) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe { (*arrays.buffers.add(i)).cast() }
}

/// Where the remote memory of a piece is mapped.
///
/// # Safety
/// The arrays have a piece with this number, and its key has this difference of addresses.
#[inline(always)]
unsafe fn there(arrays: &SglArrays, i: usize, delta: u64) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe { (*arrays.addrs.add(i)).wrapping_add(delta) as *mut u8 }
}
