//! Lists of local and of remote memory for the kernels of a device: the host's part of them.
//!
//! A list's handle is the address of a header in memory of a device, as `ucp_device_types.h` declares it. The lists of
//! this library have no lanes, by which a kernel could post, and a version that no device code knows.

use super::device_words;
use super::param;
use crate::ctypes::*;
use crate::engine::endpoint::Endpoint;
use crate::engine::memory::MemHandle;
use crate::engine::rkey::Rkey;
use crate::engine::worker::Worker;
use crate::sys::cuda::{MemoryInfo, MemoryKind};
use crate::sys::log;
use crate::tl::cuda::ListMemory;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::mem::offset_of;
use std::sync::Once;

/// `version` of the header; device code of UCX checks it. 0 was never one of UCX's.
const VERSION_WITHOUT_LANES: u16 = 0;

/// Bytes of a header: `uint16_t version, num_lanes; uint32_t length`.
const HEADER_BYTES: usize = 8;

/// A list of this process.
struct DeviceList {
    /// Of the header, whose address is the handle.
    _memory: ListMemory,
    /// Elements.
    length: u32,
}

/// By their handles.
static LISTS: Mutex<BTreeMap<u64, DeviceList>> = Mutex::new(BTreeMap::new());

/// The log says once that kernels cannot post.
static NO_LANES: Once = Once::new();

/// The caller's array.
struct ListElements {
    first: *const u8,
    /// Bytes of an element in the caller's version of the type.
    size: usize,
    count: u32,
}

/// What an element names. A field that is null counts as absent.
struct ListElement {
    memh: Option<ucp_mem_h>,
    rkey: Option<ucp_rkey_h>,
    ep: Option<ucp_ep_h>,
}

impl ListElements {
    /// # Errors
    /// `UCS_ERR_INVALID_PARAM` with a line in the log: a field that is needed is absent, null or 0.
    ///
    /// # Safety
    /// `params` is valid in the fields that its mask names.
    unsafe fn read(
        what: &str,
        params: *const ucp_device_mem_list_params_t,
    ) -> Result<ListElements, ucs_status_t> {
        // SAFETY: a field is read only if its bit is set.
        let (elements, size, count) = unsafe {
            let mask = (*params).field_mask;
            let has = |bit: ucp_device_mem_list_params_field| mask & bit as u64 != 0;
            (
                has(UCP_DEVICE_MEM_LIST_PARAMS_FIELD_ELEMENTS).then(|| (*params).elements),
                has(UCP_DEVICE_MEM_LIST_PARAMS_FIELD_ELEMENT_SIZE).then(|| (*params).element_size),
                has(UCP_DEVICE_MEM_LIST_PARAMS_FIELD_NUM_ELEMENTS).then(|| (*params).num_elements),
            )
        };
        let first = elements.filter(|first| !first.is_null());
        let size = size.filter(|&size| size != 0);
        let count = (count.filter(|&count| count != 0)).and_then(|count| u32::try_from(count).ok());
        let (Some(first), Some(size), Some(count)) = (first, size, count) else {
            log::error!("{what}: elements, their size and their number must be given");
            return Err(UCS_ERR_INVALID_PARAM);
        };
        Ok(ListElements {
            first: first.cast(),
            size,
            count,
        })
    }

    /// # Safety
    /// The caller's array has `count` elements of `size` bytes.
    unsafe fn iter(&self) -> impl Iterator<Item = ListElement> {
        // SAFETY: the caller's promise.
        (0..self.count as usize).map(|i| unsafe { self.element(self.first.add(i * self.size)) })
    }

    /// # Safety
    /// `size` bytes are readable at `at`.
    unsafe fn element(&self, at: *const u8) -> ListElement {
        // SAFETY: inside of the element, wherever it begins.
        let word = |offset: usize| unsafe { at.add(offset).cast::<u64>().read_unaligned() };
        let is_there = |offset: usize| offset + size_of::<u64>() <= self.size;
        let mask = match is_there(offset_of!(ucp_device_mem_list_elem_t, field_mask)) {
            true => word(offset_of!(ucp_device_mem_list_elem_t, field_mask)),
            false => 0,
        };
        let field = |bit: ucp_device_mem_list_elem_field, offset: usize| {
            let given = mask & bit as u64 != 0 && is_there(offset);
            given.then(|| word(offset) as usize).filter(|&p| p != 0)
        };
        type Element = ucp_device_mem_list_elem_t;
        let memh = field(
            UCP_DEVICE_MEM_LIST_ELEM_FIELD_MEMH,
            offset_of!(Element, memh),
        );
        let rkey = field(
            UCP_DEVICE_MEM_LIST_ELEM_FIELD_RKEY,
            offset_of!(Element, rkey),
        );
        let ep = field(UCP_DEVICE_MEM_LIST_ELEM_FIELD_EP, offset_of!(Element, ep));
        ListElement {
            memh: memh.map(|p| p as ucp_mem_h),
            rkey: rkey.map(|p| p as ucp_rkey_h),
            ep: ep.map(|p| p as ucp_ep_h),
        }
    }
}

