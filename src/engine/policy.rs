//! Settings of the engine that follow from the options: computed once per context.

use crate::ctypes::*;
use crate::options::{Interval, OpFlag, Options, RndvScheme, Size};
use crate::sys::log;
use crate::tl::cm_conn::CmTransport;
use crate::tl::cuda::{self, CudaContext};
use crate::tl::resources::{MemoryUse, ResourceQuery};
use crate::tl::{resource, resources, transport_names};
use std::net::IpAddr;
use std::time::Duration;

/// Transports within a host, as `UCX_TLS` names them.
const LOCAL: [&str; 4] = ["self", "posix", "sysv", "cma"];

/// Transports of this version, preferred first, as `UCX_TLS` names them.
pub fn transports() -> impl Iterator<Item = &'static str> {
    LOCAL.into_iter().chain(transport_names())
}

/// `UCX_RNDV_THRESH=auto` over shared memory: an unexpected eager message is copied twice, and for a longer one a
/// rendezvous costs less than that.
const DEFAULT_RNDV_THRESH: usize = (16 << 10) + 1;
/// `UCX_RNDV_THRESH=auto` between hosts: the bytes that the buffers of a connection take without waiting.
const DEFAULT_RNDV_THRESH_INTER: usize = (64 << 10) + 1;
/// `UCX_ZCOPY_THRESH=auto`: shorter messages are copied, so that several share a packet.
const DEFAULT_ZCOPY_THRESH: usize = 2 << 10;
/// `UCX_SHM_IDLE_TIMEOUT=auto`, milliseconds.
const SHM_IDLE_MS: u64 = 10_000;
/// Settings of a context.
#[derive(Clone, Debug)]
pub struct Policy {
    /// `UCX_TLS` allows a worker to send to itself.
    pub loopback: bool,
    /// It allows shared memory between workers of one host.
    pub shm: bool,
    /// It allows copies from and to the memory of workers of one host.
    pub cma: bool,
    /// The shortest message to a worker of this host that travels by rendezvous, bytes; `usize::MAX`: none does.
    pub rndv_thresh: usize,
    /// The shortest message to a worker of another host that travels by rendezvous, bytes; `usize::MAX`: none does.
    pub rndv_thresh_inter: usize,
    /// No option gives `rndv_thresh`.
    pub rndv_auto_intra: bool,
    /// No option gives `rndv_thresh_inter`.
    pub rndv_auto_inter: bool,
    /// The data of a rendezvous travels in messages, though one end could copy from the other's memory
    /// (`UCX_RNDV_SCHEME=am`). Within a host all other schemes let both ends copy.
    pub rndv_by_messages: bool,
    /// Between devices: get_zcopy (`get_zcopy`, `get_ppln`); else put_zcopy.
    pub rndv_reads: bool,
    /// The sender of a rendezvous writes into the memory of the receiver, even where the receiver reads by default.
    pub rndv_writes: bool,
    /// The scheme is selected by size (`UCX_RNDV_SCHEME=auto`).
    pub rndv_by_size: bool,
    /// From this length on a transport that can sends from the user's buffer, bytes. Never 0: an empty message has no
    /// buffer.
    pub zcopy_thresh: usize,
    /// Inboxes have names in /dev/shm, for containers that share nothing else.
    pub named_inboxes: bool,
    /// Flags added to those of every operation.
    pub extra_op_flags: u32,
    /// Interval of the probes of a silent peer, milliseconds, at least 1; `u64::MAX` for never.
    /// `UCX_KEEPALIVE_INTERVAL=0` gives the shortest interval: UCX 1.13.1 probes whenever it progresses.
    pub keepalive_ms: u64,
    /// Peers that are probed in one round.
    pub keepalive_num_eps: u32,
    /// Time without a message after which a ring in a peer's shared memory is given back, milliseconds, at least 1;
    /// `u64::MAX` for never.
    pub shm_idle_ms: u64,
    /// Settings of listeners and clients by socket address.
    pub sockaddr: SockaddrPolicy,
}

