//! How an allocation of another process is opened: by a handle of `cuMemAlloc`, or by a descriptor of its owner.

use super::service::{self, DescriptorOf};
use crate::sys::cuda::{CuContext, CuDevice, Cuda, CudaError, ImportedPool, MappedMemory};
use crate::wire::device_handle::{DeviceHandle, MemoryExport, ProcessIdentity};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Weak};

/// Memory of another process, and what keeps it.
pub enum OpenMemory {
    /// Of `cuMemAlloc`: accessible in the context for which it was opened.
    Legacy {
        addr: u64,
    },
    /// Of `cuMemMap`.
    Mapped(MappedMemory, AllowedDevices),
    Pool {
        addr: u64,
        pool: Arc<OpenPool>,
    },
}

/// A pool of another process.
pub struct OpenPool {
    pool: ImportedPool,
    allowed: AllowedDevices,
}

/// The devices that can access memory that is accessible to no others.
#[derive(Default)]
pub struct AllowedDevices(Mutex<Vec<CuDevice>>);

impl AllowedDevices {
    /// Adds a device by `allow`, unless it is among them.
    ///
    /// # Errors
    /// Those of `allow`.
    fn add(
        &self,
        device: CuDevice,
        allow: impl FnOnce() -> Result<(), CudaError>,
    ) -> Result<(), CudaError> {
        let mut allowed = self.0.lock();
        if !allowed.contains(&device) {
            allow()?;
            allowed.push(device);
        }
        Ok(())
    }
}

/// The pools of other processes of which allocations are open, by process and name.
#[derive(Default)]
pub struct OpenPools(Mutex<HashMap<(ProcessIdentity, u64), Weak<OpenPool>>>);

/// Why an allocation is not opened.
#[derive(Debug)]
pub enum OpenFailure {
    Driver(CudaError),
    /// The owner gives no descriptor.
    Descriptor(io::Error),
}

impl OpenFailure {
    /// Whether the owner says that this allocation is gone: others of it may be opened.
    pub fn is_gone(&self) -> bool {
        matches!(self, OpenFailure::Descriptor(e) if e.kind() == io::ErrorKind::NotFound)
    }

    /// Whether its process did not answer: further requests would wait as long.
    pub fn is_silence(&self) -> bool {
        matches!(self, OpenFailure::Descriptor(e) if e.kind() == io::ErrorKind::TimedOut)
    }

    /// Whether this process has no descriptor for it now: the next attempt may succeed.
    pub fn is_passing(&self) -> bool {
        matches!(self, OpenFailure::Descriptor(e) if e.kind() == io::ErrorKind::OutOfMemory)
    }
}

impl From<CudaError> for OpenFailure {
    fn from(e: CudaError) -> OpenFailure {
        OpenFailure::Driver(e)
    }
}

impl From<io::Error> for OpenFailure {
    fn from(e: io::Error) -> OpenFailure {
        OpenFailure::Descriptor(e)
    }
}

impl fmt::Display for OpenFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenFailure::Driver(e) => e.fmt(f),
            OpenFailure::Descriptor(e) => write!(f, "its process sends no descriptor: {e}"),
        }
    }
}

