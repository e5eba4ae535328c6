//! A target that writes what it likes into its end of the ring: positions and refusals that cannot be.

use crate::exposed::{Exposed, close_by_force, flush, is_pending};
use crate::support::raw_peer::RawPeer;
use crate::support::scene::endpoint_to;
use std::ptr;
use ucp::abi::{rkey, tag};
use ucp::ctypes::*;
use ucp::wire::header::Kind;

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
