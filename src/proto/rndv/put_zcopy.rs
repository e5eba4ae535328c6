//! Rendezvous by put_zcopy: the receiver registers its memory and sends its address and keys, the sender's HCA writes
//! into it from the sender's memory, and a message on the same queue pair reports the end.
//!
//! Where memory cannot be registered, at either end, messages carry the data.

use super::get_cma::GetStep;
use super::{post, recheck_lost, traced};
use crate::ctypes::*;
use crate::engine::completion;
use crate::engine::peer::Peer;
use crate::engine::request::{self, Extra, Request, Zcopy, ZcopyRole};
use crate::engine::worker::Worker;
use crate::proto::tx::zcopy;
use crate::proto::{req_lookup, tx};
use crate::tl::rma::{MrKey, RmaDevice, RmaKey};
use crate::wire::header::{Kind, RtrDeviceHdr};
use crate::wire::ib_port::MAX_PORTS;

/// Bits of a key.
const KEY_BITS: usize = u32::BITS as usize;
const _: () = assert!(MAX_PORTS * KEY_BITS <= u128::BITS as usize);

/// Requests a put into the receive's memory from the sender of a message. `None`: the memory cannot be registered, and
/// nothing was done.
///
/// # Safety
/// The caller owns the receive until the request is sent; it is large enough.
pub(super) unsafe fn invite(worker: &Worker, req: *mut Request, peer: &Peer) -> Option<GetStep> {
    // SAFETY: the caller owns the request.
    let r = unsafe { &mut *req };
    let (registrar, target) = worker.registrar_of(&r.data)?;
    let memory = (target, r.info.length);
    let (memory, keys) = registrar.invite(writer(peer), memory, peer.target.as_deref())?;
    r.data.note_adapters(true);
    traced::scheme(worker, req, "put_zcopy");
    let offer = r.rndv_recv().rts_id;
    let transfer = Zcopy::by_peer(memory, ZcopyRole::Receive);
    r.extra = Some(Box::new(Extra::Transfer(transfer)));
    // SAFETY: this thread owns the request until it has an id.
    let recv = unsafe { request::name(&worker.ids, req) };
    let head = RtrDeviceHdr {
        recv,
        addr: target as u64,
        keys: packed(keys),
    };
    tx::control(peer, Kind::RtrDevice, 0, offer, &head.encode());
    recheck_lost(peer);
    Some(GetStep::Asked)
}

/// The kind of adapter by which the sender writes.
fn writer(peer: &Peer) -> RmaDevice {
    match peer.resolves_keys() {
        Some(RmaDevice::Ofi) => RmaDevice::Ofi,
        _ => RmaDevice::Ib,
    }
}

fn packed(keys: [u32; MAX_PORTS]) -> u128 {
    let shifted = keys.iter().enumerate();
    shifted.fold(0, |all, (port, key)| {
        all | u128::from(*key) << (port * KEY_BITS)
    })
}

fn unpacked(keys: u128) -> [u32; MAX_PORTS] {
    std::array::from_fn(|port| (keys >> (port * KEY_BITS)) as u32)
}

/// Handles the receiver's request for a put.
pub fn on_rtr(worker: &Worker, peer: &Peer, id: u64, to: RtrDeviceHdr) {
    if !req_lookup::is_offer(worker, peer, id) {
        return;
    }
    let Some(req) = req_lookup::take(worker, peer, id) else {
        return;
    };
    // SAFETY: the request was removed from the table: this thread owns it.
    unsafe {
        let r = &mut *req;
        let words = unpacked(to.keys);
        let device = writer(peer);
        let memory = worker.register_for_deliver(device, &r.data);
        let key = match device {
            RmaDevice::Ofi => RmaKey::Mr(MrKey::of_words(words)),
            RmaDevice::Ib | RmaDevice::Tofu => RmaKey::Rkeys(words),
        };
        let by_device = memory.is_some();
        traced::answer(
            worker,
            req,
            "RTR",
            if by_device { "put_zcopy" } else { "messages" },
        );
        match memory {
            Some(memory) => zcopy::start_put(r, &to, key, memory),
            None => zcopy::fall_back_to_am(r, to.recv),
        }
        post(req, by_device);
    }
}

/// Handles the end of a put: the sender has written all of the message into the receive with this id.
pub fn on_written(worker: &Worker, peer: &Peer, id: u64) {
    // SAFETY: requests in the table are not freed while its lock is held.
    let is_receive = |req: *mut Request| unsafe {
        let role = (*req).transfer().map(|t| t.role);
        (*req).is_to(peer) && role == Some(ZcopyRole::Receive)
    };
    let invited = worker.ids.lock().get(id).is_some_and(is_receive);
    if invited && let Some(req) = req_lookup::take(worker, peer, id) {
        // SAFETY: the request was removed from the table: this thread owns it.
        unsafe { completion::complete(req, UCS_OK) };
    }
}

/// Handles the immediate of the last write, which has the short form of the receive's id.
pub fn on_word(worker: &Worker, peer: &Peer, word: u32) {
    let id = worker.ids.lock().of_brief(word);
    if let Some(id) = id {
        on_written(worker, peer, id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_in_the_order_of_ports() {
        let keys = [0x0403_0201, 5, 0, 0xFF00_0000];
        assert_eq!(unpacked(packed(keys)), keys);
        let bytes = packed(keys).to_le_bytes();
        assert_eq!(bytes, [1, 2, 3, 4, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF]);
    }
}
