//! Remote accesses that the target rejects: the flush behind them fails, once, and other operations succeed.

mod support;

use std::ffi::c_void;
use std::ptr;
use support::scene::Scene;
use ucp::abi::{compat_amo, endpoint, memory, rkey, rma, worker};
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
        let (mut handle, mut key) = (ptr::null_mut(), ptr::null_mut());
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
            let (mut packed, mut len) = (ptr::null_mut(), 0);
            assert_eq!(
                rkey::ucp_rkey_pack(scene.context, handle, &mut packed, &mut len),
                UCS_OK
            );
            assert_eq!(
                rkey::ucp_ep_rkey_unpack(scene.to_victim, packed, &mut key),
                UCS_OK
            );
            rkey::ucp_rkey_buffer_release(packed);
        }
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
        compat_amo::ucp_atomic_post(
            e.scene.to_victim,
            std::mem::MaybeUninit::new(add),
            1,
            8,
            addr,
            e.key,
        )
    };
    assert_eq!((posted(first), e.flush()), (UCS_OK, UCS_OK));
    assert_eq!((posted(behind), e.flush()), (UCS_OK, UCS_ERR_INVALID_ADDR));
    let mut got = 0u64;
    // SAFETY: zeroed parameters, live handles, a buffer that outlives the request.
    let req = unsafe {
        rma::ucp_get_nbx(
            e.scene.to_victim,
            (&raw mut got).cast(),
            8,
            behind,
            e.key,
            &std::mem::zeroed(),
        )
    };
    assert_eq!((e.end(req), e.flush()), (UCS_ERR_INVALID_ADDR, UCS_OK));
}
