//! Memory of a worker that TNIs write and read: rings, control words, buffers.

use super::super::op_queue::{ErrSource, QueueEvent};
use super::super::utofu::{MrqNotice, OpFlags, SUCCESS};
use super::super::vcq::RemoteAddr;
use super::*;
use crate::sys::sync::Ordering;
use crate::tl::Token;
use crate::wire::packet_hdr::{HEAD, PacketHdr};
use crate::wire::tofu_msg::{GRANT_AT, Grant, LEFT, LEFT_AT};

const LEN: usize = 16;

fn byte(n: u64) -> u8 {
    n as u8 + 1
}

/// The n-th frame of a ring, as the writer's TNI puts it.
fn frame(n: u64) -> Vec<u8> {
    let head = PacketHdr {
        len: LEN,
        kind: 1,
        aux: 0,
        credit: n as u16,
        imm: n,
    };
    [&head.encode()[..], &[byte(n); LEN]].concat()
}

/// Takes the n-th frame, if it has arrived.
fn take(ring: &mut RxRing, n: u64) -> bool {
    let Some((head, bytes)) = ring.peek().expect("a frame") else {
        return false;
    };
    assert_eq!((head.imm, bytes), (n, &[byte(n); LEN][..]));
    let len = HEAD + bytes.len();
    ring.advance(len);
    true
}

/// Polls by the call of the fast path.
fn poll_notice(own: &TofuIface) -> bool {
    let mut notice = MrqNotice::NONE;
    // SAFETY: the worker's VCQ, which only this thread uses.
    unsafe { own.vcq.vcq_ops().poll_mrq(&mut notice) == SUCCESS }
}

/// Polls by the call of all other paths.
fn has_arrived(own: &TofuIface) -> bool {
    matches!(own.queue.lock().poll(), Some(QueueEvent::Arrived(_)))
}

/// The writer's TNI overwrites the first frame by a second one as soon as it has the credit for the first.
fn frames_are_read_between_notice_and_credit(is_there: fn(&TofuIface) -> bool) {
    explore(3, move || {
        let own = iface(1, false);
        let mut ring = inbound(&own, narrow(1));
        let (ctrl_word, at) = (ctrl_word(&own), ring.stadd());
        let network = {
            let own = own.clone();
            spawn(move || {
                adapter(&own).receive(at, &frame(0));
                adapter(&own).work_next();
                adapter(&own).receive(at, &frame(1));
            })
        };
        for n in 0..2 {
            wait(|| is_there(&own));
            ring.note();
            assert!(take(&mut ring, n));
            assert!(ring.is_due(), "a quarter of the ring");
            let word = ring.send_credit();
            let to = RemoteAddr {
                vcq: own.vcq.id,
                stadd: ctrl_word.stadd(),
            };
            assert_eq!(own.queue.lock().put_word(TAG, word, to, None), Ok(true));
        }
        network.join().unwrap();
    });
}

#[test]
fn loom_frames_are_read_between_notice_and_credit() {
    frames_are_read_between_notice_and_credit(has_arrived);
}

#[test]
fn loom_frames_are_read_between_notice_and_credit_on_the_fast_path() {
    frames_are_read_between_notice_and_credit(poll_notice);
}

/// The sender posts nothing for a place that the reader may still read. The fourth frame lies where the first one did.
#[test]
fn loom_a_frame_is_written_behind_its_credit() {
    const LEN: usize = PACKET as usize - HEAD;
    explore(3, || {
        let (own, peer) = (iface(1, false), iface(1, false));
        let mut ring = inbound(&peer, narrow(3));
        let ctrl_word = ctrl_word(&own);
        let mut tx = sender(&own, &Arc::default(), &ctrl_word, &peer, &ring);
        adapter(&own).be_prompt();
        let mut send = move |n| tx.send(1, 0, n, LEN, |_| ());
        assert!((0..3).all(&mut send));
        let reader = spawn(move || {
            assert!(has_arrived(&peer));
            ring.note();
            let (_, bytes) = ring.peek().expect("a frame").expect("notified");
            let len = HEAD + bytes.len();
            ring.advance(len);
            assert!(ring.is_due(), "a quarter of the ring");
            let word = ring.send_credit();
            // SAFETY: the credit word of the sender's control words. Release: as the peer's TNI writes it, after the
            // reads of what it frees.
            unsafe { dma_mem::word_at(ctrl_word.stadd() as *mut u8) }
                .store(word, Ordering::Release);
            (ring, peer)
        });
        wait(|| send(3));
        // Keeps the ring until the sender has finished.
        drop(reader.join().unwrap());
    });
}

