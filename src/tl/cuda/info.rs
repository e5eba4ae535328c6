//! What tools print of memory of GPUs.

use super::context::{CUDA_COPY, CudaContext};
use crate::options::Options;
use crate::sys::cuda::CuDevice;
use crate::tl::Resource;

/// Copies by the driver, if the options allow them and there is a device.
pub fn resources(options: &Options) -> Option<Resource> {
    let context = CudaContext::new(options).filter(|_| options.tls.allows(CUDA_COPY))?;
    let devices = context.cuda.initialize().ok().filter(|&n| n > 0)?;
    Some(Resource {
        transport: CUDA_COPY,
        device: "cuda".to_owned(),
        kind: "accelerator",
        capabilities: vec![
            ("memory domain", "cuda_cpy".into()),
            (
                "memory types",
                "host (access), cuda (access,alloc,detect), cuda-managed (access,alloc,detect)"
                    .into(),
            ),
            ("devices", devices.to_string()),
            ("connection", "none: beneath the other transports".into()),
        ],
    })
}

impl CudaContext {
    /// What the driver says of the devices, in one line. `None`: the program has not initialised it, or there is none.
    pub fn describe(&self) -> Option<String> {
        let count = self.cuda.device_count().filter(|&count| count > 0)?;
        let devices = || 0..CuDevice::try_from(count).unwrap_or(0);
        let pairs = devices().flat_map(|a| devices().map(move |b| (a, b)));
        let (near, apart): (Vec<_>, Vec<_>) =
            (pairs.filter(|(a, b)| a != b)).partition(|&(a, b)| self.cuda.can_access(a, b));
        let names = |pairs: Vec<(CuDevice, CuDevice)>| -> Vec<String> {
            let names = pairs.iter().map(|(a, b)| format!("{a} to {b}"));
            names.collect()
        };
        let apart = names(apart);
        let rank = |&(a, b): &(CuDevice, CuDevice)| self.cuda.link_rank(a, b);
        let best = near.iter().map(rank).min();
        let slow = names(near.into_iter().filter(|p| Some(rank(p)) > best).collect());
        let slow = match &slow[..] {
            [] => String::new(),
            slow => format!(", slower links from {}", slow.join(", ")),
        };
        let reach = match (count, &apart[..]) {
            (1, _) => "1 device".to_owned(),
            (_, []) => format!("{count} devices, each can access the memory of the others"),
            (_, apart) => format!("{count} devices, without access from {}", apart.join(", ")),
        };
        let ipc = match (self.has_ipc(), self.reads_by_ipc()) {
            (true, true) => "copied by the driver, in either direction",
            (true, false) => {
                "written by the driver; reads by messages (UCX_CUDA_IPC_ENABLE_GET_ZCOPY)"
            }
            (false, _) => "by messages: UCX_TLS excludes cuda_ipc",
        };
        Some(format!(
            "CUDA: {reach}{slow}; exported memory of this host: {ipc}"
        ))
    }

    /// What copies by the driver have reached, in one line. `None`: there was none.
    pub fn describe_copies(&self) -> Option<String> {
        let (copies, bytes, took) = self.pace.read();
        let gbps = bytes as f64 / took.as_nanos().max(1) as f64;
        (copies > 0).then(|| {
            format!(
                "CUDA: copies by the driver without host memory in between: {copies}, of {bytes} bytes in all, at \
                 {gbps:.2} GB/s while they ran"
            )
        })
    }
}
