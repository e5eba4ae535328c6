//! A ticket queue under loom: peers' TNIs put ring requests, and the owner's TNI counts the served slots.

use super::*;
use crate::tl::tofu::model::{self, Adapter, explore, spawn};
use crate::tl::tofu::op_queue::QueueEvent;

fn request(n: u8) -> [u8; TICKET_SLOT_BYTES] {
    [n + 1; TICKET_SLOT_BYTES]
}

/// The next ring request is put into a slot after the one before was read there.
#[test]
fn loom_a_place_is_served_when_it_was_read() {
    explore(3, || {
        let mut rings = TofuWorker::<u32>::new(model::iface(1, false), 0, 0);
        let (vcq, ticket_queue) = (rings.iface.vcq.id, rings.iface.ticket_queue.stadd);
        let at = ticket_queue + slot_at(0) as u64;
        dma_mem::watch(at as *const u8, TICKET_SLOT_BYTES);
        assert_eq!(TicketWord::read(rings.iface.ticket_word()).served, 0);
        let network = spawn(move || {
            Adapter::of(vcq).receive(at, &request(0));
            Adapter::of(vcq).work_next();
            Adapter::of(vcq).receive(at, &request(1));
        });
        for n in 0..2 {
            let queue = &rings.iface.queue;
            while !matches!(queue.lock().poll(), Some(QueueEvent::Arrived(_))) {
                loom::thread::yield_now();
            }
            assert_eq!(take(&rings, 0), request(n));
            serve(&mut rings, 0);
        }
        network.join().unwrap();
        assert_eq!(TicketWord::read(rings.iface.ticket_word()).served, 1);
    });
}
