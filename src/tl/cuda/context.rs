//! What a context keeps for memory of GPUs.

use super::choice::CopyChoices;
use super::host_pages::HostPages;
use super::ipc::Ipc;
use super::pace::CopyPace;
use super::track::Track;
use crate::options::Options;
use crate::sys::cuda::{
    CuContext, CuDevice, Cuda, CudaError, MemoryInfo, MemoryKind, OpenWhen, Pinned,
};
use crate::sys::log;
use crate::sys::sync::OnceLock;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;

/// Bytes of a fragment, and of a pinned buffer.
const FRAGMENT: usize = 512 << 10;

/// Pinned buffers that are kept for later operations.
const KEPT_BUFFERS: usize = 32;

/// Streams of one context that are kept for later operations.
const KEPT_TRACKS: usize = 16;

/// Transports whose name in `UCX_TLS` asks for CUDA.
pub const NAMES: [&str; 3] = ["cuda_copy", "cuda_ipc", "gdr_copy"];

/// Copies by way of host memory.
pub const CUDA_COPY: &str = "cuda_copy";
/// Copies without host memory in between.
pub const CUDA_IPC: &str = "cuda_ipc";

/// Streams and buffers that no operation uses, and contexts and properties of devices that are kept.
#[derive(Default)]
struct Idle {
    tracks: HashMap<CuContext, Vec<Track>>,
    buffers: Vec<Pinned>,
    /// By their device.
    primaries: HashMap<CuDevice, CuContext>,
    traits: HashMap<CuDevice, DeviceTraits>,
}

/// What the driver says of adapters and a device, once.
#[derive(Clone, Copy, Debug)]
pub struct DeviceTraits {
    /// The device may see what adapters have written to its memory only after a call of the driver.
    pub needs_flush: bool,
    /// Its memory has descriptors, by which adapters register it.
    pub has_dmabuf: bool,
}

/// CUDA, as far as a context uses it.
pub struct CudaContext {
    pub cuda: &'static Cuda,
    /// Absent where the options exclude `cuda_ipc`.
    pub(super) ipc: Option<Ipc>,
    /// Of copies without host memory in between.
    pub(super) pace: CopyPace,
    pub(super) choices: CopyChoices,
    host_pages: HostPages,
    /// Whether all devices share managed memory with the processor at any time; empty before the program has
    /// initialised the driver.
    shares_managed: OnceLock<bool>,
    idle: Mutex<Idle>,
}

impl CudaContext {
    /// `None`: the options exclude CUDA, or this process does not use it. `UCX_TLS` that names it opens the driver's
    /// library; else it must be loaded, or the kernel have the driver's device.
    pub fn new(options: &Options) -> Option<CudaContext> {
        let tls = &options.tls;
        if !NAMES.iter().any(|name| tls.allows(name)) {
            return None;
        }
        let when = match tls.is_selection() {
            true => OpenWhen::Present,
            false => OpenWhen::Likely,
        };
        let cuda = Cuda::open(when)?;
        log::debug!("memory of GPUs is supported: libcuda.so.1 is open");
        Some(CudaContext {
            cuda,
            ipc: tls.allows(CUDA_IPC).then(|| Ipc::new(options)),
            pace: CopyPace::default(),
            choices: CopyChoices::new(options),
            host_pages: HostPages::new(options),
            shares_managed: OnceLock::new(),
            idle: Mutex::default(),
        })
    }

    /// The memory at an address. The driver is not asked for pages that are known to be the host's.
    pub fn memory_at(&self, addr: u64) -> MemoryInfo {
        let HostPages::Remembered(pages) = &self.host_pages else {
            return self.cuda.memory_at(addr);
        };
        if pages.has(addr) {
            return MemoryInfo::HOST;
        }
        let found = self.cuda.find_memory(addr);
        match found {
            Some(_) => pages.remove(addr),
            None if self.shares_managed_memory() => pages.insert(addr),
            None => {}
        }
        found.unwrap_or(MemoryInfo::HOST)
    }

    /// Whether managed memory that is taken for the host's is accessed as that, whatever devices do.
    fn shares_managed_memory(&self) -> bool {
        if let Some(&shares) = self.shares_managed.get() {
            return shares;
        }
        match self.cuda.shares_managed_memory() {
            Some(shares) => *self.shares_managed.get_or_init(|| shares),
            // Without the driver there is no managed memory.
            None => true,
        }
    }

    /// Bytes of the fragments in which an operation of `len` bytes in so many pieces is copied: short ones of it, so
    /// that the copies of both devices and those of the processor overlap but for the first fragment and the last. Not
    /// of few pieces, where there are many: a fragment takes some calls of the driver.
    pub(super) fn fragment(len: usize, pieces: usize) -> usize {
        const SHORTEST: usize = 64 << 10;
        const MIN_PIECES: usize = 2048;
        let of_pieces = (len / pieces.max(1)).saturating_mul(MIN_PIECES);
        let fragment = match pieces > MIN_PIECES {
            true => of_pieces.max(len / 16),
            false => len / 16,
        };
        fragment
            .min(FRAGMENT)
            .next_multiple_of(SHORTEST)
            .clamp(SHORTEST, FRAGMENT)
    }

