//! What a peer has sent before it died arrives before its failure is reported.

mod support;

use std::ptr;
use support::raw_peer::RawPeer;
use support::scene::{Scene, endpoint_to};
use ucp::abi::{endpoint, tag};
use ucp::ctypes::*;
use ucp::engine::endpoint::Endpoint;
use ucp::op::tick;
use ucp::sys::{clock, host};
use ucp::wire::header::Kind;

const UID: u64 = 0xDEAD;
const TAG: u64 = 5;

/// Posts a receive of 8 bytes into `buffer`.
fn receive(scene: &Scene, buffer: &mut u64) -> ucs_status_ptr_t {
    // SAFETY: a zeroed structure; a live worker; the buffer outlives the request.
    unsafe {
        let param: ucp_request_param_t = std::mem::zeroed();
        let buffer = ptr::from_mut(buffer).cast();
        tag::ucp_tag_recv_nbx(scene.victim, buffer, 8, TAG, u64::MAX, &param)
    }
}

/// The peer takes its ring, sends and dies after the worker has polled, and before the same progress call looks for
/// dead peers.
#[test]
fn a_message_from_a_ring_that_is_not_polled_yet_arrives() {
    let scene = Scene::new(&[]);
    let mut peer = RawPeer::new();
    let address = peer.address(UID, host::place().host);
    let ep = endpoint_to(scene.victim, &address.encode());
    // SAFETY: an endpoint of this library, which lives until it is closed.
    let seen = unsafe { &*ep.cast::<Endpoint>() }.peer();
    let mut got = 0;
    let received = receive(&scene, &mut got);
    scene.settle();
    let word = 0x1234_u64;
    // SAFETY: a record has room for its length.
    let fill = |record: *mut u8| unsafe { record.cast::<u64>().write_unaligned(word) };
    let sent = (peer.outbox(&scene.address, UID)).send(Kind::TagEager as u8, 0, TAG, 8, fill);
    assert_eq!(sent.ok(), Some(true));
    peer.kill();
    // A few rounds: a peer is looked at in turn.
    for _ in 0..4 {
        let worker = scene.worker();
        tick::fail_dead_peers(worker, &mut worker.rx.lock(), clock::coarse_ms());
        assert_eq!(seen.status(), UCS_OK);
    }
    assert_eq!(scene.end("the message", received), UCS_OK);
    assert_eq!(got, word);
    scene.until("the failure", || seen.status() != UCS_OK);
    // SAFETY: a zeroed structure with a mask that names what is set; a live endpoint, used no more.
    unsafe {
        let mut param: ucp_request_param_t = std::mem::zeroed();
        param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS as u32;
        param.flags = UCP_EP_CLOSE_FLAG_FORCE as u32;
        scene.end("the close", endpoint::ucp_ep_close_nbx(ep, &param));
    }
}
