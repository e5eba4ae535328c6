//! Packets of a sender that the peer has not acknowledged.
#![forbid(unsafe_code)]

use std::collections::VecDeque;

/// Packets to one peer that are kept, at most.
const MAX_KEPT: usize = 64;

/// Whether the connection carries packets now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReplayState {
    Open,
    /// The connection has failed, and moves to another interface.
    Moving,
}

/// The packets that the peer has not acknowledged, in the order of their numbers, which are modulo 2^32. Each has its
/// frame and its record, without the header of the packet.
#[derive(Debug)]
pub struct ReplayQueue {
    /// Number of the first packet.
    first: u32,
    packets: VecDeque<Box<[u8]>>,
    /// How many of them were posted on the connection.
    posted: usize,
    state: ReplayState,
}

impl ReplayQueue {
    /// Without a packet; `next` is the number of the first one.
    pub fn new(next: u32) -> ReplayQueue {
        ReplayQueue {
            first: next,
            packets: VecDeque::new(),
            posted: 0,
            state: ReplayState::Open,
        }
    }

    /// Whether a packet can be added, and posted.
    pub fn has_room(&self) -> bool {
        self.state == ReplayState::Open && self.packets.len() < MAX_KEPT
    }

    /// Whether the connection has failed, and moves to another interface.
    pub fn is_moving(&self) -> bool {
        self.state == ReplayState::Moving
    }

    /// Whether the peer has acknowledged every packet.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Number of the first packet that was posted, and that the peer has not acknowledged.
    pub fn unacknowledged(&self) -> Option<u32> {
        (self.state == ReplayState::Open && self.posted > 0).then_some(self.first)
    }

    /// Adds the next packet, which is to be posted.
    pub fn keep(&mut self, packet: Box<[u8]>) {
        self.packets.push_back(packet);
    }

    /// The first packet that was not posted on the connection, and its number. `None`: all were, or the connection
    /// moves.
    pub fn next_unposted(&self) -> Option<(u32, &[u8])> {
        let packet = self.packets.get(self.posted)?;
        let number = self.first.wrapping_add(self.posted as u32);
        (self.state == ReplayState::Open).then_some((number, packet))
    }

    /// That packet was posted.
    pub fn set_posted(&mut self) {
        self.posted += 1;
    }

    /// Whether every packet was posted on a connection that carries packets.
    pub fn is_posted(&self) -> bool {
        self.state == ReplayState::Open && self.posted == self.packets.len()
    }

    /// The peer has received the packets before `next`. A number of packets that were not posted is ignored.
    pub fn acknowledge(&mut self, next: u32) {
        let count = next.wrapping_sub(self.first) as usize;
        if count <= self.posted {
            self.packets.drain(..count);
            self.posted -= count;
            self.first = next;
        }
    }

    /// The connection has failed: nothing is posted until [`resume`](Self::resume).
    pub fn pause(&mut self) {
        self.state = ReplayState::Moving;
    }

    /// The connection goes on by another interface, where the peer expects the packet `next`: those from it on are to
    /// be posted again. False: there is no such packet.
    pub fn resume(&mut self, next: u32) -> bool {
        let count = next.wrapping_sub(self.first) as usize;
        if count > self.packets.len() {
            return false;
        }
        self.packets.drain(..count);
        (self.first, self.posted) = (next, 0);
        self.state = ReplayState::Open;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn post_all(queue: &mut ReplayQueue) -> Vec<(u32, Box<[u8]>)> {
        let mut posted = Vec::new();
        while let Some((number, packet)) = queue.next_unposted() {
            posted.push((number, packet.into()));
            queue.set_posted();
        }
        posted
    }

    fn numbers(posted: Vec<(u32, Box<[u8]>)>) -> Vec<u32> {
        posted.into_iter().map(|(number, _)| number).collect()
    }

    #[test]
    fn packets_are_posted_again_from_the_one_that_the_peer_expects() {
        let first = u32::MAX - 1;
        let mut queue = ReplayQueue::new(first);
        for byte in 0..5 {
            queue.keep(Box::new([byte]));
        }
        let posted = post_all(&mut queue);
        assert_eq!(posted[4], (2, Box::from([4])));
        assert_eq!(queue.unacknowledged(), Some(first));
        queue.acknowledge(first.wrapping_add(1));
        assert!(queue.is_posted() && !queue.is_empty());
        queue.pause();
        assert_eq!(queue.unacknowledged(), None);
        queue.keep(Box::new([5]));
        assert!(!queue.has_room() && !queue.is_posted() && queue.next_unposted().is_none());
        assert!(queue.resume(1));
        let posted = post_all(&mut queue);
        assert_eq!(posted[0], (1, Box::from([3])));
        assert_eq!(numbers(posted), [1, 2, 3]);
        queue.acknowledge(4);
        assert!(queue.is_empty() && queue.is_posted());
    }

    #[test]
    fn a_number_of_no_packet_is_refused() {
        let mut queue = ReplayQueue::new(7);
        queue.keep(Box::new([1]));
        queue.acknowledge(8);
        assert!(!queue.is_empty(), "it was not posted");
        post_all(&mut queue);
        queue.acknowledge(6);
        queue.acknowledge(9);
        assert!(!queue.is_empty());
        queue.pause();
        assert!(!queue.resume(6) && !queue.resume(9) && queue.resume(8));
        assert!(queue.is_empty() && queue.has_room());
    }

    #[test]
    fn few_packets_are_kept() {
        let mut queue = ReplayQueue::new(0);
        let mut count = 0;
        while queue.has_room() {
            queue.keep(Box::new([]));
            count += 1;
        }
        assert_eq!(count, MAX_KEPT);
        post_all(&mut queue);
        queue.acknowledge(1);
        assert!(queue.has_room());
    }
}
