//! Memory: mapping, queries, advice.

use super::context::context_of;
use super::output::{self, inherited, invalid};
use crate::ctypes::*;
use crate::engine::context::{Context, MemoryAccess};
use crate::engine::memory::{MemHandle, memory_type_of, note_wrong_type};
use crate::options::{Size, Value};
use crate::sys::cuda::MemoryKind;
use crate::sys::log;
use crate::sys::memfd::PAGE;
use crate::sys::trace::{self, ArgValue};
use crate::tl::cuda::CudaContext;
use std::ffi::{c_char, c_uint};
use std::ptr::NonNull;
use std::sync::Arc;

/// The region behind a handle.
///
/// # Safety
/// A handle that was not unmapped.
pub unsafe fn memory_of<'a>(handle: ucp_mem_h) -> &'a MemHandle {
    // SAFETY: the caller's promise.
    unsafe { &*handle.cast::<MemHandle>().cast_const() }
}

/// The arguments of `ucp_mem_map`.
struct Request {
    addr: u64,
    len: usize,
    flags: u32,
    /// A number of `ucs_memory_type_t`; unknown if the caller gives none.
    memory_type: u32,
}

/// Registers memory, or allocates it.
///
/// # Safety
/// A live context; `params` valid in the fields that its mask names; `memh_p` writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_mem_map(
    context: ucp_context_h,
    params: *const ucp_mem_map_params_t,
    memh_p: *mut ucp_mem_h,
) -> ucs_status_t {
    const NAME: &str = "ucp_mem_map";
    if context.is_null() || params.is_null() || memh_p.is_null() {
        return invalid(NAME, "context, params or memh_p is null");
    }
    let began = trace::is_on().then(trace::now);
    // SAFETY: the caller's handle and structure.
    unsafe {
        let ctx = context_of(context);
        if ctx.is_inherited() {
            return inherited(NAME);
        }
        let request = match read_params(ctx, params) {
            Ok(request) => request,
            Err(status) => return status,
        };
        let allocate = request.flags & UCP_MEM_MAP_ALLOCATE as u32 != 0;
        let fixed = request.flags & UCP_MEM_MAP_FIXED as u32 != 0;
        let memory = if request.len == 0 {
            MemHandle::empty()
        } else if !allocate {
            match memory_kind(ctx, &request) {
                Ok(MemoryKind::Host) => MemHandle::register(ctx, request.addr, request.len),
                Ok(kind) => MemHandle::register_device(ctx, kind, request.addr, request.len),
                Err(status) => return status,
            }
        } else if let Some((cuda, kind)) = wants_device(ctx, &request) {
            if fixed {
                log::error!("{NAME}: memory of a device cannot be allocated at a fixed address");
                return UCS_ERR_UNSUPPORTED;
            }
            match MemHandle::allocate_device(ctx, cuda, kind, request.len) {
                Ok(memory) => memory,
                Err(e) => {
                    log::error!(
                        "{NAME}: cannot allocate {} bytes of a device: {e}",
                        request.len
                    );
                    return UCS_ERR_NO_MEMORY;
                }
            }
        } else {
            let at = NonNull::new(request.addr as *mut u8).filter(|_| fixed);
            if fixed && at.is_none() {
                log::error!("{NAME}: nothing can be mapped at address 0");
                return UCS_ERR_NO_MEMORY;
            }
            match MemHandle::allocate(ctx, request.len, at) {
                Ok(memory) => memory,
                Err(e) => {
                    log::error!("{NAME}: cannot allocate {} bytes: {e}", request.len);
                    return UCS_ERR_NO_MEMORY;
                }
            }
        };
        if request.flags & UCP_MEM_MAP_LOCK as u32 != 0
            && !memory.is_device()
            && libc::mlock(memory.addr as *const _, memory.len) != 0
        {
            log::error!(
                "{NAME}: cannot lock the memory: {}",
                std::io::Error::last_os_error()
            );
            let mut memory = memory;
            memory.unregister(ctx);
            return UCS_ERR_NO_RESOURCE;
        }
        if let Some(began) = began {
            record_map(&memory, request.flags, began);
        }
        let raw = Box::into_raw(Box::new(memory));
        ctx.handles.lock().insert(raw as usize);
        memh_p.write(raw.cast());
    }
    UCS_OK
}

/// Records a registration or allocation, which began at `began`, in the timeline.
#[cold]
fn record_map(memory: &MemHandle, flags: c_uint, began: u64) {
    let args = [
        ("address", ArgValue::Hex(memory.addr)),
        ("bytes", memory.len.into()),
        ("flags", ArgValue::Hex(flags.into())),
    ];
    trace::slice("memory", "mem_map", began, &args);
}

