//! A device that a context has opened, with the protection domain of all its queue pairs and memory.

use super::bindings::*;
use super::verbs::{self, Verbs, check, made};
use crate::sys::cuda::DmaBuf;
use crate::sys::{log, regcache};
use std::ffi::{CStr, c_int, c_void};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

/// An open device. Threads may use it concurrently, as libibverbs guarantees.
pub struct Hca {
    pub verbs: &'static Verbs,
    pub name: String,
    pub limits: ibv_device_attr,
    /// Its on-demand paging capabilities.
    demand: ibv_odp_caps,
    context: *mut ibv_context,
    pd: *mut ibv_pd,
}

// SAFETY: libibverbs is thread-safe (ibv_get_device_list(3), rdma-core's documentation); the pointers are not changed.
unsafe impl Send for Hca {}
// SAFETY: libibverbs is thread-safe, and the pointers do not change.
unsafe impl Sync for Hca {}

impl Hca {
    /// Opens the devices of this host whose names `wanted` accepts.
    pub fn all(wanted: impl Fn(&str) -> bool) -> Vec<Arc<Hca>> {
        let Some(verbs) = Verbs::get() else {
            return Vec::new();
        };
        let mut count = 0;
        // SAFETY: `count` is writable. A null list is empty.
        let list = unsafe { (verbs.get_device_list)(&mut count) };
        if list.is_null() {
            return Vec::new();
        }
        // SAFETY: the list has `count` entries, valid until it is freed.
        let devices = unsafe { std::slice::from_raw_parts(list, count.max(0) as usize) };
        let open = |&device: &*mut ibv_device| {
            // SAFETY: `device` is in the list, and its name is a string that the device owns.
            let name = unsafe { CStr::from_ptr((verbs.get_device_name)(device)) };
            let name = name.to_string_lossy().into_owned();
            if !wanted(&name) {
                return None;
            }
            // SAFETY: `device` is in the list, which is not freed yet.
            match unsafe { Hca::open(verbs, device, name.clone()) } {
                Ok(hca) => Some(Arc::new(hca)),
                Err(e) => {
                    log::diag!("cannot open InfiniBand device {name}: {e}");
                    None
                }
            }
        };
        let opened = devices.iter().filter_map(open).collect();
        // SAFETY: the list is not used afterwards; open devices stay valid.
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
        // SAFETY: by the caller, `device` is valid; the other arguments were just created. `drop` frees what is
        // created.
        unsafe {
            let context = made((verbs.open_device)(device))?;
            let mut hca = Hca {
                verbs,
                name,
                limits: ibv_device_attr::default(),
                demand: ibv_odp_caps::default(),
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

    /// Whether the device executes atomic operations, as initiator and as target.
    pub fn has_atomics(&self) -> bool {
        let reads = self.limits.max_qp_rd_atom > 0 && self.limits.max_qp_init_rd_atom > 0;
        self.limits.atomic_cap != IBV_ATOMIC_NONE && reads
    }

    /// Whether its atomic operations are atomic with those of processors, too.
    pub fn has_global_atomics(&self) -> bool {
        self.limits.atomic_cap == IBV_ATOMIC_GLOB
    }

    /// Whether it accesses any memory of the process by one registration, with on-demand paging.
    pub fn has_demand(&self) -> bool {
        let general = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT;
        self.knows_demand(general, IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ)
    }

    /// Whether peers can write, read and execute atomics on memory that is registered without being pinned.
    pub fn has_parts_on_demand(&self) -> bool {
        let operations = IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC;
        self.knows_demand(IBV_ODP_SUPPORT, operations)
    }

    /// Whether the device has all of these on-demand paging capabilities, `by_connection` for reliable connections.
    fn knows_demand(&self, general: u32, by_connection: u32) -> bool {
        let caps = &self.demand;
        let general = u64::from(general);
        caps.general_caps & general == general
            && caps.per_transport_caps.rc_odp_caps & by_connection == by_connection
    }

    /// The context, for calls of [`Verbs`] on this device.
    pub fn context(&self) -> *mut ibv_context {
        self.context
    }

    /// The protection domain, for calls of [`Verbs`] on it.
    pub fn pd(&self) -> *mut ibv_pd {
        self.pd
    }

    /// The functions of the data path: posting and polling.
    #[inline(always)]
    pub fn ops(&self) -> &ibv_context_ops {
        // SAFETY: the context is open as long as self, and the library does not change `ops`.
        unsafe { &(*self.context).ops }
    }

    /// Registers memory. `access`: bits of `ibv_access_flags`.
    ///
    /// # Errors
    /// `ENOMEM`, `EAGAIN`: a limit is reached (`ulimit -l`); `EFAULT`, `EINVAL`: the memory cannot be registered.
    ///
    /// # Safety
    /// The memory stays mapped as long as the region exists, or no work request uses the region afterwards.
    pub unsafe fn register(
        self: &Arc<Self>,
        addr: *mut u8,
        len: usize,
        access: u32,
    ) -> io::Result<HcaMr> {
        // SAFETY: by the caller, the memory stays mapped while it is used; the library checks the range.
        let mr = made(unsafe {
            (self.verbs.reg_mr)(self.pd, addr.cast::<c_void>(), len, access as c_int)
        })?;
        Ok(HcaMr {
            hca: self.clone(),
            mr,
        })
    }

    /// Registers memory of another device, at its own addresses. `access`: bits of `ibv_access_flags`.
    ///
    /// # Errors
    /// `Unsupported`, `EOPNOTSUPP`: the library or the device cannot; else those of [`register`](Self::register).
    pub fn register_dmabuf(self: &Arc<Self>, memory: &DmaBuf, access: u32) -> io::Result<HcaMr> {
        let register = (self.verbs.reg_dmabuf_mr).ok_or(io::ErrorKind::Unsupported)?;
        let descriptor = memory.descriptor.as_raw_fd();
        // SAFETY: the descriptor is open; the region keeps the memory, and is not mapped in this process.
        let mr = made(unsafe {
            register(
                self.pd,
                0,
                memory.len,
                memory.base,
                descriptor,
                access as c_int,
            )
        })?;
        Ok(HcaMr {
            hca: self.clone(),
            mr,
        })
    }

    /// Logs that memory could not be registered, and which limit to raise, once per device.
    #[cold]
    pub fn report_limit(&self, what: &str, bytes: usize, e: &io::Error) {
        log::once!(
            Error,
            each & self.name,
            "{}: cannot register {bytes} bytes for {what}: {e}. {}",
            self.name,
            regcache::advice(bytes)
        );
    }

    /// The reason why a queue could not be created, with the limits that may be reached and how to raise them.
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
        // SAFETY: no object refers to them: each object made on the device holds a reference to self.
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

// SAFETY: libibverbs is thread-safe, and the pointer does not change.
unsafe impl Send for HcaMr {}
// SAFETY: libibverbs is thread-safe, and the pointer does not change.
unsafe impl Sync for HcaMr {}

impl HcaMr {
    /// The remote key: names the memory in work requests of peers.
    pub fn rkey(&self) -> u32 {
        // SAFETY: the region is registered as long as self exists.
        unsafe { (*self.mr).rkey }
    }

    /// The local key: names the memory in work requests of this process.
    pub fn lkey(&self) -> u32 {
        // SAFETY: the region is registered as long as self exists.
        unsafe { (*self.mr).lkey }
    }
}

impl Drop for HcaMr {
    fn drop(&mut self) {
        // SAFETY: by the promise to `register`, no work request uses the region any more.
        unsafe { (self.hca.verbs.dereg_mr)(self.mr) };
    }
}
