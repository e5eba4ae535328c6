//! Short messages to one peer collect between two progress calls: the first is sent at once, the others together.

mod support;

use std::ffi::{CStr, c_void};
use std::mem::{self, MaybeUninit};
use std::ptr;
use support::scene::{Scene, alone, until_arrived};
use ucp::abi::{am, request, tag, wakeup, worker};
use ucp::ctypes::*;
use ucp::engine::worker::Worker;

static DATA: [u8; 64 << 10] = [9; 64 << 10];

fn scene() -> Scene {
    let options: [(&CStr, &CStr); 2] = [(c"TLS", c"tcp"), (c"LOG_LEVEL", c"error")];
    let scene = Scene::new(&options);
    scene.decent_goes_on(1);
    // Work left from connecting is done, and its turn over.
    scene.settle();
    scene
}

/// Sends `len` bytes; returns the request, null if the message was sent.
fn send(ep: ucp_ep_h, len: usize, flags: u32) -> ucs_status_ptr_t {
    // SAFETY: zeroed parameters with a mask that names what is set; live handles.
    unsafe {
        let mut param: ucp_request_param_t = mem::zeroed();
        param.op_attr_mask = flags;
        tag::ucp_tag_send_nbx(ep, DATA.as_ptr().cast(), len, 1, &param)
    }
}

/// Messages that one progress call of this worker receives.
fn received(to: ucp_worker_h) -> u64 {
    let received = || -> u64 {
        // SAFETY: a live worker of this library.
        let peers = unsafe { &*to.cast::<Worker>() }.all_peers();
        peers.iter().map(|p| p.stats().received.messages()).sum()
    };
    until_arrived();
    let before = received();
    // SAFETY: a live worker.
    unsafe { worker::ucp_worker_progress(to) };
    received() - before
}

/// Frees requests that have ended well.
fn completed(requests: &[ucs_status_ptr_t]) {
    for &req in requests {
        // SAFETY: a live request, freed once.
        unsafe {
            assert_eq!(request::ucp_request_check_status(req), UCS_OK);
            request::ucp_request_free(req);
        }
    }
}

#[test]
fn the_first_leaves_at_once_and_the_others_together() {
    let _alone = alone();
    let scene = scene();
    for round in 0..3 {
        assert!(send(scene.to_victim, 8, 0).is_null(), "round {round}");
        let others: Vec<_> = (0..9).map(|_| send(scene.to_victim, 8, 0)).collect();
        assert!(others.iter().all(|&req| UCS_PTR_IS_PTR(req)));
        assert_eq!(received(scene.victim), 1);
        // SAFETY: a live worker.
        unsafe { worker::ucp_worker_progress(scene.decent) };
        completed(&others);
        assert_eq!(received(scene.victim), 9, "one call sends them all");
    }
}

#[test]
fn immediate_messages_are_sent_at_once() {
    let _alone = alone();
    let scene = scene();
    let force = UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL as u32;
    for (len, flags) in [(8, 0), (8, force), (17 << 10, 0), (8, force)] {
        assert!(
            send(scene.to_victim, len, flags).is_null(),
            "{len} bytes, {flags:#x}"
        );
    }
    // Behind a pending one, order forbids it.
    let waiting = send(scene.to_victim, 8, 0);
    assert!(UCS_PTR_IS_PTR(waiting));
    let refused = send(scene.to_victim, 8, force);
    assert_eq!(UCS_PTR_STATUS(refused), UCS_ERR_NO_RESOURCE);
    let long = send(scene.to_victim, 17 << 10, 0);
    assert!(UCS_PTR_IS_PTR(long));
    scene.settle();
    completed(&[waiting, long]);
}

/// Replies to an active message with three tagged ones. `arg`: the requests of those that were not sent at once.
unsafe extern "C" fn answer(
    arg: *mut c_void,
    _: *const c_void,
    _: usize,
    _: *mut c_void,
    _: usize,
    param: *const ucp_am_recv_param_t,
) -> MaybeUninit<ucs_status_t> {
    // SAFETY: the vector outlives the worker's progress; the sender has given its endpoint.
    let (waiting, ep) = unsafe { (&mut *arg.cast::<Vec<ucs_status_ptr_t>>(), (*param).reply_ep) };
    waiting.extend((0..3).map(|_| send(ep, 8, 0)).filter(|req| !req.is_null()));
    MaybeUninit::new(UCS_OK)
}

