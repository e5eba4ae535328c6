//! An idle worker yields its core, and only an idle one.

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

/// What other processes do with a yielded core.
#[derive(Clone, Copy)]
enum Others {
    /// There are none.
    None,
    Have(Duration),
    /// They use it until the kernel's clock ticks, like a process that computes.
    HaveUntilTick,
}

thread_local! {
    static YIELDS: Cell<u32> = const { Cell::new(0) };
    static OTHERS: Cell<Others> = const { Cell::new(Others::None) };
}

/// Replaces libc's function, for the whole program.
#[unsafe(no_mangle)]
extern "C" fn sched_yield() -> c_int {
    YIELDS.set(YIELDS.get() + 1);
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

/// Yields while the victim is polled this many times; each call lasts at least `pause`.
fn yields_in(scene: &Scene, calls: u32, pause: Duration) -> u32 {
    let before = YIELDS.get();
    for _ in 0..calls {
        if !pause.is_zero() {
            thread::sleep(pause);
        }
        // SAFETY: a live worker.
        unsafe { worker::ucp_worker_progress(scene.victim) };
    }
    YIELDS.get() - before
}

/// Whether there is a yield in 5000 calls, in one of 20 attempts without a long pause: after a call that lasted
/// milliseconds the clock is read more often for a while, and nothing else.
fn yields_soon(scene: &Scene) -> bool {
    (0..20).any(|_| yields_in(scene, 5000, Duration::ZERO) > 0)
}

fn idle_yields(scene: &Scene) {
    OTHERS.set(SHORTLY);
    assert_eq!(yields_in(scene, 900, Duration::ZERO), 0, "too soon");
    assert!(yields_soon(scene), "no yield");
    let taken = yields_in(scene, 25_600, Duration::ZERO);
    assert!(taken > 50, "{taken} yields, all of them used");
    OTHERS.set(Others::None);
    let vain = yields_in(scene, 64_000, Duration::ZERO);
    assert!(vain < 500, "{vain} yields, none of them used");
}

#[test]
fn an_idle_worker_yields_and_often_where_others_use_the_core() {
    idle_yields(&over_memory());
}

#[test]
fn so_does_one_that_threads_share() {
    idle_yields(&connected(Scene::shared(&options(c"shm"))));
}

#[test]
fn so_does_one_that_has_connections() {
    idle_yields(&connected(Scene::new(&options(c"tcp"))));
}

#[test]
fn an_expected_message_is_waited_for_on_the_core() {
    let scene = over_memory();
    OTHERS.set(SHORTLY);
    for _ in 0..20 {
        assert_eq!(yields_in(&scene, 700, Duration::ZERO), 0);
        scene.decent_goes_on(8);
    }
}

/// A worker with work to do is not idle, even if it receives nothing.
#[test]
fn a_sending_worker_keeps_its_core() {
    let scene = over_memory();
    OTHERS.set(SHORTLY);
    yields_in(&scene, 10_000, Duration::ZERO);
    let before = YIELDS.get();
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
    assert_eq!(YIELDS.get() - before, 0);
}

/// A waiting worker detects a new connection, also if the clock hardly ever ticks except while others use the core.
#[test]
fn a_yielding_worker_detects_new_connections() {
    let scene = Scene::new(&options(c"tcp"));
    OTHERS.set(Others::HaveUntilTick);
    assert!(yields_in(&scene, 5000, Duration::ZERO) > 0);
    // SAFETY: zeroed parameters, live handles; messages without data.
    unsafe {
        let param: ucp_request_param_t = std::mem::zeroed();
        let sent = tag::ucp_tag_send_nbx(scene.to_victim, ptr::null(), 0, 5, &param);
        let (mut info, mut rounds) = (std::mem::zeroed(), 0);
        while tag::ucp_tag_probe_nb(scene.victim, 5, u64::MAX, 0, &mut info).is_null() {
            rounds += 1;
            assert!(rounds <= 10, "no progress");
            OTHERS.set(Others::HaveUntilTick);
            yields_in(&scene, 300, Duration::ZERO);
            OTHERS.set(Others::None);
            worker::ucp_worker_progress(scene.decent);
        }
        assert_eq!(scene.end("the message", sent), UCS_OK);
    }
}

#[test]
fn a_worker_polled_rarely_does_not_yield() {
    assert_eq!(yields_in(&over_memory(), 300, Duration::from_millis(1)), 0);
}
