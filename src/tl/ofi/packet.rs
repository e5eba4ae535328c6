//! Packets: what workers send each other by libfabric's messages.
//!
//! A packet is a [`PacketHdr`] and, by its kind, a [`Hello`], an [`Accept`], or a frame of `wire::frame` with its
//! record.
#![forbid(unsafe_code)]

use super::address::OfiLocator;
use crate::wire::frame;
use crate::wire::le_struct::packed;

/// Begins a connection: a [`Hello`] and the sender's section of a worker address. It names no connection.
pub const HELLO: u32 = 1;
/// The answer to it: an [`Accept`].
pub const ACCEPT: u32 = 2;
/// A record.
pub const RECORD: u32 = 3;
/// The sender ends the connection: it has sent everything, and receives nothing any more.
pub const BYE: u32 = 4;
/// The answer to it.
pub const BYE_ACK: u32 = 5;
/// The sender has lost the connection, or has ended it before everything was sent. It has no number.
pub const RESET: u32 = 6;
/// Nothing: its completion reports that what was sent before has left, and that the peer is there.
pub const PROBE: u32 = 7;
/// The sender has written into memory of the receiver: the receiver answers when it gets this, behind the data. The
/// number is that of the writes.
pub const FLUSH: u32 = 8;
/// The answer to it, with its number.
pub const FLUSHED: u32 = 9;
/// Asks for a [`SENT`], by a [`Check`]: packets were lost, or may have been.
pub const CHECK: u32 = 10;
/// How many numbered packets the sender has sent: its number is that of the next one. A [`Sent`].
pub const SENT: u32 = 11;

packed! {
    /// The begin of a packet. The receiver has granted number and key of its connection to the sender.
    PacketHdr, 20 {
        key: u64,
        /// Number of the receiver's connection.
        conn: u32,
        /// Number of the packet, if it is a [`RECORD`] or [`BYE`]: these are handled in order. Of a [`FLUSH`] and
        /// [`FLUSHED`] that of the writes, of a [`PROBE`] and a [`SENT`] that of the next packet.
        seq: u32,
        kind: u32,
    } valid when |hdr| (HELLO..=SENT).contains(&hdr.kind)
}

impl PacketHdr {
    /// The connection that the packet names.
    #[inline(always)]
    pub fn grant(&self) -> Grant {
        Grant {
            conn: self.conn,
            key: self.key,
        }
    }
}

/// Bytes in front of a record.
pub const RECORD_HEADER: usize = PacketHdr::SIZE + frame::HEADER;

/// Longest packet that is written on the stack, bytes.
pub const MAX_SHORT_PACKET: usize = 512;

const MAGIC: u64 = u64::from_le_bytes(*b"rucpofi\0");
/// Incremented when the format of packets changes.
pub const VERSION: u32 = 3;

packed! {
    /// The sender of a connection, and which worker it expects.
    Hello, 48 {
        magic: u64,
        version: u32,
        /// Uids of both workers.
        from: u64,
        to: u64,
        /// The secret of the receiver's address.
        secret: u64,
        /// Number and key of the sender's connection, granted to the receiver.
        conn: u32,
        key: u64,
    } valid when |hello| hello.magic == MAGIC && hello.version == VERSION
}

packed! {
    /// The answer to a [`Hello`].
    Accept, 12 {
        /// Number and key of the sender's connection, granted to the receiver.
        conn: u32,
        key: u64,
    }
}

packed! {
    /// The question how many packets the receiver has sent.
    Check, 8 {
        /// Number of the question, which the answer has, too.
        question: u64,
    }
}

packed! {
    /// The answer to a [`Check`].
    Sent, 12 {
        question: u64,
        /// 1: the provider has reported that all of the packets have left the sender. 0: not of all.
        has_left: u32,
    } valid when |sent| sent.has_left <= 1
}

impl Check {
    /// The packet for the connection `to`.
    pub fn packet(self, to: Grant) -> Vec<u8> {
        [&to.header(CHECK, 0)[..], &self.encode()].concat()
    }
}

impl Sent {
    /// The packet for the connection `to`: the sender has sent the packets before `number`, and all of them have left
    /// (`has_left`), or not.
    pub fn packet(to: Grant, number: u32, check: Check, has_left: bool) -> Vec<u8> {
        let sent = Sent {
            question: check.question,
            has_left: has_left.into(),
        };
        [&to.header(SENT, number)[..], &sent.encode()].concat()
    }

    /// Whether all of the packets have left the sender.
    pub fn has_left(&self) -> bool {
        self.has_left != 0
    }
}

/// A connection, as the worker that has it grants it to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    pub conn: u32,
    pub key: u64,
}

impl Grant {
    /// The header of a packet for the connection.
    #[inline(always)]
    pub fn header(self, kind: u32, seq: u32) -> [u8; PacketHdr::SIZE] {
        let Grant { conn, key } = self;
        PacketHdr {
            key,
            conn,
            seq,
            kind,
        }
        .encode()
    }
}

impl Hello {
    /// The sender's connection, granted to the receiver.
    pub fn grant(&self) -> Grant {
        Grant {
            conn: self.conn,
            key: self.key,
        }
    }
}

/// The packet that begins a connection of the worker `from`, which is at `own`, to the worker `uid` at `to`.
pub fn hello(
    (from, own, grant): (u64, &OfiLocator, Grant),
    (uid, to): (u64, &OfiLocator),
) -> Vec<u8> {
    let hello = Hello {
        magic: MAGIC,
        version: VERSION,
        from,
        to: uid,
        secret: to.secret,
        conn: grant.conn,
        key: grant.key,
    };
    let no_conn = Grant { conn: 0, key: 0 };
    [
        &no_conn.header(HELLO, 0)[..],
        &hello.encode(),
        &own.encode(),
    ]
    .concat()
}

/// A [`Hello`] to the worker `uid` at `own`, and where its sender is. `None`: it is malformed, or for another worker.
pub fn parse_hello(body: &[u8], uid: u64, own: &OfiLocator) -> Option<(Hello, OfiLocator)> {
    let hello = Hello::decode(body)?;
    let from = OfiLocator::decode(&body[Hello::SIZE..])?;
    let is_own = hello.to == uid && hello.secret == own.secret && hello.from != 0;
    (is_own && from.fits(own)).then_some((hello, from))
}

/// The packet that accepts the connection `to`, of which the own one is `grant`.
pub fn accept(to: Grant, grant: Grant) -> Vec<u8> {
    let accept = Accept {
        conn: grant.conn,
        key: grant.key,
    };
    [&to.header(ACCEPT, 0)[..], &accept.encode()].concat()
}

/// What a header and nothing else says.
pub fn bare(to: Grant, kind: u32, seq: u32) -> Vec<u8> {
    to.header(kind, seq).to_vec()
}
