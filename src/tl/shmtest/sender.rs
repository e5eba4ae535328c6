//! The sending half of a connection.

use super::socket::{Socket, send_packet};
use crate::tl::contract::MAX_BCOPY;
use crate::wire::frame;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What the sender and the interface share of a connection. The socket is closed when the last of them is dropped.
pub struct TxLink {
    pub socket: Socket,
    /// The sender has a record for which there was no room.
    is_blocked: AtomicBool,
}

impl TxLink {
    /// The connection of a socket to which the hello was written.
    pub fn new(socket: Socket) -> Arc<TxLink> {
        let is_blocked = AtomicBool::new(false);
        Arc::new(TxLink { socket, is_blocked })
    }

    /// Whether the sender has a record for which there was no room.
    pub fn is_blocked(&self) -> bool {
        // Relaxed: the lock of the peer, whose sender is called then, publishes the record.
        self.is_blocked.load(Ordering::Relaxed)
    }
}

/// Used by the thread that holds the peer's lock.
pub struct ShmtestSender {
    link: Arc<TxLink>,
    /// A record that was accepted, and that the socket has not taken; empty if there is none.
    packet: Vec<u8>,
}

impl ShmtestSender {
    /// The sender of a connection.
    pub fn new(link: Arc<TxLink>) -> Self {
        Self {
            link,
            packet: Vec::new(),
        }
    }

    /// Whether the socket has taken every record that was accepted.
    pub fn is_drained(&self) -> bool {
        self.packet.is_empty()
    }

    /// Whether a record of `len` bytes can be sent now: none waits for room.
    pub fn has_room(&mut self, len: usize) -> bool {
        debug_assert!(len <= MAX_BCOPY);
        self.flush()
    }

    /// Sends a record of `len` bytes, which `fill` writes. False: there is no room now, and `fill` was not called.
    pub fn send(
        &mut self,
        kind: u8,
        aux: u8,
        imm: u64,
        len: usize,
        fill: impl FnOnce(*mut u8),
    ) -> bool {
        if !self.has_room(len) {
            return false;
        }
        self.packet.extend(frame::encode(kind, aux, imm, len));
        self.packet.reserve(len);
        let end = self.packet.len() + len;
        fill(self.packet.spare_capacity_mut().as_mut_ptr().cast());
        // SAFETY: `reserve` has made room for `len` bytes, and `fill` has written them.
        unsafe { self.packet.set_len(end) };
        self.flush();
        true
    }

    /// Sends the record that waits for room. True: none waits any more.
    pub fn flush(&mut self) -> bool {
        if !self.packet.is_empty() {
            // An error is left to the interface, which finds that the connection has ended.
            if let Ok(true) = send_packet(&self.link.socket, &self.packet) {
                self.packet.clear();
            }
            // Relaxed: pairs with the load in `is_blocked`, whose caller then takes the lock that is held here.
            let is_blocked = !self.packet.is_empty();
            self.link.is_blocked.store(is_blocked, Ordering::Relaxed);
        }
        self.packet.is_empty()
    }
}
