//! Atomic operations as adapters do them: on 4 or 8 bytes, in one step, which tells what was there before.
#![forbid(unsafe_code)]

use super::utofu::{self, Caps};
use std::ffi::c_int;

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Swap,
    Add,
    Xor,
    And,
    Or,
    CompareSwap,
}

/// With how many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    Four,
    Eight,
}

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    pub verb: Verb,
    pub width: Width,
    /// The operand; of a compare-and-swap what is to be there afterwards.
    pub value: u64,
    /// Of a compare-and-swap what has to be there.
    pub compare: u64,
}

/// What adapters offer: none of them by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offered(u64);

impl Verb {
    /// uTofu's number; a compare-and-swap is a call of its own.
    pub fn code(self) -> c_int {
        match self {
            Verb::Swap => utofu::ARMW_SWAP,
            Verb::Add => utofu::ARMW_ADD,
            Verb::Xor => utofu::ARMW_XOR,
            Verb::And => utofu::ARMW_AND,
            Verb::Or => utofu::ARMW_OR,
            Verb::CompareSwap => 0,
        }
    }

    /// Whether it is of no use without what was there before.
    #[inline(always)]
    pub fn needs_reply(self) -> bool {
        matches!(self, Verb::Swap | Verb::CompareSwap)
    }

    fn bit(self) -> u64 {
        match self {
            Verb::Swap => utofu::CAP_SWAP,
            Verb::Add => utofu::CAP_ADD,
            Verb::Xor => utofu::CAP_XOR,
            Verb::And => utofu::CAP_AND,
            Verb::Or => utofu::CAP_OR,
            Verb::CompareSwap => utofu::CAP_CSWAP,
        }
    }
}

impl Width {
    /// Bytes.
    pub fn bytes(self) -> usize {
        match self {
            Width::Four => 4,
            Width::Eight => 8,
        }
    }
}

impl Step {
    /// Adds to 8 bytes.
    pub fn add(value: u64) -> Step {
        Step {
            verb: Verb::Add,
            width: Width::Eight,
            value,
            compare: 0,
        }
    }
}

impl Offered {
    /// What all of these offer.
    pub fn by_all<'a>(caps: impl Iterator<Item = &'a Caps>) -> Offered {
        let of_one = |caps: &Caps| match caps.flags & utofu::CAP_ARMW {
            0 => 0,
            _ => caps.armw_ops,
        };
        Offered(caps.map(of_one).reduce(|a, b| a & b).unwrap_or(0))
    }

    #[inline(always)]
    pub fn has(self, verb: Verb) -> bool {
        self.0 & verb.bit() != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_adapter_lacks_nobody_offers() {
        let caps = |flags, armw_ops| Caps {
            flags,
            armw_ops,
            ..Caps::default()
        };
        let all = caps(utofu::CAP_ARMW, 0x3f);
        let no_xor = caps(utofu::CAP_ARMW, 0x3f & !utofu::CAP_XOR);
        let none = caps(0, 0x3f);
        assert!(Offered::by_all([all].iter()).has(Verb::Xor));
        let some = Offered::by_all([all, no_xor].iter());
        assert!(!some.has(Verb::Xor) && some.has(Verb::CompareSwap));
        assert!(!Offered::by_all([all, none].iter()).has(Verb::Add));
        assert!(!Offered::by_all([].iter()).has(Verb::Add));
    }
}
