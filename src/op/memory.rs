//! Keys: what a region is called on the wire, and what such a name means here.

use crate::ctypes::*;
use crate::engine::endpoint::Endpoint;
use crate::engine::memory::Memory;
use crate::engine::rkey::Rkey;
use crate::sys::log;
use crate::sys::segment::SegmentId;
use crate::wire::rkey::{self, PackedRkey};

const NO_SEGMENT: SegmentId = SegmentId {
    pid: 0,
    fd: 0,
    ino: 0,
};

/// The packed key of a region: bytes and how many of them count.
pub fn pack(memory: &Memory) -> ([u8; rkey::MAX_LEN], usize) {
    let segment = memory.segment().and_then(|(id, base, len)| {
        PackedRkey::Segment {
            fd: id.fd,
            ino: id.ino,
            base,
            len: len as u64,
        }
        .encode()
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

/// Reads a packed key of unknown length.
///
/// # Errors
/// `UCS_ERR_INVALID_ADDR` for what is none.
///
/// # Safety
/// `buffer` points to as many bytes as its first one says, or to one that says nothing sensible.
pub unsafe fn decode(buffer: *const u8) -> Result<PackedRkey, ucs_status_t> {
    // SAFETY: the caller's buffer: its first byte first, then what that says.
    let bytes =
        unsafe { rkey::encoded_len(*buffer).map(|len| std::slice::from_raw_parts(buffer, len)) };
    bytes.and_then(PackedRkey::decode).ok_or_else(|| {
        log::error!("damaged remote key");
        UCS_ERR_INVALID_ADDR
    })
}

/// What a packed key means to an endpoint: memory that it names is mapped here if that is possible.
///
/// # Safety
/// The endpoint lives.
pub unsafe fn unpack(ep: &Endpoint, packed: PackedRkey) -> Rkey {
    // SAFETY: peers and workers outlive endpoints.
    let (peer, worker) = unsafe { (&*ep.peer, &*ep.worker) };
    let mut key = Rkey {
        empty: packed == PackedRkey::Empty,
        base: 0,
        len: 0,
        delta: 0,
        peer: ep.peer,
        map: None,
        identity: (peer.uid, NO_SEGMENT),
    };
    let (PackedRkey::Segment { fd, ino, base, len }, Some(inbox)) = (packed, peer.inbox) else {
        return key;
    };
    let id = SegmentId {
        pid: inbox.id.pid,
        fd,
        ino,
    };
    key.identity.1 = id;
    if peer.same_process {
        (key.base, key.len) = (base, len);
        return key;
    }
    if !peer.same_pid_ns || !worker.ctx.policy.shm {
        return key;
    }
    match worker.ctx.attached.attach(inbox.pid_ns, id, len) {
        Ok(map) => {
            (key.base, key.len) = (base, len);
            key.delta = (map.ptr() as u64).wrapping_sub(base);
            key.map = Some(map);
        }
        Err(e) => log::debug!(
            "cannot map a segment of peer {:#x} (pid {}): {e}; using copies",
            peer.uid,
            inbox.id.pid
        ),
    }
    key
}

/// The local address of a remote one, where loads and stores reach it.
///
/// # Errors
/// `UCS_ERR_UNREACHABLE`.
///
/// # Safety
/// The key's peer lives.
pub unsafe fn pointer(key: &Rkey, addr: u64) -> Result<*mut u8, ucs_status_t> {
    // SAFETY: peers live as long as the worker.
    let same_process = unsafe { (*key.peer).same_process };
    key.local(addr, 0)
        .or_else(|| (key.len == 0 && !key.empty && same_process).then_some(addr as *mut u8))
        .ok_or(UCS_ERR_UNREACHABLE)
}
