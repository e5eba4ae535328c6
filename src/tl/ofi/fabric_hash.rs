//! Which workers reach each other: a hash of what they have in common.

use super::device::{OfiDevice, OfiScope};
use super::packet;
use crate::sys::{host, liveness_lock};
use fnv::FnvHasher;
use std::hash::Hasher;

/// Hash of what two workers have in common that reach each other by this device.
pub fn fabric_hash(device: &OfiDevice) -> u64 {
    let place = host::place();
    let where_valid = match device.scope() {
        OfiScope::Memory => [
            place.host,
            place.pid_ns.into(),
            liveness_lock::place().into(),
        ],
        OfiScope::Loopback | OfiScope::Link => [place.host, place.net_ns.into(), 0],
        OfiScope::Fabric => [0; 3],
    };
    let ep = device.ep();
    let numbers: [u64; 6] = [
        packet::VERSION.into(),
        ep.protocol.into(),
        device.address_format().into(),
        where_valid[0],
        where_valid[1],
        where_valid[2],
    ];
    let mut hasher = FnvHasher::default();
    hasher.write(device.provider.as_bytes());
    for number in numbers {
        hasher.write(&number.to_le_bytes());
    }
    hasher.finish()
}
