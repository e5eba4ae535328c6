//! Events that wake a sleeping program.

/// Events that wake a sleeping program.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ucp_wakeup_event_types {
    /// A put or get completed.
    UCP_WAKEUP_RMA = 1 << 0,
    /// An atomic completed.
    UCP_WAKEUP_AMO = 1 << 1,
    /// A tag send completed.
    UCP_WAKEUP_TAG_SEND = 1 << 2,
    /// A tag receive completed.
    UCP_WAKEUP_TAG_RECV = 1 << 3,
    /// Any outgoing operation completed.
    UCP_WAKEUP_TX = 1 << 10,
    /// Any incoming operation completed.
    UCP_WAKEUP_RX = 1 << 11,
    /// Report each event once, not while it lasts.
    UCP_WAKEUP_EDGE = 1 << 16,
}
pub use ucp_wakeup_event_types::*;
/// Events that wake a sleeping program.
pub type ucp_wakeup_event_t = ucp_wakeup_event_types;
