//! Registration cache of user memory that the TNI accesses directly (zcopy). Unused registrations are given up when the
//! VCQ has no room for others: rings, control words, buffers, memory handles.

use super::utofu::{RegFlags, Stadd, code_name, is_shortage};
use super::vcq::{RegReclaimer, RegisteredMem, Vcq};
use crate::sys::lock::MtLock;
use crate::sys::log;
use crate::sys::mem_monitor::Monitor;
use crate::sys::regcache::{self, CachePolicy, Handle, LocalCache, RegCache};
use crate::sys::sync::OnceLock;
use std::ffi::c_int;
use std::io;
use std::sync::{Arc, Weak};

/// Registers memory for this VCQ.
pub struct VcqRegistrar(Weak<Vcq>);

/// Registration cache of a VCQ, created on first use.
pub struct MrCache {
    vcq: Weak<Vcq>,
    cache: OnceLock<Option<Arc<RegCache<VcqRegistrar>>>>,
    lookaside: MtLock<Option<LocalCache<VcqRegistrar>>>,
}

/// Registered user memory.
pub struct TofuMr {
    registered: RegisteredMem,
    writable: bool,
}

impl MrCache {
    /// `mt`: calls of several threads may overlap.
    pub fn new(vcq: &Arc<Vcq>, mt: bool) -> MrCache {
        MrCache {
            vcq: Arc::downgrade(vcq),
            cache: OnceLock::new(),
            lookaside: MtLock::new(mt, None),
        }
    }

    /// The registration of user memory for the VCQ: a new one if it is `worth` it, else only a cached one. `how` gives
    /// policy and monitor of the cache, when it is created.
    ///
    /// # Errors
    /// The registration fails; `NotFound`: it is not `worth` it and not cached.
    pub fn register_mr(
        &self,
        (ptr, len): (*const u8, usize),
        worth: bool,
        how: impl FnOnce() -> (CachePolicy, Monitor),
    ) -> io::Result<Handle<TofuMr>> {
        let make = || {
            let (policy, watch) = how();
            let cache = RegCache::new(VcqRegistrar(self.vcq.clone()), policy, watch)
                .inspect_err(|e| log::error!("memory cannot be kept registered: {e}"))
                .ok()?;
            if let Some(vcq) = self.vcq.upgrade() {
                let reclaimer: Weak<RegCache<VcqRegistrar>> = Arc::downgrade(&cache);
                vcq.set_reclaimer(reclaimer);
            }
            Some(cache)
        };
        let cache = if worth {
            self.cache.get_or_init(make)
        } else {
            self.cache.get().unwrap_or(&None)
        };
        let cache = cache.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let mut lookaside = self.lookaside.lock();
        let lookaside = lookaside.get_or_insert_with(|| cache.lookaside());
        if worth {
            lookaside.get(ptr as usize, len)
        } else {
            lookaside
                .peek(ptr as usize, len)
                .ok_or_else(|| io::ErrorKind::NotFound.into())
        }
    }

    /// Deregisters unmapped memory. Called periodically.
    pub fn trim(&self) {
        if let Some(cache) = self.cache.get().and_then(Option::as_ref) {
            cache.tidy();
        }
    }
}

impl regcache::Registrar for VcqRegistrar {
    type Region = TofuMr;

    fn register(&self, addr: usize, len: usize) -> io::Result<TofuMr> {
        let vcq = self.0.upgrade().ok_or(io::ErrorKind::NotFound)?;
        let register = |flags| {
            // SAFETY: the holder of a handle keeps the memory mapped, or ensures that nothing uses the registration any
            // more.
            unsafe { RegisteredMem::with(&vcq, addr as *mut u8, len, flags) }
        };
        // Read-only memory, such as constants, can be sent, too.
        let (registered, writable) = match register(RegFlags::empty()) {
            Err(code) if !is_shortage(code) => (register(RegFlags::READ_ONLY), false),
            registered => (registered, true),
        };
        let registered = registered.map_err(error)?;
        Ok(TofuMr {
            registered,
            writable,
        })
    }
}

impl RegReclaimer for RegCache<VcqRegistrar> {
    fn give_up(&self, most: usize) -> bool {
        self.spare(most)
    }
}

fn error(code: c_int) -> io::Error {
    if is_shortage(code) {
        io::Error::from_raw_os_error(libc::ENOMEM)
    } else {
        io::Error::other(format!("utofu_reg_mem: {} ({code})", code_name(code)))
    }
}

/// Steering address of `ptr` within registered memory.
pub fn stadd(memory: &Handle<TofuMr>, ptr: *const u8) -> Stadd {
    let at = ptr as usize - memory.extent().start;
    memory.region().registered.stadd + at as u64
}

impl TofuMr {
    /// Whether the TNI may write the memory.
    pub fn is_writable(&self) -> bool {
        self.writable
    }
}
