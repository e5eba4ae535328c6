//! Registration of user memory that the TNI accesses directly (zcopy).
//!
//! Existing registrations are used: memory of `ucp_mem_map`, which is registered as a whole on first use, and entries
//! of the VCQ's registration cache. Other memory is registered for transfers of `UCX_TOFU_ZCOPY_THRESH` bytes or more.

use super::worker::Worker;
use crate::sys::log;
use crate::sys::mem_monitor;
use crate::sys::regcache::{CachePolicy, Handle};
use crate::tl::tofu::mr::{MrCache, TofuMr};
use std::io;

impl Worker {
    /// The registration of user memory for the worker's VCQ; `writes`: the TNI writes the memory. `None`: the data are
    /// copied.
    pub fn register_tofu(
        &self,
        ptr: *const u8,
        len: usize,
        writes: bool,
    ) -> Option<Handle<TofuMr>> {
        let iface = &self.tl.tofu.as_ref()?.iface;
        self.register_tofu_in(&iface.store, (ptr, len), writes)
    }

    /// The registration of user memory for a rail, by its index. `None`: other VCQs move its part.
    pub fn register_tofu_rail(
        &self,
        rail: usize,
        memory: (*const u8, usize),
        writes: bool,
    ) -> Option<Handle<TofuMr>> {
        let rail = self.tl.tofu.as_ref()?.iface.rails.get(rail)?;
        self.register_tofu_in(&rail.store, memory, writes)
    }

    fn register_tofu_in(
        &self,
        store: &MrCache,
        (ptr, len): (*const u8, usize),
        writes: bool,
    ) -> Option<Handle<TofuMr>> {
        let iface = &self.tl.tofu.as_ref()?.iface;
        let ctx = self.ctx;
        let how = || {
            let mut policy = CachePolicy::read(&ctx.options, "");
            // Memory that cannot be registered is copied: that is not logged.
            policy.spared = usize::MAX;
            (policy, mem_monitor::watch(&ctx.options).clone())
        };
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        let known = || store.register_mr((ptr, len), false, how);
        let mapped = || {
            let (start, len) = ctx
                .regions
                .around(ptr as u64, len as u64)
                .ok_or_else(missing)?;
            store.register_mr((start as *const u8, len as usize), true, how)
        };
        let found = if len >= iface.tuning.zcopy {
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

    /// Deregisters unmapped memory. Called periodically.
    pub fn trim_tofu_mrs(&self) {
        if let Some(tofu) = &self.tl.tofu {
            let iface = &tofu.iface;
            iface.store.trim();
            iface.rails.iter().for_each(|rail| rail.store.trim());
        }
    }
}
