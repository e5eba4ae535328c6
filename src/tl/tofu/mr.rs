//! Memory of users that the adapter reads and writes in place: what a queue's cache of registrations keeps, and gives
//! up again where the queue has no room for what has to be registered: rings, cells, buffers, keys.

use super::utofu::{self, Stadd, code_name, is_shortage};
use super::vcq::{RegReclaimer, RegisteredMem, Vcq};
use crate::sys::lock::MtLock;
use crate::sys::log;
use crate::sys::mem_monitor::Monitor;
use crate::sys::regcache::{self, CachePolicy, Handle, LocalCache, RegCache};
use crate::sys::sync::OnceLock;
use std::ffi::c_int;
use std::io;
use std::sync::{Arc, Weak};

/// The queue that it is registered for.
pub struct VcqRegistrar(Weak<Vcq>);

/// What is registered for a queue: nothing is made before somebody wants something of it.
pub struct MrCache {
    vcq: Weak<Vcq>,
    cache: OnceLock<Option<Arc<RegCache<VcqRegistrar>>>>,
    lookaside: MtLock<Option<LocalCache<VcqRegistrar>>>,
}

/// Registered memory.
pub struct TofuMr {
    registered: RegisteredMem,
    writable: bool,
}

impl MrCache {
    /// `mt`: threads may overlap.
    pub fn new(vcq: &Arc<Vcq>, mt: bool) -> MrCache {
        MrCache {
            vcq: Arc::downgrade(vcq),
            cache: OnceLock::new(),
            lookaside: MtLock::new(mt, None),
        }
    }

    /// Memory of the user's for the queue: registered now, or, if it is not `worth` it, before. `how` that is watched
    /// and kept is asked for once.
    ///
    /// # Errors
    /// It cannot be registered, or was not: `NotFound`.
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
                let keeper: Weak<RegCache<VcqRegistrar>> = Arc::downgrade(&cache);
                vcq.set_keeper(keeper);
            }
            Some(cache)
        };
        let cache = match worth {
            true => self.cache.get_or_init(make),
            false => self.cache.get().unwrap_or(&None),
        };
        let cache = cache.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let mut lookaside = self.lookaside.lock();
        let lookaside = lookaside.get_or_insert_with(|| cache.lookaside());
        match worth {
            true => lookaside.get(ptr as usize, len),
            false => lookaside
                .peek(ptr as usize, len)
                .ok_or_else(|| io::ErrorKind::NotFound.into()),
        }
    }

    /// Deregisters what has been unmapped. To be called now and then.
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
            // SAFETY: whoever has a handle keeps the memory mapped, or lets nobody use the registration any more.
            unsafe { RegisteredMem::with(&vcq, addr as *mut u8, len, flags) }
        };
        // Constants can be sent, too.
        let (registered, writable) = match register(0) {
            Err(code) if !is_shortage(code) => (register(utofu::REG_READ_ONLY), false),
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
    match is_shortage(code) {
        true => io::Error::from_raw_os_error(libc::ENOMEM),
        false => io::Error::other(format!("utofu_reg_mem: {} ({code})", code_name(code))),
    }
}

/// How the queue names this address of registered memory.
pub fn stadd(memory: &Handle<TofuMr>, ptr: *const u8) -> Stadd {
    let at = ptr as usize - memory.extent().start;
    memory.region().registered.stadd + at as u64
}

impl TofuMr {
    /// Whether the adapter may write it.
    pub fn is_writable(&self) -> bool {
        self.writable
    }
}