#[test]
fn answers_of_a_callback_leave_before_its_progress_call_returns() {
    let _alone = alone();
    let scene = scene();
    let mut waiting: Vec<ucs_status_ptr_t> = Vec::new();
    // SAFETY: zeroed parameters with masks that name what is set; live handles.
    unsafe {
        let mut handler: ucp_am_handler_param_t = mem::zeroed();
        handler.field_mask = [
            UCP_AM_HANDLER_PARAM_FIELD_ID,
            UCP_AM_HANDLER_PARAM_FIELD_CB,
            UCP_AM_HANDLER_PARAM_FIELD_ARG,
        ]
        .iter()
        .fold(0, |bits, &f| bits | f as u64);
        handler.id = 4;
        handler.cb = Some(answer);
        handler.arg = (&raw mut waiting).cast();
        assert_eq!(
            am::ucp_worker_set_am_recv_handler(scene.victim, &handler),
            UCS_OK
        );
        let mut param: ucp_request_param_t = mem::zeroed();
        param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS as u32;
        param.flags = UCP_AM_SEND_FLAG_REPLY as u32;
        for round in 0..3 {
            let sent = am::ucp_am_send_nbx(
                scene.to_victim,
                4,
                ptr::null(),
                0,
                DATA.as_ptr().cast(),
                8,
                &param,
            );
            assert!(sent.is_null());
            assert_eq!(received(scene.victim), 1);
            assert_eq!(waiting.len(), 2, "round {round}");
            completed(&waiting);
            waiting.clear();
            assert_eq!(received(scene.decent), 3);
        }
    }
}

/// State of a sender that continues as long as there are messages left, and the requests it has completed.
struct Refill {
    ep: ucp_ep_h,
    left: usize,
    ended: usize,
}

/// Sends the next message in place of a completed one.
unsafe extern "C" fn go_on(req: *mut c_void, status: ucs_status_t, arg: *mut c_void) {
    // SAFETY: the chain outlives its requests, which are freed once.
    let chain = unsafe {
        request::ucp_request_free(req);
        &mut *arg.cast::<Refill>()
    };
    assert_eq!(status, UCS_OK);
    chain.ended += 1;
    if chain.left > 0 {
        chain.left -= 1;
        send_on(chain);
    }
}

fn send_on(chain: &mut Refill) -> ucs_status_ptr_t {
    // SAFETY: zeroed parameters with a mask that names what is set; live handles.
    unsafe {
        let mut param: ucp_request_param_t = mem::zeroed();
        param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK as u32 | UCP_OP_ATTR_FIELD_USER_DATA as u32;
        param.cb.send = Some(go_on);
        param.user_data = ptr::from_mut(chain).cast();
        tag::ucp_tag_send_nbx(chain.ep, DATA.as_ptr().cast(), 8, 1, &param)
    }
}

#[test]
fn callbacks_that_send_do_not_keep_a_progress_call_from_ending() {
    let _alone = alone();
    let scene = scene();
    assert!(send(scene.to_victim, 8, 0).is_null());
    let mut chain = Refill {
        ep: scene.to_victim,
        left: 1000,
        ended: 0,
    };
    for _ in 0..32 {
        assert!(UCS_PTR_IS_PTR(send_on(&mut chain)));
    }
    // SAFETY: a live worker.
    unsafe { worker::ucp_worker_progress(scene.decent) };
    assert_eq!(chain.ended, 32, "those that waited, and no others");
    chain.left = 0;
    scene.settle();
    assert_eq!(chain.ended, 64);
}

#[test]
fn a_sleeper_is_woken_to_send_them() {
    let _alone = alone();
    let options: [(&CStr, &CStr); 2] = [(c"TLS", c"tcp"), (c"LOG_LEVEL", c"error")];
    let scene = Scene::sleepers(&options);
    // Until there is a connection each of these is queued and canceled.
    let force = UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL as u32;
    scene.until("a connection", || send(scene.to_victim, 8, force).is_null());
    scene.settle();
    let mut armed = libc::pollfd {
        fd: -1,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: a live worker that can sleep; a structure of this test.
    let woken = unsafe {
        assert_eq!(
            wakeup::ucp_worker_get_efd(scene.decent, &mut armed.fd),
            UCS_OK
        );
        while wakeup::ucp_worker_arm(scene.decent) == UCS_ERR_BUSY {
            scene.progress();
        }
        assert!(send(scene.to_victim, 8, 0).is_null());
        let waiting = send(scene.to_victim, 8, 0);
        assert!(UCS_PTR_IS_PTR(waiting));
        let woken = libc::poll(&mut armed, 1, 0);
        scene.settle();
        completed(&[waiting]);
        woken
    };
    assert_eq!(woken, 1);
}
