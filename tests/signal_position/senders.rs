//! Several senders at once.

use crate::exposed::{Exposed, LEN, SHM, is_pending};
use crate::support::scene::endpoint_to;
use std::mem::MaybeUninit;
use std::ptr;
use std::time::{Duration, Instant};
use ucp::abi::{cq, endpoint, request, rkey, signal, worker};
use ucp::ctypes::*;

/// Several threads, each with its own worker, put words with signals into one worker's memory, and flush now and then.
#[test]
fn data_precede_the_signals_of_several_senders() {
    const SENDERS: u64 = 3;
    /// Each has a word of its own: an entry may wait in the queue when a flush says that its signal was handled.
    const PUTS: u64 = 2700;
    const _: () = assert!(SENDERS * PUTS * 8 <= LEN as u64);
    /// Puts between two flushes.
    const WINDOW: u64 = 50;
    let e = Exposed::new(&SHM);
    let (context, address) = (e.scene.context as usize, e.scene.address.encode());
    let (memory, base) = (e.window.memory as usize, e.window.first);
    std::thread::scope(|s| {
        for sender in 0..SENDERS {
            let address = &address;
            s.spawn(move || send(context, address, memory, base + sender * PUTS * 8, sender));
        }
        let mut next = [0; SENDERS as usize];
        while next.iter().sum::<u64>() < SENDERS * PUTS {
            let mut entry = MaybeUninit::<ucpx_cq_entry_t>::uninit();
            // SAFETY: a live queue, room for one entry, which is written then.
            let entry = unsafe {
                if cq::ucpx_cq_poll(e.queue, entry.as_mut_ptr(), 1) == 0 {
                    std::thread::yield_now();
                    continue;
                }
                entry.assume_init()
            };
            let (sender, number) = (entry.value >> 32, entry.value & u64::from(u32::MAX));
            let expected = &mut next[sender as usize];
            assert_eq!(number, *expected, "the signals of sender {sender}");
            *expected += 1;
            assert_eq!(entry.address, base + (sender * PUTS + number) * 8);
            // SAFETY: mapped memory of the region.
            let word = unsafe { (entry.address as *const u64).read_volatile() };
            assert_eq!(word, entry.value, "the data are behind their signal");
        }
    });

    fn send(context: usize, address: &[u8], memory: usize, base: u64, sender: u64) {
        // SAFETY: zeroed structures with masks that name what is set, live handles, of which each is used by one thread
        // but the context's; the word is copied in the call.
        unsafe {
            let mut params: ucp_worker_params_t = std::mem::zeroed();
            params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE as u64;
            params.thread_mode = MaybeUninit::new(UCS_THREAD_MODE_SINGLE);
            let mut own = ptr::null_mut();
            let context = context as ucp_context_h;
            assert_eq!(
                worker::ucp_worker_create(context, &params, &mut own),
                UCS_OK
            );
            let ep = endpoint_to(own, address);
            let (mut packed, mut len, mut key) = (ptr::null_mut(), 0, ptr::null_mut());
            let status = rkey::ucp_rkey_pack(context, memory as ucp_mem_h, &mut packed, &mut len);
            assert_eq!(status, UCS_OK);
            assert_eq!(rkey::ucp_ep_rkey_unpack(ep, packed, &mut key), UCS_OK);
            rkey::ucp_rkey_buffer_release(packed);
            let param: ucp_request_param_t = std::mem::zeroed();
            let wait = |request: ucs_status_ptr_t| {
                if !UCS_PTR_IS_PTR(request) {
                    return assert_eq!(UCS_PTR_STATUS(request), UCS_OK);
                }
                let end = Instant::now() + Duration::from_secs(60);
                while is_pending(request) {
                    assert!(Instant::now() < end, "the receiver has stopped");
                    worker::ucp_worker_progress(own);
                    std::thread::yield_now();
                }
                assert_eq!(request::ucp_request_check_status(request), UCS_OK);
                request::ucp_request_free(request);
            };
            for number in 0..PUTS {
                let value = sender << 32 | number;
                let mut signal: ucpx_signal_t = std::mem::zeroed();
                signal.field_mask = UCPX_SIGNAL_FIELD_VALUE as u64;
                signal.value = value;
                let (data, at) = ((&raw const value).cast(), base + number * 8);
                wait(signal::ucpx_put_signal_nbx(
                    ep, data, 8, at, key, &signal, &param,
                ));
                if number % WINDOW == WINDOW - 1 {
                    wait(endpoint::ucp_ep_flush_nbx(ep, &param));
                }
            }
            rkey::ucp_rkey_destroy(key);
            wait(endpoint::ucp_ep_close_nbx(ep, &param));
            worker::ucp_worker_destroy(own);
        }
    }
}
