//! Puts with signal into memory that is mapped are not answered: the sender reads the target's position in the ring.
//! Flushes, fences and the report of refusals depend on nothing else, whatever the target does with its end of it.

mod support;

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::ptr;
use support::raw_peer::RawPeer;
use support::scene::{Scene, endpoint_to, new_context};
use ucp::abi::{context, cq, endpoint, memory, request, rkey, rma, signal, tag, wakeup, worker};
use ucp::ctypes::*;
use ucp::wire::header::Kind;

const LEN: usize = 1 << 16;

/// Memory allocated by the library.
struct Window {
    context: ucp_context_h,
    memory: ucp_mem_h,
    first: u64,
}

impl Window {
    fn new(context: ucp_context_h) -> Window {
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
    fn unpack(&self, ep: ucp_ep_h) -> ucp_rkey_h {
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

    fn unmap(&self) {
        // SAFETY: a live handle, not used again.
        let status = unsafe { memory::ucp_mem_unmap(self.context, self.memory) };
        assert_eq!(status, UCS_OK);
    }
}

/// Memory of the victim allocated by the library, the decent peer's key to it, and the victim's completion queue.
struct Exposed {
    scene: Scene,
    window: Window,
    key: ucp_rkey_h,
    queue: ucpx_cq_h,
}

impl Exposed {
    fn new(options: &[(&CStr, &CStr)]) -> Exposed {
        Self::within(Scene::new(options))
    }

    fn within(scene: Scene) -> Exposed {
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
    fn put_by(&self, ep: ucp_ep_h, number: u64) {
        self.put_to(ep, self.window.first, self.key, number);
    }

    fn put_to(&self, ep: ucp_ep_h, first: u64, key: ucp_rkey_h, number: u64) {
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

    fn put(&self, number: u64) {
        self.put_by(self.scene.to_victim, number);
    }

    /// Takes the oldest entry, if there is one, and returns its number.
    fn take(&self) -> Option<u64> {
        let mut entry = MaybeUninit::<ucpx_cq_entry_t>::uninit();
        // SAFETY: a live queue, room for one entry, which is written then.
        unsafe {
            let n = cq::ucpx_cq_poll(self.queue, entry.as_mut_ptr(), 1);
            (n == 1).then(|| entry.assume_init().value)
        }
    }

    /// Opens the ring, and leaves nothing outstanding.
    fn warm_up(&self) {
        self.put(0);
        self.scene
            .until("the first entry", || self.take() == Some(0));
        assert_eq!(self.end_flush(), UCS_OK);
    }

    fn end_flush(&self) -> ucs_status_t {
        self.scene.end("a flush ends", flush(self.scene.to_victim))
    }

    /// Replaces the decent peer's endpoint by one that can be closed by force.
    fn handle_errors(&mut self) {
        let ep = endpoint_to(self.scene.decent, &self.scene.address.encode());
        // SAFETY: a zeroed structure, a live endpoint that is not used again.
        let close =
            unsafe { endpoint::ucp_ep_close_nbx(self.scene.to_victim, &std::mem::zeroed()) };
        assert_eq!(self.scene.end("a close ends", close), UCS_OK);
        self.scene.to_victim = ep;
    }

    fn progress_sender(&self) -> u32 {
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

fn flush(ep: ucp_ep_h) -> ucs_status_ptr_t {
    // SAFETY: a zeroed structure, a live endpoint.
    unsafe { endpoint::ucp_ep_flush_nbx(ep, &std::mem::zeroed()) }
}

/// Whether a request that is in progress goes on.
fn is_pending(request: ucs_status_ptr_t) -> bool {
    // SAFETY: a live request.
    unsafe { request::ucp_request_check_status(request) == UCS_INPROGRESS }
}

fn close_by_force(scene: &Scene, ep: ucp_ep_h) {
    // SAFETY: a zeroed structure with a mask that names what is set, a live endpoint that is not used again.
    let close = unsafe {
        let mut param: ucp_request_param_t = std::mem::zeroed();
        param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS as u32;
        param.flags = UCP_EP_CLOSE_FLAG_FORCE as u32;
        endpoint::ucp_ep_close_nbx(ep, &param)
    };
    assert_eq!(scene.end("a close ends", close), UCS_OK);
}

const SHM: [(&CStr, &CStr); 2] = [(c"TLS", c"sm,self"), (c"LOG_LEVEL", c"fatal")];

#[test]
fn nothing_is_sent_back() {
    let e = Exposed::new(&SHM);
    e.warm_up();
    let received = || e.scene.victim_seen().stats().received.messages();
    let before = received();
    for number in 1..50 {
        e.put(number);
        e.scene.until("an entry", || e.take() == Some(number));
    }
    e.scene.settle();
    assert_eq!(received(), before);
    assert!(
        flush(e.scene.to_victim).is_null(),
        "the target's position says that all are handled"
    );
}

#[test]
fn a_waiting_flush_makes_progress_report_nothing() {
    let e = Exposed::new(&SHM);
    e.warm_up();
    e.put(1);
    let waits = flush(e.scene.to_victim);
    assert!(UCS_PTR_IS_PTR(waits));
    for _ in 0..1000 {
        assert_eq!(e.progress_sender(), 0);
    }
    assert!(is_pending(waits));
    assert_eq!(e.take(), Some(1));
    assert_eq!(e.progress_sender(), 1, "the flush has ended");
    assert_eq!(e.scene.end("it ends", waits), UCS_OK);
    assert_eq!(e.progress_sender(), 0);
}

#[test]
fn signals_behind_a_flush_do_not_delay_it() {
    let e = Exposed::new(&SHM);
    e.warm_up();
    const FIRST: u64 = 10;
    (1..=FIRST).for_each(|number| e.put(number));
    let waits = flush(e.scene.to_victim);
    let mut sent = FIRST;
    // The target is always behind.
    for taken in 1..=40 {
        for _ in 0..2 {
            sent += 1;
            e.put(sent);
        }
        assert_eq!(e.take(), Some(taken));
        e.progress_sender();
        assert!(taken < FIRST || !is_pending(waits), "{taken} were taken");
    }
    assert_eq!(e.scene.end("it ends", waits), UCS_OK);
    (41..=sent).for_each(|number| assert_eq!(e.take(), Some(number)));
    assert!(flush(e.scene.to_victim).is_null());
}

#[test]
fn several_flushes_end_each_at_its_place() {
    let e = Exposed::new(&SHM);
    e.warm_up();
    let waits: Vec<_> = (1..=40)
        .map(|number| {
            e.put(number);
            flush(e.scene.to_victim)
        })
        .collect();
    for taken in 1..=40 {
        assert_eq!(e.take(), Some(taken));
        e.progress_sender();
        let pending = |(_, request): &(u64, &ucs_status_ptr_t)| is_pending(**request);
        let ended = (1..)
            .zip(&waits)
            .take_while(|flush| !pending(flush))
            .count() as u64;
        // Progress of the target may handle several.
        assert!(
            (taken..=taken + 16).contains(&ended),
            "{ended} ended, {taken} taken"
        );
        assert!(
            (1..)
                .zip(&waits)
                .skip(ended as usize)
                .all(|flush| pending(&flush))
        );
    }
    for request in waits {
        assert_eq!(e.scene.end("it has ended", request), UCS_OK);
    }
}

#[test]
fn the_flush_of_the_worker_waits_as_well() {
    let e = Exposed::new(&SHM);
    e.warm_up();
    e.put(1);
    // SAFETY: a zeroed structure, a live worker.
    let waits = unsafe { worker::ucp_worker_flush_nbx(e.scene.decent, &std::mem::zeroed()) };
    assert!(UCS_PTR_IS_PTR(waits));
    e.progress_sender();
    assert!(is_pending(waits));
    assert_eq!(e.take(), Some(1));
    assert_eq!(e.scene.end("it ends", waits), UCS_OK);
}

#[test]
fn a_put_behind_a_fence_does_not_overtake_a_signal() {
    let e = Exposed::new(&SHM);
    e.warm_up();
    let place = e.window.first + 1024;
    // SAFETY: mapped memory of the region.
    let seen = || unsafe { (place as *const u64).read_volatile() };
    let put = |value: u64| {
        // SAFETY: zeroed parameters, live handles; the word outlives the request.
        unsafe {
            assert_eq!(worker::ucp_worker_fence(e.scene.decent), UCS_OK);
            let data = (&raw const value).cast();
            let (ep, param) = (e.scene.to_victim, std::mem::zeroed());
            let put = rma::ucp_put_nbx(ep, data, 8, place, e.key, &param);
            e.scene.end("a put ends", put);
        }
    };
    for number in 1..30 {
        e.put(number);
        put(number);
        assert_eq!(seen(), number - 1, "put {number} has overtaken the signal");
        assert_eq!(e.take(), Some(number));
        assert_eq!(e.end_flush(), UCS_OK);
        assert_eq!(seen(), number);
    }
    // The fence alone reads the target's position.
    // SAFETY: a live worker.
    assert_eq!(unsafe { worker::ucp_worker_fence(e.scene.decent) }, UCS_OK);
    e.put(100);
    assert_eq!(e.take(), Some(100));
    put(100);
    assert_eq!(seen(), 100, "a put by a store");
}

/// Memory of this process that the victim's context does not know, and the decent peer's key to it: the data are
/// stored, and the victim refuses the signals.
struct Elsewhere {
    window: Window,
    key: ucp_rkey_h,
}

impl Elsewhere {
    fn new(e: &Exposed) -> Elsewhere {
        let window = Window::new(new_context(&SHM));
        let key = window.unpack(e.scene.to_victim);
        Elsewhere { window, key }
    }

    fn put(&self, e: &Exposed, number: u64) {
        e.put_to(e.scene.to_victim, self.window.first, self.key, number);
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        // SAFETY: live handles, not used again.
        unsafe { rkey::ucp_rkey_destroy(self.key) };
        self.window.unmap();
        // SAFETY: a live handle, not used again.
        unsafe { context::ucp_cleanup(self.window.context) };
    }
}

#[test]
fn refused_signals_fail_one_flush() {
    let e = Exposed::new(&SHM);
    e.warm_up();
    let elsewhere = Elsewhere::new(&e);
    for wait in [false, true] {
        elsewhere.put(&e, 1);
        e.put(2);
        elsewhere.put(&e, 3);
        let waits = wait.then(|| flush(e.scene.to_victim));
        e.scene
            .until("the signal between them", || e.take() == Some(2));
        e.scene.settle();
        assert_eq!(e.take(), None);
        let flush = waits.unwrap_or_else(|| flush(e.scene.to_victim));
        assert_eq!(e.scene.end("a flush ends", flush), UCS_ERR_INVALID_ADDR);
        assert_eq!(e.end_flush(), UCS_OK, "it was reported");
    }
}

#[test]
fn the_next_endpoint_reports_no_refusal_of_the_last_ones_signals() {
    let mut e = Exposed::new(&SHM);
    e.handle_errors();
    let address = e.scene.address.encode();
    e.warm_up();
    let elsewhere = Elsewhere::new(&e);
    for round in 0..3 {
        (1..4).for_each(|number| elsewhere.put(&e, number));
        close_by_force(&e.scene, e.scene.to_victim);
        e.scene.to_victim = endpoint_to(e.scene.decent, &address);
        e.scene.settle();
        assert_eq!(
            e.end_flush(),
            UCS_OK,
            "puts of a closed endpoint, round {round}"
        );
        elsewhere.put(&e, 4);
        e.scene.settle();
        assert_eq!(e.end_flush(), UCS_ERR_INVALID_ADDR, "the put of this one");
        assert_eq!(e.end_flush(), UCS_OK);
    }
}

#[test]
fn a_worker_that_sleeps_is_woken_by_an_answer() {
    let e = Exposed::within(Scene::sleepers(&SHM));
    e.warm_up();
    for number in 1..20 {
        e.put(number);
        let waits = flush(e.scene.to_victim);
        assert!(UCS_PTR_IS_PTR(waits));
        let mut armed = libc::pollfd {
            fd: -1,
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: a live worker that can sleep; structures of this function.
        unsafe {
            let status = wakeup::ucp_worker_get_efd(e.scene.decent, &mut armed.fd);
            assert_eq!(status, UCS_OK);
            e.scene.until("the sender can sleep", || {
                wakeup::ucp_worker_arm(e.scene.decent) == UCS_OK
            });
            if is_pending(waits) {
                e.scene.until("an entry", || e.take() == Some(number));
                assert_eq!(libc::poll(&mut armed, 1, 10_000), 1, "nothing has woken it");
            }
        }
        assert_eq!(e.scene.end("it ends", waits), UCS_OK);
    }
}

/// The decent peer's endpoint to a raw peer, and a key to the victim's memory for it: what is put there arrives, and
/// the signals are the raw peer's to handle.
struct Unruly {
    e: Exposed,
    ep: ucp_ep_h,
    raw_peer: Option<RawPeer>,
}

impl Unruly {
    fn new() -> Unruly {
        let mut e = Exposed::new(&[
            (c"TLS", c"sm,self"),
            (c"LOG_LEVEL", c"fatal"),
            (c"KEEPALIVE_INTERVAL", c"100ms"),
        ]);
        e.warm_up();
        let shm = e.scene.address.shm.expect("a worker in shared memory");
        let raw_peer = RawPeer::new();
        let ep = endpoint_to(e.scene.decent, &raw_peer.address(4711, shm.host).encode());
        // SAFETY: the key is replaced.
        unsafe { rkey::ucp_rkey_destroy(e.key) };
        e.key = e.window.unpack(ep);
        let raw_peer = Some(raw_peer);
        let mut unruly = Unruly { e, ep, raw_peer };
        // Opens the ring. Before that a signal is a message that is answered, which this peer does not do.
        // SAFETY: zeroed parameters, a live endpoint.
        let opening = unsafe { tag::ucp_tag_send_nbx(ep, ptr::null(), 0, 1, &std::mem::zeroed()) };
        assert_eq!(unruly.e.scene.end("a message is sent", opening), UCS_OK);
        assert_eq!(unruly.receive(), 0);
        unruly
    }

    /// The raw peer reads all messages, and publishes its position: the number of signals.
    fn receive(&mut self) -> usize {
        let mut signals = 0;
        if let Some(raw_peer) = &mut self.raw_peer {
            raw_peer.receive(|m, _| {
                signals += usize::from(m.kind == Kind::Note as u8 || m.kind == Kind::Signal as u8);
            });
        }
        signals
    }

    fn end(&self, flush: ucs_status_ptr_t) -> ucs_status_t {
        self.e.scene.end("a flush ends", flush)
    }
}

#[test]
fn the_position_alone_acknowledges() {
    let mut u = Unruly::new();
    (2..6).for_each(|number| u.e.put_by(u.ep, number));
    let waits = flush(u.ep);
    u.e.scene.settle();
    assert!(UCS_PTR_IS_PTR(waits) && is_pending(waits));
    assert_eq!(u.receive(), 4);
    assert_eq!(u.end(waits), UCS_OK);
}

#[test]
fn a_position_that_never_moves_leaves_the_others_alone() {
    let mut u = Unruly::new();
    u.e.put_by(u.ep, 2);
    let waits = flush(u.ep);
    for number in 1..100 {
        u.e.scene.decent_goes_on(100 + number);
        assert!(is_pending(waits));
    }
    // It is full at last: the signal waits as a message does, and the call completes.
    for number in 0..1000 {
        u.e.put_by(u.ep, number);
    }
    u.e.scene.decent_goes_on(8);
    assert!(is_pending(waits));
    drop(u.raw_peer.take());
    assert_ne!(u.end(waits), UCS_INPROGRESS);
    close_by_force(&u.e.scene, u.ep);
    u.e.scene.decent_goes_on(9);
}

#[test]
fn a_flush_ends_with_its_peer() {
    for _ in 0..3 {
        let mut u = Unruly::new();
        u.e.put_by(u.ep, 2);
        let waits = [flush(u.ep), flush(u.ep)];
        u.e.progress_sender();
        drop(u.raw_peer.take());
        for request in waits {
            assert_eq!(u.end(request), UCS_ERR_CONNECTION_RESET);
        }
        // Nothing is left to poll.
        for _ in 0..100 {
            u.e.progress_sender();
        }
        assert_eq!(u.e.progress_sender(), 0);
        close_by_force(&u.e.scene, u.ep);
        u.e.scene.decent_goes_on(8);
        assert_eq!(u.e.end_flush(), UCS_OK);
    }
}

#[test]
fn an_invalid_position_acknowledges_nothing() {
    // The word in the ring's start that counts the slots which the target has read.
    const SLOTS: u16 = 0;
    let u = Unruly::new();
    let raw_peer = u.raw_peer.as_ref().unwrap();
    for position in [u64::MAX, 1 << 40, 200, 3, 0] {
        u.e.put_by(u.ep, 2);
        raw_peer.poke(SLOTS, position);
        let waits = flush(u.ep);
        for _ in 0..100 {
            u.e.progress_sender();
        }
        assert!(UCS_PTR_IS_PTR(waits) && is_pending(waits), "{position}");
    }
    u.e.scene.decent_goes_on(8);
    close_by_force(&u.e.scene, u.ep);
}

#[test]
fn an_invented_refusal_fails_a_flush_and_nothing_else() {
    // The word in the ring's start that counts refusals.
    const REFUSED: u16 = 2;
    let mut u = Unruly::new();
    for (number, word) in (2..).zip([1, 1 << 40, u64::MAX]) {
        u.e.put_by(u.ep, number);
        u.raw_peer.as_ref().unwrap().poke(REFUSED, word);
        u.receive();
        assert_eq!(u.end(flush(u.ep)), UCS_ERR_INVALID_ADDR);
        assert_eq!(u.end(flush(u.ep)), UCS_OK);
    }
    u.e.put_by(u.ep, 10);
    u.receive();
    assert_eq!(u.end(flush(u.ep)), UCS_OK);
    u.e.scene.decent_goes_on(8);
    assert_eq!(u.e.end_flush(), UCS_OK);
}

/// Several threads, each with its own worker, put words with signals into one worker's memory, and flush now and then.
#[test]
fn data_precede_the_signals_of_several_senders() {
    const SENDERS: u64 = 3;
    const PUTS: u64 = 3000;
    /// Words of each sender: no word is overwritten before its signal was handled, as each window ends with a flush.
    const WINDOW: u64 = 50;
    let e = Exposed::new(&SHM);
    let (context, address) = (e.scene.context as usize, e.scene.address.encode());
    let (memory, base) = (e.window.memory as usize, e.window.first);
    std::thread::scope(|s| {
        for sender in 0..SENDERS {
            let address = &address;
            s.spawn(move || send(context, address, memory, base + sender * WINDOW * 8, sender));
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
            assert_eq!(
                entry.address,
                base + sender * WINDOW * 8 + number % WINDOW * 8
            );
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
                while is_pending(request) {
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
                let (data, at) = ((&raw const value).cast(), base + number % WINDOW * 8);
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

#[test]
fn a_ring_is_released_whose_sender_has_not_flushed() {
    let mut e = Exposed::new(&SHM);
    e.handle_errors();
    e.warm_up();
    (1..20).for_each(|number| e.put(number));
    (1..20).for_each(|number| assert_eq!(e.take(), Some(number)));
    close_by_force(&e.scene, e.scene.to_victim);
    e.scene.until("the ring is closed", || {
        e.scene.worker().rx.lock().tl.shm.is_empty()
    });
}
