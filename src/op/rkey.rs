//! Packing and unpacking of remote keys.

use crate::ctypes::*;
use crate::engine::endpoint::Endpoint;
use crate::engine::memory::{MemHandle, ShmExport};
use crate::engine::peer::Peer;
use crate::engine::rkey::{AmoExecutor, Rkey, RkeyIdentity};
use crate::engine::worker::Worker;
use crate::sys::memfd::MemfdId;
use crate::sys::shm::ShmId;
use crate::sys::{host, log};
use crate::tl::TlRkey;
use crate::wire::rkey::{self, DeviceKeys, PackedRkey};
use crate::wire::rkey_tofu::{self, TofuRkey};

/// Packs the key of a region.
pub fn pack(memory: &MemHandle) -> Vec<u8> {
    let (plain, len) = pack_plain(memory);
    let device = memory.tl.device_keys().filter(|_| memory.len > 0);
    let keyed = device.and_then(|device| PackedRkey::decode(&plain)?.encode_with(&device));
    let key = match &keyed {
        Some((bytes, len)) => &bytes[..*len],
        None => &plain[..len],
    };
    if memory.len > 0 {
        memory.tl.pack(key)
    } else {
        key.to_vec()
    }
}

/// A decoded remote key.
pub struct UnpackedRkey {
    packed: PackedRkey,
    device: Option<DeviceKeys>,
    steering: Option<TofuRkey>,
}

fn pack_plain(memory: &MemHandle) -> ([u8; rkey::MAX_LEN], usize) {
    let segment = memory.export.and_then(|ShmExport { id, base, len }| {
        let len = len as u64;
        let packed = match id {
            ShmId::Block(number) => PackedRkey::Block { number, base, len },
            ShmId::File(MemfdId { fd, ino, .. }) => PackedRkey::Segment { fd, ino, base, len },
        };
        packed.encode()
    });
    let other = if memory.len == 0 {
        PackedRkey::Empty
    } else {
        PackedRkey::Plain
    };
    segment
        .or_else(|| other.encode())
        .unwrap_or(([0; rkey::MAX_LEN], 0))
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
        rkey_tofu::total_len(|i| *buffer.add(i)).map(|len| std::slice::from_raw_parts(buffer, len))
    };
    let read = |bytes| {
        let (steering, key) = rkey_tofu::read(bytes)?;
        let (packed, device) = rkey::read(key)?;
        Some(UnpackedRkey {
            packed,
            device,
            steering,
        })
    };
    bytes.and_then(read).ok_or_else(|| {
        log::error!("damaged remote key");
        UCS_ERR_INVALID_ADDR
    })
}

/// Unpacks a key for an endpoint: maps the memory that the key names, if that is possible.
pub fn unpack(ep: &Endpoint, key: UnpackedRkey) -> Rkey {
    let UnpackedRkey {
        packed,
        device,
        steering,
    } = key;
    let (peer, worker) = (ep.peer(), ep.worker.get());
    peer.note_traffic(worker);
    let amo_by_tni = steering.as_ref().is_some_and(|s| s.atomics);
    let alone = !peer.tx.is_shared();
    let mut key = Rkey {
        empty: packed == PackedRkey::Empty,
        base: 0,
        len: 0,
        delta: 0,
        same_process: peer.same_process,
        map: None,
        executor: AmoExecutor::Other,
        tl: TlRkey::new(device, steering.as_ref(), peer.target.as_deref(), alone),
        identity: RkeyIdentity {
            owner: peer.uid,
            segment: None,
        },
    };
    map(worker, peer, packed, &mut key);
    key.set_executor(amo_by_tni);
    key
}

/// Maps a peer's memory, if that is possible, and stores the mapping in `key`.
fn map(worker: &Worker, peer: &Peer, packed: PackedRkey, key: &mut Rkey) {
    let Some(inbox) = peer.inbox else { return };
    let (id, base, len) = match packed {
        PackedRkey::Empty | PackedRkey::Plain => return,
        PackedRkey::Segment { fd, ino, base, len } => {
            let pid = inbox.id.pid;
            (ShmId::File(MemfdId { pid, fd, ino }), base, len)
        }
        PackedRkey::Block { number, base, len } => (ShmId::Block(number), base, len),
    };
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
        .or_else(|| (key.len == 0 && !key.empty && key.same_process).then_some(addr as *mut u8))
        .ok_or(UCS_ERR_UNREACHABLE)
}
