//! A worker that is polled in vain offers its core to others, and only then.

mod support;

use std::cell::Cell;
use std::ffi::{CStr, c_int};
use std::thread;
use std::time::{Duration, Instant};
use support::scene::Scene;
use ucp::abi::worker;

thread_local! {
    static OFFERS: Cell<u32> = const { Cell::new(0) };
    /// How long others have the core that this thread offers.
    static OTHERS: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// In the place of libc's, for the whole program.
#[unsafe(no_mangle)]
extern "C" fn sched_yield() -> c_int {
    OFFERS.set(OFFERS.get() + 1);
    let began = Instant::now();
    while began.elapsed() < OTHERS.get() {
        std::hint::spin_loop();
    }
    0
}

fn scene() -> Scene {
    let options: [(&CStr, &CStr); 2] = [(c"TLS", c"shm"), (c"LOG_LEVEL", c"error")];
    let scene = Scene::new(&options);
    scene.decent_goes_on(1);
    scene.settle();
    OFFERS.set(0);
    scene
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

#[test]
fn who_polls_in_vain_offers_its_core_and_often_where_others_take_it() {
    let scene = scene();
    assert_eq!(offers_in(&scene, 1000, Duration::ZERO), 0, "too soon");
    OTHERS.set(Duration::from_micros(50));
    assert!(offers_in(&scene, 2000, Duration::ZERO) > 0);
    let taken = offers_in(&scene, 25_600, Duration::ZERO);
    assert!(taken > 50, "{taken} offers, and each was taken");
    OTHERS.set(Duration::ZERO);
    let vain = offers_in(&scene, 64_000, Duration::ZERO);
    assert!(vain < 500, "{vain} offers that nobody took");
}

#[test]
fn what_comes_is_waited_for_on_the_core() {
    let scene = scene();
    OTHERS.set(Duration::from_micros(50));
    for _ in 0..20 {
        assert_eq!(offers_in(&scene, 900, Duration::ZERO), 0);
        scene.decent_goes_on(8);
    }
}

#[test]
fn who_comes_by_now_and_then_has_something_else_to_do() {
    let scene = scene();
    assert_eq!(offers_in(&scene, 200, Duration::from_millis(1)), 0);
}