    /// A stream of a context.
    ///
    /// # Errors
    /// Those of the driver.
    pub(super) fn track(&self, ctx: CuContext) -> Result<Track, CudaError> {
        let id = self.cuda.context_id(ctx);
        if let Some(kept) = self.idle.lock().tracks.get_mut(&ctx) {
            // A context that the program has destroyed has taken its streams along.
            kept.retain(|track| track.id == id);
            if let Some(track) = kept.pop() {
                return Ok(track);
            }
        }
        Track::new(self.cuda, ctx)
    }

    /// The context by which this memory is accessed: its own, or the primary one of its device.
    ///
    /// # Errors
    /// Those of the driver.
    pub(super) fn context_of(&self, memory: &MemoryInfo) -> Result<CuContext, CudaError> {
        match memory.ctx.is_none() {
            true => self.primary(memory.device),
            false => Ok(memory.ctx),
        }
    }

    /// The primary context of a device.
    ///
    /// # Errors
    /// Those of the driver.
    pub(super) fn primary(&self, device: CuDevice) -> Result<CuContext, CudaError> {
        let mut idle = self.idle.lock();
        if let Some(&ctx) = idle.primaries.get(&device) {
            return Ok(ctx);
        }
        let ctx = self.cuda.retain_primary(device)?;
        idle.primaries.insert(device, ctx);
        Ok(ctx)
    }

    /// Keeps a stream for later operations. All that it was given has ended, without an error.
    pub(super) fn keep_track(&self, track: Track) {
        let mut idle = self.idle.lock();
        let kept = idle.tracks.entry(track.ctx).or_default();
        if kept.len() < KEPT_TRACKS && track.id.is_some() {
            return kept.push(track);
        }
        drop(idle);
        track.destroy(self.cuda);
    }

    /// A pinned buffer. `ctx`: any context.
    ///
    /// # Errors
    /// Those of mmap(2).
    pub(super) fn buffer(&self, ctx: CuContext) -> io::Result<Pinned> {
        let kept = self.idle.lock().buffers.pop();
        kept.map_or_else(|| Pinned::new(self.cuda, ctx, FRAGMENT), Ok)
    }

    /// Keeps a buffer for later operations. No copy uses it.
    pub(super) fn keep_buffer(&self, buffer: Pinned) {
        let mut idle = self.idle.lock();
        if idle.buffers.len() < KEPT_BUFFERS {
            idle.buffers.push(buffer);
        }
    }

    /// The number of the stream for this memory among those of an operation: a new one where there is none.
    ///
    /// # Errors
    /// Those of the driver.
    pub(super) fn track_of(
        &self,
        tracks: &mut Vec<Track>,
        memory: &MemoryInfo,
    ) -> Result<usize, CudaError> {
        let ctx = self.context_of(memory)?;
        if let Some(number) = tracks.iter().position(|track| track.ctx == ctx) {
            return Ok(number);
        }
        tracks.push(self.track(ctx)?);
        Ok(tracks.len() - 1)
    }

    /// What the driver says of the device of this memory.
    pub fn traits_of(&self, memory: &MemoryInfo) -> DeviceTraits {
        let mut idle = self.idle.lock();
        let known = idle.traits.entry(memory.device);
        *known.or_insert_with(|| DeviceTraits {
            needs_flush: self.cuda.needs_flush(memory.device),
            has_dmabuf: self.cuda.has_dmabuf(memory.device),
        })
    }

    /// Waits until a device sees what adapters have written to its memory, where that takes a call of the driver.
    ///
    /// # Errors
    /// Those of the driver.
    #[cold]
    pub(super) fn flush_adapter_writes(&self, memory: &MemoryInfo) -> Result<(), CudaError> {
        if !self.traits_of(memory).needs_flush {
            return Ok(());
        }
        let _current = self.cuda.enter(self.context_of(memory)?)?;
        self.cuda.flush_adapter_writes()
    }

    /// Allocates memory of a device: of the current context's, or of the first one.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn allocate(&self, kind: MemoryKind, len: usize) -> Result<u64, CudaError> {
        self.cuda.initialize()?;
        let ctx = match self.cuda.current() {
            Some(ctx) => ctx,
            None => self.primary(0)?,
        };
        let _current = self.cuda.enter(ctx)?;
        self.cuda.allocate(kind, len)
    }

    /// Frees what [`allocate`](Self::allocate) has returned.
    ///
    /// # Safety
    /// Nothing uses the memory any more.
    pub unsafe fn free(&self, addr: u64) {
        let freed = self
            .context_of(&self.cuda.memory_at(addr))
            .and_then(|ctx| self.cuda.enter(ctx))
            // SAFETY: the caller's promise.
            .and_then(|_current| unsafe { self.cuda.free(addr) });
        if let Err(e) = freed {
            log::diag!("memory of a device at {addr:#x} is not freed: {e}");
        }
    }
}

impl Drop for CudaContext {
    fn drop(&mut self) {
        // Before their contexts. Copies that use them have ended: their workers have.
        if let Some(ipc) = &self.ipc {
            ipc.close_all();
        }
        let idle = self.idle.get_mut();
        for track in idle.tracks.drain().flat_map(|(_, tracks)| tracks) {
            track.destroy(self.cuda);
        }
        // Before the contexts in which they are pinned.
        idle.buffers.clear();
        for (device, _) in idle.primaries.drain() {
            self.cuda.release_primary(device);
        }
    }
}
