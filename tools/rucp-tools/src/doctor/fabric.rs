//! Checks of Slingshot's adapters, which are used by libfabric: present, but not usable.

use crate::finding::Finding;
use std::fs;
use ucp::options::Options;
use ucp::sys::library::Library;
use ucp::tl::Resource;

/// The transports by libfabric that may use the adapter.
const TRANSPORTS: [&str; 2] = ["ofi", "cxi"];

/// All of them. `resources`: what the options leave.
pub fn check(options: &Options, resources: &[Resource]) -> Option<Finding> {
    let entries = fs::read_dir("/sys/class/cxi")
        .into_iter()
        .flatten()
        .flatten();
    let names: Vec<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    if names.is_empty() || resources.iter().any(|r| TRANSPORTS.contains(&r.transport)) {
        return None;
    }
    let found = format!("there are adapters of Slingshot ({})", names.join(", "));
    let effect = "other hosts are reached by tcp";
    if !TRANSPORTS.iter().any(|tl| options.tls.allows(tl)) {
        return Some(Finding::slow(
            "fabric-excluded",
            format!(
                "{found}, and UCX_TLS={} excludes them",
                options.get("TLS").unwrap_or_default()
            ),
            effect,
            "add cxi to UCX_TLS",
        ));
    }
    if Library::open(c"libfabric.so.1").is_none() {
        return Some(Finding::broken(
            "fabric-no-library",
            format!("{found}, but no libfabric.so.1"),
            effect,
            "add the folder of Cray's libfabric to LD_LIBRARY_PATH (module load libfabric); in a container bind it",
        ));
    }
    Some(Finding::broken(
        "fabric-unusable",
        format!("{found}, and libfabric offers none of them"),
        effect,
        "fi_info -p cxi says what this libfabric has: it must have the provider cxi, and the process the right to use \
         /dev/cxi* and a VNI (SLINGSHOT_VNIS, of the batch system)",
    ))
}
