//! Memory of GPUs by NVIDIA's driver API (`libcuda.so.1`), which is opened at run time.
//!
//! `driver`: its functions; `api`: the open driver; `error`: how they fail; `context`: which context is current;
//! `device`: what is known of devices; `pointer`: what the driver knows of an address, and allocation; `stream`,
//! `batch`: copies; `pinned`: host memory for them; `ipc`: memory of other processes by the handles of `cuMemAlloc`,
//! `mapped`: of `cuMemMap`, `mem_pool`: of pools; `dmabuf`: memory for adapters. Nothing here needs a current context
//! of the caller: what needs one takes [`CurrentContext`] before. The driver itself is initialised by the program,
//! whose memory it is, or when this library allocates memory of a device.

mod api;
mod batch;
mod context;
mod device;
mod dmabuf;
mod driver;
mod error;
mod ipc;
mod mapped;
mod mem_pool;
mod pinned;
mod pointer;
mod stream;

pub use api::Cuda;
pub use batch::CopyBatch;
pub use context::CurrentContext;
pub use dmabuf::DmaBuf;
pub use driver::{CuContext, CuDevice, OpenWhen};
pub use error::CudaError;
pub use mapped::MappedMemory;
pub use mem_pool::ImportedPool;
pub use pinned::Pinned;
pub use pointer::{MemoryInfo, MemoryKind};
pub use stream::{Event, Stream, StreamCallback};
