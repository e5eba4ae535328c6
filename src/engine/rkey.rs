//! A remote key: what a peer's region is to this process, resolved once when it is unpacked.

use super::peer::Peer;
use crate::sys::shared::{Shared, SharedId};
use crate::wire::rkey::DeviceKeys;
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
    pub map: Option<Arc<Shared>>,
    /// How devices reach it, if they do.
    pub device: Option<DeviceKeys>,
    /// How the interconnect reaches it: the address for the peer's queue, if there is one.
    pub steered: Option<Box<Steered>>,
    /// Identity, for `ucp_rkey_compare`.
    pub identity: (u64, Option<SharedId>),
}

/// Memory that the adapter of a peer finds.
#[derive(Clone, Copy, Debug)]
pub struct Steered {
    /// What is registered.
    pub base: u64,
    pub len: u64,
    /// The steering address of its first byte.
    pub stadd: u64,
}

impl Rkey {
    /// The steering address of `len` bytes, if the interconnect reaches all of them.
    #[inline(always)]
    pub fn stadd(&self, addr: u64, len: usize) -> Option<u64> {
        let steered = self.steered.as_deref()?;
        let at = addr.wrapping_sub(steered.base);
        (at <= steered.len && len as u64 <= steered.len - at).then(|| steered.stadd + at)
    }

    /// How devices reach all of these bytes, if they do.
    #[inline(always)]
    pub fn device_keys(&self, addr: u64, len: usize) -> Option<&DeviceKeys> {
        self.device.as_ref().filter(|keys| keys.covers(addr, len))
    }

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

/// Memory of peers that is mapped, shared by all keys to it: by the peer and what it calls it.
#[derive(Default)]
pub struct Attached(Mutex<HashMap<(u64, SharedId), Weak<Shared>>>);

impl Attached {
    /// Maps a peer's memory, or finds it mapped.
    ///
    /// # Errors
    /// As [`Shared::open`].
    pub fn attach(&self, peer: u64, id: SharedId, len: usize) -> io::Result<Arc<Shared>> {
        let mut table = self.0.lock();
        if let Some(memory) = table.get(&(peer, id)).and_then(Weak::upgrade) {
            return Ok(memory);
        }
        let memory = Arc::new(Shared::open(id, len)?);
        table.retain(|_, m| m.strong_count() > 0);
        table.insert((peer, id), Arc::downgrade(&memory));
        Ok(memory)
    }
}
