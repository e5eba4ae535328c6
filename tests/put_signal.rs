//! Puts with signal into memory that is mapped: more of them than a ring holds, and the operations that a flush waits
//! for.

mod support;

use std::mem::MaybeUninit;
use std::ptr;
use support::scene::Scene;
use ucp::abi::{cq, endpoint, memory, rkey, signal};
use ucp::ctypes::*;

const LEN: usize = 1 << 16;
/// Several times the capacity of a ring.
const PUTS: u64 = 1000;

/// Memory of the victim allocated by the library, the decent peer's key to it, and the victim's completion queue.
struct Exposed {
    scene: Scene,
    memory: ucp_mem_h,
    first: u64,
    key: ucp_rkey_h,
    queue: ucpx_cq_h,
}

impl Exposed {
    fn new() -> Exposed {
        let scene = Scene::new(&[(c"TLS", c"sm,self"), (c"LOG_LEVEL", c"fatal")]);
        let (mut memory, mut key, mut queue) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        // SAFETY: zeroed structures with masks that name what is set, live handles.
        unsafe {
            let mut params: ucp_mem_map_params_t = std::mem::zeroed();
            params.field_mask =
                UCP_MEM_MAP_PARAM_FIELD_LENGTH as u64 | UCP_MEM_MAP_PARAM_FIELD_FLAGS as u64;
            (params.length, params.flags) = (LEN, UCP_MEM_MAP_ALLOCATE as u32);
            let status = memory::ucp_mem_map(scene.context, &params, &mut memory);
            assert_eq!(status, UCS_OK);
            let mut attr: ucp_mem_attr_t = std::mem::zeroed();
            attr.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS as u64;
            assert_eq!(memory::ucp_mem_query(memory, &mut attr), UCS_OK);
            let (mut packed, mut len) = (ptr::null_mut(), 0);
            let status = rkey::ucp_rkey_pack(scene.context, memory, &mut packed, &mut len);
            assert_eq!(status, UCS_OK);
            let status = rkey::ucp_ep_rkey_unpack(scene.to_victim, packed, &mut key);
            assert_eq!(status, UCS_OK);
            rkey::ucp_rkey_buffer_release(packed);
            let status = cq::ucpx_cq_create(scene.victim, &std::mem::zeroed(), &mut queue);
            assert_eq!(status, UCS_OK);
            let first = attr.address as u64;
            Exposed {
                scene,
                memory,
                first,
                key,
                queue,
            }
        }
    }

    /// The address of a put's data: a word for each, so that none overwrites another's.
    fn place(&self, number: u64) -> u64 {
        self.first + number * 8
    }

    fn put(&self, number: u64, mask: u32) -> ucs_status_ptr_t {
        // SAFETY: zeroed structures with masks that name what is set, live handles; the word is copied in the call.
        unsafe {
            let mut signal: ucpx_signal_t = std::mem::zeroed();
            signal.field_mask = UCPX_SIGNAL_FIELD_VALUE as u64;
            signal.value = number << 32;
            let mut param: ucp_request_param_t = std::mem::zeroed();
            param.op_attr_mask = mask;
            let data = (&raw const number).cast();
            let (ep, at) = (self.scene.to_victim, self.place(number));
            signal::ucpx_put_signal_nbx(ep, data, 8, at, self.key, &signal, &param)
        }
    }

    fn flush(&self) -> ucs_status_ptr_t {
        // SAFETY: a zeroed structure, a live endpoint.
        unsafe { endpoint::ucp_ep_flush_nbx(self.scene.to_victim, &std::mem::zeroed()) }
    }

    fn word(&self, number: u64) -> u64 {
        // SAFETY: mapped memory of the region.
        unsafe { (self.place(number) as *const u64).read_volatile() }
    }

    /// Takes the next entry, which is that of this put, and checks its data.
    fn expect(&self, number: u64) {
        let mut entry = MaybeUninit::<ucpx_cq_entry_t>::uninit();
        self.scene.until("an entry arrives", || {
            // SAFETY: a live queue, room for one entry.
            unsafe { cq::ucpx_cq_poll(self.queue, entry.as_mut_ptr(), 1) == 1 }
        });
        // SAFETY: written.
        let entry = unsafe { entry.assume_init() };
        assert_eq!((entry.value, entry.length), (number << 32, 8));
        assert_eq!(entry.address, self.place(number));
        assert_eq!(self.word(number), number);
    }
}

impl Drop for Exposed {
    fn drop(&mut self) {
        // SAFETY: all are owned by this structure.
        unsafe {
            cq::ucpx_cq_destroy(self.queue);
            rkey::ucp_rkey_destroy(self.key);
            memory::ucp_mem_unmap(self.scene.context, self.memory);
        }
    }
}

#[test]
fn more_than_a_ring_takes_come_in_order() {
    let e = Exposed::new();
    for number in 0..PUTS {
        assert!(e.put(number, 0).is_null(), "the data is in its place");
        assert_eq!(e.word(number), number);
    }
    (0..PUTS).for_each(|number| e.expect(number));
    assert_eq!(e.scene.end("a flush ends", e.flush()), UCS_OK);
    assert!(e.flush().is_null(), "all was answered");
}

#[test]
fn a_flush_waits_for_the_target() {
    let e = Exposed::new();
    // The first opens the ring.
    e.put(0, 0);
    e.expect(0);
    assert_eq!(e.scene.end("a flush ends", e.flush()), UCS_OK);
    for number in 1..100 {
        assert!(e.put(number, 0).is_null());
        let flush = e.flush();
        assert!(!flush.is_null(), "the target has not answered");
        e.expect(number);
        assert_eq!(e.scene.end("a flush ends", flush), UCS_OK);
    }
}

#[test]
fn a_request_is_created_on_demand() {
    let e = Exposed::new();
    for number in 0..10 {
        let request = e.put(number, UCP_OP_ATTR_FLAG_NO_IMM_CMPL as u32);
        assert!(!request.is_null());
        assert_eq!(e.scene.end("a put ends", request), UCS_OK);
        e.expect(number);
    }
}
