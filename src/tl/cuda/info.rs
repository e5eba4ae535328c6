//! What tools print of memory of GPUs.

use super::context::{CUDA_COPY, CudaContext};
use crate::options::Options;
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