impl OpenMemory {
    /// Opens an allocation for the current context, which is one of `device`.
    ///
    /// # Errors
    /// Those of the driver, and of the owner's service.
    pub fn open(
        cuda: &'static Cuda,
        handle: &DeviceHandle,
        device: CuDevice,
        pools: &OpenPools,
    ) -> Result<OpenMemory, OpenFailure> {
        match handle.export {
            // In its own process only.
            MemoryExport::Address => Err(cuda.unsupported("cuIpcOpenMemHandle").into()),
            MemoryExport::Legacy(bytes) => {
                let addr = cuda.open_ipc(bytes)?;
                Ok(OpenMemory::Legacy { addr })
            }
            MemoryExport::Mapped { service } => {
                let descriptor = service::request(service, DescriptorOf::Memory, handle)?;
                let len = usize::try_from(handle.len).unwrap_or(usize::MAX);
                let memory = cuda.map_exported(&descriptor, len, device)?;
                let allowed = AllowedDevices(Mutex::new(vec![device]));
                Ok(OpenMemory::Mapped(memory, allowed))
            }
            MemoryExport::Pool {
                service,
                pool,
                pointer,
            } => {
                let key = (handle.owner, pool);
                if let Some(known) = pools.find(key)
                    && let Ok(open) = OpenMemory::of_pool(known, pointer, device)
                {
                    return Ok(open);
                }
                // None yet, or one in which nothing more can be opened.
                let descriptor = service::request(service, DescriptorOf::Pool, handle)?;
                let pool = Arc::new(OpenPool {
                    pool: cuda.import_pool(&descriptor)?,
                    allowed: AllowedDevices::default(),
                });
                let open = OpenMemory::of_pool(Arc::clone(&pool), pointer, device)?;
                pools.remember(key, &pool);
                Ok(open)
            }
        }
    }

    fn of_pool(
        pool: Arc<OpenPool>,
        pointer: [u8; 64],
        device: CuDevice,
    ) -> Result<OpenMemory, CudaError> {
        pool.allow(device)?;
        let addr = pool.pool.open(pointer)?;
        Ok(OpenMemory::Pool { addr, pool })
    }

    /// First byte.
    pub fn addr(&self) -> u64 {
        match self {
            OpenMemory::Legacy { addr } | OpenMemory::Pool { addr, .. } => *addr,
            OpenMemory::Mapped(memory, _) => memory.addr(),
        }
    }

    /// Lets another device access it than the one for which it was opened.
    ///
    /// # Errors
    /// Those of the driver: the device does not reach it, or memory of this kind is open in one context.
    pub fn allow(&self, cuda: &Cuda, device: CuDevice) -> Result<(), CudaError> {
        match self {
            OpenMemory::Legacy { .. } => Err(cuda.unsupported("cuIpcOpenMemHandle")),
            OpenMemory::Mapped(memory, allowed) => allowed.add(device, || memory.allow(device)),
            OpenMemory::Pool { pool, .. } => pool.allow(device),
        }
    }

    /// Closes what its drop does not. No copy uses it. `ctx`: the context for which it was opened, if that exists.
    pub fn close(&self, cuda: &Cuda, ctx: Option<CuContext>, device: CuDevice) {
        match self {
            OpenMemory::Legacy { addr } => {
                // A context that is gone has closed it.
                if let Some(Ok(_current)) = ctx.map(|ctx| cuda.enter(ctx)) {
                    cuda.close_ipc(*addr);
                }
            }
            OpenMemory::Mapped(..) => {}
            OpenMemory::Pool { addr, .. } => {
                let retained = ctx.is_none().then(|| cuda.retain_primary(device));
                let any = ctx.or_else(|| retained.and_then(Result::ok));
                if let Some(Ok(_current)) = any.map(|ctx| cuda.enter(ctx)) {
                    // SAFETY: opened once, and nothing uses it. An error means that the device has failed.
                    let _ = unsafe { cuda.free(*addr) };
                }
                if retained.is_some_and(|retained| retained.is_ok()) {
                    cuda.release_primary(device);
                }
            }
        }
    }
}

impl OpenPool {
    fn allow(&self, device: CuDevice) -> Result<(), CudaError> {
        self.allowed.add(device, || self.pool.allow(device))
    }
}

impl OpenPools {
    fn find(&self, key: (ProcessIdentity, u64)) -> Option<Arc<OpenPool>> {
        self.0.lock().get(&key)?.upgrade()
    }

    fn remember(&self, key: (ProcessIdentity, u64), pool: &Arc<OpenPool>) {
        let mut pools = self.0.lock();
        pools.retain(|_, pool| pool.strong_count() > 0);
        pools.insert(key, Arc::downgrade(pool));
    }
}
