//! Memory of GPUs as the source and the target of operations.
//!
//! `context`: what a context keeps: streams, pinned buffers; `lookup`: the kind of memory at an address, asked of the
//! driver, never guessed; `host_pages`: of which pages it need not be asked; `pieces`: the layout of an operation's
//! memory; `data`: its bytes, copied to and from host memory in fragments (`fragment`), several of them at once;
//! `track`: the streams of one operation; `ipc`, `direct`: copies without host memory in between; `selection`: whether
//! they are made, by what a context knows (`choice`) of the `cost` of copies, which a `timer` measures; `threshold`:
//! from which length on messages go by rendezvous; `list`: memory for kernels; `pace`: how fast copies were; `info`:
//! what tools and `UCX_PROTO_INFO` print.
//!
//! No call needs a current context of the caller, and none waits for the program's streams: as in UCX the program
//! synchronises them before it passes a buffer.

mod choice;
mod context;
mod cost;
mod data;
mod direct;
mod fragment;
mod host_pages;
pub mod info;
mod ipc;
mod list;
mod lookup;
mod pace;
mod pieces;
mod selection;
mod threshold;
mod timer;
mod track;

pub use choice::CopyWay;
pub use context::{CUDA_COPY, CUDA_IPC, CudaContext, NAMES};
pub use cost::CopyCost;
pub use data::DeviceData;
pub use direct::{CopyDirection, CopyPieces, DirectCopy, LocalMemory};
pub use ipc::RemoteMemory;
pub use list::ListMemory;
pub use lookup::Lookup;
pub use pieces::DevicePieces;
pub use threshold::MIN_RNDV;
