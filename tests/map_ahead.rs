//! The inbox of a peer is mapped when an endpoint to it is created, before a message is sent.

mod support;

use std::ptr;
use support::raw_peer::RawPeer;
use support::scene::Scene;
use ucp::abi::endpoint;
use ucp::ctypes::*;
use ucp::engine::endpoint::Endpoint;

/// No request and no error handler waits for the end of this peer: it is no failure. But the memory of its inbox is
/// not freed as long as it is mapped.
#[test]
fn the_inbox_of_a_destroyed_worker_is_unmapped() {
    let scene = Scene::new(&[]);
    let raw_peer = RawPeer::new();
    let host = scene.address.shm.expect("a worker in shared memory").host;
    let address = raw_peer.address(7, host).encode();
    // SAFETY: zeroed structures with masks that name what is set; live handles.
    unsafe {
        let mut params: ucp_ep_params_t = std::mem::zeroed();
        params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS as u64;
        params.address = address.as_ptr().cast();
        let mut ep = ptr::null_mut();
        let created = endpoint::ucp_ep_create(scene.victim, &params, &mut ep);
        assert_eq!(created, UCS_OK);
        let peer = (*ep.cast::<Endpoint>()).peer();
        assert!(peer.tx.lock().host_link.is_mapped());
        drop(raw_peer);
        scene.until("unmapped", || !peer.tx.lock().host_link.is_mapped());
        assert_eq!(peer.status(), UCS_OK);
        let param: ucp_request_param_t = std::mem::zeroed();
        let closed = endpoint::ucp_ep_close_nbx(ep, &param);
        assert_eq!(scene.end("close", closed), UCS_OK);
    }
}
