//! Formats between queue pairs beside [packets](super::packet_hdr): the header of UD datagrams, and the HELLO messages
//! of the wireup.
//!
//! In front of UD packets is a [`Datagram`]; one without a packet behind it only acknowledges.
#![forbid(unsafe_code)]

use super::ib_port::{MAX_PORTS, PortLocator};
use super::le_struct::{packed, packed_flags};

/// Bits of a connection's number; flags are above.
const NUMBER_BITS: u32 = 24;
/// A number that no connection has.
pub const NO_CONN: u32 = (1 << NUMBER_BITS) - 1;

bitflags::bitflags! {
    /// Flags of a [`Datagram`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct DatagramFlags: u8 {
        /// Acknowledge it at once.
        const ASKS = 1;
        /// It has no packet: retransmit the packets from `ack` to the one in front of `psn`, which are missing.
        const GAP = 2;
        /// A [`Hello`] and a [`PortLocator`] follow.
        const HELLO = 4;
        /// Reply to a [`Ping`], sent although the receiver does not progress.
        const PONG = 8;
        /// A [`PortLocator`] follows, the sender's new address.
        const MOVED = 16;
        /// A [`Ping`] and a [`PortLocator`] follow. A worker without the connection replies with [`Self::GONE`].
        const CHECK = 32;
        /// Reply to [`Self::CHECK`]: the peer's worker does not have the connection any more.
        const GONE = 64;
    }
}

/// Shortest packet length of a connection that every worker supports, bytes.
pub const MIN_PACKET: u32 = 256;

packed! {
    /// Header of a datagram.
    Datagram, 16 {
        /// Number of the connection at the receiver; the upper 8 bits are [`DatagramFlags`].
        to: u32,
        /// Proof that the receiver has assigned to that number.
        proof: u32,
        /// Number of the packet that follows, from 0 on, modulo 2^32.
        psn: u32,
        /// Acknowledges all packets before this one.
        ack: u32,
    }
}

impl Datagram {
    pub fn number(&self) -> u32 {
        self.to & NO_CONN
    }

    /// Whether it has any of these flags.
    pub fn has(&self, flags: DatagramFlags) -> bool {
        self.to >> NUMBER_BITS & u32::from(flags.bits()) != 0
    }

    /// A connection number with flags.
    pub fn to(number: u32, flags: DatagramFlags) -> u32 {
        number & NO_CONN | u32::from(flags.bits()) << NUMBER_BITS
    }
}

/// "rucp-ib4": the digit is incremented when the format changes.
const MAGIC: u64 = u64::from_le_bytes(*b"rucp-ib4");

packed_flags! {
    /// Flags of a [`Hello`].
    HelloFlags: u8 {
        /// The sender has the receiver's HELLO and can receive packets.
        const READY = 1;
        /// The sender has received the receiver's `READY`.
        const SEEN = 2;
        /// The connection fails over to other ports, and messages go by UD. The sender's addresses follow, [`PortInfo`]
        /// after [`PortInfo`].
        const FAILOVER = 4;
    }
}

packed! {
    /// Wireup message of a connection, repeated until both ends are ready and have confirmed it.
    Hello, 82 {
        magic: u64,
        /// The sender's worker.
        from: u64,
        /// The worker to connect to.
        to: u64,
        /// The secret in the address of that worker.
        secret: u64,
        /// How often the sender had lost that worker before.
        losses: u32,
        /// Number and proof of the connection at the sender.
        number: u32,
        proof: u32,
        /// The receiver's number of the connection, 2^24 - 1 if that is not known.
        receiver_number: u32,
        /// The sender's queue pair and the number of its first packet there; 0: it uses UD.
        qpn: u32,
        psn: u32,
        /// Number of the sender's interface.
        iface: u8,
        flags: HelloFlags,
        /// Proof that the receiver sends when it answers.
        back: u64,
        /// Longest RC packet that the sender receives, bytes; most packets before it returns credits or acknowledges,
        /// by RC and by UD.
        packet: u32,
        window: u32,
        datagrams: u32,
        /// The queue pair of the keepalive responder at the sender's port; 0: there is none.
        keepalive_qpn: u32,
    } valid when |hello| {
        hello.magic == MAGIC && hello.number < NO_CONN && hello.receiver_number <= NO_CONN && hello.packet >= MIN_PACKET
    }
}

/// "rucp-is?"
const PING: u64 = u64::from_le_bytes(*b"rucp-is?");

packed! {
    /// Liveness probe of a worker that has acknowledged nothing for long, and content of a [`DatagramFlags::CHECK`]. A
    /// [`PortLocator`] follows: address of the prober.
    Ping, 32 {
        magic: u64,
        worker: u64,
        /// The secret in the address of that worker.
        secret: u64,
        /// Number and proof for the reply, a [`Datagram`] with [`DatagramFlags::PONG`] or [`DatagramFlags::GONE`].
        number: u32,
        proof: u32,
    } valid when |ping| ping.magic == PING && ping.number < NO_CONN
}

impl Ping {
    pub const fn magic() -> u64 {
        PING
    }

    /// Decodes a probe, and the address of its sender.
    pub fn read(bytes: &[u8]) -> Option<(Ping, PortLocator)> {
        let ping = Ping::decode(bytes)?;
        Some((ping, PortLocator::decode(bytes.get(Ping::SIZE..)?)?))
    }
}

impl Hello {
    pub const fn magic() -> u64 {
        MAGIC
    }

    /// Decodes a HELLO, and the address of its sender.
    pub fn read(bytes: &[u8]) -> Option<(Hello, PortLocator)> {
        let hello = Hello::decode(bytes)?;
        Some((hello, PortLocator::decode(bytes.get(Hello::SIZE..)?)?))
    }
}

