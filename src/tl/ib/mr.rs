//! Memory of users that a context's devices may read and write in place: what its cache of registrations keeps.

use super::bindings::*;
use super::hca::{Hca, HcaMr};
use super::port::Port;
use crate::sys::regcache::Registrar;
use std::io;
use std::sync::Arc;

/// What devices, here and at peers, may do with it.
const ALL: u32 = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
/// The same with memory that nobody may write.
const READ_ONLY: u32 = IBV_ACCESS_REMOTE_READ;

/// The devices of a context: each of them registers what any of them may use.
#[derive(Clone)]
pub struct Devices {
    hcas: Vec<Arc<Hca>>,
    of_port: Arc<[usize]>,
    /// Of `ibv_access_flags`, besides.
    flags: u32,
}

/// Registered memory.
pub struct IbMr {
    /// One for each device.
    regions: Vec<HcaMr>,
    /// The number of each port's device.
    of_port: Arc<[usize]>,
    writable: bool,
}

impl Devices {
    /// Those that these ports belong to.
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

    /// The same, but nothing is pinned: they fetch pages when they need them. `None`: not all of them can.
    pub fn on_demand(&self) -> Option<Self> {
        let can = !self.hcas.is_empty() && self.hcas.iter().all(|hca| hca.has_demand());
        can.then(|| Devices {
            flags: IBV_ACCESS_ON_DEMAND,
            ..self.clone()
        })
    }

    /// All memory of the process, for these devices and not for peers. Of those that are
    /// [`on_demand`](Self::on_demand).
    ///
    /// # Errors
    /// What a device says.
    pub fn whole(&self) -> io::Result<IbMr> {
        let regions = self.with_access(0, usize::MAX, IBV_ACCESS_LOCAL_WRITE)?;
        Ok(self.pinned(regions, true))
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
            // SAFETY: whoever has a handle keeps the memory mapped, or lets nobody use the registration any more.
            unsafe { hca.register(addr as *mut u8, len, access | self.flags) }
        };
        self.hcas.iter().map(register).collect()
    }
}

impl Registrar for Devices {
    type Region = IbMr;

    fn register(&self, addr: usize, len: usize) -> io::Result<IbMr> {
        let regions = self.with_access(addr, len, ALL);
        // Constants can be sent, too.
        let (regions, writable) = match regions {
            Err(e) if is_refused(&e) => (self.with_access(addr, len, READ_ONLY)?, false),
            regions => (regions?, true),
        };
        Ok(self.pinned(regions, writable))
    }
}

/// Whether it is the memory that does not allow it, as pages that cannot be written do.
fn is_refused(e: &io::Error) -> bool {
    matches!(
        e.raw_os_error(),
        Some(libc::EFAULT | libc::EACCES | libc::EPERM | libc::EINVAL)
    )
}

impl IbMr {
    /// Whether devices may write it.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    fn of_port(&self, port: usize) -> Option<&HcaMr> {
        self.regions.get(*self.of_port.get(port)?)
    }

    /// What work requests through this port of ours name it by.
    pub fn local_key(&self, port: usize) -> Option<u32> {
        self.of_port(port).map(HcaMr::lkey)
    }

    /// What peers' work requests name it by, for the first ports; 0 where there are none.
    pub fn remote_keys<const N: usize>(&self) -> [u32; N] {
        std::array::from_fn(|port| self.of_port(port).map_or(0, HcaMr::rkey))
    }
}
