//! A device that a context has opened, with the protection domain that all its queue pairs and memory are in.

use super::bindings::*;
use super::verbs::{self, Verbs, check, made};
use crate::sys::{log, regcache};
use std::ffi::{CStr, c_int, c_void};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// An open device. Threads may use it at the same time, as libibverbs promises.
pub struct Hca {
    pub verbs: &'static Verbs,
    pub name: String,
    pub limits: ibv_device_attr,
    /// What it can do with memory whose pages it asks for when it needs them.
    demand: ibv_odp_caps,
    /// A limit was told of. Relaxed: nothing hangs on it.
    told: AtomicBool,
    context: *mut ibv_context,
    pd: *mut ibv_pd,
}

// SAFETY: libibverbs is thread-safe (ibv_get_device_list(3), rdma-core's documentation); the pointers are not changed.
unsafe impl Send for Hca {}
// SAFETY: as above.
unsafe impl Sync for Hca {}

impl Hca {
    /// Every device of this host that can be opened and that `wanted` does not refuse by its name.
    pub fn all(wanted: impl Fn(&str) -> bool) -> Vec<Arc<Hca>> {
        let Some(verbs) = Verbs::get() else {
            return Vec::new();
        };
        let mut count = 0;
        // SAFETY: a writable number. A null list is empty.
        let list = unsafe { (verbs.get_device_list)(&mut count) };
        if list.is_null() {
            return Vec::new();
        }
        // SAFETY: as many entries as said; strings of the devices'.
        let devices = unsafe { std::slice::from_raw_parts(list, count.max(0) as usize) };
        let open = |&device: &*mut ibv_device| {
            // SAFETY: a device of the list.
            let name = unsafe { CStr::from_ptr((verbs.get_device_name)(device)) };
            let name = name.to_string_lossy().into_owned();
            if !wanted(&name) {
                return None;
            }
            // SAFETY: a device of the list.
            match unsafe { Hca::open(verbs, device, name.clone()) } {
                Ok(hca) => Some(Arc::new(hca)),
                Err(e) => {
                    log::diag!("cannot open InfiniBand device {name}: {e}");
                    None
                }
            }
        };
        let opened = devices.iter().filter_map(open).collect();
        // SAFETY: the list; devices that are open stay.
        unsafe { (verbs.free_device_list)(list) };
        opened
    }

    /// # Safety
    /// `device` is in a list that was not freed.
    unsafe fn open(
        verbs: &'static Verbs,
        device: *mut ibv_device,
        name: String,
    ) -> io::Result<Hca> {
        // SAFETY: the caller's device; objects that were just made; what is made is freed by `drop`.
        unsafe {
            let context = made((verbs.open_device)(device))?;
            let mut hca = Hca {
                verbs,
                name,
                limits: ibv_device_attr::default(),
                demand: ibv_odp_caps::default(),
                told: AtomicBool::new(false),
                context,
                pd: std::ptr::null_mut(),
            };
            check((verbs.query_device)(context, &mut hca.limits))?;
            if let Some(more) = verbs::query_device_ex(context) {
                hca.demand = more.odp_caps;
            }
            hca.pd = made((verbs.alloc_pd)(context))?;
            Ok(hca)
        }
    }

    /// Whether it executes atomic operations, and lets others' be executed.
    pub fn has_atomics(&self) -> bool {
        let reads = self.limits.max_qp_rd_atom > 0 && self.limits.max_qp_init_rd_atom > 0;
        self.limits.atomic_cap != IBV_ATOMIC_NONE && reads
    }

    /// Whether what it executes is atomic to processors, too.
    pub fn has_global_atomics(&self) -> bool {
        self.limits.atomic_cap == IBV_ATOMIC_GLOB
    }

    /// Whether it reads and writes any memory of the process by one registration, and fetches pages when it needs them.
    pub fn has_demand(&self) -> bool {
        let general = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT;
        self.knows_demand(general, IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ)
    }

    /// Whether peers can write, read and change memory that was registered without being pinned.
    pub fn has_parts_on_demand(&self) -> bool {
        let operations = IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC;
        self.knows_demand(IBV_ODP_SUPPORT, operations)
    }