/// Settings of listeners and clients by socket address.
#[derive(Clone, Debug)]
pub struct SockaddrPolicy {
    /// Transports by which clients and listeners connect, best first.
    pub transports: Vec<CmTransport>,
    /// Longest resolution of an address or route by librdmacm.
    pub resolve: Duration,
    /// Source address of clients by librdmacm, unless the program gives one.
    pub rdma_source: Option<IpAddr>,
    /// After connection establishment every device may carry messages, not only the one of the connection.
    pub all_devices: bool,
    /// Connections that wait for the listener's program; `None`: the system's maximum.
    pub backlog: Option<u32>,
    /// A listener takes an address that is still in use by old connections.
    pub reuse_address: bool,
    /// `reuse_address` for librdmacm.
    pub rdma_reuse_address: bool,
}

impl Policy {
    /// The settings of these options.
    ///
    /// # Errors
    /// `UCS_ERR_NO_ELEM` if `UCX_TLS` is empty, `UCS_ERR_INVALID_PARAM` if an option makes no sense,
    /// `UCS_ERR_NO_DEVICE` if they leave no transport.
    pub fn new(options: &Options) -> Result<Policy, ucs_status_t> {
        let tls = &options.tls;
        if tls.is_empty() {
            log::error!(
                "UCX_TLS is empty: name transports to use or to leave out, or do not set it"
            );
            return Err(UCS_ERR_NO_ELEM);
        }
        if let Err(error) = options.check_context() {
            log::error!("{error}");
            return Err(UCS_ERR_INVALID_PARAM);
        }
        warn_of_devices(options);
        let mapped = tls.allows("posix") || tls.allows("sysv");
        let shm = mapped && options.shm_devices.allows(MEMORY);
        let loopback = shm || tls.allows("self") && options.self_devices.allows(MEMORY);
        let network = transport_names().any(|tl| tls.allows(tl));
        if !loopback && !network {
            return Err(without_network(options));
        }
        Ok(Policy {
            loopback,
            shm,
            cma: tls.allows("cma") && options.shm_devices.allows(MEMORY),
            rndv_thresh: options.rndv_thresh.intra.bytes_or(DEFAULT_RNDV_THRESH),
            rndv_thresh_inter: options
                .rndv_thresh
                .inter
                .bytes_or(DEFAULT_RNDV_THRESH_INTER),
            rndv_auto_intra: options.rndv_thresh.intra == Size::Auto,
            rndv_auto_inter: options.rndv_thresh.inter == Size::Auto,
            rndv_by_messages: options.rndv_scheme == RndvScheme::Am,
            rndv_reads: matches!(
                options.rndv_scheme,
                RndvScheme::GetZcopy | RndvScheme::GetPpln
            ),
            rndv_writes: matches!(
                options.rndv_scheme,
                RndvScheme::PutZcopy | RndvScheme::PutPpln
            ),
            rndv_by_size: options.rndv_scheme == RndvScheme::Auto,
            zcopy_thresh: options.zcopy_thresh.bytes_or(DEFAULT_ZCOPY_THRESH).max(1),
            named_inboxes: !options.shm.posix_use_proc_link,
            extra_op_flags: extra_flags(options),
            keepalive_ms: milliseconds(options.keepalive_interval),
            keepalive_num_eps: options.keepalive_num_eps,
            shm_idle_ms: match options.shm_idle_timeout {
                Interval::Auto => SHM_IDLE_MS,
                timeout => milliseconds(timeout),
            },
            sockaddr: SockaddrPolicy::new(options),
        })
    }
}

/// An interval in milliseconds, at least 1; `u64::MAX` for never.
fn milliseconds(interval: Interval) -> u64 {
    let duration = interval.duration();
    duration.map_or(u64::MAX, |d| (d.as_millis() as u64).max(1))
}

impl SockaddrPolicy {
    fn new(options: &Options) -> SockaddrPolicy {
        let backlog = options.listener_backlog.number();
        SockaddrPolicy {
            transports: cm_transports(&options.sockaddr_tls_priority),
            resolve: options.cm.rdma_timeout,
            rdma_source: source(&options.cm.rdma_source_address),
            all_devices: options.cm_use_all_devices,
            backlog: backlog.map(|n| n.min(u32::MAX as usize) as u32),
            reuse_address: options.cm.tcp_reuseaddr,
            rdma_reuse_address: options.cm.rdma_reuseaddr,
        }
    }
}

