//! What a transport can use of this machine.

/// A transport on a device.
#[derive(Clone, Debug)]
pub struct Resource {
    pub transport: &'static str,
    pub device: String,
    pub kind: &'static str,
    /// Capabilities, with the names of `ucx_info -d`.
    pub capabilities: Vec<(&'static str, String)>,
}
