//! User memory that a context's devices may access: what its registration cache keeps.

use super::bindings::*;
use super::hca::{Hca, HcaMr};
use super::port::Port;
use crate::sys::cuda::DmaBuf;
use crate::sys::regcache::{Handle, Registrar};
use crate::sys::va_range::VaRange;
use std::io;
use std::sync::Arc;

/// What the devices of this process and of peers may do with the memory.
const ALL: u32 = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
/// [`ALL`] for memory that may not be written.
const READ_ONLY: u32 = IBV_ACCESS_REMOTE_READ;

/// The devices of a context: each of them registers memory that any of them may access.
#[derive(Clone)]
pub struct Devices {
    hcas: Vec<Arc<Hca>>,
    of_port: Arc<[usize]>,
    /// Further bits of `ibv_access_flags`.
    flags: u32,
}

/// Registered memory.
pub struct IbMr {
    /// One region for each device.
    regions: Vec<HcaMr>,
    /// The index of each port's device.
    of_port: Arc<[usize]>,
    writable: bool,
}

impl Devices {
    /// The devices of these ports.
    pub fn of(ports: &[Arc<Port>]) -> Self {
        let mut hcas: Vec<Arc<Hca>> = Vec::new();
        let mut number = |port: &Arc<Port>| {
            let known = hcas.iter().position(|hca| Arc::ptr_eq(hca, &port.hca));
            known.unwrap_or_else(|| {
                hcas.push(port.hca.clone());
                hcas.len() - 1
            })
        };
        let of_port = ports.iter().map(&mut number).collect();
        Devices {
            hcas,
            of_port,
            flags: 0,
        }
    }

    /// The devices with on-demand paging: registered memory is not pinned, and they fetch pages when they access them.
    /// `None`: not all of them support it.
    pub fn on_demand(&self) -> Option<Self> {
        let can = !self.hcas.is_empty() && self.hcas.iter().all(|hca| hca.has_demand());
        can.then(|| Devices {
            flags: IBV_ACCESS_ON_DEMAND,
            ..self.clone()
        })
    }

    /// Registers all memory of the process, for local access only. The devices are those of
    /// [`on_demand`](Self::on_demand).
    ///
    /// # Errors
    /// Errors of a device.
    pub fn whole(&self) -> io::Result<IbMr> {
        let regions = self.with_access(0, usize::MAX, IBV_ACCESS_LOCAL_WRITE)?;
        Ok(self.pinned(regions, true))
    }

    /// Registers memory of a GPU.
    ///
    /// # Errors
    /// Errors of a device.
    pub fn register_dmabuf(&self, memory: &DmaBuf) -> io::Result<Handle<IbMr>> {
        let register = |hca: &Arc<Hca>| hca.register_dmabuf(memory, ALL);
        let regions = self.hcas.iter().map(register).collect::<Result<_, _>>()?;
        let pages = VaRange::new(memory.base as usize, memory.len);
        Ok(Handle::alone(pages, self.pinned(regions, true)))
    }

    fn pinned(&self, regions: Vec<HcaMr>, writable: bool) -> IbMr {
        IbMr {
            regions,
            of_port: self.of_port.clone(),
            writable,
        }
    }

    fn with_access(&self, addr: usize, len: usize, access: u32) -> io::Result<Vec<HcaMr>> {
        let register = |hca: &Arc<Hca>| {
            // SAFETY: the holder of the registration keeps the memory mapped, or lets no work request use the
            // registration afterwards.
            unsafe { hca.register(addr as *mut u8, len, access | self.flags) }
        };
        self.hcas.iter().map(register).collect()
    }
}

impl Registrar for Devices {
    type Region = IbMr;

    fn register(&self, addr: usize, len: usize) -> io::Result<IbMr> {
        let regions = self.with_access(addr, len, ALL);
        // Read-only memory can be sent, too.
        let (regions, writable) = match regions {
            Err(e) if is_refused(&e) => (self.with_access(addr, len, READ_ONLY)?, false),
            regions => (regions?, true),
        };
        Ok(self.pinned(regions, writable))
    }
}

/// Whether the error means that the memory does not allow the access, as for pages that are not writable.
fn is_refused(e: &io::Error) -> bool {
    matches!(
        e.raw_os_error(),
        Some(libc::EFAULT | libc::EACCES | libc::EPERM | libc::EINVAL)
    )
}

impl IbMr {
    /// Whether devices may write the memory.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    fn of_port(&self, port: usize) -> Option<&HcaMr> {
        self.regions.get(*self.of_port.get(port)?)
    }

    /// The local key of the memory for work requests through this port.
    pub fn local_key(&self, port: usize) -> Option<u32> {
        self.of_port(port).map(HcaMr::lkey)
    }

    /// The remote keys of the memory, for the first `N` ports; 0 where there is no port.
    pub fn remote_keys<const N: usize>(&self) -> [u32; N] {
        std::array::from_fn(|port| self.of_port(port).map_or(0, HcaMr::rkey))
    }
}
