//! Completions that the progress thread counts, and that sending threads rely on.

use super::super::model::Passed;
use super::super::op_queue::{Completion, OpQueue, QueueEvent};
use super::super::sender::MAX_UNACKED;
use super::*;
use crate::sys::lock::MtLock;
use crate::sys::sync::Ordering;
use crate::tl::Token;
use crate::wire::packet_hdr::HEAD;
use loom::thread::JoinHandle;

const LEN: usize = 32;

/// A worker with VCQs that threads share, the sender to a peer, and registered memory of the peer.
struct Scene {
    own: Arc<TofuIface>,
    // Keeps the peer's VCQs open.
    _peer: Arc<TofuIface>,
    flow: Arc<TxAcks>,
    tx: TofuSender,
    there: VcqRegion,
    /// Registered memory of this worker.
    here: VcqRegion,
}

fn scene(queues: usize) -> Scene {
    let (own, peer) = (iface(queues, true), iface(queues, true));
    let flow = Arc::default();
    let ring = inbound(&peer, narrow(3));
    Scene {
        tx: sender(&own, &flow, &ctrl_word(&own), &peer, &ring),
        there: memory(&peer),
        here: memory(&own),
        _peer: peer,
        flow,
        own,
    }
}

impl Scene {
    fn write(&mut self) -> bool {
        self.tx.write(self.there.stadd, LEN, |_, _| ()) == LEN
    }

    fn read(&mut self) -> bool {
        let into = self.here.ptr();
        self.tx.read(self.there.stadd, into, LEN, Token::new(into)) == LEN
    }

    fn read_by_rail(&mut self) -> bool {
        let into = self.here.stadd;
        let request = Token::new(self.here.ptr());
        (self.tx).read_by_rail(0, self.there.stadd, (into, LEN), request) == LEN
    }
}

/// The TNI and a progress thread for one VCQ: executes `posts` posts at a time, and handles the event of the last one.
fn progress(queue: &MtLock<OpQueue>, flow: &TxAcks, posts: &[u32]) {
    for &posts in posts {
        complete_posts(queue, flow, posts);
    }
}

/// Executes `posts` posts and handles the event of the last one. True: a flush may wait for it.
fn complete_posts(queue: &MtLock<OpQueue>, flow: &TxAcks, posts: u32) -> bool {
    let vcq = queue.lock().vcq.id;
    (0..posts).for_each(|_| Adapter::of(vcq).work_next());
    let event = queue.lock().poll();
    match event {
        Some(QueueEvent::Ended {
            owner: Completion::Flush(0),
            ..
        }) => {
            flow.complete();
            true
        }
        Some(QueueEvent::Completed { conn: 0, .. }) => flow.read_done(),
        other => panic!("{other:?}"),
    }
}

fn progress_first(scene: &Scene, posts: &'static [u32]) -> JoinHandle<Passed<()>> {
    let (own, flow) = (scene.own.clone(), scene.flow.clone());
    spawn(move || progress(&own.queue, &flow, posts))
}

fn progress_rail(scene: &Scene, posts: &'static [u32]) -> JoinHandle<Passed<()>> {
    let (own, flow) = (scene.own.clone(), scene.flow.clone());
    spawn(move || progress(&own.rails[0].queue, &flow, posts))
}

/// A thread that has seen a flush complete may have another process read what was written.
#[test]
fn loom_flushed_data_are_visible() {
    explore(2, || {
        let mut scene = scene(1);
        assert!(scene.write());
        let progress = progress_first(&scene, &[2]);
        wait(|| scene.tx.drain());
        dma_mem::reads(scene.there.ptr(), LEN);
        progress.join().unwrap();
    });
}

/// A thread that has seen all reads complete uses their data.
#[test]
fn loom_read_data_are_visible() {
    explore(2, || {
        let mut scene = scene(1);
        assert!(scene.read());
        let progress = progress_first(&scene, &[1]);
        wait(|| scene.tx.is_drained());
        dma_mem::reads(scene.here.ptr(), LEN);
        progress.join().unwrap();
    });
}

/// After a fence no VCQ reads what is not written yet.
#[test]
fn loom_a_fence_keeps_reads_behind_writes() {
    explore(2, || {
        let mut scene = scene(2);
        Adapter::of(scene.own.rails[0].vcq.id).be_prompt();
        assert!(scene.write());
        scene.tx.fence();
        let progress = progress_first(&scene, &[2]);
        wait(|| scene.read_by_rail());
        progress.join().unwrap();
    });
}

/// After a fence no VCQ overwrites what is still to be read.
#[test]
fn loom_a_fence_keeps_writes_behind_reads() {
    explore(2, || {
        let mut scene = scene(2);
        assert!(scene.read_by_rail());
        scene.tx.fence();
        adapter(&scene.own).be_prompt();
        let progress = progress_rail(&scene, &[1]);
        wait(|| scene.write());
        progress.join().unwrap();
    });
}

/// The next flush request is posted after the reply to the one before.
#[test]
fn loom_one_question_at_a_time() {
    explore(2, || {
        let mut scene = scene(1);
        let progress = progress_first(&scene, &[1, 1]);
        wait(|| {
            scene.tx.probe();
            adapter(&scene.own).posted() == 2
        });
        progress.join().unwrap();
    });
}

