//! What a context knows of TCP: the network devices, and what they are used for.

use super::address::TcpUsage;
use super::device::{self, TcpDevice};
use super::options::TcpPolicy;
use super::worker::TcpWorker;
use crate::options::Options;
use crate::sys::log;
use std::io;
use std::net::IpAddr;

/// TCP's part of a context.
pub struct TcpContext {
    /// Network devices that may be used, best first; none if TCP is not to be used.
    pub devices: Vec<TcpDevice>,
    /// Settings of all sockets, those of clients and listeners included, which need no transport.
    pub policy: TcpPolicy,
    /// Whether `UCX_TLS` allows TCP for messages.
    pub is_allowed: bool,
    /// What the devices are used for.
    pub usage: TcpUsage,
    /// Peers may make out-of-band connections: there are queue pairs.
    accepts_oob: bool,
}

impl TcpContext {
    /// TCP as `UCX_TLS` and the wireup of queue pairs (`wireup`) need it. `adapters`: names of InfiniBand and RoCE
    /// devices in use, which `UCX_NET_DEVICES` may name, too.
    pub fn new(options: &Options, wireup: bool, adapters: &[&str]) -> TcpContext {
        let is_allowed = options.tls.allows("tcp");
        let (devices, usage) = devices(options, is_allowed, wireup, adapters);
        TcpContext {
            devices,
            policy: TcpPolicy::new(options),
            is_allowed,
            usage,
            accepts_oob: !adapters.is_empty(),
        }
    }

    /// The listening socket of a worker with this uid and client id. `None` without a device: none can be connected.
    /// `keepalive_ms`: an unreachable peer is to be noticed within this time, milliseconds.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn open_sockets<P: Copy>(
        &self,
        keepalive_ms: u64,
        names: (u64, u64),
    ) -> io::Result<Option<Box<TcpWorker<P>>>> {
        if self.devices.is_empty() {
            return Ok(None);
        }
        let tuning = self.policy.tuning(keepalive_ms);
        let worker = TcpWorker::new(self, tuning, names, self.accepts_oob)?;
        Ok(Some(Box::new(worker)))
    }

    /// The device that has this address.
    pub fn device_with(&self, ip: IpAddr) -> Option<&TcpDevice> {
        self.devices.iter().find(|d| d.addrs.contains(&ip))
    }

    /// Whether the network devices may carry messages. If not they are used for wireup, if there are any.
    pub fn carries_messages(&self) -> bool {
        self.usage == TcpUsage::Messages && !self.devices.is_empty()
    }
}

/// The network devices for messages and for wireup. If `UCX_NET_DEVICES` names none, and wireup needs one, all may be
/// used for it.
fn devices(
    options: &Options,
    messages: bool,
    wireup: bool,
    adapters: &[&str],
) -> (Vec<TcpDevice>, TcpUsage) {
    let usage = if messages {
        TcpUsage::Messages
    } else {
        TcpUsage::Wireup
    };
    if !messages && !wireup {
        return (Vec::new(), usage);
    }
    let devices = usable(options, adapters);
    if !devices.is_empty() || !wireup {
        return (devices, usage);
    }
    let mut any = options.clone();
    let devices = match any.set("NET_DEVICES", "all") {
        Ok(_) => usable(&any, adapters),
        Err(_) => Vec::new(),
    };
    (devices, TcpUsage::Wireup)
}

fn usable(options: &Options, adapters: &[&str]) -> Vec<TcpDevice> {
    device::usable(options, adapters).unwrap_or_else(|e| {
        log::error!("cannot list the network devices: {e}");
        Vec::new()
    })
}
