//! A worker that is polled in vain offers its core to others, and only then.

mod support;

use std::cell::Cell;
use std::ffi::{CStr, c_int};
use std::ptr;
use std::thread;
use std::time::{Duration, Instant};
use support::scene::Scene;
use ucp::abi::{tag, worker};
use ucp::ctypes::*;
use ucp::sys::clock;

/// What others do with a core that is offered.
#[derive(Clone, Copy)]
enum Others {
    /// They are not there.
    None,
    Have(Duration),
    /// They have it until the kernel's clock ticks, as one does that computes.
    HaveUntilTick,
}

thread_local! {
    static OFFERS: Cell<u32> = const { Cell::new(0) };
    static OTHERS: Cell<Others> = const { Cell::new(Others::None) };
}

/// In the place of libc's, for the whole program.
#[unsafe(no_mangle)]
extern "C" fn sched_yield() -> c_int {
    OFFERS.set(OFFERS.get() + 1);
    let (began, tick) = (Instant::now(), clock::coarse_ms());
    while match OTHERS.get() {
        Others::None => false,
        Others::Have(duration) => began.elapsed() < duration,
        Others::HaveUntilTick => clock::coarse_ms() == tick,
    } {
        std::hint::spin_loop();
    }
    0
}

const SHORTLY: Others = Others::Have(Duration::from_micros(50));

fn options(tls: &'static CStr) -> [(&'static CStr, &'static CStr); 2] {
    [(c"TLS", tls), (c"LOG_LEVEL", c"error")]
}

/// The scene once its workers know each other.
fn connected(scene: Scene) -> Scene {
    scene.decent_goes_on(1);
    scene.settle();
    scene
}

fn over_memory() -> Scene {
    connected(Scene::new(&options(c"shm")))
}

/// Offers while the victim is polled so many times; each call lasts at least `pause`.
fn offers_in(scene: &Scene, calls: u32, pause: Duration) -> u32 {
    let before = OFFERS.get();
    for _ in 0..calls {
        if !pause.is_zero() {
            thread::sleep(pause);
        }
        // SAFETY: a live worker.
        unsafe { worker::ucp_worker_progress(scene.victim) };
    }
    OFFERS.get() - before
}

/// Whether there is an offer in 5000 calls, of so many that the machine has let run without a pause: after one that lasted milliseconds the
/// clock is looked at more often for a while, and nothing else.
fn offers_soon(scene: &Scene) -> bool {
    (0..20).any(|_| offers_in(scene, 5000, Duration::ZERO) > 0)
}

fn offers_in_vain(scene: &Scene) {
    OTHERS.set(SHORTLY);
    assert_eq!(offers_in(scene, 900, Duration::ZERO), 0, "too soon");
    assert!(offers_soon(scene), "in vain");
    let taken = offers_in(scene, 25_600, Duration::ZERO);
    assert!(taken > 50, "{taken} offers, and each was taken");
    OTHERS.set(Others::None);
    let vain = offers_in(scene, 64_000, Duration::ZERO);
    assert!(vain < 500, "{vain} offers that nobody took");
}

#[test]
fn who_polls_in_vain_offers_its_core_and_often_where_others_take_it() {
    offers_in_vain(&over_memory());
}

#[test]
fn so_does_one_that_threads_share() {
    offers_in_vain(&connected(Scene::shared(&options(c"shm"))));
}

#[test]
fn so_does_one_that_has_connections() {
    offers_in_vain(&connected(Scene::new(&options(c"tcp"))));
}

#[test]
fn what_comes_is_waited_for_on_the_core() {
    let scene = over_memory();
    OTHERS.set(SHORTLY);
    for _ in 0..20 {
        assert_eq!(offers_in(&scene, 700, Duration::ZERO), 0);
        scene.decent_goes_on(8);
    }
}

/// It need not hear of anything to have something to do.
#[test]
fn who_sends_keeps_its_core() {
    let scene = over_memory();
    OTHERS.set(SHORTLY);
    offers_in(&scene, 10_000, Duration::ZERO);
    let before = OFFERS.get();
    for _ in 0..5000 {
        // SAFETY: zeroed parameters, live handles; a message without data that ends inside of the call.
        unsafe {
            let param: ucp_request_param_t = std::mem::zeroed();
            let sent = tag::ucp_tag_send_nbx(scene.to_victim, ptr::null(), 0, 5, &param);
            assert!(sent.is_null());
            worker::ucp_worker_progress(scene.decent);
            let got = tag::ucp_tag_recv_nbx(scene.victim, ptr::null_mut(), 0, 5, u64::MAX, &param);
            assert_eq!(scene.end("the message", got), UCS_OK);
        }
    }
    assert_eq!(OFFERS.get() - before, 0);
}

/// Who waits hears of a new connection, also if the clock hardly ever ticks but while others have the core.
#[test]
fn who_offers_its_core_still_looks_who_comes() {
    let scene = Scene::new(&options(c"tcp"));
    OTHERS.set(Others::HaveUntilTick);
    assert!(offers_in(&scene, 5000, Duration::ZERO) > 0);
    // SAFETY: zeroed parameters, live handles; messages without data.
    unsafe {
        let param: ucp_request_param_t = std::mem::zeroed();
        let sent = tag::ucp_tag_send_nbx(scene.to_victim, ptr::null(), 0, 5, &param);
        let (mut info, mut rounds) = (std::mem::zeroed(), 0);
        while tag::ucp_tag_probe_nb(scene.victim, 5, u64::MAX, 0, &mut info).is_null() {
            rounds += 1;
            assert!(rounds <= 10, "nobody has looked");
            OTHERS.set(Others::HaveUntilTick);
            offers_in(&scene, 300, Duration::ZERO);
            OTHERS.set(Others::None);
            worker::ucp_worker_progress(scene.decent);
        }
        assert_eq!(scene.end("the message", sent), UCS_OK);
    }
}

#[test]
fn who_comes_by_now_and_then_has_something_else_to_do() {
    assert_eq!(offers_in(&over_memory(), 300, Duration::from_millis(1)), 0);
}
