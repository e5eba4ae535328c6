//! Resources: what a context can use of this machine, by transport and device.

use super::proto_info;
use super::select::message::{self as select, MAX_EAGER};
use crate::engine::policy::Policy;
use crate::options::Options;
use crate::tl::Resource;
use crate::tl::contract::AmLimits;
use crate::tl::resources::{self, MemoryUse, ResourceQuery};

/// Resources that the options allow, preferred first.
pub fn of(options: &Options, policy: &Policy) -> Vec<Resource> {
    let memory = MemoryUse {
        loopback: policy.loopback,
        shm: policy.shm,
        cma: policy.cma,
    };
    let longest =
        |limits: &AmLimits, in_place| proto_info::size(select::longest_by_socket(limits, in_place));
    let query = ResourceQuery {
        options,
        max_eager: MAX_EAGER,
        longest: &longest,
        adapters: Vec::new(),
    };
    resources::all(query, memory)
}
