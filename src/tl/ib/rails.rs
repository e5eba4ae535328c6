//! Rails: further queue pairs to a peer, through other ports, that long transfers are shared out to.
//!
//! A rail is for one direction. Who has asked for it writes by it, the peer only holds its end; nothing is ever sent as a message
//! there, so that it needs no receives, no window and no order: who has written by rails waits for their ends and then tells
//! the peer by the connection itself.

use super::queues::Qp;
use super::rc::{Lent, Reliable};
use std::sync::Arc;

/// Ends that a peer may have us hold; more are an attack.
const MOST_HELD: usize = 8;

/// One that can be written by.
pub struct Rail {
    pub line: Reliable,
    /// Number of the peer's port, among those of its address.
    pub remote_port: usize,
    /// What the peer calls it.
    pub name: u64,
    /// Its device has refused something: nothing more is posted there.
    pub refused: bool,
}

/// Our end of one that the peer was asked to hold the other end of.
pub struct Asked {
    pub qp: Arc<Qp>,
    /// Number of our interface.
    pub iface: usize,
    /// Of our first packet.
    pub psn: u32,
}

/// Those of a peer. Whoever holds the peer's lock.
#[derive(Default)]
pub struct Rails {
    pub lines: Vec<Rail>,
    pub asked: Vec<Asked>,
    /// The peer writes our memory by these.
    held: Vec<Arc<Qp>>,
    /// They are wanted once.
    pub wanted: bool,
    /// Those that are to be given up: numbers of their interfaces and queue pairs.
    pub refused: Vec<(usize, u32)>,
}

impl Rails {
    /// Holds an end for the peer. False: it has had enough.
    pub fn hold(&mut self, qp: Arc<Qp>) -> bool {
        let few = self.held.len() < MOST_HELD;
        if few {
            self.held.push(qp);
        }
        few
    }

    /// The peer has given up the rail with this end: nothing that it wrote by it takes effect any more.
    pub fn drop_held(&mut self, qpn: u32) {
        self.held
            .retain(|qp| qp.number != qpn || qp.reset().is_err());
    }

    /// How many ends are held for the peer.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// The one with this queue pair.
    pub fn of_queue(&mut self, iface: usize, qpn: u32) -> Option<&mut Rail> {
        self.lines.iter_mut().find(|rail| rail.line.is(iface, qpn))
    }

    /// Gives one up: what it has not written, and what the peer calls it. No device of ours works on that any more afterwards.
    pub fn give_up(&mut self, iface: usize, qpn: u32) -> Option<(Vec<Lent>, u64)> {
        let place = self
            .lines
            .iter()
            .position(|rail| rail.line.is(iface, qpn))?;
        let rail = self.lines.swap_remove(place);
        // The queue pair is reset when it is dropped.
        Some((rail.line.lent().collect(), rail.name))
    }

    /// Whether all that was written has arrived.
    pub fn is_drained(&self) -> bool {
        self.lines.iter().all(|rail| rail.line.is_drained())
    }
}

impl Drop for Rails {
    fn drop(&mut self) {
        // Who gets his memory back now must not see the peer write it.
        for qp in &self.held {
            let _ = qp.reset();
        }
    }
}