/// The transports of a list, each once; `*` stands for all others.
fn cm_transports(names: &[String]) -> Vec<CmTransport> {
    let mut transports = Vec::new();
    for name in names {
        let named: &[CmTransport] = match &**name {
            "rdmacm" => &[CmTransport::Rdma],
            "tcp" => &[CmTransport::Tcp],
            "*" => &[CmTransport::Rdma, CmTransport::Tcp],
            _ => &[],
        };
        for transport in named {
            if !transports.contains(transport) {
                transports.push(*transport);
            }
        }
    }
    transports
}

fn source(address: &str) -> Option<IpAddr> {
    let parsed = address.parse();
    if parsed.is_err() && !address.is_empty() {
        log::error!("UCX_RDMA_CM_SOURCE_ADDRESS={address} is no address: not used");
    }
    parsed.ok()
}

/// Logs that `UCX_TLS` names no transport that connects, in one line; returns the status.
fn without_network(options: &Options) -> ucs_status_t {
    let copies: &[&str] = match CudaContext::new(options) {
        Some(_) => &cuda::NAMES,
        None => &[],
    };
    if options.tls.is_negated() || copies.is_empty() || !options.tls.unknown(copies).is_empty() {
        warn_of_transports(options, copies, |_| false);
        return none_usable(options);
    }
    log::error!(
        "UCX_TLS={} only copies memory of GPUs: name transports that connect, too, for example self, sm or tcp",
        options.get("TLS").unwrap_or_default()
    );
    UCS_ERR_NO_DEVICE
}

/// Logs that the options leave no transport; returns the status.
pub fn none_usable(options: &Options) -> ucs_status_t {
    let asked = options.get("TLS").unwrap_or_default();
    let ours = transports().collect::<Vec<_>>().join(", ");
    log::error!("no usable transports/devices (asked {asked}; this version has {ours})");
    UCS_ERR_NO_DEVICE
}

/// The one device of shared memory and of the loopback.
const MEMORY: &str = "memory";

/// Warns of names of devices that do not exist.
fn warn_of_devices(options: &Options) {
    resources::warn_of_options(options);
    if options.warn_invalid_config {
        for (kind, filter) in [
            ("intra-node", &options.shm_devices),
            ("loopback", &options.self_devices),
        ] {
            resource::warn_of(kind, filter, &[MEMORY]);
        }
    }
}

/// Warns of names in `UCX_TLS` that match no transport: unknown ones, and those of the transports that `absent` says
/// this host does not have. `copies`: transports that only copy memory of devices. One line, in UCX's words, for
/// programs that parse it to find out what they can use.
pub fn warn_of_transports(
    options: &Options,
    copies: &[&'static str],
    absent: impl Fn(&str) -> bool,
) {
    if !options.warn_invalid_config || options.tls.is_negated() {
        return;
    }
    let mut here: Vec<_> = transports().filter(|tl| !absent(tl)).collect();
    here.extend(copies);
    let unknown = options.tls.unknown(&here);
    if unknown.is_empty() {
        return;
    }
    // Those with a device that the other options allow.
    let mut every = options.clone();
    let here = match every.set("TLS", "all") {
        Ok(()) => {
            let mut here = usable(&every);
            let others = copies.iter().filter(|copy| !here.contains(copy));
            here.extend(others.copied().collect::<Vec<_>>());
            here.join(", ")
        }
        Err(_) => here.join(", "),
    };
    let names = unknown.join("','");
    match unknown.len() {
        1 => log::warn!("transport '{names}' is not available, please use one or more of: {here}"),
        _ => {
            log::warn!("transports '{names}' are not available, please use one or more of: {here}")
        }
    }
}

/// The transports of these options that have a device on this host, preferred first.
fn usable(options: &Options) -> Vec<&'static str> {
    let query = ResourceQuery {
        options,
        max_eager: 0,
        longest: &|_, _| String::new(),
        adapters: Vec::new(),
    };
    let memory = MemoryUse {
        loopback: true,
        shm: true,
        cma: true,
    };
    let mut names: Vec<_> = (resources::all(query, memory).iter())
        .map(|resource| resource.transport)
        .collect();
    names.dedup();
    names
}

