//! Selects what executes atomic operations on a context's memory (`UCX_ATOMIC_MODE`): processors, or for words of 8
//! bytes a device. TNIs of the Tofu interconnect, which execute those on words of 4 and 8 bytes, precede both
//! (`tl::tofu`).
//!
//! Atomic operations of most devices are atomic only among operations of the same device (`IBV_ATOMIC_HCA`), not with
//! those of processors; those of TNIs are atomic with those of all other TNIs, but not with those of processors. So one
//! kind executes all atomic operations on a region as long as a key to it exists: the owner of the region selects it,
//! and the key names it.

use super::port::Port;
use super::rkey::RkeyAtomics;
use crate::options::{AtomicMode, Options};
use crate::sys::log;
use crate::wire::ib_port::MAX_PORTS;
use std::sync::Arc;

/// The device that executes them, as a mask of its ports; default: processors execute them. `by_queue`: each peer gets
/// a queue pair; `wanted`: the program uses such operations, and no TNI executes them; `one_host`: all processes of the
/// job are on this host, where processors reach all memory.
pub fn choose(
    options: &Options,
    ports: &[Arc<Port>],
    by_queue: bool,
    wanted: bool,
    one_host: bool,
) -> RkeyAtomics {
    let mode = options.atomic_mode;
    let by_device = match mode {
        AtomicMode::Cpu => false,
        AtomicMode::Device => true,
        AtomicMode::Guess => !one_host,
    };
    let ports = &ports[..ports.len().min(MAX_PORTS)];
    let first = ports.iter().find(|port| port.hca.has_atomics());
    let device = first.filter(|_| by_queue && by_device && wanted);
    let Some(device) = device.map(|port| &port.hca) else {
        if mode == AtomicMode::Device && wanted {
            log::diag!("no device executes atomic operations (UCX_ATOMIC_MODE): processors do");
        }
        return RkeyAtomics::default();
    };
    // Atomic operations of two devices are not atomic with each other, those of two ports of one device are.
    let same = |(_, port): &(usize, &Arc<Port>)| Arc::ptr_eq(&port.hca, device);
    let behind = ports.iter().enumerate().filter(same);
    RkeyAtomics {
        port_mask: behind.fold(0, |bits, (i, _)| bits | 1 << i),
        alone: !device.has_global_atomics(),
    }
}
