//! Where lanes lead.

use super::contract::QpTransport;
use super::network::Network;
use super::networks::networks;
use super::{IfaceKind, tcp};

macro_rules! lane_target {
    ($($(#[$cfg:meta])* $Kind:ident $net:ident $Context:ident;)* @) => {
        /// Where a worker is to be connected to that cannot be reached by shared memory.
        #[derive(Clone, Debug)]
        pub enum LaneTarget {
            $($(#[$cfg])* $Kind(<super::$net::context::$Context as Network>::PeerTarget),)*
        }

        impl LaneTarget {
            /// The interface that connects to it.
            pub fn iface(&self) -> IfaceKind {
                match self {
                    $($(#[$cfg])* LaneTarget::$Kind(_) => IfaceKind::$Kind,)*
                }
            }
        }
    };
}
networks!(lane_target);

/// Where TCP reaches a worker: the lane in place of one that cannot be made.
pub type FallbackTarget = tcp::TcpTarget;

impl LaneTarget {
    /// The interface that connects to the target of a fallback.
    pub const FALLBACK: IfaceKind = IfaceKind::SOCKETS;

    /// The kind of queue pair that will reach it, as far as is known before it is connected.
    pub fn qp_transport(&self) -> QpTransport {
        match self {
            LaneTarget::Ib(_) => QpTransport::Unknown,
            _ => QpTransport::None,
        }
    }

    /// Whether messages to it go by a ring that a device writes in its memory.
    pub fn has_ring(&self) -> bool {
        matches!(self, LaneTarget::Tofu(_))
    }

    /// Whether TCP connects where its network cannot, which shows only when it tries.
    pub fn may_fall_back(&self) -> bool {
        matches!(self, LaneTarget::Ofi(_))
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
