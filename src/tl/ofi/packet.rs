//! Packets: what workers send each other by libfabric's messages.
//!
//! A packet is a [`PacketHdr`] and, by its kind, a [`Hello`], an [`Accept`], or a frame of `wire::frame` with its
//! record.
#![forbid(unsafe_code)]

use super::address::{OfiLocator, OfiLocators};
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
/// A record that the sender keeps until the receiver has acknowledged it.
pub const KEPT: u32 = 12;
/// The sender has received the [`KEPT`] records before the number.
pub const ACK: u32 = 13;
/// Moves a connection to another interface: a [`Move`](super::failover_packet::Move). It names no connection.
pub const MOVE: u32 = 14;
/// The answer to it: a [`Moved`](super::failover_packet::Moved).
pub const MOVED: u32 = 15;

packed! {
    /// The begin of a packet. The receiver has granted number and key of its connection to the sender.
    PacketHdr, 20 {
        key: u64,
        /// Number of the receiver's connection.
        conn: u32,
        /// Number of the packet, if it is a [`RECORD`], [`KEPT`] or [`BYE`]: these are handled in order. Of a [`FLUSH`]
        /// and [`FLUSHED`] that of the writes, of a [`PROBE`], a [`SENT`] and an [`ACK`] that of the next packet.
        seq: u32,
        kind: u32,
    } valid when |hdr| (HELLO..=MOVED).contains(&hdr.kind)
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

/// Begins a hello, and a request to move.
pub const MAGIC: u64 = u64::from_le_bytes(*b"rucpofi\0");
/// Incremented when the format of packets changes.
pub const VERSION: u32 = 5;

/// Flag of a [`Hello`] and an [`Accept`]: the connection goes on by another interface if one fails.
const FAILS_OVER: u32 = 1;

packed! {
    /// The sender of a connection, and which worker it expects.
    Hello, 64 {
        magic: u64,
        version: u32,
        /// Uids of both workers.
        from: u64,
        to: u64,
        /// The secret of the receiver's address.
        secret: u64,
        /// The sender's connection, granted to the receiver.
        grant: Grant,
        flags: u32,
        /// The key that the sender has granted first, if a request with failover by another interface has failed before
        /// this one; else that of `grant`.
        session: u64,
        /// Number of the packet that the sender expects next.
        next: u32,
    } valid when |hello| hello.magic == MAGIC && hello.version == VERSION
}

packed! {
    /// The answer to a [`Hello`].
    Accept, 28 {
        /// The sender's connection, granted to the receiver.
        grant: Grant,
        flags: u32,
        /// With failover the key that the sender has granted first, and how often the connection has moved.
        session: u64,
        generation: u32,
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
#[repr(C, packed(4))]
pub struct Grant {
    pub conn: u32,
    pub key: u64,
}

impl Grant {
    /// In the header of a packet that names no connection.
    pub const NONE: Grant = Grant { conn: 0, key: 0 };

    /// The number, and behind it the key.
    pub fn to_le_bytes(self) -> [u8; size_of::<Grant>()] {
        let (number, key) = (u128::from(self.conn), u128::from(self.key));
        let bytes = (key << u32::BITS | number).to_le_bytes();
        std::array::from_fn(|at| bytes[at])
    }

    /// As [`to_le_bytes`](Self::to_le_bytes) has written it.
    pub fn from_le_bytes(bytes: [u8; size_of::<Grant>()]) -> Grant {
        let mut whole = [0; size_of::<u128>()];
        whole[..bytes.len()].copy_from_slice(&bytes);
        let whole = u128::from_le_bytes(whole);
        Grant {
            conn: whole as u32,
            key: (whole >> u32::BITS) as u64,
        }
    }

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

impl Accept {
    /// Whether the connection goes on by another interface if one fails.
    pub fn fails_over(&self) -> bool {
        self.flags & FAILS_OVER != 0
    }
}

/// A [`Hello`] that has arrived.
#[derive(Clone, Debug)]
pub struct ParsedHello {
    pub hello: Hello,
    /// Where its sender is.
    pub from: OfiLocator,
    /// Where all interfaces of the sender's worker are, if the connection is to go on by another one if one fails.
    pub locators: Option<OfiLocators>,
}

/// The packet that begins a connection of the worker `from`, which is at `own`, to the worker `uid` at `to`.
/// `locators`: all interfaces of the sender's worker, if the connection is to go on by another one if one fails;
/// `session` and `next`: the fields.
pub fn hello(
    (from, own, grant): (u64, &OfiLocator, Grant),
    (uid, to): (u64, &OfiLocator),
    locators: Option<&OfiLocators>,
    (session, next): (u64, u32),
) -> Vec<u8> {
    let hello = Hello {
        magic: MAGIC,
        version: VERSION,
        from,
        to: uid,
        secret: to.secret,
        grant,
        flags: if locators.is_some() { FAILS_OVER } else { 0 },
        session,
        next,
    };
    let mut packet = [&Grant::NONE.header(HELLO, 0)[..], &hello.encode()].concat();
    let Some(locators) = locators else {
        packet.extend(own.encode());
        return packet;
    };
    for locator in [own].into_iter().chain(locators.all()) {
        let locator = locator.encode();
        packet.extend((locator.len() as u16).to_le_bytes());
        packet.extend(locator);
    }
    packet
}

/// A hello to the worker `uid` at `own`. `None`: it is malformed, or for another worker.
pub fn parse_hello(body: &[u8], uid: u64, own: &OfiLocator) -> Option<ParsedHello> {
    let hello = Hello::decode(body)?;
    let behind = &body[Hello::SIZE..];
    let (from, locators) = match hello.flags & FAILS_OVER {
        0 => (OfiLocator::decode(behind)?, None),
        _ => {
            let (from, mut rest) = first_locator(behind)?;
            let (first, behind) = first_locator(rest)?;
            let mut locators = OfiLocators::new(vec![first])?;
            rest = behind;
            while !rest.is_empty() {
                let (next, behind) = first_locator(rest)?;
                locators.join(OfiLocators::new(vec![next])?)?;
                rest = behind;
            }
            (from, Some(locators))
        }
    };
    let is_own = hello.to == uid && hello.secret == own.secret && hello.from != 0;
    (is_own && from.fits(own)).then_some(ParsedHello {
        hello,
        from,
        locators,
    })
}

/// A locator behind its length, and the bytes behind it.
fn first_locator(bytes: &[u8]) -> Option<(OfiLocator, &[u8])> {
    let (len, rest) = bytes.split_first_chunk()?;
    let (locator, rest) = rest.split_at_checked(u16::from_le_bytes(*len).into())?;
    Some((OfiLocator::decode(locator)?, rest))
}

/// The packet that accepts the connection `to`, of which the own one is `grant`. `failover`: the fields `session` and
/// `generation`, if it goes on by another interface if one fails.
pub fn accept(to: Grant, grant: Grant, failover: Option<(u64, u32)>) -> Vec<u8> {
    let (session, generation) = failover.unwrap_or_default();
    let accept = Accept {
        grant,
        flags: if failover.is_some() { FAILS_OVER } else { 0 },
        session,
        generation,
    };
    [&to.header(ACCEPT, 0)[..], &accept.encode()].concat()
}

/// What a header and nothing else says.
pub fn bare(to: Grant, kind: u32, seq: u32) -> Vec<u8> {
    to.header(kind, seq).to_vec()
}
