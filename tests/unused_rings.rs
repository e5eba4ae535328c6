//! Rings that were given back because they were not used: what both workers know of each other stays as long as there
//! are endpoints, and goes afterwards.

mod support;

use std::ptr;
use std::time::{Duration, Instant};
use support::scene::Scene;
use ucp::abi::{endpoint, request, tag, worker};
use ucp::ctypes::*;
use ucp::engine::endpoint::Endpoint;
use ucp::engine::worker::Worker;

/// More than an inbox has at first.
const SENDERS: usize = 40;
/// Unused rings that a worker keeps.
const KEPT: usize = 16;
const TAG: u64 = 5;

/// An endpoint of a worker to the worker with this packed address. It does not handle errors: its close sends nothing.
fn endpoint_to(from: ucp_worker_h, address: &[u8]) -> ucp_ep_h {
    let mut ep = ptr::null_mut();
    // SAFETY: a zeroed structure with a mask that names what is set; a live worker.
    unsafe {
        let mut params: ucp_ep_params_t = std::mem::zeroed();
        params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS as u64;
        params.address = address.as_ptr().cast();
        assert_eq!(endpoint::ucp_ep_create(from, &params, &mut ep), UCS_OK);
    }
    ep
}

/// A worker of the scene's context with an endpoint to the victim.
struct Sender {
    worker: ucp_worker_h,
    ep: ucp_ep_h,
}

impl Sender {
    fn new(scene: &Scene, to: &[u8]) -> Sender {
        let mut worker = ptr::null_mut();
        // SAFETY: a zeroed structure; the scene's context is live.
        unsafe {
            let params: ucp_worker_params_t = std::mem::zeroed();
            let created = worker::ucp_worker_create(scene.context, &params, &mut worker);
            assert_eq!(created, UCS_OK);
        }
        let ep = endpoint_to(worker, to);
        Sender { worker, ep }
    }

    /// The library's view of its worker.
    fn view(&self) -> &Worker {
        // SAFETY: a live worker of this library.
        unsafe { &*self.worker.cast::<Worker>() }
    }

    /// Whether its endpoint's peer has neither a ring nor one that it has offered to close.
    fn has_no_ring(&self) -> bool {
        // SAFETY: a live endpoint of this library.
        let peer = unsafe { &*self.ep.cast::<Endpoint>() }.peer();
        let tx = peer.tx.lock();
        tx.lane.is_none() && !tx.host_link.is_closing() && tx.has_given_back
    }

    fn progress(&self) {
        // SAFETY: a live worker.
        unsafe { worker::ucp_worker_progress(self.worker) };
    }

    /// The status of a call's result, while the scene's workers progress, too.
    fn end(&self, scene: &Scene, what: &str, result: ucs_status_ptr_t) -> ucs_status_t {
        scene.until(what, || {
            self.progress();
            // SAFETY: a live request, if it is one.
            !UCS_PTR_IS_PTR(result)
                || unsafe { request::ucp_request_check_status(result) } != UCS_INPROGRESS
        });
        scene.end(what, result)
    }

    /// Sends a message that the victim receives.
    fn send(&self, scene: &Scene) {
        let (data, mut into) = (7_u64, 0_u64);
        // SAFETY: zeroed parameters; both buffers outlive the requests.
        unsafe {
            let plain: ucp_request_param_t = std::mem::zeroed();
            let to = (&raw mut into).cast();
            let receive = tag::ucp_tag_recv_nbx(scene.victim, to, 8, TAG, u64::MAX, &plain);
            let send = tag::ucp_tag_send_nbx(self.ep, (&raw const data).cast(), 8, TAG, &plain);
            assert_eq!(self.end(scene, "send", send), UCS_OK);
            assert_eq!(self.end(scene, "receive", receive), UCS_OK);
        }
        assert_eq!(into, data);
    }

    fn close(&self, scene: &Scene) {
        // SAFETY: zeroed parameters; the endpoint is not used afterwards.
        let closed = unsafe { endpoint::ucp_ep_close_nbx(self.ep, &std::mem::zeroed()) };
        assert_eq!(self.end(scene, "close", closed), UCS_OK);
    }
}

/// The number of peers that a worker knows.
fn peers(worker: &Worker) -> usize {
    worker.all_peers().len()
}

#[test]
fn workers_forget_each_other_when_the_endpoints_are_closed_and_not_before() {
    let scene = Scene::new(&[(c"TLS", c"self,sm"), (c"SHM_IDLE_TIMEOUT", c"20ms")]);
    let address = scene.address.encode();
    let before = peers(scene.worker());
    let mut senders: Vec<_> = (0..SENDERS)
        .map(|_| Sender::new(&scene, &address))
        .collect();
    for round in 0..2 {
        for sender in &senders {
            sender.send(&scene);
        }
        let progress = || senders.iter().for_each(Sender::progress);
        scene.until("given back", || {
            progress();
            senders.iter().filter(|s| s.has_no_ring()).count() >= SENDERS - KEPT
        });
        // Some rounds of what each does with peers that are not used.
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(1) {
            progress();
            scene.progress();
        }
        assert!(peers(scene.worker()) >= before + SENDERS, "round {round}");
        for sender in &senders {
            sender.close(&scene);
        }
        scene.until("all is forgotten", || {
            progress();
            peers(scene.worker()) <= before && senders.iter().all(|s| peers(s.view()) == 0)
        });
        for sender in &mut senders {
            sender.ep = endpoint_to(sender.worker, &address);
        }
    }
    for sender in senders {
        sender.close(&scene);
        // SAFETY: the worker is not used afterwards.
        unsafe { worker::ucp_worker_destroy(sender.worker) };
    }
}
