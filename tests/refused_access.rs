//! Remote accesses that the target rejects: the flush behind them fails, once, and other operations succeed. And gets
//! that are cancelled before they are sent: a flush counts them neither as sent nor as answered.

mod support;

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr;
use support::scene::{Scene, endpoint_to};
use ucp::abi::{compat_amo, endpoint, memory, request, rkey, rma, worker};
use ucp::ctypes::*;

const LEN: usize = 4096;

/// Registered memory of the victim, and the decent peer's key to it. Over TCP, so that the victim executes.
struct Exposed {
    scene: Scene,
    memory: Vec<u64>,
    handle: ucp_mem_h,
    key: ucp_rkey_h,
}

impl Exposed {
    fn new() -> Exposed {
        let scene = Scene::new(&[(c"TLS", c"tcp"), (c"LOG_LEVEL", c"fatal")]);
        let memory = vec![0u64; LEN / 8];
        let mut handle = ptr::null_mut();
        // SAFETY: a zeroed parameter structure with a mask that names what is set, live handles, memory that outlives
        // its mapping.
        unsafe {
            let mut params: ucp_mem_map_params_t = std::mem::zeroed();
            params.field_mask =
                UCP_MEM_MAP_PARAM_FIELD_ADDRESS as u64 | UCP_MEM_MAP_PARAM_FIELD_LENGTH as u64;
            (params.address, params.length) = (memory.as_ptr().cast_mut().cast(), LEN);
            assert_eq!(
                memory::ucp_mem_map(scene.context, &params, &mut handle),
                UCS_OK
            );
        }
        let key = unpack(&scene, handle, scene.to_victim);
        Exposed {
            scene,
            memory,
            handle,
            key,
        }
    }

    /// The first address of it, and the first behind it.
    fn addresses(&self) -> (u64, u64) {
        let first = self.memory.as_ptr() as u64;
        (first, first + LEN as u64)
    }

    fn put(&self, addr: u64, len: usize) -> ucs_status_t {
        let data = vec![0x5A_u8; len];
        // SAFETY: zeroed parameters, live handles, a buffer that outlives the request.
        let req = unsafe {
            let param: ucp_request_param_t = std::mem::zeroed();
            rma::ucp_put_nbx(
                self.scene.to_victim,
                data.as_ptr().cast(),
                len,
                addr,
                self.key,
                &param,
            )
        };
        self.end(req)
    }

    fn flush(&self) -> ucs_status_t {
        // SAFETY: zeroed parameters, a live endpoint.
        let req = unsafe { endpoint::ucp_ep_flush_nbx(self.scene.to_victim, &std::mem::zeroed()) };
        self.end(req)
    }

    fn flush_worker(&self) -> ucs_status_t {
        // SAFETY: zeroed parameters, a live worker.
        let req = unsafe { worker::ucp_worker_flush_nbx(self.scene.decent, &std::mem::zeroed()) };
        self.end(req)
    }

    fn end(&self, req: *mut c_void) -> ucs_status_t {
        self.scene.end("an access ends", req)
    }
}

/// The key to registered memory of the victim, for an endpoint to it.
fn unpack(scene: &Scene, handle: ucp_mem_h, ep: ucp_ep_h) -> ucp_rkey_h {
    let (mut packed, mut len, mut key) = (ptr::null_mut(), 0, ptr::null_mut());
    // SAFETY: live handles; the buffer is released once.
    unsafe {
        assert_eq!(
            rkey::ucp_rkey_pack(scene.context, handle, &mut packed, &mut len),
            UCS_OK
        );
        assert_eq!(rkey::ucp_ep_rkey_unpack(ep, packed, &mut key), UCS_OK);
        rkey::ucp_rkey_buffer_release(packed);
    }
    key
}

/// Gets the word at `addr`.
fn get(ep: ucp_ep_h, key: ucp_rkey_h, addr: u64, word: &mut u64) -> *mut c_void {
    // SAFETY: zeroed parameters, live handles, a buffer that outlives the request.
    unsafe {
        rma::ucp_get_nbx(
            ep,
            (&raw mut *word).cast(),
            8,
            addr,
            key,
            &std::mem::zeroed(),
        )
    }
}

impl Drop for Exposed {
    fn drop(&mut self) {
        // SAFETY: both are ours.
        unsafe {
            rkey::ucp_rkey_destroy(self.key);
            memory::ucp_mem_unmap(self.scene.context, self.handle);
        }
    }
}

