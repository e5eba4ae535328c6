//! Packets of the transport's own, by which connections are opened, checked and ended, that wait for room.
#![forbid(unsafe_code)]

use super::iface::OfiIface;
use super::tx_link::OfiTxLink;
use crate::sys::clock;
use std::sync::Arc;

/// A packet that waits for room.
struct QueuedPacket {
    link: Arc<OfiTxLink>,
    packet: Vec<u8>,
    /// Coarse milliseconds.
    since: u64,
}

/// Time for which a packet is tried again at each progress, milliseconds. Then there is no room for long, as for a peer
/// on a host that does not answer, and each try costs a call of the provider, which connects.
const EAGER_MS: u64 = 20;

/// The packets of an interface, in the order in which they were queued.
#[derive(Default)]
pub struct ControlQueue(Vec<QueuedPacket>);

impl ControlQueue {
    /// A packet of a connection, by its sending half, waits since `since`, coarse milliseconds.
    pub fn add(&mut self, link: &Arc<OfiTxLink>, packet: Vec<u8>, since: u64) {
        let link = link.clone();
        self.0.push(QueuedPacket {
            link,
            packet,
            since,
        });
    }

    /// Whether no packet waits.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether packets of a connection wait.
    pub fn has(&self, link: &Arc<OfiTxLink>) -> bool {
        self.0.iter().any(|queued| Arc::ptr_eq(&queued.link, link))
    }

    /// Drops the packets of a connection.
    pub fn forget(&mut self, link: &Arc<OfiTxLink>) {
        self.0.retain(|queued| !Arc::ptr_eq(&queued.link, link));
    }

    /// Drops all packets.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Sends the packets by `send`, which returns whether there was room.
    pub fn flush(&mut self, mut send: impl FnMut(&[u8], &Arc<OfiTxLink>) -> bool) {
        self.0.retain(|queued| !send(&queued.packet, &queued.link));
    }

    /// Sends the packets that do not wait for long, at `now`, coarse milliseconds: see [`flush`](Self::flush).
    pub fn flush_recent(&mut self, now: u64, mut send: impl FnMut(&[u8], &Arc<OfiTxLink>) -> bool) {
        let is_recent = |queued: &QueuedPacket| now < queued.since.saturating_add(EAGER_MS);
        self.0
            .retain(|queued| !(is_recent(queued) && send(&queued.packet, &queued.link)));
    }

    /// Drops the packets that wait since `before` or longer, coarse milliseconds, unless `is_needed` keeps those of
    /// their connection. Returns the connections.
    pub fn forget_late(
        &mut self,
        before: u64,
        is_needed: impl Fn(&Arc<OfiTxLink>) -> bool,
    ) -> Vec<Arc<OfiTxLink>> {
        let late = |queued: &mut QueuedPacket| queued.since <= before && !is_needed(&queued.link);
        let late = self.0.extract_if(.., late);
        late.map(|queued| queued.link).collect()
    }
}

impl<P: Copy + Eq> OfiIface<P> {
    /// Sends a packet of the transport's own, now or when there is room.
    pub fn send_control(&mut self, link: &Arc<OfiTxLink>, packet: Vec<u8>) {
        if self.ep.send(&packet, link).is_err() {
            self.control.add(link, packet, clock::coarse_ms());
            self.is_busy = true;
        }
    }

    /// Sends a probe, unless packets to the peer wait for room: the caller sends one again later.
    pub fn send_probe(&mut self, link: &Arc<OfiTxLink>, packet: Vec<u8>) {
        if !self.control.has(link) {
            self.send_control(link, packet);
        }
    }

    /// Sends the packets of the transport's own that wait for room.
    pub fn flush_control(&mut self) {
        let ep = &self.ep;
        self.control
            .flush(|packet, link| ep.send(packet, link).is_ok());
    }

    /// Sends those of them that do not wait for long. Called by each progress; a clock tick sends the others.
    pub fn flush_recent_control(&mut self) {
        if self.control.is_empty() {
            return;
        }
        let ep = &self.ep;
        let send = |packet: &[u8], link: &Arc<OfiTxLink>| ep.send(packet, link).is_ok();
        self.control.flush_recent(clock::coarse_ms(), send);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A queue with a packet of each connection, which waits since its number.
    fn queue(numbers: [u32; 3]) -> (ControlQueue, [Arc<OfiTxLink>; 3]) {
        let mut queue = ControlQueue::default();
        let links = numbers.map(|conn| Arc::new(OfiTxLink::new(conn, 0, 0, None)));
        for link in &links {
            queue.add(link, vec![link.conn as u8], link.conn.into());
        }
        (queue, links)
    }

    #[test]
    fn packets_without_room_stay_in_order() {
        let (mut queue, [first, second, third]) = queue([1, 2, 3]);
        queue.flush(|packet, link| packet == [2] && Arc::ptr_eq(link, &second));
        assert!(queue.has(&first) && !queue.has(&second) && queue.has(&third));
        let mut sent = Vec::new();
        queue.flush(|packet, _| {
            sent.extend_from_slice(packet);
            true
        });
        assert!(sent == [1, 3] && queue.is_empty());
    }

    #[test]
    fn packets_that_wait_for_long_are_not_tried_at_each_progress() {
        let (mut queue, [first, second, third]) = queue([1, 2, 3]);
        let mut tried = Vec::new();
        queue.flush_recent(EAGER_MS + 2, |packet, _| {
            tried.extend_from_slice(packet);
            true
        });
        assert_eq!(tried, [3]);
        assert!(queue.has(&first) && queue.has(&second) && !queue.has(&third));
    }

    #[test]
    fn late_packets_of_connections_that_need_them_not_are_dropped() {
        let (mut queue, [first, second, third]) = queue([1, 2, 3]);
        let late = queue.forget_late(2, |link| link.conn == 1);
        assert!(late.len() == 1 && Arc::ptr_eq(&late[0], &second));
        assert!(queue.has(&first) && !queue.has(&second) && queue.has(&third));
        queue.forget(&third);
        assert!(queue.has(&first) && !queue.has(&third));
    }
}
