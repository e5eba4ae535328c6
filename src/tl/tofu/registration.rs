//! Registration of user memory that the TNI accesses directly (zcopy).
//!
//! Existing registrations are used: memory of `ucp_mem_map`, which is registered as a whole on first use, and entries
//! of the VCQ's registration cache. Other memory is registered for transfers of `UCX_TOFU_ZCOPY_THRESH` bytes or more.

use super::iface::TofuIface;
use super::mr::{MrCache, TofuMr};
use crate::options::Options;
use crate::sys::log;
use crate::sys::mem_monitor;
use crate::sys::regcache::{CachePolicy, Handle};
use crate::tl::mapped::MappedRegions;
use std::io;

/// Registers user memory for the VCQs of a worker.
pub struct TofuRegistrar<'a, M> {
    pub iface: &'a TofuIface,
    pub options: &'a Options,
    pub regions: &'a M,
}

impl<M: MappedRegions> TofuRegistrar<'_, M> {
    /// The registration for the worker's first VCQ; `writes`: the TNI writes the memory. `None`: the data are copied.
    pub fn register(&self, memory: (*const u8, usize), writes: bool) -> Option<Handle<TofuMr>> {
        self.register_in(&self.iface.store, memory, writes)
    }

    /// The registration for a rail, by its index. `None`: other VCQs move its part.
    pub fn register_rail(
        &self,
        rail: usize,
        memory: (*const u8, usize),
        writes: bool,
    ) -> Option<Handle<TofuMr>> {
        let rail = self.iface.rails.get(rail)?;
        self.register_in(&rail.store, memory, writes)
    }

    fn register_in(
        &self,
        store: &MrCache,
        (ptr, len): (*const u8, usize),
        writes: bool,
    ) -> Option<Handle<TofuMr>> {
        let how = || {
            let mut policy = CachePolicy::of_all(self.options);
            // Memory that cannot be registered is copied: that is not logged.
            policy.spared = usize::MAX;
            (policy, mem_monitor::watch(self.options).clone())
        };
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        let known = || store.register_mr((ptr, len), false, how);
        let mapped = || {
            let (start, len) = (self.regions)
                .around(ptr as u64, len as u64)
                .ok_or_else(missing)?;
            store.register_mr((start as *const u8, len as usize), true, how)
        };
        let found = if len >= self.iface.tuning.zcopy {
            store.register_mr((ptr, len), true, how)
        } else {
            known().or_else(|_| mapped())
        };
        match found {
            Ok(memory) if memory.region().is_writable() || !writes => Some(memory),
            Ok(_) => None,
            Err(e) => {
                if e.kind() != io::ErrorKind::NotFound {
                    log::diag!(
                        "{len} bytes at {ptr:p} are not registered, and are copied or go by other queues: {e}"
                    );
                }
                None
            }
        }
    }
}

impl TofuIface {
    /// Deregisters unmapped memory. Called periodically.
    pub fn trim_mrs(&self) {
        self.store.trim();
        self.rails.iter().for_each(|rail| rail.store.trim());
    }
}
