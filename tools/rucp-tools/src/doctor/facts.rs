//! What one end of a pair sends to the other about itself.

use crate::system::{self, Capability, Namespace};
use serde::{Deserialize, Serialize};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use ucp::abi::lib_info::RUCP_VERSION;
use ucp::options::used_env_vars;
use ucp::sys::cma::{self, IoSpan};
use ucp::sys::host;

/// What the other end copies to find out whether it may. Random; its address is sent with the facts.
static CANARY: AtomicU64 = AtomicU64::new(0);

/// A process, as its peer needs to know it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Facts {
    pub version: String,
    pub host_name: String,
    /// Equal on one host between two reboots.
    pub host: u64,
    pub pid: u32,
    pub user: u32,
    pub user_ns: u64,
    pub pid_ns: u32,
    pub ipc_ns: u32,
    pub net_ns: u32,
    /// Processors that it may run on.
    pub processors: Vec<u32>,
    /// Its permitted capabilities, one bit each.
    pub capabilities: u64,
    /// Other processes may read its memory.
    pub dumpable: bool,
    /// `UCX_*` that are set.
    pub variables: Vec<String>,
    /// Transports and devices that the options leave, preferred first, as `tcp/eth0`.
    pub resources: Vec<String>,
    canary: (u64, u64),
}

/// Whether this process can copy from the memory of its peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CopyAccess {
    Permitted,
    /// The peer is on another host, or its process number is of another PID namespace.
    OutOfReach,
    Refused(Refusal),
}

/// A copy that the kernel has refused, and what is known of the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    pub error: String,
    /// A seccomp filter judges the system calls of this process.
    pub filtered: bool,
    /// Yama's restriction, 0 to 3.
    pub ptrace_scope: Option<u32>,
    /// This process has `CAP_SYS_PTRACE`.
    pub may_trace: bool,
}

impl Facts {
    /// Those of this process.
    pub fn here(resources: Vec<String>) -> Facts {
        let place = host::place();
        let value = host::random_u64();
        // Relaxed: one thread stores it, and the other end reads it after a message that follows.
        CANARY.store(value, Ordering::Relaxed);
        Facts {
            version: RUCP_VERSION.to_owned(),
            host_name: host::host_name(),
            host: place.host,
            pid: std::process::id(),
            user: host::user(),
            user_ns: Namespace::User.inode(),
            pid_ns: place.pid_ns,
            ipc_ns: place.ipc_ns,
            net_ns: place.net_ns,
            processors: system::processors(),
            capabilities: system::status().map_or(0, |status| status.capprm),
            dumpable: system::is_dumpable(),
            variables: used_env_vars(),
            resources,
            canary: ((&raw const CANARY).addr() as u64, value),
        }
    }

    /// The devices of these transports, as `tcp/eth0`.
    pub fn devices(&self, transports: &[&str]) -> Vec<&str> {
        let of = |resource: &&str| {
            let transport = resource.split_once('/').map(|(transport, _)| transport);
            transport.is_some_and(|transport| transports.contains(&transport))
        };
        self.resources
            .iter()
            .map(String::as_str)
            .filter(of)
            .collect()
    }

    /// Whether one of these transports has a device.
    pub fn has(&self, transports: &[&str]) -> bool {
        !self.devices(transports).is_empty()
    }

    /// Whether both are on one host.
    pub fn same_host(&self, other: &Facts) -> bool {
        self.host == other.host
    }

    /// Copies from the memory of that process, whose facts these are.
    pub fn try_copy(&self) -> CopyAccess {
        let here = host::place();
        if self.host != here.host || self.pid_ns != here.pid_ns {
            return CopyAccess::OutOfReach;
        }
        let mut copied = 0u64;
        let len = size_of::<u64>();
        let local = IoSpan {
            addr: (&raw mut copied).addr() as u64,
            len,
        };
        let remote = IoSpan {
            addr: self.canary.0,
            len,
        };
        // SAFETY: the local piece is `copied`.
        let answer = unsafe { cma::read(self.pid, &[local], &[remote]) };
        let error = match answer {
            Ok(n) if n == len && copied == self.canary.1 => return CopyAccess::Permitted,
            Ok(_) => io::Error::other("other memory was copied"),
            Err(error) => error,
        };
        CopyAccess::Refused(Refusal {
            error: error.to_string(),
            filtered: system::is_filtered(),
            ptrace_scope: system::ptrace_scope(),
            may_trace: system::is_capable(Capability::SysPtrace),
        })
    }
}
