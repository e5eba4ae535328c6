//! The ways from ports of ours to ports of a peer's.

use super::port::Port;
use crate::wire::address::PortLocator;
use std::cmp::Reverse;

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortPair {
    /// Number of the own interface.
    pub iface: usize,
    /// Number of the port among those of the peer's address.
    pub far: u8,
    pub port: PortLocator,
}

/// All there are, the best first: fast ones, then those without a router, then those between ports of the same number,
/// because they are cabled so.
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
    ranked.into_iter().map(|(_, way)| way).collect()
}
