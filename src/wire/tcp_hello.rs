//! Hello messages: exchanged on a TCP connection before the first message.
//!
//! The connecting process sends a hello, and nothing more until the answer. So a connection that is closed because both
//! ends connected at once never carried messages.
#![forbid(unsafe_code)]

use super::le_struct::packed;

/// "rucp", and after it "tcp" with a version: a hello of another version is rejected.
pub const MAGIC: u64 = u64::from_le_bytes(*b"rucptcp\x01");

/// Purpose of a connection to the worker that the secret belongs to.
pub const TO_WORKER: u32 = 0;
/// Purpose of a connection to a listener; the accepting worker answers with its uid.
pub const TO_LISTENER: u32 = 1;
/// Purpose of a connection for the wireup of queue pairs: [`super::ib_packet::TcpWireupMsg`] go in both directions, and
/// no answer is sent.
pub const TO_QUEUES: u32 = 2;

packed! {
    /// Message of the connecting process.
    TcpHello, 48 {
        magic: u64,
        /// Purpose of the connection: [`TO_WORKER`], [`TO_LISTENER`], [`TO_QUEUES`].
        purpose: u32,
        /// How often the sender has lost the receiver's worker: a connection with fewer losses is an old one.
        losses: u32,
        /// Uid of the sender's worker.
        from: u64,
        /// Uid of the worker to connect to; 0 if it is a listener.
        to: u64,
        /// The secret in the address of that worker; 0 for a listener.
        secret: u64,
        /// Client id of the sender's worker (`ucp_worker_params_t.client_id`); 0 if none was given.
        client_id: u64,
    } valid when |g| g.magic == MAGIC && g.purpose <= TO_QUEUES
}

/// Accepted: messages may follow, in both directions.
pub const WELCOME: u32 = 1;
/// This connection is closed: the answering worker connects itself at the same time.
pub const CROSSED: u32 = 2;
/// The listener's program rejects it.
pub const REJECTED: u32 = 3;

packed! {
    /// Answer to a hello.
    Answer, 24 {
        magic: u64,
        /// [`WELCOME`], [`CROSSED`], [`REJECTED`].
        verdict: u32,
        /// How often the answering worker has lost the connecting one.
        losses: u32,
        /// Uid of the answering worker.
        uid: u64,
    } valid when |a| a.magic == MAGIC && (WELCOME..=REJECTED).contains(&a.verdict)
}

/// Whether a hello names this worker and has its secret. Takes constant time.
pub fn is_for(hello: &TcpHello, uid: u64, secret: u64) -> bool {
    let wrong = (hello.to ^ uid) | (hello.secret ^ secret);
    std::hint::black_box(wrong) == 0 && hello.purpose != TO_LISTENER
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: TcpHello = TcpHello {
        magic: MAGIC,
        purpose: TO_WORKER,
        losses: 0,
        from: 1,
        to: 2,
        secret: 3,
        client_id: 0,
    };

    #[test]
    fn a_hello_needs_the_secret() {
        assert!(is_for(&GOOD, 2, 3));
        assert!(!is_for(&GOOD, 2, 4));
        assert!(!is_for(&GOOD, 5, 3));
        let listener = TcpHello {
            purpose: TO_LISTENER,
            ..GOOD
        };
        assert!(!is_for(&listener, 2, 3));
        let queues = TcpHello {
            purpose: TO_QUEUES,
            ..GOOD
        };
        assert!(is_for(&queues, 2, 3) && !is_for(&queues, 2, 4));
    }

    #[test]
    fn other_protocols_are_refused() {
        assert_eq!(TcpHello::decode(&GOOD.encode()), Some(GOOD));
        let http = *b"GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n";
        assert_eq!(TcpHello::decode(&http), None);
        let later = TcpHello {
            magic: MAGIC + (1 << 56),
            ..GOOD
        };
        assert_eq!(TcpHello::decode(&later.encode()), None);
        assert_eq!(TcpHello::decode(&GOOD.encode()[..47]), None);
    }
}
