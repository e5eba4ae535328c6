//! Resources: what a context can use of this machine, by transport and device.

use super::proto_info;
use super::select::message::{self as select, MAX_EAGER};
use crate::engine::policy::Policy;
use crate::options::Options;
use crate::tl::shm::info::MemoryUse;
use crate::tl::tcp::options::TcpPolicy;
use crate::tl::{Resource, ib, shm, tcp, tofu};

/// Resources that the options allow, preferred first.
pub fn of(options: &Options, policy: &Policy) -> Vec<Resource> {
    let memory = MemoryUse {
        loopback: policy.loopback,
        shm: policy.shm,
        cma: policy.cma,
    };
    let mut all = shm::info::resources(options, memory, MAX_EAGER);
    let ports = ib::info::resources(options, MAX_EAGER);
    let adapters: Vec<String> = ports.iter().map(|port| port.device.clone()).collect();
    all.extend(ports);
    if options.tls.allows("tofu") {
        all.extend(tofu::info::resources(&options.net_devices, MAX_EAGER));
    }
    if options.tls.allows("tcp") {
        let policy = TcpPolicy::new(options);
        let longest = |in_place| proto_info::size(select::longest_by_socket(&policy, in_place));
        let adapters: Vec<&str> = adapters.iter().map(String::as_str).collect();
        let (bcopy, zcopy) = (longest(false), longest(true));
        all.extend(tcp::info::resources(options, &adapters, &bcopy, &zcopy));
    }
    all
}
