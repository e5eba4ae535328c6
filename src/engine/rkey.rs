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
    /// How the interconnect reaches it, by the peer's queue.
    pub steered: Steered,
    /// Adapters of the owner's execute atomic operations, and nobody else.
    pub by_adapter: bool,
    /// Identity, for `ucp_rkey_compare`.
    pub identity: (u64, Option<SharedId>),
}

/// Memory that the adapter of a peer finds.
#[derive(Clone, Debug, Default)]
pub struct Steered {
    /// What is registered; no bytes: nothing.
    pub base: u64,
    pub len: u64,
    /// Added to a remote address gives the steering address.
    pub delta: u64,
    /// How many addresses there are that words of 8 bytes begin at, where no threads overlap; 0 elsewhere: the shortest way looks at
    /// nothing else.
    pub words: u64,
    /// The steering addresses of the first byte for each of the peer's rails, in their order; `None` where one does not reach it.
    pub rails: Box<[Option<u64>]>,
}

impl Rkey {
    /// Whether the interconnect reaches words, where no threads overlap.
    #[inline(always)]
    pub fn is_steered_alone(&self) -> bool {
        self.steered.words != 0
    }

    /// The steering address of 8 bytes, if the interconnect reaches all of them and no threads overlap.
    #[inline(always)]
    pub fn stadd_of_word(&self, addr: u64) -> Option<u64> {
        let steered = &self.steered;
        let inside = addr.wrapping_sub(steered.base) < steered.words;
        inside.then(|| addr.wrapping_add(steered.delta))
    }

    /// The steering address of `len` bytes, more than none, if the interconnect reaches all of them.
    #[inline(always)]
    pub fn stadd(&self, addr: u64, len: usize) -> Option<u64> {
        let steered = &self.steered;
        let left = steered.len.checked_sub(addr.wrapping_sub(steered.base))?;
        (len as u64 <= left).then(|| addr.wrapping_add(steered.delta))
    }

    /// How devices reach all of these bytes, if they do.
    #[inline(always)]
    pub fn device_keys(&self, addr: u64, len: usize) -> Option<&DeviceKeys> {
        match &self.device {
            Some(keys) if keys.covers(addr, len) => Some(keys),
            _ => None,
        }
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
