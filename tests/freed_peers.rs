//! A peer that a flush of another thread has found is not freed while the flush refers to it. Progress is held between
//! the removal of the peer from the worker's list of peers and the end of it: the window is short otherwise.

mod support;

use std::ptr;
use support::scene::{Scene, endpoint_to};
use ucp::abi::{address, endpoint, request, tag, worker};
use ucp::ctypes::*;
use ucp::engine::endpoint::Endpoint;
use ucp::engine::worker::Worker;
use ucp::op::sink;
use ucp::proto::{detach, release, tx};

const TAG: u64 = 7;

/// Another worker, and the endpoints between it and the scene's victim.
struct Other {
    worker: ucp_worker_h,
    to_victim: ucp_ep_h,
    from_victim: ucp_ep_h,
}

impl Other {
    fn new(scene: &Scene) -> Other {
        // SAFETY: a zeroed structure; the scene's context and worker are live; the address is released once.
        unsafe {
            let (mut worker, mut blob, mut length) = (ptr::null_mut(), ptr::null_mut(), 0);
            let params: ucp_worker_params_t = std::mem::zeroed();
            let created = worker::ucp_worker_create(scene.context, &params, &mut worker);
            assert_eq!(created, UCS_OK);
            let packed = address::ucp_worker_get_address(worker, &mut blob, &mut length);
            assert_eq!(packed, UCS_OK);
            let bytes = std::slice::from_raw_parts(blob.cast::<u8>(), length).to_vec();
            address::ucp_worker_release_address(worker, blob);
            Other {
                worker,
                to_victim: endpoint_to(worker, &scene.address.encode()),
                from_victim: endpoint_to(scene.victim, &bytes),
            }
        }
    }

    fn progress(&self) {
        // SAFETY: a live worker.
        unsafe { worker::ucp_worker_progress(self.worker) };
    }

    /// The status of a call's result, while all workers progress.
    fn end(&self, scene: &Scene, what: &str, result: ucs_status_ptr_t) {
        scene.until(what, || {
            self.progress();
            // SAFETY: a live request, if it is one.
            !UCS_PTR_IS_PTR(result)
                || unsafe { request::ucp_request_check_status(result) } != UCS_INPROGRESS
        });
        assert_eq!(scene.end(what, result), UCS_OK, "{what}");
    }

    /// Sends a message to a worker, which receives it.
    fn send(&self, scene: &Scene, ep: ucp_ep_h, to: ucp_worker_h) {
        let (data, mut into) = (7_u64, 0_u64);
        // SAFETY: zeroed parameters; both buffers outlive the requests.
        unsafe {
            let plain: ucp_request_param_t = std::mem::zeroed();
            let buffer = (&raw mut into).cast();
            let receive = tag::ucp_tag_recv_nbx(to, buffer, 8, TAG, u64::MAX, &plain);
            let send = tag::ucp_tag_send_nbx(ep, (&raw const data).cast(), 8, TAG, &plain);
            self.end(scene, "send", send);
            self.end(scene, "receive", receive);
        }
        assert_eq!(into, data);
    }

    fn close(&self, scene: &Scene) {
        for ep in [self.to_victim, self.from_victim] {
            // SAFETY: zeroed parameters; the endpoints are not used afterwards.
            let closed = unsafe { endpoint::ucp_ep_close_nbx(ep, &std::mem::zeroed()) };
            self.end(scene, "close", closed);
        }
    }
}

/// The peers that were removed from the worker's list of peers, and exist.
fn unlisted(worker: &Worker) -> usize {
    worker.unlisted.lock().len()
}

#[test]
fn a_peer_that_a_flush_has_found_is_not_freed() {
    let scene = Scene::shared(&[(c"TLS", c"self,sm")]);
    let worker = scene.worker();
    let other = Other::new(&scene);
    other.send(&scene, other.from_victim, other.worker);
    other.send(&scene, other.to_victim, scene.victim);
    // As a put by message does.
    // SAFETY: a live endpoint of this library.
    let peer = unsafe { &*other.from_victim.cast::<Endpoint>() }.peer();
    peer.note_unflushed();
    // Progress frees nothing from now on: this does, step by step.
    worker.rx.lock().last_failure_check = u64::MAX;
    other.close(&scene);
    scene.until("unlisted", || {
        other.progress();
        let mut rx = worker.rx.lock();
        rx.tl.free_rings(sink::cold(worker));
        detach::progress(worker, &mut rx, tx::open_ring);
        unlisted(worker) > 0
    });
    // The flush of another thread comes now.
    let found = worker.peer_lists.unflushed.lock().handles();
    assert!(!found.is_empty(), "the peer is not in the list of a flush");
    for _ in 0..3 {
        release::sweep(worker, &mut worker.rx.lock());
        assert_eq!(unlisted(worker), 1);
    }
    drop(found);
    release::sweep(worker, &mut worker.rx.lock());
    assert_eq!(unlisted(worker), 0);
    // SAFETY: the worker is not used afterwards.
    unsafe { worker::ucp_worker_destroy(other.worker) };
}
