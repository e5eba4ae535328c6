//! What queries and tools print of shared memory and of the loopback: their lanes and resources.

use super::ring::INLINE;
use crate::options::Options;
use crate::tl::Resource;
use crate::tl::contract::FRAGMENT;
use crate::tl::lane_info::LaneInfo;

// Measured on a virtual machine with 2 cores of an AMD EPYC: latency in seconds, bandwidth in bytes per second.
const RING: (f64, f64) = (85e-9, 5e9);
const CMA: (f64, f64) = (600e-9, 9e9);

/// A lane through a ring.
pub fn ring(transport: &'static std::ffi::CStr) -> LaneInfo {
    LaneInfo::memory(transport, RING)
}

/// A lane by copies from and to another process's memory.
pub fn cma() -> LaneInfo {
    LaneInfo::memory(c"cma", CMA)
}

/// What of the transports is to be listed.
#[derive(Clone, Copy, Debug)]
pub struct MemoryUse {
    /// A worker may send to itself.
    pub loopback: bool,
    /// Workers of one host share memory,
    pub shm: bool,
    /// and copy from and to each other's.
    pub cma: bool,
}

/// Resources of shared memory and the loopback. `max_eager`: length of the longest eager message, bytes.
pub fn resources(options: &Options, wanted: MemoryUse, max_eager: usize) -> Vec<Resource> {
    let resource = |transport, kind, capabilities| Resource {
        transport,
        device: "memory".to_owned(),
        kind,
        capabilities,
    };
    let mut all = Vec::new();
    if wanted.loopback {
        all.push(resource("self", "loopback", ring_capabilities(max_eager)));
    }
    if wanted.shm {
        let allowed = ["posix", "sysv"]
            .into_iter()
            .filter(|transport| options.tls.allows(transport));
        all.extend(allowed.map(|tl| resource(tl, "intra-node", ring_capabilities(max_eager))));
    }
    if wanted.shm && wanted.cma {
        let capabilities = vec![
            ("put_zcopy", "unlimited".into()),
            ("get_zcopy", "unlimited".into()),
            ("error handling", "peer failure".into()),
        ];
        all.push(resource("cma", "intra-node", capabilities));
    }
    all
}

fn ring_capabilities(max_eager: usize) -> Vec<(&'static str, String)> {
    vec![
        ("am_short", format!("<= {INLINE}")),
        ("am_bcopy", format!("<= {}K", max_eager >> 10)),
        ("fragments", format!("<= {}K", FRAGMENT >> 10)),
        ("put_short", "unlimited (allocated memory)".into()),
        ("get_short", "unlimited (allocated memory)".into()),
        (
            "atomics",
            "add and or xor swap cswap, 32 and 64 bit, cpu".into(),
        ),
        ("connection", "on demand, to worker".into()),
        ("error handling", "peer failure, keepalive".into()),
    ]
}