#[test]
fn the_flush_behind_a_refused_put_fails_once() {
    let e = Exposed::new();
    let (first, behind) = e.addresses();
    assert_eq!((e.put(first, LEN), e.flush()), (UCS_OK, UCS_OK));
    for len in [8, 4 * LEN * 16] {
        assert_eq!(e.put(behind - 4, len), UCS_OK, "the buffer can be reused");
        assert_eq!(e.flush(), UCS_ERR_INVALID_ADDR);
        assert_eq!(e.flush(), UCS_OK, "it was reported");
    }
    // The reply arrives while no flush is pending.
    e.put(behind, 8);
    e.scene.decent_goes_on(8);
    e.scene.settle();
    assert_eq!(e.flush(), UCS_ERR_INVALID_ADDR);
    assert_eq!((e.put(first, 8), e.flush()), (UCS_OK, UCS_OK));
}

#[test]
fn so_does_the_flush_of_the_worker() {
    let e = Exposed::new();
    let (first, behind) = e.addresses();
    e.put(behind, 8);
    assert_eq!(e.flush_worker(), UCS_ERR_INVALID_ADDR);
    assert_eq!((e.flush_worker(), e.flush()), (UCS_OK, UCS_OK));
    e.put(behind, 8);
    e.scene.decent_goes_on(8);
    e.scene.settle();
    assert_eq!(e.flush_worker(), UCS_ERR_INVALID_ADDR);
    assert_eq!((e.put(first, 8), e.flush_worker()), (UCS_OK, UCS_OK));
}

#[test]
fn of_atomic_operations_and_gets_only_what_has_no_answer_of_its_own() {
    let e = Exposed::new();
    let (first, behind) = e.addresses();
    // SAFETY: live handles.
    let posted = |addr| unsafe {
        let add = ucp_atomic_post_op_t::UCP_ATOMIC_POST_OP_ADD;
        compat_amo::ucp_atomic_post(e.scene.to_victim, MaybeUninit::new(add), 1, 8, addr, e.key)
    };
    assert_eq!((posted(first), e.flush()), (UCS_OK, UCS_OK));
    assert_eq!((posted(behind), e.flush()), (UCS_OK, UCS_ERR_INVALID_ADDR));
    let mut got = 0u64;
    let req = get(e.scene.to_victim, e.key, behind, &mut got);
    assert_eq!((e.end(req), e.flush()), (UCS_ERR_INVALID_ADDR, UCS_OK));
}

#[test]
fn a_get_that_is_cancelled_in_the_queue_is_no_answer_for_a_later_flush() {
    let e = Exposed::new();
    let (first, _) = e.addresses();
    let ep = endpoint_to(e.scene.decent, &e.scene.address.encode());
    let key = unpack(&e.scene, e.handle, ep);
    let mut word = 0;
    // There is no connection yet: the get is queued.
    let queued = get(ep, key, first, &mut word);
    // SAFETY: a zeroed parameter structure with a mask that names what is set; live handles, freed once.
    unsafe {
        let mut param: ucp_request_param_t = std::mem::zeroed();
        param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS as u32;
        param.flags = UCP_EP_CLOSE_FLAG_FORCE as u32;
        rkey::ucp_rkey_destroy(key);
        assert!(endpoint::ucp_ep_close_nbx(ep, &param).is_null());
        assert_eq!(request::ucp_request_check_status(queued), UCS_ERR_CANCELED);
        request::ucp_request_free(queued);
    }
    e.scene.decent_goes_on(8);
    e.scene.settle();
    let fetched = get(e.scene.to_victim, e.key, first, &mut word);
    // SAFETY: zeroed parameters, a live endpoint.
    let flush = unsafe { endpoint::ucp_ep_flush_nbx(e.scene.to_victim, &std::mem::zeroed()) };
    assert!(UCS_PTR_IS_PTR(flush), "the victim has not answered");
    for _ in 0..100 {
        // SAFETY: a live worker and request.
        unsafe {
            worker::ucp_worker_progress(e.scene.decent);
            assert_eq!(
                request::ucp_request_check_status(flush),
                UCS_INPROGRESS,
                "the victim has not answered"
            );
        }
    }
    assert_eq!((e.end(flush), e.end(fetched)), (UCS_OK, UCS_OK));
}
