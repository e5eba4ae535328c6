//! The paths from the ports of this worker to the ports of a peer.

use super::port::Port;
use crate::wire::ib_port::PortLocator;
use std::cmp::Reverse;

/// One such path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortPair {
    /// Index of the own interface.
    pub iface: usize,
    /// Index of the port in the peer's address.
    pub far: u8,
    pub port: PortLocator,
}

/// All paths, the best first: by speed, then those without a router, then those between ports of the same index, which
/// are usually cabled to each other.
pub fn between<'a>(
    ours: impl IntoIterator<Item = &'a Port>,
    theirs: &[PortLocator],
) -> Vec<PortPair> {
    let pairs = ours.into_iter().enumerate().flat_map(|(iface, own)| {
        let to = (0..).zip(theirs.iter().copied());
        to.filter_map(move |(far, port)| {
            let distance = own.distance(&port)?;
            let mbps = own.mbps.min(port.mbps());
            let rank = (
                mbps,
                distance,
                iface == usize::from(far),
                Reverse((iface, far)),
            );
            Some((rank, PortPair { iface, far, port }))
        })
    });
    let mut ranked: Vec<_> = pairs.collect();
    ranked.sort_by_key(|&(rank, _)| Reverse(rank));
    ranked.into_iter().map(|(_, path)| path).collect()
}