/// The worker that the parameters name.
///
/// # Safety
/// `params` is valid in the fields that its mask names.
unsafe fn worker_of(params: *const ucp_device_mem_list_params_t) -> Option<&'static Worker> {
    // SAFETY: the field is read only if its bit is set; the caller's worker is live.
    unsafe {
        let given = (*params).field_mask & UCP_DEVICE_MEM_LIST_PARAMS_FIELD_WORKER as u64 != 0;
        given
            .then(|| (*params).worker.cast::<Worker>().as_ref())
            .flatten()
    }
}

/// A list of registered memory of one device. Returns its handle.
///
/// # Errors
/// `UCS_ERR_INVALID_PARAM`: parameters, or an element without a handle that is mapped. `UCS_ERR_UNSUPPORTED`: memory of
/// the host, or managed, or of two devices, or a forked child. `UCS_ERR_NO_MEMORY`, `UCS_ERR_IO_ERROR`: the device.
/// All with a line in the log.
///
/// # Safety
/// `params` is valid in the fields that its mask names, and what it names is live.
pub unsafe fn create_local(
    what: &str,
    params: *const ucp_device_mem_list_params_t,
) -> Result<u64, ucs_status_t> {
    // SAFETY: the caller's promise.
    let (elements, worker) = unsafe { (ListElements::read(what, params)?, worker_of(params)) };
    let Some(worker) = worker else {
        log::error!("{what}: the worker must be given");
        return Err(UCS_ERR_INVALID_PARAM);
    };
    let mut device: Option<MemoryInfo> = None;
    // SAFETY: the caller's array.
    for (i, element) in unsafe { elements.iter() }.enumerate() {
        let found = local_memory(what, worker, i, &element)?;
        if device.is_some_and(|first| first.device != found.device) {
            log::error!("{what}: element {i} is memory of another device than the ones before");
            return Err(UCS_ERR_UNSUPPORTED);
        }
        device = Some(found);
    }
    create(what, worker, device, elements.count)
}

/// The memory of an element of a local list.
///
/// # Errors
/// Those of [`create_local`].
fn local_memory(
    what: &str,
    worker: &Worker,
    i: usize,
    element: &ListElement,
) -> Result<MemoryInfo, ucs_status_t> {
    let mapped = worker.ctx.handles.lock();
    let Some(memh) = (element.memh).filter(|memh| mapped.contains(&(*memh as usize))) else {
        log::error!(
            "{what}: element {i} has no memory handle that is mapped in the worker's context"
        );
        return Err(UCS_ERR_INVALID_PARAM);
    };
    // SAFETY: the handle is mapped, and cannot be unmapped while the set is locked.
    let memory = unsafe { &*memh.cast::<MemHandle>() };
    // The program may have freed the memory before the handle.
    let found = (worker.ctx.cuda.as_ref())
        .filter(|_| memory.is_device())
        .map(|cuda| cuda.cuda.memory_at(memory.addr))
        .filter(|found| found.kind == MemoryKind::Device);
    found.ok_or_else(|| {
        log::error!("{what}: element {i} is not memory of a device");
        UCS_ERR_UNSUPPORTED
    })
}

