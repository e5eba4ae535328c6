//! Hot path of `ucp_ep_flush_nbx`: returns at once, or leaves a marker with the sender of an adapter.

use super::adapter;
use super::plain::{flush_slow, may_be_null};
use crate::ctypes::*;
use crate::engine::endpoint::{Endpoint, EpFlags};
use crate::proto::answers;
use crate::tl::adapter::{FlushBy, StaddSender};
use std::ptr;

/// `ucp_ep_flush_nbx`
///
/// # Safety
/// The parameters are valid as UCP requires.
#[inline(always)]
pub unsafe fn flush(ep: *const Endpoint, param: *const ucp_request_param_t) -> ucs_status_ptr_t {
    // SAFETY: the caller's endpoint and structure are valid, worker and peer outlive the endpoint; the request is new.
    unsafe {
        let peer = (*ep).peer();
        if !peer.tx.is_shared()
            && !(*ep).has(EpFlags::SPECIAL | EpFlags::SLOW_PATH_FLUSH)
            && peer.is_connected()
            && peer.tx.alone().pending.is_empty()
        {
            let lane = peer.tx.alone().lane.as_mut();
            let Some(lane) = lane.filter(|lane| !lane.is_mapped()) else {
                return flush_without_marker(ep, param);
            };
            return match lane.flush_by() {
                FlushBy::Rkeys(sender) => adapter::flush(ep, param, sender),
                FlushBy::Stadds(sender) => flush_stadds(ep, param, sender),
                FlushBy::Other => flush_slow(ep, param),
            };
        }
        flush_slow(ep, param)
    }
}

/// [`adapter::flush`], which is long for this kind of adapter.
#[inline(never)]
unsafe fn flush_stadds(
    ep: *const Endpoint,
    param: *const ucp_request_param_t,
    sender: *mut StaddSender,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's promises.
    unsafe { adapter::flush(ep, param, sender) }
}

/// Flush of a peer with a shared-memory lane, or without a lane, whose pending queue is empty. Nothing is left to wait
/// for: data that were written to mapped memory have arrived, and messages in a ring have left this process.
#[inline(always)]
unsafe fn flush_without_marker(
    ep: *const Endpoint,
    param: *const ucp_request_param_t,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's endpoint and structure are valid; worker and peer outlive the endpoint.
    unsafe {
        let peer = (*ep).peer();
        // A stub peer is not connected yet, or its requests have moved to the peer that replaced it.
        if answers::is_answered_well(peer) && !peer.is_stub() && may_be_null(param) {
            (*ep).worker.get().progress_flags.clear_copied();
            return ptr::null_mut();
        }
        flush_slow(ep, param)
    }
}
