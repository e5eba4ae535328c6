//! Memory of the user's that the adapter of the Tofu interconnect reads and writes in place.
//!
//! What is registered already is used as it is: memory of `ucp_mem_map`, which is registered as a whole when it is
//! first used, and what the queue's cache has kept. Other memory is registered for transfers that are worth it
//! (`UCX_TOFU_ZCOPY_THRESH`).

use super::worker::Worker;
use crate::sys::log;
use crate::sys::mem_monitor;
use crate::sys::regcache::{CachePolicy, Handle};
use crate::tl::tofu::mr::{MrCache, TofuMr};
use std::io;

impl Worker {
    /// Lets the adapter use memory of the user's, which it `writes` or only reads. `None`: it is copied.
    pub fn register_tofu(
        &self,
        ptr: *const u8,
        len: usize,
        writes: bool,
    ) -> Option<Handle<TofuMr>> {
        let iface = self.tofu_iface.as_ref()?;
        self.register_tofu_in(&iface.store, (ptr, len), writes)
    }

    /// The same for a rail, by its place. `None`: others move its part.
    pub fn register_tofu_rail(
        &self,
        rail: usize,
        memory: (*const u8, usize),
        writes: bool,
    ) -> Option<Handle<TofuMr>> {
        let rail = self.tofu_iface.as_ref()?.rails.get(rail)?;
        self.register_tofu_in(&rail.store, memory, writes)
    }

    fn register_tofu_in(
        &self,
        store: &MrCache,
        (ptr, len): (*const u8, usize),
        writes: bool,
    ) -> Option<Handle<TofuMr>> {
        let iface = self.tofu_iface.as_ref()?;
        let ctx = self.ctx;
        let how = || {
            let mut policy = CachePolicy::read(&ctx.options, "");
            // Whatever cannot be registered is copied.
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
        let found = match len >= iface.tuning.zcopy {
            true => store.register_mr((ptr, len), true, how),
            false => known().or_else(|_| mapped()),
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

    /// Deregisters what has been unmapped. To be called now and then.
    pub fn trim_tofu_mrs(&self) {
        if let Some(iface) = &self.tofu_iface {
            iface.store.trim();
            iface.rails.iter().for_each(|rail| rail.store.trim());
        }
    }
}
