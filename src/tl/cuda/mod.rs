//! Memory of GPUs as the source and the target of operations.
//!
//! `context`: what a context keeps: streams, pinned buffers; `lookup`: the kind of memory at an address, asked of the
//! driver, never guessed; `pieces`: the layout of an operation's memory; `data`: its bytes, copied to and from host
//! memory in fragments (`fragment`), several of them at once; `track`: the streams of one operation; `ipc`, `direct`:
//! copies without host memory in between; `list`: memory for kernels; `info`: what tools print.
//!
//! No call needs a current context of the caller, and none waits for the program's streams: as in UCX the program
//! synchronises them before it passes a buffer.

mod context;
mod data;
mod direct;
mod fragment;
pub mod info;
mod ipc;
mod list;
mod lookup;
mod pieces;
mod track;

pub use context::{CUDA_COPY, CUDA_IPC, CudaContext, NAMES};
pub use data::DeviceData;
pub use direct::{CopyDirection, DirectCopy, LocalMemory};
pub use ipc::RemoteMemory;
pub use list::ListMemory;
pub use lookup::Lookup;
pub use pieces::DevicePieces;
