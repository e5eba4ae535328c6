//! Names and estimates of lanes, for queries and printing. The estimates are also a term of what messages from memory
//! of devices cost, by which their protocol is selected.

use super::contract::QpTransport;
use crate::sys::fork::{Lock, Mutex};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::fmt::{self, Display, Formatter};

/// The transport and the device of a lane, printed as `posix/memory`.
#[derive(Clone, Copy, Debug)]
pub struct LaneName {
    pub transport: &'static CStr,
    /// Empty if it is not known.
    pub device: &'static CStr,
}

impl LaneName {
    /// A TCP connection through an unknown device.
    pub const TCP: LaneName = LaneName {
        transport: c"tcp",
        device: c"",
    };
    /// Copies by the driver of GPUs.
    pub const CUDA_IPC: LaneName = LaneName {
        transport: c"cuda_ipc",
        device: c"cuda",
    };
}

impl Display for LaneName {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        f.write_str(text_of(self.transport))?;
        if self.device.is_empty() {
            return Ok(());
        }
        f.write_str("/")?;
        f.write_str(text_of(self.device))
    }
}

/// A name, which is ASCII.
fn text_of(name: &CStr) -> &str {
    name.to_str().unwrap_or_default()
}

/// Latency, seconds, one way through the slowest lane, a socket, measured on a virtual machine with 2 cores of an AMD
/// EPYC.
pub const MAX_LATENCY: f64 = 12e-6;

/// What is known of the lane to a peer, or of one that would be made.
#[derive(Clone, Copy, Debug)]
pub struct LaneState {
    /// Index of the device of its connection, if that exists.
    pub device: Option<usize>,
    pub qp_transport: QpTransport,
    /// The connection outlives the failure of a port.
    pub fails_over: bool,
}

/// One lane to a peer.
pub struct LaneInfo {
    pub name: LaneName,
    /// Seconds until the first byte arrives.
    pub latency: f64,
    /// Bytes per second.
    pub bandwidth: f64,
}

impl LaneInfo {
    /// A lane within this host.
    pub fn memory(transport: &'static CStr, (latency, bandwidth): (f64, f64)) -> Self {
        let name = LaneName {
            transport,
            device: c"memory",
        };
        Self {
            name,
            latency,
            bandwidth,
        }
    }

    /// Seconds that a message of `len` bytes takes.
    pub fn time(&self, len: usize) -> f64 {
        self.latency + len as f64 / self.bandwidth
    }
}

static NAMES: Mutex<BTreeMap<String, &'static CStr>> = Mutex::new(BTreeMap::new());

/// Lock that a fork has to wait for.
pub fn lock_to_watch() -> &'static Lock {
    NAMES.lock_to_watch()
}

/// A name that is never freed: a query returns its pointer, which the caller uses as long as the endpoint. There are as
/// many as the host has devices.
pub fn interned(name: &str) -> &'static CStr {
    let mut names = NAMES.lock();
    if let Some(known) = names.get(name) {
        return known;
    }
    let text = CString::new(name).unwrap_or_default();
    let stays: &'static CStr = Box::leak(text.into_boxed_c_str());
    names.insert(name.to_owned(), stays);
    stays
}
