//! Atomic operations of TNIs: on 4 or 8 bytes, and each can fetch the value before it.
#![forbid(unsafe_code)]

use super::utofu::{self, ArmwOps, TniCaps, TniFlags};
use crate::tl::amo::{ADD, AND, AmoOp, CSWAP, OR, SWAP, XOR};
use std::ffi::c_int;

/// The kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AmoVerb {
    Swap,
    Add,
    Xor,
    And,
    Or,
    CompareSwap,
}

/// Length of the operand.
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
    /// The operand; of a compare-and-swap the new value.
    pub value: u64,
    /// The value that a compare-and-swap expects.
    pub compare: u64,
}

/// Operations that TNIs support: none by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AmoCaps(ArmwOps);

impl AmoVerb {
    /// The TNI's operation for a number of `ucp_atomic_op_t`.
    pub fn of(op: u8) -> Option<AmoVerb> {
        Some(match op {
            ADD => AmoVerb::Add,
            SWAP => AmoVerb::Swap,
            CSWAP => AmoVerb::CompareSwap,
            AND => AmoVerb::And,
            OR => AmoVerb::Or,
            XOR => AmoVerb::Xor,
            _ => return None,
        })
    }

    /// uTofu's number; a compare-and-swap has a function of its own.
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

    /// Whether the operation is of no use without the fetched value.
    #[inline(always)]
    pub fn needs_reply(self) -> bool {
        matches!(self, AmoVerb::Swap | AmoVerb::CompareSwap)
    }

    fn bit(self) -> ArmwOps {
        match self {
            AmoVerb::Swap => ArmwOps::SWAP,
            AmoVerb::Add => ArmwOps::ADD,
            AmoVerb::Xor => ArmwOps::XOR,
            AmoVerb::And => ArmwOps::AND,
            AmoVerb::Or => ArmwOps::OR,
            AmoVerb::CompareSwap => ArmwOps::CSWAP,
        }
    }
}

impl AmoWidth {
    /// Length in bytes.
    pub fn bytes(self) -> usize {
        match self {
            AmoWidth::Four => 4,
            AmoWidth::Eight => 8,
        }
    }
}

impl TofuAmo {
    /// `None`: TNIs do not have the operation.
    #[inline(always)]
    pub fn new(amo: AmoOp) -> Option<TofuAmo> {
        let width = match amo.size {
            4 => AmoWidth::Four,
            8 => AmoWidth::Eight,
            _ => return None,
        };
        Some(TofuAmo {
            verb: AmoVerb::of(amo.op)?,
            width,
            value: amo.value,
            compare: amo.compare,
        })
    }

    /// An addition to 8 bytes.
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
    /// Operations that all of these TNIs support.
    pub fn by_all<'a>(caps: impl Iterator<Item = &'a TniCaps>) -> AmoCaps {
        let of_one = |caps: &TniCaps| {
            if caps.flags.contains(TniFlags::ARMW) {
                caps.armw_ops
            } else {
                ArmwOps::empty()
            }
        };
        AmoCaps(caps.map(of_one).reduce(|a, b| a & b).unwrap_or_default())
    }

    /// Whether all of the TNIs execute this operation.
    #[inline(always)]
    pub fn has(self, verb: AmoVerb) -> bool {
        self.0.intersects(verb.bit())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offers_are_the_common_subset() {
        let caps = |flags, armw_ops| TniCaps {
            flags,
            armw_ops,
            ..TniCaps::default()
        };
        let six = ArmwOps::from_bits_retain(0x3f);
        let all = caps(TniFlags::ARMW, six);
        let no_xor = caps(TniFlags::ARMW, six - ArmwOps::XOR);
        let none = caps(TniFlags::empty(), six);
        assert!(AmoCaps::by_all([all].iter()).has(AmoVerb::Xor));
        let some = AmoCaps::by_all([all, no_xor].iter());
        assert!(!some.has(AmoVerb::Xor) && some.has(AmoVerb::CompareSwap));
        assert!(!AmoCaps::by_all([all, none].iter()).has(AmoVerb::Add));
        assert!(!AmoCaps::by_all([].iter()).has(AmoVerb::Add));
    }
}
