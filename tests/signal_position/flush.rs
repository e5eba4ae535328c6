//! Flushes and fences end when the target's position says so, and the answers of a worker that sleeps do the same.

use crate::exposed::{Exposed, SHM, close_by_force, flush, is_pending};
use crate::support::scene::Scene;
use ucp::abi::{rma, wakeup, worker};
use ucp::ctypes::*;

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