fn extra_flags(options: &Options) -> u32 {
    [
        (OpFlag::NoImmCmpl, UCP_OP_ATTR_FLAG_NO_IMM_CMPL),
        (OpFlag::FastCmpl, UCP_OP_ATTR_FLAG_FAST_CMPL),
        (OpFlag::ForceImmCmpl, UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL),
        (OpFlag::MultiSend, UCP_OP_ATTR_FLAG_MULTI_SEND),
    ]
    .into_iter()
    .filter(|&(flag, _)| options.extra_op_attr_flags.contains(flag))
    .fold(0, |bits, (_, bit)| bits | bit as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(settings: &[(&str, &str)]) -> Result<Policy, ucs_status_t> {
        let mut options = Options::default();
        for (name, value) in settings {
            options.set(name, value).expect("a valid setting");
        }
        Policy::new(&options)
    }

    #[test]
    fn senseless_options_are_refused_and_no_keepalive_interval_is_too_short() {
        assert_eq!(
            policy(&[("KEEPALIVE_NUM_EPS", "0")]).err(),
            Some(UCS_ERR_INVALID_PARAM)
        );
        for (interval, ms) in [("0", 1), ("1us", 1), ("2", 2000), ("inf", u64::MAX)] {
            let p = policy(&[("KEEPALIVE_INTERVAL", interval)]).unwrap();
            assert_eq!(p.keepalive_ms, ms, "{interval}");
        }
    }

    #[test]
    fn devices_of_shared_memory_and_loopback() {
        let p = policy(&[("SHM_DEVICES", "foo")]).unwrap();
        assert!(!p.shm && !p.cma && p.loopback, "the loopback has its own");
        let p = policy(&[("SHM_DEVICES", "foo,memory"), ("SELF_DEVICES", "^memory")]).unwrap();
        assert!(
            p.shm && p.cma && p.loopback,
            "shared memory reaches the worker itself, too"
        );
        let nothing = [
            ("TLS", "self,sm"),
            ("SHM_DEVICES", "^memory"),
            ("SELF_DEVICES", "foo"),
        ];
        assert_eq!(policy(&nothing).err(), Some(UCS_ERR_NO_DEVICE));
        assert_eq!(policy(&[("TLS", "")]).err(), Some(UCS_ERR_NO_ELEM));
    }

    #[test]
    fn thresholds_of_both_places() {
        let p = policy(&[("RNDV_THRESH", "intra:1k,inter:2k"), ("ZCOPY_THRESH", "3k")]).unwrap();
        assert_eq!(
            (p.rndv_thresh, p.rndv_thresh_inter, p.zcopy_thresh),
            (1024, 2048, 3072)
        );
        let p = policy(&[("RNDV_THRESH", "inf")]).unwrap();
        assert_eq!(
            (p.rndv_thresh, p.rndv_thresh_inter),
            (usize::MAX, usize::MAX)
        );
        let p = policy(&[("RNDV_THRESH", "intra:auto,inter:7")]).unwrap();
        assert_eq!(
            (p.rndv_thresh, p.rndv_thresh_inter),
            (DEFAULT_RNDV_THRESH, 7)
        );
    }

    #[test]
    fn transports() {
        let p = policy(&[("TLS", "self")]).unwrap();
        assert!(p.loopback && !p.shm && !p.cma);
        let p = policy(&[("TLS", "^cma,tcp")]).unwrap();
        assert!(p.loopback && p.shm && !p.cma);
        let p = policy(&[("TLS", "rc")]).unwrap();
        assert!(!p.loopback);
        assert_eq!(policy(&[("TLS", "ugni")]).err(), Some(UCS_ERR_NO_DEVICE));
    }

    #[test]
    fn listeners() {
        let p = policy(&[
            ("SOCKADDR_TLS_PRIORITY", "rdmacm"),
            ("LISTENER_BACKLOG", "7"),
        ])
        .unwrap();
        assert_eq!(p.sockaddr.transports, [CmTransport::Rdma]);
        assert!(p.sockaddr.all_devices);
        assert_eq!(p.sockaddr.backlog, Some(7));
        let cm_transports = |names| {
            policy(&[("SOCKADDR_TLS_PRIORITY", names)])
                .unwrap()
                .sockaddr
                .transports
        };
        assert_eq!(
            policy(&[]).unwrap().sockaddr.transports,
            [CmTransport::Rdma, CmTransport::Tcp]
        );
        assert_eq!(cm_transports("*"), [CmTransport::Rdma, CmTransport::Tcp]);
        assert_eq!(
            cm_transports("tcp,*"),
            [CmTransport::Tcp, CmTransport::Rdma]
        );
        assert_eq!(cm_transports("sockcm"), []);
    }
}
