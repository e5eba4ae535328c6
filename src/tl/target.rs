//! Where lanes lead.

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
    pub const FALLBACK: IfaceKind = IfaceKind::Tcp;

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
