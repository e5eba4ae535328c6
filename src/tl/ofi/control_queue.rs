//! Packets of the transport's own, by which connections are opened, checked and ended, that wait for room.
#![forbid(unsafe_code)]

use super::tx_link::OfiTxLink;
use std::sync::Arc;

/// A packet that waits for room.
struct QueuedPacket {
    link: Arc<OfiTxLink>,
    packet: Vec<u8>,
    /// Coarse milliseconds.
    since: u64,
}

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
    fn late_packets_of_connections_that_need_them_not_are_dropped() {
        let (mut queue, [first, second, third]) = queue([1, 2, 3]);
        let late = queue.forget_late(2, |link| link.conn == 1);
        assert!(late.len() == 1 && Arc::ptr_eq(&late[0], &second));
        assert!(queue.has(&first) && !queue.has(&second) && queue.has(&third));
        queue.forget(&third);
        assert!(queue.has(&first) && !queue.has(&third));
    }
}
