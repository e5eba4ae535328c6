//! Greetings: what the two ends of a connection say before the first message.
//!
//! Who connects sends a greeting, and nothing more until he has an answer. So a connection that is
//! given up, because the other end had begun one as well, never had messages in it.
#![forbid(unsafe_code)]

use super::le_struct::packed;

/// "rucp", and after it "tcp" with a version: greetings of other versions are no greetings.
pub const MAGIC: u64 = u64::from_le_bytes(*b"rucptcp\x01");

/// The connection is to the worker that the secret belongs to.
pub const TO_WORKER: u32 = 0;
/// The connection is to a listener; whoever takes it answers with his identity.
pub const TO_LISTENER: u32 = 1;
/// The connection is to the worker's queue pairs: letters ([`super::ib_packet::TcpWireupMsg`]) go both ways, and no
/// answer comes.
pub const TO_QUEUES: u32 = 2;

packed! {
    /// What who connects sends.
    Greeting, 48 {
        magic: u64,
        /// What he connects to: [`TO_WORKER`], [`TO_LISTENER`], [`TO_QUEUES`].
        purpose: u32,
        /// How often he has lost the worker that he wants: a connection of fewer losses is one of those.
        losses: u32,
        /// His worker.
        from: u64,
        /// The worker that he wants; 0 if it is a listener.
        to: u64,
        /// What the address of that worker says; 0 for a listener.
        secret: u64,
        /// What his application calls his worker (`ucp_worker_params_t.client_id`); 0 if nothing.
        client_id: u64,
    } valid when |g| g.magic == MAGIC && g.purpose <= TO_QUEUES
}

/// Welcome: messages may follow, in both directions.
pub const WELCOME: u32 = 1;
/// This connection is not needed: another one, from the answering worker, is on its way.
pub const CROSSED: u32 = 2;
/// The listener's application does not want it.
pub const REJECTED: u32 = 3;

packed! {
    /// What the other end answers.
    Answer, 24 {
        magic: u64,
        /// [`WELCOME`], [`CROSSED`], [`REJECTED`].
        verdict: u32,
        /// How often the answering worker has lost the one that asks.
        losses: u32,
        /// The answering worker.
        uid: u64,
    } valid when |a| a.magic == MAGIC && (WELCOME..=REJECTED).contains(&a.verdict)
}

/// Whether a greeting names this worker and knows its secret. Takes as long whatever is wrong.
pub fn is_for(greeting: &Greeting, uid: u64, secret: u64) -> bool {
    let wrong = (greeting.to ^ uid) | (greeting.secret ^ secret);
    std::hint::black_box(wrong) == 0 && greeting.purpose != TO_LISTENER
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: Greeting = Greeting {
        magic: MAGIC,
        purpose: TO_WORKER,
        losses: 0,
        from: 1,
        to: 2,
        secret: 3,
        client_id: 0,
    };

    #[test]
    fn only_who_knows_the_secret_is_let_in() {
        assert!(is_for(&GOOD, 2, 3));
        assert!(!is_for(&GOOD, 2, 4));
        assert!(!is_for(&GOOD, 5, 3));
        let listener = Greeting {
            purpose: TO_LISTENER,
            ..GOOD
        };
        assert!(!is_for(&listener, 2, 3));
        let queues = Greeting {
            purpose: TO_QUEUES,
            ..GOOD
        };
        assert!(is_for(&queues, 2, 3) && !is_for(&queues, 2, 4));
    }

    #[test]
    fn other_protocols_are_no_greetings() {
        assert_eq!(Greeting::decode(&GOOD.encode()), Some(GOOD));
        let http = *b"GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n";
        assert_eq!(Greeting::decode(&http), None);
        let later = Greeting {
            magic: MAGIC + (1 << 56),
            ..GOOD
        };
        assert_eq!(Greeting::decode(&later.encode()), None);
        assert_eq!(Greeting::decode(&GOOD.encode()[..47]), None);
    }
}