/// Whose memory the caller registers.
///
/// # Errors
/// `UCS_ERR_INVALID_PARAM`, with a line in the log: memory of a device that the caller states to be the host's.
fn memory_kind(ctx: &Context, request: &Request) -> Result<MemoryKind, ucs_status_t> {
    // The driver is asked each time: the pages may not be accessed before they are registered.
    match ctx.memory_access(request.memory_type) {
        MemoryAccess::AskDriver(cuda) => Ok(cuda.cuda.memory_at(request.addr).kind),
        MemoryAccess::CheckHost(cuda) => match cuda.cuda.memory_at(request.addr).kind {
            MemoryKind::Device => {
                note_wrong_type("ucp_mem_map", request.addr);
                Err(UCS_ERR_INVALID_PARAM)
            }
            MemoryKind::Host | MemoryKind::Managed => Ok(MemoryKind::Host),
        },
        MemoryAccess::Processor | MemoryAccess::None => Ok(MemoryKind::Host),
    }
}

/// The driver and the kind of its memory, if the caller allocates such.
fn wants_device<'a>(
    ctx: &'a Context,
    request: &Request,
) -> Option<(&'a Arc<CudaContext>, MemoryKind)> {
    const CUDA: u32 = UCS_MEMORY_TYPE_CUDA as u32;
    const MANAGED: u32 = UCS_MEMORY_TYPE_CUDA_MANAGED as u32;
    let kind = match request.memory_type {
        CUDA => MemoryKind::Device,
        MANAGED => MemoryKind::Managed,
        _ => return None,
    };
    Some((ctx.cuda.as_ref()?, kind))
}

unsafe fn read_params(
    ctx: &Context,
    params: *const ucp_mem_map_params_t,
) -> Result<Request, ucs_status_t> {
    const NAME: &str = "ucp_mem_map";
    // SAFETY: each field is read only if its bit is set.
    unsafe {
        let mask = (*params).field_mask;
        let has = |bit: ucp_mem_map_params_field| mask & bit as u64 != 0;
        if has(UCP_MEM_MAP_PARAM_FIELD_EXPORTED_MEMH_BUFFER) {
            return Err(UCS_ERR_UNSUPPORTED);
        }
        if !has(UCP_MEM_MAP_PARAM_FIELD_LENGTH) {
            return Err(invalid(NAME, "no length"));
        }
        let flags: c_uint = if has(UCP_MEM_MAP_PARAM_FIELD_FLAGS) {
            (*params).flags
        } else {
            0
        };
        let addr = if has(UCP_MEM_MAP_PARAM_FIELD_ADDRESS) {
            (*params).address as u64
        } else {
            0
        };
        let request = Request {
            addr,
            len: (*params).length,
            flags,
            memory_type: match has(UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE) {
                true => enum_raw((*params).memory_type),
                false => UCS_MEMORY_TYPE_UNKNOWN as u32,
            },
        };
        let is = |bit: ucp_mem_map_flags| flags & bit as u32 != 0;
        if request.len == 0 {
            return Ok(request);
        }
        if addr == 0 && !is(UCP_MEM_MAP_ALLOCATE) {
            return Err(invalid(NAME, "no address and not ALLOCATE"));
        }
        if addr.checked_add(request.len as u64).is_none() || request.len > isize::MAX as usize {
            return Err(invalid(NAME, "a length beyond the address space"));
        }
        if is(UCP_MEM_MAP_FIXED) && (!is(UCP_MEM_MAP_ALLOCATE) || addr % PAGE as u64 != 0) {
            return Err(invalid(
                NAME,
                "FIXED needs ALLOCATE and an address that is a multiple of the page size",
            ));
        }
        if is(UCP_MEM_MAP_NONBLOCK) && is(UCP_MEM_MAP_LOCK) {
            return Err(invalid(NAME, "NONBLOCK and LOCK exclude each other"));
        }
        if let MemoryAccess::None = ctx.memory_access(request.memory_type) {
            log::error!(
                "{NAME}: {}, and only {} is supported",
                memory_text(request.memory_type),
                ctx.memory_types_text()
            );
            return Err(UCS_ERR_UNSUPPORTED);
        }
        Ok(request)
    }
}

/// Ends a mapping.
///
/// # Safety
/// A live context; if the mapping was allocated its memory is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_mem_unmap(context: ucp_context_h, memh: ucp_mem_h) -> ucs_status_t {
    if context.is_null() || memh.is_null() {
        return invalid("ucp_mem_unmap", "context or memh is null");
    }
    // SAFETY: the caller's handle.
    let ctx = unsafe { context_of(context) };
    if ctx.is_inherited() {
        // A forked child does not change its parent's handle.
        return UCS_OK;
    }
    if !ctx.handles.lock().remove(&(memh as usize)) {
        return invalid("ucp_mem_unmap", "a handle that is not mapped");
    }
    // SAFETY: made by `ucp_mem_map`, and taken out of the set once.
    let mut memory = unsafe { Box::from_raw(memh.cast::<MemHandle>()) };
    memory.unregister(ctx);
    UCS_OK
}

