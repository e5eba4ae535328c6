//! Memory of devices that is copied without host memory in between: within a process, and between processes of a host.
//!
//! `process`: which process an allocation belongs to; `devices`: which device can access which; `exports`: handles of
//! allocations of this process, `service`: their descriptors; `opened`: allocations of other processes, `opening`: how
//! they are opened; `reach`: the context in which one is opened and copied.

mod devices;
mod exports;
mod opened;
mod opening;
mod process;
mod reach;
mod service;

pub use opened::OpenedAllocation;

use super::choice::DevicePair;
use super::context::CudaContext;
use crate::options::{OnOffAuto, Options};
use crate::sys::cuda::{CuContext, CuDevice, Cuda, MemoryInfo, MemoryKind};
use crate::sys::log;
use crate::wire::device_handle::{DeviceHandle, MemoryExport, ProcessIdentity, UUID};
use devices::CudaDevices;
use exports::Exports;
use opened::{OpenError, OpenedTable};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// What a context keeps of exported and of opened allocations.
pub(super) struct Ipc {
    /// This process.
    here: ProcessIdentity,
    devices: CudaDevices,
    exports: Exports,
    opened: OpenedTable,
    /// Whether memory of other processes is read by copies.
    reads: bool,
    /// The processes of peers that have sent handles, by the uids of their workers.
    owners: Mutex<HashMap<u64, ProcessIdentity>>,
}

/// Peers whose processes are remembered. Further ones take the place of all.
const MAX_OWNERS: usize = 1 << 16;

/// Memory at the other end of a copy, as this process accesses it.
pub struct RemoteMemory {
    /// The address here.
    pub addr: u64,
    /// The context in which it is accessed.
    pub ctx: CuContext,
    /// Keeps the allocation open; `None`: it is one of this process.
    pub open: Option<Arc<OpenedAllocation>>,
    /// The devices of both ends, if the time of the copy is of interest.
    pub(super) measured: Option<DevicePair>,
}

impl Ipc {
    /// Nothing is exported or open.
    pub(super) fn new(options: &Options) -> Ipc {
        Ipc {
            here: process::identity(),
            devices: CudaDevices::default(),
            exports: Exports::default(),
            opened: OpenedTable::new(options),
            reads: options.cuda.get != OnOffAuto::Off,
            owners: Mutex::default(),
        }
    }

    /// The UUID of a device.
    pub(super) fn uuid(&self, cuda: &Cuda, device: CuDevice) -> Option<[u8; UUID]> {
        self.devices.uuid(cuda, device)
    }

    /// The number of the device with this UUID, if this process can use it.
    pub(super) fn device(&self, cuda: &Cuda, uuid: &[u8; UUID]) -> Option<CuDevice> {
        self.devices.find(cuda, uuid)
    }

    /// A copy from or to an allocation of another process has ended: closes what does not stay open.
    pub(super) fn close_excess(&self) {
        self.opened.close_excess();
    }

    /// Closes the allocations of other processes that no copy uses.
    pub(super) fn close_all(&self) {
        self.opened.close_all();
    }
}

impl CudaContext {
    /// Whether memory of devices is copied without host memory in between, where that is possible.
    pub fn has_ipc(&self) -> bool {
        self.ipc.is_some()
    }

    /// Whether memory of other processes is read by copies, where that is possible.
    pub fn reads_by_ipc(&self) -> bool {
        self.ipc.as_ref().is_some_and(|ipc| ipc.reads)
    }

    /// Whether the options permit to read this memory by copies.
    pub fn may_read(&self, handle: &DeviceHandle) -> bool {
        (self.ipc.as_ref()).is_some_and(|ipc| ipc.reads || ipc.here == handle.owner)
    }

    /// The handle by which peers access the allocation that contains this memory. `within`: the peer is known to be in
    /// this process, where the address is enough. `None`: the device cannot export it.
    pub fn export(&self, memory: &MemoryInfo, within: bool) -> Option<DeviceHandle> {
        let ipc = self.ipc.as_ref().filter(|_| memory.len > 0)?;
        let export = match memory.kind {
            MemoryKind::Device | MemoryKind::Managed if within => MemoryExport::Address,
            MemoryKind::Device => {
                let ctx = || self.context_of(memory).ok();
                (ipc.exports).of(self.cuda, memory, ctx)?
            }
            MemoryKind::Managed | MemoryKind::Host => return None,
        };
        Some(DeviceHandle {
            owner: ipc.here,
            device: ipc.devices.uuid(self.cuda, memory.device)?,
            base: memory.start,
            len: memory.len,
            buffer_id: memory.buffer_id,
            export,
        })
    }

    /// The handle of a registered region for its remote key: for all processes of this host, or for this process alone.
    /// `None`: the region is not inside of one allocation.
    pub fn export_region(&self, addr: u64, len: usize) -> Option<DeviceHandle> {
        let memory = self.cuda.memory_at(addr);
        let export = |within| self.export(&memory, within);
        let handle = export(false).or_else(|| export(true))?;
        handle.offset(addr, len as u64).map(|_| handle)
    }

    /// Whether a peer that has sent this handle is in this process, or in another one of this host.
    pub fn is_on_this_host(&self, handle: &DeviceHandle) -> bool {
        (self.ipc.as_ref()).is_some_and(|ipc| ipc.here.host == handle.owner.host)
    }