#[test]
fn loom_counted_frames_are_read_behind_their_count() {
    explore(3, || {
        let (own, peer) = (iface(1, false), iface(1, false));
        let mut ring = inbound(&own, wide());
        let mut tx = sender(&peer, &Arc::default(), &ctrl_word(&peer), &own, &ring);
        adapter(&peer).be_prompt();
        let writer = spawn(move || {
            for n in 0..2 {
                // SAFETY: the frame has room for `LEN` bytes.
                let fill = |to: *mut u8| unsafe { to.write_bytes(byte(n), LEN) };
                assert!(tx.send(1, 0, n, LEN, fill));
            }
        });
        for n in 0..2 {
            wait(|| {
                ring.scan();
                take(&mut ring, n)
            });
        }
        writer.join().unwrap();
    });
}

#[test]
fn loom_a_notice_follows_the_control_words() {
    let grant = Grant {
        ring: 1,
        proof: 2,
        size: 3,
        packet: 4,
        window: 5,
        flags: 6,
        refusal: 7,
    };
    explore(3, move || {
        let own = iface(1, false);
        let ctrl_word = ctrl_word(&own);
        let at = ctrl_word.stadd();
        let network = {
            let own = own.clone();
            spawn(move || {
                adapter(&own).receive(at + GRANT_AT as u64, &grant.encode());
                adapter(&own).receive(at + LEFT_AT as u64, &(LEFT | 2).to_ne_bytes());
            })
        };
        wait(|| has_arrived(&own));
        assert_eq!(ctrl_word.grant(), Some(grant));
        wait(|| has_arrived(&own));
        assert!(ctrl_word.has_left(2));
        network.join().unwrap();
    });
}

/// The TNI has read a buffer before this thread writes it again.
#[test]
fn loom_a_buffer_is_free_when_it_has_been_read() {
    explore(3, || {
        let own = iface(1, false);
        let to = RemoteAddr {
            vcq: own.vcq.id,
            stadd: own.ticket_queue.stadd,
        };
        let at = first_buffer(&own);
        let network = {
            let own = own.clone();
            spawn(move || {
                adapter(&own).work_next();
                adapter(&own).work_next();
            })
        };
        for _ in 0..2 {
            wait(|| {
                own.queue.lock().poll_tcq();
                !own.queue.lock().is_sending()
            });
            let (buffer, ptr) = own.queue.lock().take_buffer(0).expect("one is free");
            assert_eq!(ptr, at);
            dma_mem::writes(ptr, LEN);
            let sent = (own.queue.lock()).send(TAG, buffer, LEN, to, OpFlags::REMOTE_MRQ_NOTICE);
            assert_eq!(sent, Ok(()));
        }
        network.join().unwrap();
    });
}

/// The buffer that is taken next; loom watches it from now on.
fn first_buffer(own: &TofuIface) -> *mut u8 {
    let mut queue = own.queue.lock();
    let (buffer, ptr) = queue.take_buffer(0).expect("all are free");
    queue.give_back(buffer);
    dma_mem::watch(ptr, LEN);
    ptr
}

/// Data that the TNI has read into a buffer are copied out before the next get into it.
#[test]
fn loom_a_buffer_is_read_between_two_gets() {
    explore(3, || {
        let own = iface(1, false);
        let from = RemoteAddr {
            vcq: own.vcq.id,
            stadd: own.ticket_queue.stadd,
        };
        first_buffer(&own);
        let network = {
            let own = own.clone();
            spawn(move || {
                adapter(&own).work_next();
                adapter(&own).work_next();
            })
        };
        let mut into = [0; LEN];
        for _ in 0..2 {
            let request = into.as_mut_ptr();
            let read = (own.queue.lock()).read(0, from, (request, LEN), Token::new(request));
            assert_eq!(read, Ok(true));
            wait(|| {
                matches!(
                    own.queue.lock().poll(),
                    Some(QueueEvent::Completed { well: true, .. })
                )
            });
        }
        network.join().unwrap();
    });
}

/// An error without a notice is of no operation; where no notice comes any more, the MRQ has failed.
#[test]
fn loom_errors_without_notice_are_of_no_operation() {
    const FATAL: i32 = -768;
    explore(0, || {
        let own = iface(1, false);
        let mut queue = own.queue.lock();
        for _ in 0..1000 {
            let event = queue.event(FATAL, &MrqNotice::NONE);
            let source = ErrSource::Unknown;
            assert!(matches!(event, Some(QueueEvent::Failed { source: of, .. }) if of == source));
        }
        let event = queue.event(FATAL, &MrqNotice::NONE);
        assert!(matches!(event, Some(QueueEvent::MrqFailed { code: FATAL })));
    });
}
