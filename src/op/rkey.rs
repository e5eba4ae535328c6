//! Packing and unpacking of remote keys.

use crate::ctypes::*;
use crate::engine::endpoint::Endpoint;
use crate::engine::memory::{MemHandle, ShmExport};
use crate::engine::peer::Peer;
use crate::engine::rkey::{AmoExecutor, Rkey, RkeyAccess, RkeyIdentity};
use crate::engine::worker::Worker;
use crate::sys::{host, log};
use crate::tl::TlRkey;
use crate::tl::rkey::{self, RkeyMemory, UnpackedRkey};
use crate::wire::device_handle::DeviceHandle;

/// Packs the key of a region.
pub fn pack(memory: &MemHandle) -> Vec<u8> {
    let mut key = UnpackedRkey {
        memory: match memory.export {
            Some(ShmExport { id, base, len }) => RkeyMemory::shared(id, base, len as u64),
            None if memory.len == 0 => RkeyMemory::Empty,
            None if memory.is_device() => match memory.device_handle {
                Some(handle) => RkeyMemory::Exported(handle),
                None => RkeyMemory::Device,
            },
            None => RkeyMemory::Plain,
        },
        ib: None,
        tofu: None,
        ofi: None,
    };
    if memory.len > 0 {
        memory.tl.pack(&mut key);
    }
    key.encode()
}

/// Decodes a packed key of unknown length.
///
/// # Errors
/// `UCS_ERR_INVALID_ADDR` if the bytes are no key.
///
/// # Safety
/// `buffer` has as many readable bytes as its first byte says, at least one.
pub unsafe fn decode(buffer: *const u8) -> Result<UnpackedRkey, ucs_status_t> {
    // SAFETY: the first byte is readable, and as many bytes as it says.
    let bytes = unsafe {
        rkey::total_len(|i| *buffer.add(i)).map(|len| std::slice::from_raw_parts(buffer, len))
    };
    bytes.and_then(UnpackedRkey::decode).ok_or_else(|| {
        log::error!("damaged remote key");
        UCS_ERR_INVALID_ADDR
    })
}

/// Unpacks a key for an endpoint: maps the memory that the key names, if that is possible.
pub fn unpack(ep: &Endpoint, unpacked: UnpackedRkey) -> Rkey {
    let (peer, worker) = (ep.peer(), ep.worker.get());
    peer.note_traffic(&worker.stats);
    let alone = !peer.tx.is_shared();
    let mut key = Rkey {
        access: match unpacked.memory {
            RkeyMemory::Empty => RkeyAccess::None,
            RkeyMemory::Device | RkeyMemory::Exported(_) => RkeyAccess::Message,
            RkeyMemory::Plain | RkeyMemory::Shared(_) => RkeyAccess::Any,
        },
        base: 0,
        len: 0,
        delta: 0,
        same_process: peer.same_process,
        map: None,
        device: exported(worker, &unpacked.memory),
        executor: AmoExecutor::Other,
        tl: TlRkey::new(&unpacked, peer.target.as_deref(), alone),
        identity: RkeyIdentity {
            owner: peer.uid,
            segment: None,
        },
    };
    map(worker, peer, unpacked.memory, &mut key);
    key.set_executor(unpacked.is_amo_by_tni(), peer.inbox.is_some());
    key
}

/// The handle of memory of a device, if this process may be able to open it.
fn exported(worker: &Worker, memory: &RkeyMemory) -> Option<Box<DeviceHandle>> {
    let RkeyMemory::Exported(handle) = memory else {
        return None;
    };
    let cuda = worker.ctx.cuda.as_ref()?;
    cuda.is_on_this_host(handle).then(|| Box::new(*handle))
}

/// Maps a peer's memory, if that is possible, and stores the mapping in `key`.
fn map(worker: &Worker, peer: &Peer, memory: RkeyMemory, key: &mut Rkey) {
    let Some(inbox) = peer.inbox else { return };
    let RkeyMemory::Shared(shm) = memory else {
        return;
    };
    let (id, base, len) = shm.locate(inbox.id.pid);
    key.identity.segment = Some(id);
    if peer.same_process {
        (key.base, key.len) = (base, len);
        return;
    }
    let owner = (inbox.pid_ns, inbox.ipc_ns);
    if !id.reachable(owner, host::place()) || !worker.ctx.policy.shm {
        return;
    }
    match worker.ctx.attached.attach(peer.uid, id, len as usize) {
        Ok(map) => {
            (key.base, key.len) = (base, len);
            key.delta = (map.start().as_ptr() as u64).wrapping_sub(base);
            key.map = Some(map);
        }
        Err(e) => log::debug!(
            "cannot map memory of peer {:#x} (pid {}): {e}; using copies",
            peer.uid,
            inbox.id.pid
        ),
    }
}

/// The local address of remote memory that is mapped here.
///
/// # Errors
/// `UCS_ERR_UNREACHABLE` if it is not mapped.
pub fn pointer(key: &Rkey, addr: u64) -> Result<*mut u8, ucs_status_t> {
    key.local(addr, 0)
        .or_else(|| {
            let is_reached = key.len == 0 && key.access != RkeyAccess::None && key.same_process;
            is_reached.then_some(addr as *mut u8)
        })
        .ok_or(UCS_ERR_UNREACHABLE)
}
