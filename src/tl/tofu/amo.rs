//! Atomic operations as adapters do them: on 4 or 8 bytes, in one step, which tells what was there before.
#![forbid(unsafe_code)]

use super::utofu::{self, TniCaps};
use std::ffi::c_int;

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AmoVerb {
    Swap,
    Add,
    Xor,
    And,
    Or,
    CompareSwap,
}

/// With how many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AmoWidth {
    Four,
    Eight,
}

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TofuAmo {
    pub verb: AmoVerb,
    pub width: AmoWidth,
    /// The operand; of a compare-and-swap what is to be there afterwards.
    pub value: u64,
    /// Of a compare-and-swap what has to be there.
    pub compare: u64,
}

/// What adapters offer: none of them by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AmoCaps(u64);

impl AmoVerb {
    /// uTofu's number; a compare-and-swap is a call of its own.
    pub fn code(self) -> c_int {
        match self {
            AmoVerb::Swap => utofu::ARMW_SWAP,
            AmoVerb::Add => utofu::ARMW_ADD,
            AmoVerb::Xor => utofu::ARMW_XOR,
            AmoVerb::And => utofu::ARMW_AND,
            AmoVerb::Or => utofu::ARMW_OR,
            AmoVerb::CompareSwap => 0,
        }
    }

    /// Whether it is of no use without what was there before.
    #[inline(always)]
    pub fn needs_reply(self) -> bool {
        matches!(self, AmoVerb::Swap | AmoVerb::CompareSwap)
    }

    fn bit(self) -> u64 {
        match self {
            AmoVerb::Swap => utofu::CAP_SWAP,
            AmoVerb::Add => utofu::CAP_ADD,
            AmoVerb::Xor => utofu::CAP_XOR,
            AmoVerb::And => utofu::CAP_AND,
            AmoVerb::Or => utofu::CAP_OR,
            AmoVerb::CompareSwap => utofu::CAP_CSWAP,
        }
    }
}

impl AmoWidth {
    /// Bytes.
    pub fn bytes(self) -> usize {
        match self {
            AmoWidth::Four => 4,
            AmoWidth::Eight => 8,
        }
    }
}

impl TofuAmo {
    /// Adds to 8 bytes.
    pub fn add(value: u64) -> TofuAmo {
        TofuAmo {
            verb: AmoVerb::Add,
            width: AmoWidth::Eight,
            value,
            compare: 0,
        }
    }
}

impl AmoCaps {
    /// What all of these offer.
    pub fn by_all<'a>(caps: impl Iterator<Item = &'a TniCaps>) -> AmoCaps {
        let of_one = |caps: &TniCaps| match caps.flags & utofu::CAP_ARMW {
            0 => 0,
            _ => caps.armw_ops,
        };
        AmoCaps(caps.map(of_one).reduce(|a, b| a & b).unwrap_or(0))
    }

    #[inline(always)]
    pub fn has(self, verb: AmoVerb) -> bool {
        self.0 & verb.bit() != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_adapter_lacks_nobody_offers() {
        let caps = |flags, armw_ops| TniCaps {
            flags,
            armw_ops,
            ..TniCaps::default()
        };
        let all = caps(utofu::CAP_ARMW, 0x3f);
        let no_xor = caps(utofu::CAP_ARMW, 0x3f & !utofu::CAP_XOR);
        let none = caps(0, 0x3f);
        assert!(AmoCaps::by_all([all].iter()).has(AmoVerb::Xor));
        let some = AmoCaps::by_all([all, no_xor].iter());
        assert!(!some.has(AmoVerb::Xor) && some.has(AmoVerb::CompareSwap));
        assert!(!AmoCaps::by_all([all, none].iter()).has(AmoVerb::Add));
        assert!(!AmoCaps::by_all([].iter()).has(AmoVerb::Add));
    }
}