    /// All of these, in general and by connections of reliable queue pairs.
    fn knows_demand(&self, general: u32, by_connection: u32) -> bool {
        let caps = &self.demand;
        let general = u64::from(general);
        caps.general_caps & general == general
            && caps.per_transport_caps.rc_odp_caps & by_connection == by_connection
    }

    /// For calls of [`Verbs`] on this device.
    pub fn context(&self) -> *mut ibv_context {
        self.context
    }

    /// The same for what lies in the protection domain.
    pub fn pd(&self) -> *mut ibv_pd {
        self.pd
    }

    /// The functions of the paths: posting and polling.
    #[inline(always)]
    pub fn ops(&self) -> &ibv_context_ops {
        // SAFETY: open as long as this lives; the library does not change it.
        unsafe { &(*self.context).ops }
    }

    /// Registers memory. `access`: of `ibv_access_flags`.
    ///
    /// # Errors
    /// `ENOMEM`, `EAGAIN`: a limit is reached (`ulimit -l`); `EFAULT`, `EINVAL`: not such memory.
    ///
    /// # Safety
    /// The memory stays mapped as long as the region, or nobody uses it after that.
    pub unsafe fn register(
        self: &Arc<Self>,
        addr: *mut u8,
        len: usize,
        access: u32,
    ) -> io::Result<HcaMr> {
        // SAFETY: the caller's memory; the library checks it.
        let mr = made(unsafe {
            (self.verbs.reg_mr)(self.pd, addr.cast::<c_void>(), len, access as c_int)
        })?;
        Ok(HcaMr {
            hca: self.clone(),
            mr,
        })
    }

    /// Whether no limit of it was told of before.
    #[cold]
    pub fn is_first_shortage(&self) -> bool {
        !self.told.swap(true, Ordering::Relaxed)
    }

    /// Says which limit it was that memory could not be registered for, once per device.
    #[cold]
    pub fn report_limit(&self, what: &str, bytes: usize, e: &io::Error) {
        if !self.is_first_shortage() {
            return;
        }
        log::error!(
            "{}: cannot register {bytes} bytes for {what}: {e}. {}",
            self.name,
            regcache::cure(bytes)
        );
    }

    /// Why a queue of any kind cannot be had, in words that say which limits there are and how to raise them.
    #[cold]
    pub fn explain(&self, e: &io::Error) -> String {
        if !regcache::is_shortage(e) {
            return e.to_string();
        }
        let ibv_device_attr {
            max_cq,
            max_srq,
            max_qp,
            ..
        } = self.limits;
        format!(
            "{e}: either too little memory may be locked (`ulimit -l`), or others have the device's \
             queues ({max_cq} for \
             completions, {max_srq} for receives, {max_qp} pairs): shorter ones need less (UCX_RC_TX_QUEUE_LEN, \
             UCX_RC_RX_QUEUE_LEN, UCX_UD_TX_QUEUE_LEN, UCX_UD_RX_QUEUE_LEN)"
        )
    }
}

impl Drop for Hca {
    fn drop(&mut self) {
        // SAFETY: nothing refers to them: what is made of them holds this device.
        unsafe {
            if !self.pd.is_null() {
                (self.verbs.dealloc_pd)(self.pd);
            }
            (self.verbs.close_device)(self.context);
        }
    }
}

/// Registered memory.
pub struct HcaMr {
    hca: Arc<Hca>,
    mr: *mut ibv_mr,
}

// SAFETY: as of `Hca`.
unsafe impl Send for HcaMr {}
// SAFETY: as of `Hca`.
unsafe impl Sync for HcaMr {}

impl HcaMr {
    /// What peers' work requests name it by.
    pub fn rkey(&self) -> u32 {
        // SAFETY: registered as long as this lives.
        unsafe { (*self.mr).rkey }
    }

    /// What work requests name it by.
    pub fn lkey(&self) -> u32 {
        // SAFETY: registered as long as this lives.
        unsafe { (*self.mr).lkey }
    }
}

impl Drop for HcaMr {
    fn drop(&mut self) {
        // SAFETY: no work request uses it any more, as whoever dropped it promised.
        unsafe { (self.hca.verbs.dereg_mr)(self.mr) };
    }
}
