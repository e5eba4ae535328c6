//! What a transport can use of this machine.

use crate::options::DeviceFilter;
use crate::sys::log;

/// A transport on a device.
#[derive(Clone, Debug)]
pub struct Resource {
    pub transport: &'static str,
    pub device: String,
    pub kind: &'static str,
    /// Capabilities, with the names of `ucx_info -d`.
    pub capabilities: Vec<(&'static str, String)>,
}

/// Logs a warning for names in a list of devices that are repeated or that no device has.
pub fn warn_of(kind: &str, filter: &DeviceFilter, present: &[&str]) {
    for name in filter.repeated() {
        log::warn!("device '{name}' is specified multiple times");
    }
    let unknown = filter.unknown(present).join("', '");
    if !unknown.is_empty() {
        let ours = present.join("', '");
        log::warn!(
            "{kind} device '{unknown}' is not available, please use one or more of: '{ours}'"
        );
    }
}
