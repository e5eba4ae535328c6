//! Which events wake a sleeping program.

/// Which events wake a sleeping program.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucp_wakeup_event_types {
    /// A put or get ended.
    UCP_WAKEUP_RMA = 1 << 0,
    /// An atomic ended.
    UCP_WAKEUP_AMO = 1 << 1,
    /// A tag send ended.
    UCP_WAKEUP_TAG_SEND = 1 << 2,
    /// A tag receive ended.
    UCP_WAKEUP_TAG_RECV = 1 << 3,
    /// Anything outgoing ended.
    UCP_WAKEUP_TX = 1 << 10,
    /// Anything incoming ended.
    UCP_WAKEUP_RX = 1 << 11,
    /// Tell each event once, not while it lasts.
    UCP_WAKEUP_EDGE = 1 << 16,
}
pub use ucp_wakeup_event_types::*;
/// Which events wake a sleeping program.
pub type ucp_wakeup_event_t = ucp_wakeup_event_types;
