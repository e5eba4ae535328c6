//! A remote key: what a peer's region is to this process, resolved once when it is unpacked.

use super::peer::Peer;
use crate::sys::segment::{Mapping, Segment, SegmentId};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Weak};

/// Handed out as `ucp_rkey_h`. Direct access means `remote address + delta`, for addresses in
/// `base..base + len`; any other access goes to the peer.
pub struct Rkey {
    /// The region is empty: nothing can be accessed.
    pub empty: bool,
    /// First remote address of direct access.
    pub base: u64,
    /// Bytes of direct access, 0 for none.
    pub len: u64,
    /// Added to a remote address gives the local one.
    pub delta: u64,
    pub peer: *const Peer,
    /// What keeps the memory mapped.
    pub map: Option<Arc<Mapping>>,
    /// Identity, for `ucp_rkey_compare`.
    pub identity: (u64, SegmentId),
}

impl Rkey {
    /// The local address of `len` remote bytes, if this process can reach them by loads and stores.
    #[inline(always)]
    pub fn local(&self, addr: u64, len: usize) -> Option<*mut u8> {
        let at = addr.wrapping_sub(self.base);
        if at <= self.len && len as u64 <= self.len - at && self.len != 0 {
            Some(addr.wrapping_add(self.delta) as *mut u8)
        } else {
            None
        }
    }
}

/// Segments of peers that are mapped, shared by all keys to them.
#[derive(Default)]
pub struct Attached(Mutex<HashMap<(u32, SegmentKey), Weak<Mapping>>>);

type SegmentKey = (u32, u32, u32);

/// Longest segment of a peer that is mapped: the user part of an address space.
const MAX_SEGMENT: u64 = 1 << 47;

impl Attached {
    /// Maps a peer's whole segment, or finds it mapped.
    ///
    /// # Errors
    /// As [`Segment::open`].
    pub fn attach(&self, pid_ns: u32, id: SegmentId, len: u64) -> io::Result<Arc<Mapping>> {
        let key = (pid_ns, (id.pid, id.fd, id.ino));
        let mut table = self.0.lock();
        if let Some(map) = table.get(&key).and_then(Weak::upgrade) {
            return Ok(map);
        }
        let segment = Segment::open(id, MAX_SEGMENT)?;
        if (segment.len() as u64) < len {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let map = Arc::new(segment.map(0, segment.len(), None)?);
        table.retain(|_, m| m.strong_count() > 0);
        table.insert(key, Arc::downgrade(&map));
        Ok(map)
    }
}
