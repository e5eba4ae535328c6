//! The packets that move a connection to another interface.
#![forbid(unsafe_code)]

use super::address::OfiLocator;
use super::packet::{Grant, MAGIC, MOVE, MOVED, VERSION};
use crate::wire::le_struct::packed;

packed! {
    /// The sender's end of a connection has failed, and goes on by the interface that sends this to the one that
    /// receives it. The sender's section of a worker address follows.
    Move, 64 {
        magic: u64,
        version: u32,
        /// Uids of both workers.
        from: u64,
        to: u64,
        /// The secret of the receiver's address.
        secret: u64,
        /// The sender's connection by this interface, granted to the receiver.
        grant: Grant,
        /// The key that the receiver has granted first for what moves.
        session: u64,
        /// How often it has moved, this time included.
        generation: u32,
        /// Number of the packet that the sender expects next.
        next: u32,
    } valid when |packet| packet.magic == MAGIC && packet.version == VERSION
}

packed! {
    /// The answer to a [`Move`].
    Moved, 16 {
        /// The sender's connection, granted to the receiver.
        grant: Grant,
        /// Number of the packet that the sender expects next.
        next: u32,
    }
}

impl Move {
    /// The packet of the worker `from`, which is at `own`, to the worker `uid` at `to`. `grant`: its connection;
    /// `session`, `generation` and `next`: the fields.
    pub fn packet(
        (from, own, grant): (u64, &OfiLocator, Grant),
        (uid, to): (u64, &OfiLocator),
        (session, generation, next): (u64, u32, u32),
    ) -> Vec<u8> {
        let packet = Move {
            magic: MAGIC,
            version: VERSION,
            from,
            to: uid,
            secret: to.secret,
            grant,
            session,
            generation,
            next,
        };
        [
            &Grant::NONE.header(MOVE, 0)[..],
            &packet.encode(),
            &own.encode(),
        ]
        .concat()
    }

    /// A packet to the worker `uid` at `own`, and where its sender is. `None`: it is malformed, or for another worker.
    pub fn parse(body: &[u8], uid: u64, own: &OfiLocator) -> Option<(Move, OfiLocator)> {
        let packet = Move::decode(body)?;
        let from = OfiLocator::decode(&body[Move::SIZE..])?;
        let is_own = packet.to == uid && packet.secret == own.secret;
        (is_own && from.fits(own)).then_some((packet, from))
    }
}

impl Moved {
    /// The packet for the connection `to`, of which the own one is `grant`: the packet `next` is expected.
    pub fn packet(to: Grant, grant: Grant, next: u32) -> Vec<u8> {
        let packet = Moved { grant, next };
        [&to.header(MOVED, 0)[..], &packet.encode()].concat()
    }
}
