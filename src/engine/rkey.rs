//! A remote key: the access paths to a peer's region, resolved once when it is unpacked.

use crate::sys::shm::{ShmId, ShmSegment};
use crate::tl::TlRkey;
use crate::wire::device_handle::DeviceHandle;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Weak};

/// Bytes of the longest word of atomic operations.
const WORD: u64 = size_of::<u64>() as u64;

/// Handed out as `ucp_rkey_h`. Direct access means `remote address + delta`, for addresses in
/// `base..base + len`; any other access goes to the peer.
pub struct Rkey {
    /// How the region is accessed where it is not mapped.
    pub access: RkeyAccess,
    /// First remote address of direct access.
    pub base: u64,
    /// Bytes of direct access, 0 for none.
    pub len: u64,
    /// Added to a remote address gives the local one.
    pub delta: u64,
    /// The region is in this process.
    pub same_process: bool,
    /// Keeps the mapping of the memory.
    pub map: Option<Arc<ShmSegment>>,
    /// The handle by which this process opens the region, which is memory of a device; opened by the first access.
    pub device: Option<Box<DeviceHandle>>,
    /// The transports' part.
    pub tl: TlRkey,
    /// What executes atomic operations.
    pub executor: AmoExecutor,
    /// Identity, for `ucp_rkey_compare`.
    pub identity: RkeyIdentity,
}

/// How a region is accessed that is not mapped.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RkeyAccess {
    /// By copies, adapters and messages.
    Any,
    /// By messages only, or by copies of the driver: it is memory of a device of the owner.
    Message,
    /// Not at all: it is empty.
    None,
}

/// What distinguishes a key from others; the order is that of `ucp_rkey_compare`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RkeyIdentity {
    /// Uid of the owner's worker; 0: it was not known.
    pub owner: u64,
    /// The shared segment, if the memory is mapped.
    pub segment: Option<ShmId>,
}

/// What executes atomic operations on a region, as far as its key says.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AmoExecutor {
    /// The processors of this host: the region is mapped here, begins and ends at a multiple of 8 bytes, and nothing
    /// else changes it.
    Processor,
    /// Adapters of the owner, and nothing else.
    Adapter,
    /// The peer's processor, on receipt of a message in a ring of shared memory: nothing here executes any.
    Peer,
    /// Another executor, which each operation determines.
    Other,
}

impl Rkey {
    /// Whether this process can access the region by loads and stores, at addresses that the key contains.
    #[inline(always)]
    pub fn is_mapped(&self) -> bool {
        self.len != 0
    }

    /// Sets what executes atomic operations, after the region is mapped. `amo_by_tni`: adapters of the owner do.
    /// `by_ring`: shared memory reaches the peer.
    pub fn set_executor(&mut self, amo_by_tni: bool, by_ring: bool) {
        // A device that executes them alone handles only words of 8 bytes: for 4 bytes each operation determines the
        // executor.
        let by_device = self.tl.is_amo_alone(WORD as u8);
        let in_words = self.base % WORD == 0 && self.len % WORD == 0;
        self.executor = if amo_by_tni {
            AmoExecutor::Adapter
        } else if self.len != 0 && in_words && !by_device {
            AmoExecutor::Processor
        } else if by_ring && self.is_only_by_message() {
            AmoExecutor::Peer
        } else {
            AmoExecutor::Other
        };
    }

    /// Whether only messages, or copies of the kernel or of a driver, which have no atomic operations, reach the
    /// region.
    fn is_only_by_message(&self) -> bool {
        self.len == 0
            && !self.same_process
            && self.access != RkeyAccess::None
            && !self.tl.has_adapter_keys()
    }