/// A flush marker completes exactly once, whether its operations complete before or after it is listed; or the flush
/// completes at once.
#[test]
fn loom_marked_owners_are_completed() {
    // A put with its flush request; a read, whose notice completes it.
    for (reads, posts) in [(false, 2), (true, 1)] {
        explore(2, move || {
            let mut scene = scene(1);
            assert!(if reads { scene.read() } else { scene.write() });
            let owner = Token::new(scene.here.ptr());
            let (own, flow) = (scene.own.clone(), scene.flow.clone());
            let tx = Arc::new((MtLock::new(true, scene.tx), MtLock::new(true, 0)));
            let progress = {
                let tx = tx.clone();
                spawn(move || {
                    if complete_posts(&own.queue, &flow, posts) {
                        while tx.0.lock().next_flushed().is_some() {
                            *tx.1.lock() += 1;
                        }
                    }
                })
            };
            let marked = tx.0.lock().flush_marker(owner);
            assert!(marked || reads && tx.0.lock().is_drained());
            progress.join().unwrap();
            assert_eq!(*tx.1.lock(), u32::from(marked));
        });
    }
}

/// A connection with a partly sent record is continued.
#[test]
fn loom_nothing_is_left_unfinished() {
    explore(3, || {
        let own = iface(1, true);
        let other = {
            let own = own.clone();
            spawn(move || (1..3).for_each(|conn| own.leave_unfinished(conn)))
        };
        let mut found = Vec::new();
        wait(|| {
            if own.has_unfinished() {
                found.extend(own.take_unfinished());
            }
            found == [1, 2]
        });
        other.join().unwrap();
    });
}

const FRAME: usize = PACKET as usize - HEAD;

/// Runs a test of one thread, with a TNI that executes nothing.
fn alone(test: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.max_branches = 100_000;
    model.check(move || {
        dma_mem::fresh();
        test();
    });
}

/// A sender that has reported room sends, however many of the allowed posts the rest of a record takes before.
#[test]
fn loom_posts_with_room_are_accepted() {
    // Of a record of four frames three fit the ring; the last one is sent after the reader's credit.
    for before in MAX_UNACKED - 6..MAX_UNACKED {
        alone(move || {
            let (own, peer) = (iface(1, false), iface(1, false));
            let mut ring = inbound(&peer, narrow(3));
            let (ctrl_word, there) = (ctrl_word(&own), memory(&peer));
            let mut tx = sender(&own, &Arc::default(), &ctrl_word, &peer, &ring);
            for _ in 0..before {
                assert_eq!(tx.write(there.stadd, LEN, |_, _| ()), LEN);
            }
            assert!(tx.send(1, 0, 0, 4 * FRAME, |_| ()));
            (0..3).for_each(|_| ring.advance(PACKET as usize));
            // SAFETY: the credit word of the sender's control words.
            let word = unsafe { dma_mem::word_at(ctrl_word.stadd() as *mut u8) };
            word.store(ring.send_credit(), Ordering::Relaxed);
            let has_room = tx.has_room(FRAME);
            assert_eq!(tx.send(1, 0, 0, FRAME, |_| ()), has_room, "{before}");
        });
    }
}

/// Other connections of the worker do not take the buffers.
#[test]
fn loom_posts_with_room_have_buffers() {
    alone(|| {
        let (own, peer) = (iface(1, false), iface(1, false));
        let ring = inbound(&peer, narrow(3));
        let mut tx = sender(&own, &Arc::default(), &ctrl_word(&own), &peer, &ring);
        assert!(tx.has_room(FRAME));
        while own.queue.lock().has_buffers(1) {
            own.queue.lock().take_buffer(1);
        }
        assert!(tx.send(1, 0, 0, FRAME, |_| ()));
        assert!(!tx.has_room(FRAME));
        assert!(tx.send(1, 0, 0, 1, |_| ()), "a short one needs none");
    });
}

/// A flush waits for the reads before it, also where a later read completes first.
#[test]
fn loom_later_reads_do_not_end_a_flush() {
    alone(|| {
        let mut scene = scene(2);
        let here: *mut u8 = scene.here.ptr().cast();
        let owner = Token::new(here);
        assert!(scene.read());
        assert!(scene.tx.flush_marker(owner));
        assert!(scene.read_by_rail() && scene.read_by_rail());
        let second = Token::new(here.wrapping_add(1));
        assert!(scene.tx.flush_marker(second));
        assert!(complete_posts(&scene.own.rails[0].queue, &scene.flow, 1));
        assert_eq!(scene.tx.next_flushed(), None);
        assert!(complete_posts(&scene.own.queue, &scene.flow, 1));
        assert_eq!(scene.tx.next_flushed(), Some(owner));
        assert_eq!(scene.tx.next_flushed(), None);
        assert!(complete_posts(&scene.own.rails[0].queue, &scene.flow, 1));
        assert_eq!(scene.tx.next_flushed(), Some(second));
        assert_eq!(scene.tx.next_flushed(), None);
    });
}