    /// Opens `len` bytes at the owner's address `addr` of a peer's allocation, to be copied from or to `near`. `None`:
    /// this process cannot access it, now or at all.
    pub fn open_remote(
        &self,
        handle: &DeviceHandle,
        (addr, len): (u64, u64),
        near: &MemoryInfo,
    ) -> Option<RemoteMemory> {
        let ipc = self.ipc.as_ref()?;
        let offset = handle.offset(addr, len)?;
        if handle.owner == ipc.here {
            return self.own(handle, addr, near);
        }
        let elsewhere =
            ipc.here.host != handle.owner.host || handle.export == MemoryExport::Address;
        if elsewhere || ipc.opened.is_refused(handle) {
            return None;
        }
        let open = match ipc.opened.find(handle) {
            Some(open) => open,
            None => self.open_allocation(ipc, handle, near)?,
        };
        let addr = open.addr() + offset;
        let ctx = reach::open_context(self, &open, near);
        let open = Some(open);
        let Some(ctx) = ctx else {
            drop(open);
            ipc.opened.close_excess();
            note_apart(ipc, handle, near);
            return None;
        };
        let pair = self.pair(handle, near);
        let measured = pair.filter(|&pair| self.choices.measures(pair, len as usize));
        Some(RemoteMemory {
            addr,
            ctx,
            open,
            measured,
        })
    }

    /// Opens an allocation of another process that was not open just now.
    fn open_allocation(
        &self,
        ipc: &Ipc,
        handle: &DeviceHandle,
        near: &MemoryInfo,
    ) -> Option<Arc<OpenedAllocation>> {
        let _alone = ipc.opened.lock_opening(handle.owner);
        // Another thread may have opened it, or found that it cannot be opened.
        if let Some(open) = ipc.opened.find(handle) {
            return Some(open);
        }
        if ipc.opened.is_refused(handle) {
            return None;
        }
        let Some(device) = reach::device(self.cuda, &ipc.devices, handle, near) else {
            note_apart(ipc, handle, near);
            return None;
        };
        let ctx = match ipc.opened.context_of(self.cuda, handle, device) {
            Some(ctx) => ctx,
            None if device == near.device => self.context_of(near).ok()?,
            None => self.primary(device).ok()?,
        };
        let opened = ipc.opened.open(self.cuda, handle, ctx, device);
        opened.inspect_err(|e| note_refusal(handle, e)).ok()
    }

    /// Memory of this process that a peer in the same process has named.
    fn own(&self, handle: &DeviceHandle, addr: u64, near: &MemoryInfo) -> Option<RemoteMemory> {
        let memory = self.cuda.memory_at(addr);
        let is_same = memory.buffer_id == handle.buffer_id && memory.kind != MemoryKind::Host;
        if !is_same {
            return None;
        }
        let ctx = match near.kind {
            MemoryKind::Device => reach::common_context(self, near, &memory),
            MemoryKind::Managed | MemoryKind::Host => reach::common_context(self, &memory, near),
        }?;
        Some(RemoteMemory {
            addr,
            ctx,
            open: None,
            measured: None,
        })
    }

    /// A peer's handle was used: remembers the process until [`forget_peer`](Self::forget_peer).
    pub fn note_owner(&self, uid: u64, handle: &DeviceHandle) {
        let Some(ipc) = self.ipc.as_ref() else { return };
        let mut owners = ipc.owners.lock();
        if owners.get(&uid) == Some(&handle.owner) {
            return;
        }
        if owners.len() >= MAX_OWNERS {
            owners.clear();
        }
        owners.insert(uid, handle.owner);
    }

    /// A peer is gone: closes the allocations of its process, as soon as no copy uses them. They are opened again if
    /// the process lives.
    pub fn forget_peer(&self, uid: u64) {
        let Some(ipc) = self.ipc.as_ref() else { return };
        let owner = ipc.owners.lock().remove(&uid);
        if let Some(owner) = owner {
            ipc.opened.forget(owner);
        }
    }
}

/// Logs, once for a process, its device and a device of this one, that no device can copy between their memory.
fn note_apart(ipc: &Ipc, handle: &DeviceHandle, near: &MemoryInfo) {
    if !ipc.opened.note_apart(handle, near.device) {
        return;
    }
    let process = handle.owner.number;
    match near.kind {
        MemoryKind::Host => log::diag!(
            "no device in use can access memory of a device of process {process:#x}, messages carry it"
        ),
        MemoryKind::Device | MemoryKind::Managed => log::diag!(
            "no device can access memory of device {} and memory of a device of process {process:#x}, messages carry \
             it",
            near.device
        ),
    }
}

/// Logs once for a process, a device and a kind of memory, or for an allocation, that copies go by messages.
fn note_refusal(handle: &DeviceHandle, e: &OpenError) {
    let process = handle.owner.number;
    match e {
        OpenError::Process(e) => log::diag!(
            "memory of devices of process {process:#x} cannot be opened, messages carry it: {e}"
        ),
        OpenError::Allocation(e) => log::diag!(
            "memory at {:#x} of process {process:#x} cannot be opened, messages carry it: {e}",
            handle.base
        ),
    }
}
