//! Where lanes lead.

use super::{IfaceKind, ib, tcp, tofu};

/// Where a worker is to be connected to that cannot be reached by shared memory.
#[derive(Clone, Debug)]
pub enum LaneTarget {
    Ib(ib::IbTarget),
    Tofu(tofu::TofuTarget),
    Tcp(tcp::TcpTarget),
}

/// Where TCP reaches a worker: the lane in place of one that cannot be made.
pub type FallbackTarget = tcp::TcpTarget;

impl LaneTarget {
    /// The interface that connects to it.
    pub fn iface(&self) -> IfaceKind {
        match self {
            LaneTarget::Ib(_) => IfaceKind::Ib,
            LaneTarget::Tofu(_) => IfaceKind::Tofu,
            LaneTarget::Tcp(_) => IfaceKind::Tcp,
        }
    }

    /// The target as that of a fallback, if it is one of TCP.
    pub fn fallback(&self) -> Option<&FallbackTarget> {
        match self {
            LaneTarget::Tcp(target) => Some(target),
            _ => None,
        }
    }
}

impl From<FallbackTarget> for LaneTarget {
    fn from(target: FallbackTarget) -> LaneTarget {
        LaneTarget::Tcp(target)
    }
}
