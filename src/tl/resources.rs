//! What the transports can use of this machine.

use super::contract::AmLimits;
use super::{Resource, ib, shm, tcp, tofu};
use crate::options::Options;
use crate::sys::log;

pub use shm::info::MemoryUse;

/// Resources that the options allow, preferred first. `max_eager`: longest message in one record, bytes. `longest`: the
/// same of a transport with limits of its own, printed; true: from user memory.
pub fn all(
    options: &Options,
    memory: MemoryUse,
    max_eager: usize,
    longest: impl Fn(&AmLimits, bool) -> String,
) -> Vec<Resource> {
    let mut all = shm::info::resources(options, memory, max_eager);
    let ports = ib::info::resources(options, max_eager);
    let adapters: Vec<String> = ports.iter().map(|port| port.device.clone()).collect();
    all.extend(ports);
    if options.tls.allows("tofu") {
        all.extend(tofu::info::resources(&options.net_devices, max_eager));
    }
    if options.tls.allows("tcp") {
        let adapters: Vec<&str> = adapters.iter().map(String::as_str).collect();
        all.extend(tcp::info::resources(options, &adapters, longest));
    }
    all
}

/// Warns of values that no transport can use.
pub fn warn_of_options(options: &Options) {
    for name in tcp::device::unknown_families(&options.tcp_af_prio) {
        log::warn!("UCX_TCP_AF_PRIO names '{name}', which is no address family");
    }
}