/// Fills the fields of `attr` that its mask names.
///
/// # Safety
/// A mapped handle; `attr` valid in the fields that its mask names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_mem_query(memh: ucp_mem_h, attr: *mut ucp_mem_attr_t) -> ucs_status_t {
    if memh.is_null() || attr.is_null() {
        return invalid("ucp_mem_query", "memh or attr is null");
    }
    // SAFETY: the caller's handle; fields under the mask, through raw pointers.
    unsafe {
        let (memory, mask) = (memory_of(memh), (*attr).field_mask);
        let has = |bit: ucp_mem_attr_field| mask & bit as u64 != 0;
        if has(UCP_MEM_ATTR_FIELD_ADDRESS) {
            (*attr).address = memory.addr as *mut _;
        }
        if has(UCP_MEM_ATTR_FIELD_LENGTH) {
            (*attr).length = memory.len;
        }
        if has(UCP_MEM_ATTR_FIELD_MEM_TYPE) {
            (&raw mut (*attr).mem_type).write(memory_type_of(memory.kind));
        }
    }
    UCS_OK
}

/// Passes advice about a part of a mapping on to the kernel.
///
/// # Safety
/// A live context, a mapped handle, `params` valid in the fields that its mask names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_mem_advise(
    context: ucp_context_h,
    memh: ucp_mem_h,
    params: *mut ucp_mem_advise_params_t,
) -> ucs_status_t {
    const NAME: &str = "ucp_mem_advise";
    if context.is_null() || memh.is_null() || params.is_null() {
        return invalid(NAME, "context, memh or params is null");
    }
    let all = UCP_MEM_ADVISE_PARAM_FIELD_ADDRESS as u64
        | UCP_MEM_ADVISE_PARAM_FIELD_LENGTH as u64
        | UCP_MEM_ADVISE_PARAM_FIELD_ADVICE as u64;
    // SAFETY: the caller's handles; the fields are read only if all their bits are set.
    unsafe {
        if (*params).field_mask & all != all {
            return invalid(NAME, "address, length and advice must all be given");
        }
        let advice = enum_raw((*params).advice);
        if advice > ucp_mem_advice_t::UCP_MADV_WILLNEED as u32 {
            return invalid(NAME, "an unknown advice");
        }
        let (memory, addr, len) = (
            memory_of(memh),
            (*params).address as u64,
            (*params).length as u64,
        );
        let inside = addr >= memory.addr
            && addr
                .checked_add(len)
                .is_some_and(|end| end <= memory.addr + memory.len as u64);
        if !inside {
            return invalid(NAME, "the range is not inside of the mapping");
        }
        if advice == ucp_mem_advice_t::UCP_MADV_WILLNEED as u32 {
            let start = addr & !(PAGE as u64 - 1);
            libc::madvise(
                start as *mut _,
                (addr + len - start) as usize,
                libc::MADV_WILLNEED,
            );
        }
    }
    UCS_OK
}

/// Allocates as `mem_spec` says (a size, as `1m`) and prints where it is.
///
/// # Safety
/// A live context, an open stream, a NUL-terminated text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ucp_mem_print_info(
    mem_spec: *const c_char,
    context: ucp_context_h,
    stream: *mut libc::FILE,
) {
    if mem_spec.is_null() || context.is_null() || stream.is_null() {
        invalid("ucp_mem_print_info", "mem_spec, context or stream is null");
        return;
    }
    // SAFETY: the caller's text, handle and stream.
    unsafe {
        let spec = output::text(mem_spec).unwrap_or_default();
        let Some(len) =
            Size::from_text(spec.split(',').next().unwrap_or_default()).and_then(Size::bytes)
        else {
            return output::write(stream, "<Failed to parse memory size>\n");
        };
        let ctx = context_of(context);
        if ctx.is_inherited() {
            inherited("ucp_mem_print_info");
            return;
        }
        let text = match MemHandle::allocate(ctx, len, None) {
            Ok(mut memory) => {
                memory.unregister(ctx);
                let method = if memory.export.is_some() {
                    "shared segment"
                } else {
                    "mmap"
                };
                format!(
                    "#\n# UCP memory allocation\n#\n#  allocated {} bytes at {:#x} using {method}\n#\n",
                    memory.len, memory.addr
                )
            }
            Err(e) => format!("<Failed to map memory of size {spec}: {e}>\n"),
        };
        output::write(stream, &text);
    }
}
