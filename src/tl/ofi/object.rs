//! Registrations of user memory.

use super::bindings::*;
use super::closed::Closed;
use slab::Slab;
use std::ffi::c_void;

/// The registrations of user memory.
#[derive(Default)]
pub struct UserMrs {
    pub(super) objects: Slab<Closed>,
    /// The key that was requested last.
    pub(super) key: u64,
}

impl UserMrs {
    /// Closes all of them.
    pub fn clear(&mut self) {
        self.objects.clear();
    }
}

/// What a registration allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfiAccess {
    /// Peers read and write the memory.
    ByPeers,
    /// Operations of either side read and write it.
    All,
    /// Operations of either side read it.
    ReadOnly,
}

impl OfiAccess {
    /// Bits for `fi_mr_reg`. A write reads the memory of its initiator, and a read writes it.
    pub fn bits(self) -> u64 {
        let bits = match self {
            OfiAccess::ByPeers => FI_REMOTE_READ | FI_REMOTE_WRITE,
            OfiAccess::All => FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE,
            OfiAccess::ReadOnly => FI_WRITE | FI_REMOTE_READ,
        };
        bits.into()
    }
}

/// A registration in a domain, as the provider describes it.
pub struct OfiRegistered {
    /// Where the endpoint keeps it.
    pub index: usize,
    pub key: u64,
    /// What operations on the memory have to pass.
    pub desc: *mut c_void,
}

// SAFETY: a name of the provider's, which operations pass to it.
unsafe impl Send for OfiRegistered {}
// SAFETY: a name of the provider's, which operations pass to it.
unsafe impl Sync for OfiRegistered {}
