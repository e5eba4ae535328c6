//! Which protocol carries a message: a pure function of its size and what the user asked for.
#![forbid(unsafe_code)]

/// Longest message that is copied through a ring whole, user header included, bytes.
pub const MAX_EAGER: usize = 24 << 10;
/// Longest part of a longer message that goes through a ring in one piece, bytes.
pub const FRAGMENT: usize = 16 << 10;
/// How the payload gets to the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// With the message.
    Eager,
    /// When the receiver asks for it.
    Rendezvous,
}

/// What the user forces for an active message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    None,
    Eager,
    Rendezvous,
}

/// `len`: bytes of the message; `extra`: of the user's header; `thresh`: longest eager message.
#[inline(always)]
pub fn protocol(len: usize, extra: usize, thresh: usize, wish: Wish) -> Protocol {
    let fits = len <= MAX_EAGER && len + extra <= MAX_EAGER + 8192;
    let eager = match wish {
        Wish::Eager => fits,
        Wish::None => fits && len <= thresh,
        Wish::Rendezvous => false,
    };
    if eager {
        Protocol::Eager
    } else {
        Protocol::Rendezvous
    }
}

const _: () = assert!(
    cfg!(loom)
        || MAX_EAGER + 8192 <= crate::tl::shm::ring::MAX_RECORD
            && FRAGMENT + 32 <= crate::tl::shm::ring::MAX_RECORD
);

#[cfg(test)]
mod tests {
    use super::*;

    const THRESH: usize = 16 << 10;

    #[test]
    fn thresholds_and_wishes() {
        use Protocol::{Eager, Rendezvous};
        assert_eq!(protocol(0, 0, 0, Wish::None), Eager);
        assert_eq!(protocol(1, 0, 0, Wish::None), Rendezvous);
        assert_eq!(protocol(THRESH, 0, THRESH, Wish::None), Eager);
        assert_eq!(protocol(THRESH + 1, 0, THRESH, Wish::None), Rendezvous);
        assert_eq!(
            protocol(usize::MAX, 8192, usize::MAX, Wish::None),
            Rendezvous,
            "what no ring holds"
        );
        assert_eq!(protocol(MAX_EAGER, 8192, 0, Wish::Eager), Eager);
        assert_eq!(protocol(8, 0, usize::MAX, Wish::Rendezvous), Rendezvous);
    }
}
