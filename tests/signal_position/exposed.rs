//! Memory of a worker that peers put words with signals into, and what the tests do with it.

use crate::support::scene::{Scene, endpoint_to};
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::ptr;
use ucp::abi::{cq, endpoint, memory, request, rkey, signal, worker};
use ucp::ctypes::*;

pub const LEN: usize = 1 << 16;

/// Memory allocated by the library.
pub struct Window {
    pub context: ucp_context_h,
    pub memory: ucp_mem_h,
    pub first: u64,
}

impl Window {
    pub fn new(context: ucp_context_h) -> Window {
        let mut memory = ptr::null_mut();
        // SAFETY: zeroed structures with masks that name what is set, a live context.
        unsafe {
            let mut params: ucp_mem_map_params_t = std::mem::zeroed();
            params.field_mask =
                UCP_MEM_MAP_PARAM_FIELD_LENGTH as u64 | UCP_MEM_MAP_PARAM_FIELD_FLAGS as u64;
            (params.length, params.flags) = (LEN, UCP_MEM_MAP_ALLOCATE as u32);
            assert_eq!(memory::ucp_mem_map(context, &params, &mut memory), UCS_OK);
            let mut attr: ucp_mem_attr_t = std::mem::zeroed();
            attr.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS as u64;
            assert_eq!(memory::ucp_mem_query(memory, &mut attr), UCS_OK);
            let first = attr.address as u64;
            Window {
                context,
                memory,
                first,
            }
        }
    }

    /// A key to it for an endpoint.
    pub fn unpack(&self, ep: ucp_ep_h) -> ucp_rkey_h {
        let (mut packed, mut len, mut key) = (ptr::null_mut(), 0, ptr::null_mut());
        // SAFETY: live handles; the buffer is released once.
        unsafe {
            let status = rkey::ucp_rkey_pack(self.context, self.memory, &mut packed, &mut len);
            assert_eq!(status, UCS_OK);
            assert_eq!(rkey::ucp_ep_rkey_unpack(ep, packed, &mut key), UCS_OK);
            rkey::ucp_rkey_buffer_release(packed);
        }
        key
    }

    pub fn unmap(&self) {
        // SAFETY: a live handle, not used again.
        let status = unsafe { memory::ucp_mem_unmap(self.context, self.memory) };
        assert_eq!(status, UCS_OK);
    }
}

/// Memory of the victim allocated by the library, the decent peer's key to it, and the victim's completion queue.
pub struct Exposed {
    pub scene: Scene,
    pub window: Window,
    pub key: ucp_rkey_h,
    pub queue: ucpx_cq_h,
}

impl Exposed {
    pub fn new(options: &[(&CStr, &CStr)]) -> Exposed {
        Self::within(Scene::new(options))
    }

    pub fn within(scene: Scene) -> Exposed {
        let window = Window::new(scene.context);
        let key = window.unpack(scene.to_victim);
        let mut queue = ptr::null_mut();
        // SAFETY: a zeroed structure, a live worker.
        let status = unsafe { cq::ucpx_cq_create(scene.victim, &std::mem::zeroed(), &mut queue) };
        assert_eq!(status, UCS_OK);
        Exposed {
            scene,
            window,
            key,
            queue,
        }
    }

    /// Puts a word of its own, with its number as the signal; the call completes it.
    pub fn put_by(&self, ep: ucp_ep_h, number: u64) {
        self.put_to(ep, self.window.first, self.key, number);
    }

    pub fn put_to(&self, ep: ucp_ep_h, first: u64, key: ucp_rkey_h, number: u64) {
        // SAFETY: zeroed structures with masks that name what is set, live handles; the word is copied in the call.
        let put = unsafe {
            let mut signal: ucpx_signal_t = std::mem::zeroed();
            signal.field_mask = UCPX_SIGNAL_FIELD_VALUE as u64;
            signal.value = number;
            let data = (&raw const number).cast();
            let (at, param) = (first + number % 64 * 8, std::mem::zeroed());
            signal::ucpx_put_signal_nbx(ep, data, 8, at, key, &signal, &param)
        };
        assert!(put.is_null(), "the data are in their place");
    }

    pub fn put(&self, number: u64) {
        self.put_by(self.scene.to_victim, number);
    }

    /// Takes the oldest entry, if there is one, and returns its number.
    pub fn take(&self) -> Option<u64> {
        let mut entry = MaybeUninit::<ucpx_cq_entry_t>::uninit();
        // SAFETY: a live queue, room for one entry, which is written then.
        unsafe {
            let n = cq::ucpx_cq_poll(self.queue, entry.as_mut_ptr(), 1);
            (n == 1).then(|| entry.assume_init().value)
        }
    }

    /// Opens the ring, and leaves nothing outstanding.
    pub fn warm_up(&self) {
        self.put(0);
        self.scene
            .until("the first entry", || self.take() == Some(0));
        assert_eq!(self.end_flush(), UCS_OK);
    }

    pub fn end_flush(&self) -> ucs_status_t {
        self.scene.end("a flush ends", flush(self.scene.to_victim))
    }

    /// Replaces the decent peer's endpoint by one that can be closed by force.
    pub fn handle_errors(&mut self) {
        let ep = endpoint_to(self.scene.decent, &self.scene.address.encode());
        // SAFETY: a zeroed structure, a live endpoint that is not used again.
        let close =
            unsafe { endpoint::ucp_ep_close_nbx(self.scene.to_victim, &std::mem::zeroed()) };
        assert_eq!(self.scene.end("a close ends", close), UCS_OK);
        self.scene.to_victim = ep;
    }

    pub fn progress_sender(&self) -> u32 {
        // SAFETY: a live worker.
        unsafe { worker::ucp_worker_progress(self.scene.decent) }
    }
}

impl Drop for Exposed {
    fn drop(&mut self) {
        // SAFETY: all are owned by this structure.
        unsafe {
            cq::ucpx_cq_destroy(self.queue);
            rkey::ucp_rkey_destroy(self.key);
        }
        self.window.unmap();
    }
}

pub fn flush(ep: ucp_ep_h) -> ucs_status_ptr_t {
    // SAFETY: a zeroed structure, a live endpoint.
    unsafe { endpoint::ucp_ep_flush_nbx(ep, &std::mem::zeroed()) }
}

/// Whether a request that is in progress goes on.
pub fn is_pending(request: ucs_status_ptr_t) -> bool {
    // SAFETY: a live request.
    unsafe { request::ucp_request_check_status(request) == UCS_INPROGRESS }
}

pub fn close_by_force(scene: &Scene, ep: ucp_ep_h) {
    // SAFETY: a zeroed structure with a mask that names what is set, a live endpoint that is not used again.
    let close = unsafe {
        let mut param: ucp_request_param_t = std::mem::zeroed();
        param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS as u32;
        param.flags = UCP_EP_CLOSE_FLAG_FORCE as u32;
        endpoint::ucp_ep_close_nbx(ep, &param)
    };
    assert_eq!(scene.end("a close ends", close), UCS_OK);
}

pub const SHM: [(&CStr, &CStr); 2] = [(c"TLS", c"sm,self"), (c"LOG_LEVEL", c"fatal")];
