//! InfiniBand's section of a worker address: which ports of two workers lead to each other.
#![forbid(unsafe_code)]

use super::IbTarget;
use super::context::IbContext;
use super::paths;
use crate::tl::oob::OobTarget;
use crate::wire::ib_port::{MAX_PORTS, PortFlags, PortLocator};

/// The InfiniBand section: `secret (8)`, then the ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IbLocator {
    /// Secret that a HELLO has to carry.
    pub secret: u64,
    /// At most [`MAX_PORTS`].
    pub ports: Vec<PortLocator>,
}

impl IbLocator {
    /// Whether both workers send messages by a common transport. A worker without these flags (an earlier version) may
    /// use both.
    pub fn shares_transport(&self, other: &IbLocator) -> bool {
        const ALL: PortFlags = PortFlags::QUEUES.union(PortFlags::DATAGRAMS);
        let transports = |l: &IbLocator| {
            let flags = l.ports.first().map(|p| p.flags & ALL);
            flags.filter(|flags| !flags.is_empty()).unwrap_or(ALL)
        };
        transports(self).intersects(transports(other))
    }

    /// The body of the section.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = self.secret.to_le_bytes().to_vec();
        for port in self.ports.iter().take(MAX_PORTS) {
            body.extend(port.encode());
        }
        body
    }

    /// Decodes the body of a section. `None`: it is malformed.
    pub fn decode(body: &[u8]) -> Option<IbLocator> {
        let (secret, rest) = body.split_first_chunk()?;
        let ports = rest.chunks(PortLocator::SIZE).map(PortLocator::decode);
        let ports: Vec<_> = ports.collect::<Option<_>>()?;
        (ports.len() <= MAX_PORTS).then_some(IbLocator {
            secret: u64::from_le_bytes(*secret),
            ports,
        })
    }
}

impl IbContext {
    /// How queue pairs of a worker with the section `own` lead to that with the section `to`, if they do. `oob`: where
    /// out-of-band connections lead to it.
    pub fn target_at(
        &self,
        own: Option<&IbLocator>,
        to: Option<&IbLocator>,
        oob: impl FnOnce() -> Option<OobTarget>,
    ) -> Option<IbTarget> {
        let (ours, theirs) = (own?, to?);
        let ports = self.ports.get(..ours.ports.len())?;
        if !ours.shares_transport(theirs) {
            return None;
        }
        let wireup_tcp = if takes_datagrams(ours) && takes_datagrams(theirs) {
            None
        } else {
            Some(oob()?)
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

/// Why queue pairs do not lead from a worker with the section `own` to that with the section `to`. `has_oob`: whether
/// out-of-band connections do.
pub fn obstacle(
    own: Option<&IbLocator>,
    to: Option<&IbLocator>,
    has_oob: impl FnOnce() -> bool,
) -> Option<&'static str> {
    let (ours, theirs) = (own?, to?);
    if !ours.shares_transport(theirs) {
        return Some(
            "one end has messages go by rc only, the other by ud only (UCX_TLS, UCX_RC_MAX_NUM_EPS)",
        );
    }
    let differ = takes_datagrams(ours) != takes_datagrams(theirs);
    (differ && !has_oob()).then_some(
        "ud is excluded at one end, where queue pairs are connected by TCP, and the other end has none (UCX_TLS)",
    )
}
