//! Messages between a client and a listener on the connection between them: worker addresses, and disconnect.
//!
//! The client sends [`Hello`] followed by its worker address; the server answers [`Reply`], followed by the address of
//! the worker that accepted. From then on messages use the transports that the addresses name, and this connection
//! serves to detect the end of the endpoints: each side sends a disconnect of one byte before it closes. A side that
//! closes in order waits for that of the other one.
#![forbid(unsafe_code)]

use super::address::MAX_LEN;
use super::le_struct::packed;

/// "rucp cs" with a version; a message of any other version is rejected.
pub const MAGIC: u64 = u64::from_le_bytes(*b"rucp cs\x03");

/// Bits of a client's endpoint number.
pub const NUMBER_BITS: u32 = 22;

packed! {
    /// A client requests a connection; its worker address follows.
    Hello, 31 {
        magic: u64,
        /// Number of the client's endpoint, among those of its worker.
        number: u32,
        /// Bytes of the address.
        address_len: u16,
        /// The client's error handling mode.
        err_mode: u8,
        /// Client id of the client's worker; 0 if none is sent.
        client_id: u64,
        /// Random number that only the server gets: a worker that sends it is the server's.
        secret: u64,
    } valid when |h| h.magic == MAGIC && h.number < 1 << NUMBER_BITS && h.address_len as usize <= MAX_LEN
        && h.err_mode <= 2
}

packed! {
    /// The server's answer; if it accepts, the address of a worker follows.
    Reply, 12 {
        magic: u64,
        /// Bytes of the address.
        address_len: u16,
        /// 0, or the status that the client's endpoint fails with.
        status: i8,
        /// The server's error handling mode.
        err_mode: u8,
    } valid when |r| r.magic == MAGIC && r.address_len as usize <= MAX_LEN && r.status <= 0 && r.err_mode <= 2
}

packed! {
    /// Private data of both ends in the connection establishment of rdma_cm, which has little room: identifies the
    /// protocol.
    ConnPrivateData, 8 {
        magic: u64,
    } valid when |k| k.magic == MAGIC
}

packed! {
    /// Message of a listener that is destroyed to clients that connect.
    Refusal, 9 {
        magic: u64,
        /// The status that the client's endpoint fails with.
        status: i8,
    } valid when |r| r.magic == MAGIC && r.status < 0
}

/// Bytes of the longest message, without the disconnects.
pub const MAX_MSG_LEN: usize = Hello::SIZE + MAX_LEN;
const _: () = assert!(Reply::SIZE <= Hello::SIZE);

/// Disconnect: the endpoint at this end is closed, and no other message says so.
pub const BYE: u8 = b'B';
/// Disconnect: the endpoint at this end is closed; behind its last message a message on its lane says so too.
pub const BYE_BEHIND: u8 = b'b';

/// [`BYE`] of a forced close: data that the other end has sent may not have been received.
pub const FORCED: u8 = b'F';
/// [`BYE_BEHIND`] of a forced close: data that the other end has sent may not have been received.
pub const FORCED_BEHIND: u8 = b'f';

/// Whether bytes may be the beginning of a [`Hello`] or a [`Reply`].
pub fn begins(bytes: &[u8]) -> bool {
    let n = bytes.len().min(8);
    bytes[..n] == MAGIC.to_le_bytes()[..n]
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELLO: Hello = Hello {
        magic: MAGIC,
        number: 1,
        address_len: 100,
        err_mode: 1,
        client_id: 7,
        secret: 8,
    };

    #[test]
    fn impossible_hellos_are_refused() {
        assert_eq!(Hello::decode(&HELLO.encode()), Some(HELLO));
        for wrong in [
            Hello { magic: 1, ..HELLO },
            Hello {
                number: 1 << NUMBER_BITS,
                ..HELLO
            },
            Hello {
                address_len: u16::MAX,
                ..HELLO
            },
            Hello {
                err_mode: 3,
                ..HELLO
            },
        ] {
            assert_eq!(Hello::decode(&wrong.encode()), None);
        }
        assert_eq!(Hello::decode(&HELLO.encode()[..30]), None);
    }

    #[test]
    fn foreign_protocols_are_recognised_by_their_first_bytes() {
        assert!(begins(b""));
        assert!(begins(b"ruc"));
        assert!(begins(&HELLO.encode()));
        assert!(!begins(b"GET / HTTP/1.1"));
        assert!(!begins(b"G"));
    }

    #[test]
    fn private_data_identify_the_protocol() {
        // The private data that the connection manager delivers are longer than those that were sent.
        let mut private_data = [0; 56];
        assert_eq!(ConnPrivateData::decode(&private_data), None);
        private_data[..8].copy_from_slice(&ConnPrivateData { magic: MAGIC }.encode());
        assert!(ConnPrivateData::decode(&private_data).is_some());
        assert_eq!(Refusal::decode(&private_data), None);
        private_data[8] = -23i8 as u8;
        assert_eq!(Refusal::decode(&private_data).map(|r| r.status), Some(-23));
        assert_eq!(ConnPrivateData::decode(&private_data[..7]), None);
        private_data[7] += 1;
        assert_eq!(ConnPrivateData::decode(&private_data), None);
    }

    #[test]
    fn a_reply_never_makes_a_success_of_a_failure() {
        let reply = Reply {
            magic: MAGIC,
            address_len: 0,
            status: -23,
            err_mode: 0,
        };
        assert_eq!(Reply::decode(&reply.encode()), Some(reply));
        assert_eq!(Reply::decode(&Reply { status: 1, ..reply }.encode()), None);
    }
}
