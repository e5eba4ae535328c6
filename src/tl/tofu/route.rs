//! The path of a connection through the network.
//!
//! A path is given by the coordinates a, b, c at which packets turn to x, y, z. The default path depends on the two
//! nodes only. All paths that turn, axis by axis, at the sender's or at the receiver's coordinate are equally short;
//! each connection takes one of these by a hash of both its ends, so that connections between two nodes, or over common
//! links, are spread. A connection keeps its path: puts are in order only on one path.
#![forbid(unsafe_code)]

/// Number of a path's coordinates, and their position among the six of a node.
const AXES: usize = 3;
const FIRST: usize = 3;

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteEnd {
    /// x, y, z, a, b, c.
    pub coords: [u8; 6],
    pub tni: u16,
}

impl RouteEnd {
    fn word(self) -> u64 {
        let coords = self.coords.iter();
        coords.fold(self.tni.into(), |word, &c| word << 8 | u64::from(c))
    }
}

/// The path from one end to another.
pub fn between(from: RouteEnd, to: RouteEnd) -> [u8; AXES] {
    // Two rounds of multiplicative (Fibonacci) hashing: neighbours get different bits.
    const MIX: u64 = 0x9E37_79B9_7F4A_7C15;
    let mix = |word: u64| (word ^ word >> 29).wrapping_mul(MIX);
    let bits = mix(mix(mix(from.word()) ^ to.word())) >> 32;
    std::array::from_fn(|axis| match bits >> axis & 1 {
        0 => to.coords[FIRST + axis],
        _ => from.coords[FIRST + axis],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// All positions in a unit of twelve nodes.
    fn unit(x: u8) -> impl Iterator<Item = [u8; 6]> {
        (0..12).map(move |n| [x, 0, 0, n % 2, n / 2 % 3, n / 6])
    }

    #[test]
    fn paths_are_as_short_as_the_default_and_spread() {
        let mut taken = BTreeSet::new();
        for (from, to) in unit(0).flat_map(|from| unit(1).map(move |to| (from, to))) {
            for tni in 0..36 {
                let from = RouteEnd {
                    coords: from,
                    tni: tni % 6,
                };
                let to = RouteEnd {
                    coords: to,
                    tni: tni / 6,
                };
                let path = between(from, to);
                assert_eq!(path, between(from, to), "always the same");
                for (axis, at) in path.iter().enumerate() {
                    let ends = [from.coords[FIRST + axis], to.coords[FIRST + axis]];
                    assert!(ends.contains(at), "no further than it is");
                }
                if from.coords[FIRST..] == [0, 0, 0] && to.coords[FIRST..] == [1, 2, 1] {
                    taken.insert(path);
                }
            }
        }
        assert_eq!(taken.len(), 8, "all that there are, by 36 connections");
    }
}
