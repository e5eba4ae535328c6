//! InfiniBand's section of a worker address: which ports of two workers lead to each other.

use super::IbTarget;
use super::context::IbContext;
use super::paths;
use crate::tl::oob::OobTarget;
use crate::wire::address::{IbLocator, PortLocator, WorkerAddress};

impl IbContext {
    /// How queue pairs of the worker at `own` lead to that at `to`, if they do.
    pub fn target(&self, own: &WorkerAddress, to: &WorkerAddress) -> Option<IbTarget> {
        let (ours, theirs) = (own.ib.as_ref()?, to.ib.as_ref()?);
        let ports = self.ports.get(..ours.ports.len())?;
        if !ours.shares_transport(theirs) {
            return None;
        }
        let wireup_tcp = if takes_datagrams(ours) && takes_datagrams(theirs) {
            None
        } else {
            Some(OobTarget::oob_between(own, to)?)
        };
        let paths = paths::between(ports.iter().map(|port| &**port), &theirs.ports);
        let others: &[PortLocator] = if paths.len() > 1 { &theirs.ports } else { &[] };
        Some(IbTarget {
            path: *paths.first()?,
            ports: others.into(),
            secret: theirs.secret,
            wireup_tcp,
        })
    }
}

/// Whether every port in the address has a UD queue pair.
fn takes_datagrams(locator: &IbLocator) -> bool {
    locator.ports.iter().all(|port| port.qpn != 0)
}

/// Why queue pairs do not lead from the worker at `own` to that at `to`, though both have some.
pub fn obstacle(own: &WorkerAddress, to: &WorkerAddress) -> Option<&'static str> {
    let (ours, theirs) = (own.ib.as_ref()?, to.ib.as_ref()?);
    if !ours.shares_transport(theirs) {
        return Some(
            "one end has messages go by rc only, the other by ud only (UCX_TLS, UCX_RC_MAX_NUM_EPS)",
        );
    }
    let differ = takes_datagrams(ours) != takes_datagrams(theirs);
    (differ && OobTarget::oob_between(own, to).is_none()).then_some(
        "ud is excluded at one end, where queue pairs are connected by TCP, and the other end has none (UCX_TLS)",
    )
}
