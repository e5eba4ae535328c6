//! Tofu's section of a worker address.

use super::TofuTarget;
use super::context::TofuContext;
use crate::wire::address::WorkerAddress;

impl TofuTarget {
    /// Where the interconnect leads from the worker at `own` to that at `to`, if both have it.
    pub fn between(own: &WorkerAddress, to: &WorkerAddress) -> Option<TofuTarget> {
        own.tofu?;
        Some(TofuTarget { locator: to.tofu? })
    }
}

impl TofuContext {
    /// Why no worker of a context uses the interconnect, if only its program excludes it.
    pub fn program_obstacle(&self) -> Option<&'static str> {
        self.lacks_events().then_some(
            "the program uses UCP_FEATURE_WAKEUP, for which tofu has no events; no other transport leads from one end \
             to the other (UCX_TLS)",
        )
    }
}