    /// The local address of an aligned word of `len` remote bytes, 4 or 8, of a region whose atomic operations
    /// processors execute.
    #[inline(always)]
    pub fn word(&self, addr: u64, len: usize) -> Option<*mut u8> {
        debug_assert!(self.executor == AmoExecutor::Processor);
        let at = addr.wrapping_sub(self.base);
        // Base and length are multiples of 8: a word that begins inside of the region ends there, too.
        let is_word = at < self.len && addr % len as u64 == 0;
        is_word.then(|| addr.wrapping_add(self.delta) as *mut u8)
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

/// Mapped memory of peers, shared by all keys to it: by peer and id.
#[derive(Default)]
pub struct MappedSegments(Mutex<HashMap<(u64, ShmId), Weak<ShmSegment>>>);

impl MappedSegments {
    /// Maps a peer's memory, or finds the existing mapping.
    ///
    /// # Errors
    /// The errors of [`ShmSegment::open`].
    pub fn attach(&self, peer: u64, id: ShmId, len: usize) -> io::Result<Arc<ShmSegment>> {
        let mut table = self.0.lock();
        if let Some(memory) = table.get(&(peer, id)).and_then(Weak::upgrade) {
            return Ok(memory);
        }
        let memory = Arc::new(ShmSegment::open(id, len)?);
        table.retain(|_, m| m.strong_count() > 0);
        table.insert((peer, id), Arc::downgrade(&memory));
        Ok(memory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(base: u64, len: u64) -> Rkey {
        Rkey {
            access: RkeyAccess::Any,
            base,
            len,
            delta: 0x10_0000,
            same_process: false,
            map: None,
            device: None,
            tl: TlRkey::default(),
            executor: AmoExecutor::Other,
            identity: RkeyIdentity {
                owner: 0,
                segment: None,
            },
        }
    }

    fn executor(mut key: Rkey, amo_by_tni: bool) -> AmoExecutor {
        key.set_executor(amo_by_tni, true);
        key.executor
    }

    #[test]
    fn processors_execute_where_nothing_else_does() {
        assert_eq!(executor(key(0x4000, 0x2000), false), AmoExecutor::Processor);
        assert_eq!(executor(key(0x4000, 0x2000), true), AmoExecutor::Adapter);
        assert_eq!(executor(key(0, 0), false), AmoExecutor::Peer, "not mapped");
        let with = |same_process, access| {
            let mut key = key(0, 0);
            (key.same_process, key.access) = (same_process, access);
            executor(key, false)
        };
        assert_eq!(with(false, RkeyAccess::Message), AmoExecutor::Peer);
        assert_eq!(with(true, RkeyAccess::Any), AmoExecutor::Other);
        assert_eq!(with(false, RkeyAccess::None), AmoExecutor::Other, "empty");
        assert_eq!(executor(key(0, 0), true), AmoExecutor::Adapter);
        assert_eq!(executor(key(0x4004, 0x2000), false), AmoExecutor::Other);
        assert_eq!(executor(key(0x4000, 0x2004), false), AmoExecutor::Other);
        let with_device = |alone, amo_by_tni| {
            let mut key = key(0x4000, 0x2000);
            key.tl = TlRkey::with_atomics(alone);
            executor(key, amo_by_tni)
        };
        assert_eq!(with_device(true, false), AmoExecutor::Other);
        assert_eq!(with_device(false, false), AmoExecutor::Processor);
        assert_eq!(with_device(true, true), AmoExecutor::Adapter);
        let mut far = key(0, 0);
        far.set_executor(false, false);
        assert_eq!(far.executor, AmoExecutor::Other, "no ring");
        let mut by_device = key(0, 0);
        by_device.tl = TlRkey::with_atomics(false);
        assert_eq!(executor(by_device, false), AmoExecutor::Other);
    }

    #[test]
    fn words_are_aligned_and_inside() {
        let mut key = key(0x4000, 0x2000);
        key.set_executor(false, false);
        let at = |addr: u64, len| key.word(addr, len).map(|local| local as u64);
        for len in [4, 8] {
            assert_eq!(at(0x4000, len), Some(0x10_4000));
            assert_eq!(at(0x6000 - len as u64, len), Some(0x10_6000 - len as u64));
            let outside = [0, 0x4000 - len as u64, 0x6000, 0x7000, u64::MAX - 7];
            assert!(outside.iter().all(|&addr| at(addr, len).is_none()));
            assert!((1..len as u64).all(|i| at(0x4000 + i, len).is_none()));
        }
        assert_eq!(at(0x4004, 4), Some(0x10_4004));
    }
}