/// One of several ports of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortInfo {
    /// The queue pair of the keepalive responder there; 0: there is none.
    pub keepalive_qpn: u32,
    pub port: PortLocator,
}

impl PortInfo {
    pub const SIZE: usize = size_of::<u32>() + PortLocator::SIZE;

    /// Encodes all of them, in the order of the worker's address.
    pub fn encode_all(ports: &[PortInfo]) -> Vec<u8> {
        let bytes = ports.iter().flat_map(|info| {
            let port = info.port.encode();
            info.keepalive_qpn.to_le_bytes().into_iter().chain(port)
        });
        bytes.collect()
    }

    /// Decodes those behind a HELLO. An incomplete one, and those beyond the maximum, are ignored.
    pub fn decode_all(bytes: &[u8]) -> Vec<PortInfo> {
        let ports = bytes.chunks_exact(PortInfo::SIZE).take(MAX_PORTS);
        let read = ports.filter_map(|info| {
            let (keepalive_qpn, port) = info.split_first_chunk()?;
            Some(PortInfo {
                keepalive_qpn: u32::from_le_bytes(*keepalive_qpn),
                port: PortLocator::decode(port)?,
            })
        });
        read.collect()
    }
}

/// A HELLO with the maximum of ports fits into the shortest datagram.
const _: () = assert!(
    Datagram::SIZE + Hello::SIZE + PortLocator::SIZE + MAX_PORTS * PortInfo::SIZE
        <= MIN_PACKET as usize
);

/// A [`Hello`] that is sent by TCP, where one end has no UD queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpWireupMsg {
    /// Index of the port that it is for, among those of the receiver's address.
    pub far: u8,
    pub hello: Hello,
    /// Address of the sender's port.
    pub port: PortLocator,
}

impl TcpWireupMsg {
    /// Bytes of a message.
    pub const SIZE: usize = 1 + Hello::SIZE + PortLocator::SIZE;

    pub fn encode(&self) -> Vec<u8> {
        [&[self.far][..], &self.hello.encode(), &self.port.encode()].concat()
    }

    /// Decodes the message at the begin of `bytes`.
    pub fn read(bytes: &[u8]) -> Option<TcpWireupMsg> {
        let (&far, rest) = bytes.split_first()?;
        let (hello, port) = Hello::read(rest)?;
        Some(TcpWireupMsg { far, hello, port })
    }

    /// Whether these few bytes can be the begin of one.
    pub fn may_begin(bytes: &[u8]) -> bool {
        let magic = bytes.iter().skip(1);
        magic.zip(MAGIC.to_le_bytes()).all(|(&a, b)| a == b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_have_a_number_and_flags() {
        let to = Datagram::to(0x123, DatagramFlags::ASKS | DatagramFlags::HELLO);
        let d = Datagram {
            to,
            proof: 0,
            psn: 0,
            ack: 0,
        };
        assert_eq!(d.number(), 0x123);
        assert!(d.has(DatagramFlags::ASKS) && d.has(DatagramFlags::HELLO));
        assert!(!d.has(DatagramFlags::GAP));
    }

    #[test]
    fn foreign_messages_are_not_decoded() {
        let hello = Hello {
            magic: MAGIC,
            from: 1,
            to: 2,
            secret: 3,
            losses: 0,
            number: 4,
            proof: 5,
            receiver_number: NO_CONN,
            qpn: 6,
            psn: 7,
            iface: 0,
            flags: HelloFlags::READY,
            back: 8,
            packet: MIN_PACKET,
            window: 9,
            datagrams: 10,
            keepalive_qpn: 11,
        };
        let port = [0; PortLocator::SIZE];
        let bytes = [&hello.encode()[..], &port].concat();
        assert_eq!(Hello::read(&bytes).map(|(h, _)| h), Some(hello));
        for n in 0..bytes.len() {
            assert_eq!(Hello::read(&bytes[..n]), None, "{n} bytes");
        }
        let mut other = bytes.clone();
        other[7] ^= 1;
        assert_eq!(Hello::read(&other), None, "another version");
        letters(hello, PortLocator::decode(&port).expect("a port"));
    }

    #[test]
    fn port_infos_are_whole() {
        let port = PortLocator::decode(&[7; PortLocator::SIZE]).expect("a port");
        let ports: Vec<PortInfo> = (1..=MAX_PORTS as u32)
            .map(|keepalive_qpn| PortInfo {
                keepalive_qpn,
                port,
            })
            .collect();
        let bytes = PortInfo::encode_all(&ports);
        assert_eq!(PortInfo::decode_all(&bytes), ports);
        assert_eq!(PortInfo::decode_all(&bytes[..bytes.len() - 1]), ports[..3]);
        assert_eq!(PortInfo::decode_all(&bytes[..PortInfo::SIZE - 1]), []);
        let many = [&bytes[..], &bytes].concat();
        assert_eq!(
            PortInfo::decode_all(&many),
            ports,
            "at most the maximum of ports"
        );
    }

    fn letters(hello: Hello, port: PortLocator) {
        let msg = TcpWireupMsg {
            far: 3,
            hello,
            port,
        };
        let mut bytes = msg.encode();
        assert_eq!(bytes.len(), TcpWireupMsg::SIZE);
        assert_eq!(TcpWireupMsg::read(&bytes), Some(msg));
        for n in 0..bytes.len() {
            assert_eq!(TcpWireupMsg::read(&bytes[..n]), None, "{n} bytes");
            assert!(TcpWireupMsg::may_begin(&bytes[..n]), "{n} bytes");
        }
        bytes[5] ^= 1;
        assert!(TcpWireupMsg::may_begin(&bytes[..5]) && !TcpWireupMsg::may_begin(&bytes[..6]));
    }
}