/// A list of peers' memory. An element without key and endpoint is a gap. Returns its handle.
///
/// # Errors
/// `UCS_ERR_INVALID_PARAM`: parameters, an element with a key or an endpoint alone, a key of another peer, an endpoint
/// of another worker than the one that is given, or nothing but gaps. The status of an endpoint that has failed or was
/// closed. `UCS_ERR_UNSUPPORTED`: this process has no device, or is a forked child. `UCS_ERR_NO_MEMORY`,
/// `UCS_ERR_IO_ERROR`: the device. All with a line in the log, but for those of endpoints.
///
/// # Safety
/// `params` is valid in the fields that its mask names, and what it names is live.
pub unsafe fn create_remote(
    what: &str,
    params: *const ucp_device_mem_list_params_t,
) -> Result<u64, ucs_status_t> {
    // SAFETY: the caller's promise.
    let (elements, worker) = unsafe { (ListElements::read(what, params)?, worker_of(params)) };
    let mut last = None;
    // SAFETY: the caller's array.
    for (i, element) in unsafe { elements.iter() }.enumerate() {
        // SAFETY: the caller's endpoints and keys are live.
        last = unsafe { remote_worker(what, worker, i, &element) }?.or(last);
    }
    let Some(worker) = last else {
        log::error!("{what}: no element has an endpoint");
        return Err(UCS_ERR_INVALID_PARAM);
    };
    create(what, worker, None, elements.count)
}

/// The worker of an element of a remote list; `None` for a gap.
///
/// # Errors
/// Those of [`create_remote`].
///
/// # Safety
/// Endpoint and key are live.
unsafe fn remote_worker<'a>(
    what: &str,
    expected: Option<&Worker>,
    i: usize,
    element: &ListElement,
) -> Result<Option<&'a Worker>, ucs_status_t> {
    let (ep, rkey) = match (element.ep, element.rkey) {
        (Some(ep), Some(rkey)) => (ep, rkey),
        (None, None) => return Ok(None),
        _ => {
            log::error!("{what}: element {i} has a key or an endpoint alone");
            return Err(UCS_ERR_INVALID_PARAM);
        }
    };
    // SAFETY: the caller's promise.
    let ((worker, peer), rkey) = unsafe {
        (
            param::open_endpoint(ep.cast::<Endpoint>())?,
            &*rkey.cast::<Rkey>(),
        )
    };
    if expected.is_some_and(|expected| !std::ptr::eq(expected, worker)) {
        log::error!("{what}: element {i} has an endpoint of another worker");
        return Err(UCS_ERR_INVALID_PARAM);
    }
    // A client can have unpacked the key before it had the server's uid.
    let (owner, server) = (rkey.identity.owner, peer.uid);
    if owner != server && owner != 0 && server != 0 {
        log::error!("{what}: element {i} has a key for another peer");
        return Err(UCS_ERR_INVALID_PARAM);
    }
    Ok(Some(worker))
}

/// Writes the header to the device of `beside`, or to the current context's, or to the first one.
///
/// # Errors
/// `UCS_ERR_UNSUPPORTED`: this process has no device, or is a forked child. `UCS_ERR_NO_MEMORY`, `UCS_ERR_IO_ERROR`:
/// the device. All with a line in the log.
fn create(
    what: &str,
    worker: &Worker,
    beside: Option<MemoryInfo>,
    length: u32,
) -> Result<u64, ucs_status_t> {
    let Some(cuda) = worker.ctx.cuda.as_ref().filter(|_| !worker.is_inherited()) else {
        log::error!("{what}: this process has no device whose kernels could use the list");
        return Err(UCS_ERR_UNSUPPORTED);
    };
    let memory = ListMemory::new(cuda, beside.as_ref(), HEADER_BYTES).map_err(|e| {
        log::error!("{what}: no memory of the device for the list: {e}");
        UCS_ERR_NO_MEMORY
    })?;
    let handle = memory.addr();
    let mut header = [0; HEADER_BYTES];
    header[..2].copy_from_slice(&VERSION_WITHOUT_LANES.to_le_bytes());
    header[4..].copy_from_slice(&length.to_le_bytes());
    // SAFETY: just allocated.
    unsafe { device_words::write(worker.ctx, handle, &header) }?;
    NO_LANES.call_once(|| {
        log::warn!("{what}: kernels of a device cannot post by the lists of this library");
    });
    let list = DeviceList {
        _memory: memory,
        length,
    };
    LISTS.lock().insert(handle, list);
    Ok(handle)
}

/// Elements of a list; `None`: not a list.
pub fn length(handle: u64) -> Option<u32> {
    LISTS.lock().get(&handle).map(|list| list.length)
}

/// Ends a list. False: it is not a list.
pub fn release(handle: u64) -> bool {
    let released = LISTS.lock().remove(&handle);
    released.is_some()
}
