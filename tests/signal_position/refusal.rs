//! Signals that the target refuses fail one flush of the endpoint that sent them.

use crate::exposed::{Exposed, SHM, Window, close_by_force, flush};
use crate::support::scene::{endpoint_to, new_context};
use ucp::abi::{context, rkey};
use ucp::ctypes::*;

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
