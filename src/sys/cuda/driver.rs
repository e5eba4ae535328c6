//! The functions of NVIDIA's driver API that this library calls, from `libcuda.so.1`.
//!
//! Names, numbers and types follow NVIDIA's public documentation of the API, for which the program's installation of
//! CUDA need not be present.

use crate::sys::library::{Library, functions};
use crate::sys::sync::OnceLock;
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};

/// File name of the driver's library.
const LIBRARY: &CStr = c"libcuda.so.1";

/// The file that the kernel's driver makes. With it a process can use a device.
const CONTROL_FILE: &str = "/dev/nvidiactl";

/// `CUresult`: 0, or the number of an error.
pub type CuResult = c_int;
/// `CUdevice`: number of a device, from 0 on.
pub type CuDevice = c_int;
/// `CUdeviceptr`: an address, of a device's or of the host's memory.
pub type CuDevicePtr = c_ulonglong;
/// `CUcontext`: a handle of the driver, valid in the whole process.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CuContext(*mut c_void);

// SAFETY: the driver's handles belong to the process.
unsafe impl Send for CuContext {}
// SAFETY: the handle does not change.
unsafe impl Sync for CuContext {}

impl CuContext {
    /// No context.
    pub const NONE: CuContext = CuContext(std::ptr::null_mut());

    /// Whether it is no context.
    pub fn is_none(self) -> bool {
        self == CuContext::NONE
    }
}

/// `CUstream`
pub type CuStream = *mut c_void;
/// `CUevent`
pub type CuEvent = *mut c_void;
/// `CUstreamCallback`
pub type CuStreamCallback = unsafe extern "C" fn(CuStream, CuResult, *mut c_void);

/// `CUuuid`
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CuUuid(pub [u8; 16]);

/// `CUipcMemHandle`
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CuIpcMemHandle(pub [u8; 64]);

/// `CU_STREAM_NON_BLOCKING`: nothing waits for the program's default stream.
pub const STREAM_NON_BLOCKING: c_uint = 1;
/// `CU_EVENT_DEFAULT`
pub const EVENT_DEFAULT: c_uint = 0;
/// `CU_EVENT_DISABLE_TIMING`
pub const EVENT_DISABLE_TIMING: c_uint = 2;
/// `CU_MEMHOSTREGISTER_PORTABLE`: for all contexts.
pub const MEM_HOST_REGISTER_PORTABLE: c_uint = 1;
/// `CU_MEM_ATTACH_GLOBAL`: managed memory that all devices can access.
pub const MEM_ATTACH_GLOBAL: c_uint = 1;
/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`, the only flag that there is.
pub const IPC_MEM_LAZY_ENABLE_PEER_ACCESS: c_uint = 1;
/// `CU_MEMORYTYPE_DEVICE`
pub const MEMORYTYPE_DEVICE: c_uint = 2;

/// `CUpointer_attribute`, as far as it is asked for.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PointerAttribute {
    Context = 1,
    MemoryType = 2,
    SyncMemops = 6,
    BufferId = 7,
    IsManaged = 8,
    DeviceOrdinal = 9,
    RangeStart = 11,
    RangeSize = 12,
    AccessFlags = 16,
    MempoolHandle = 17,
    MappingSize = 18,
    MappingBase = 19,
    MemoryBlockId = 20,
}

/// `CUdevice_attribute`, as far as it is asked for.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceAttribute {
    ConcurrentManagedAccess = 89,
    GpuDirectFlushOptions = 117,
    GpuDirectWritesOrdering = 118,
    DmaBufSupported = 124,
}

/// `CUdevice_P2PAttribute`, as far as it is asked for.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum P2pAttribute {
    PerformanceRank = 1,
    AccessSupported = 2,
}

/// `CUDA_ERROR_NOT_INITIALIZED`
pub const NOT_INITIALIZED: CuResult = 3;
/// `CUDA_ERROR_NOT_READY`: an event that its stream has not reached.
pub const NOT_READY: CuResult = 600;
/// `CUDA_ERROR_NOT_SUPPORTED`
pub const NOT_SUPPORTED: CuResult = 801;

/// `CUmemLocation`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MemLocation {
    kind: c_int,
    id: c_int,
}

/// `CUmemcpyAttributes`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MemcpyAttributes {
    order: c_int,
    from: MemLocation,
    to: MemLocation,
    flags: c_uint,
}

impl MemcpyAttributes {
    /// `CU_MEMCPY_SRC_ACCESS_ORDER_STREAM`: sources are read in the order of the stream. No hints.
    pub const IN_ORDER: MemcpyAttributes = MemcpyAttributes {
        order: 1,
        from: MemLocation { kind: 0, id: 0 },
        to: MemLocation { kind: 0, id: 0 },
        flags: 0,
    };
}

const _: () = assert!(size_of::<MemcpyAttributes>() == 24);

/// `CUmemGenericAllocationHandle`: memory without an address.
pub type CuMemHandle = c_ulonglong;
/// `CUmemoryPool`
pub type CuMemPool = *mut c_void;

/// `CUmemAccessDesc`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MemAccess {
    location: MemLocation,
    flags: c_int,
}

/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`
pub const ACCESS_READWRITE: c_int = 3;

impl MemAccess {
    /// A device may read and write.
    pub fn of(device: CuDevice) -> MemAccess {
        /// `CU_MEM_LOCATION_TYPE_DEVICE`
        const DEVICE: c_int = 1;
        MemAccess {
            location: MemLocation {
                kind: DEVICE,
                id: device,
            },
            flags: ACCESS_READWRITE,
        }
    }
}

/// `CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST`: `cuFlushGPUDirectRDMAWrites` is supported.
pub const FLUSH_BY_HOST: i32 = 1;
/// `CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER`: the device itself needs no flush, from this value on.
pub const ORDERED_FOR_OWNER: i32 = 100;
/// `CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX`
pub const FLUSH_CURRENT: c_int = 0;
/// `CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER`
pub const FLUSH_TO_OWNER: c_int = 100;

/// `CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD`
pub const RANGE_HANDLE_DMA_BUF: c_int = 1;

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`
pub const HANDLE_TYPE_DESCRIPTOR: c_int = 1;

/// `CUmemAllocationProp`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct AllocationProp {
    kind: c_int,
    /// Bits of handles as which it can be exported.
    pub handle_types: c_int,
    location: MemLocation,
    win32: *mut c_void,
    flags: [u8; 8],
}

impl AllocationProp {
    /// To be filled by the driver.
    pub const EMPTY: AllocationProp = AllocationProp {
        kind: 0,
        handle_types: 0,
        location: MemLocation { kind: 0, id: 0 },
        win32: std::ptr::null_mut(),
        flags: [0; 8],
    };
}

const _: () = assert!(size_of::<MemAccess>() == 12 && size_of::<AllocationProp>() == 32);

/// `CUmemPoolPtrExportData`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CuPoolPointer(pub [u8; 64]);

functions! {
    /// The driver's functions.
    pub struct CuFunctions;
    init = c"cuInit": fn(c_uint) -> CuResult;
    error_string = c"cuGetErrorString": fn(CuResult, *mut *const c_char) -> CuResult;
    device_count = c"cuDeviceGetCount": fn(*mut c_int) -> CuResult;
    primary_ctx_retain = c"cuDevicePrimaryCtxRetain": fn(*mut CuContext, CuDevice) -> CuResult;
    primary_ctx_release = c"cuDevicePrimaryCtxRelease_v2": fn(CuDevice) -> CuResult;
    ctx_push = c"cuCtxPushCurrent_v2": fn(CuContext) -> CuResult;
    ctx_pop = c"cuCtxPopCurrent_v2": fn(*mut CuContext) -> CuResult;
    ctx_get_current = c"cuCtxGetCurrent": fn(*mut CuContext) -> CuResult;
    pointer_get_attributes = c"cuPointerGetAttributes":
        fn(c_uint, *mut PointerAttribute, *mut *mut c_void, CuDevicePtr) -> CuResult;
    mem_alloc = c"cuMemAlloc_v2": fn(*mut CuDevicePtr, usize) -> CuResult;
    mem_alloc_managed = c"cuMemAllocManaged": fn(*mut CuDevicePtr, usize, c_uint) -> CuResult;
    mem_free = c"cuMemFree_v2": fn(CuDevicePtr) -> CuResult;
    mem_host_register = c"cuMemHostRegister_v2": fn(*mut c_void, usize, c_uint) -> CuResult;
    mem_host_unregister = c"cuMemHostUnregister": fn(*mut c_void) -> CuResult;
    memcpy_async = c"cuMemcpyAsync": fn(CuDevicePtr, CuDevicePtr, usize, CuStream) -> CuResult;
    stream_create = c"cuStreamCreate": fn(*mut CuStream, c_uint) -> CuResult;
    stream_destroy = c"cuStreamDestroy_v2": fn(CuStream) -> CuResult;
    stream_synchronize = c"cuStreamSynchronize": fn(CuStream) -> CuResult;
    event_create = c"cuEventCreate": fn(*mut CuEvent, c_uint) -> CuResult;
    event_destroy = c"cuEventDestroy_v2": fn(CuEvent) -> CuResult;
    event_record = c"cuEventRecord": fn(CuEvent, CuStream) -> CuResult;
    event_query = c"cuEventQuery": fn(CuEvent) -> CuResult;
    event_synchronize = c"cuEventSynchronize": fn(CuEvent) -> CuResult;
    ? memcpy_batch_async = c"cuMemcpyBatchAsync": fn(
        *mut CuDevicePtr, *mut CuDevicePtr, *mut usize, usize, *mut MemcpyAttributes, *mut usize, usize, *mut usize,
        CuStream
    ) -> CuResult;
    ? device_get_attribute = c"cuDeviceGetAttribute": fn(*mut c_int, DeviceAttribute, CuDevice) -> CuResult;
    ? device_uuid = c"cuDeviceGetUuid_v2": fn(*mut CuUuid, CuDevice) -> CuResult;
    ? can_access_peer = c"cuDeviceCanAccessPeer": fn(*mut c_int, CuDevice, CuDevice) -> CuResult;
    ? p2p_attribute = c"cuDeviceGetP2PAttribute": fn(*mut c_int, P2pAttribute, CuDevice, CuDevice) -> CuResult;
    ? primary_ctx_state = c"cuDevicePrimaryCtxGetState": fn(CuDevice, *mut c_uint, *mut c_int) -> CuResult;
    ? event_elapsed_time = c"cuEventElapsedTime": fn(*mut f32, CuEvent, CuEvent) -> CuResult;
    ? stream_add_callback = c"cuStreamAddCallback":
        fn(CuStream, CuStreamCallback, *mut c_void, c_uint) -> CuResult;
    ? ipc_get_mem_handle = c"cuIpcGetMemHandle": fn(*mut CuIpcMemHandle, CuDevicePtr) -> CuResult;
    ? ipc_open_mem_handle = c"cuIpcOpenMemHandle_v2": fn(*mut CuDevicePtr, CuIpcMemHandle, c_uint) -> CuResult;
    ? ipc_close_mem_handle = c"cuIpcCloseMemHandle": fn(CuDevicePtr) -> CuResult;
    ? pointer_set_attribute = c"cuPointerSetAttribute":
        fn(*const c_void, PointerAttribute, CuDevicePtr) -> CuResult;
    ? mem_retain_handle = c"cuMemRetainAllocationHandle": fn(*mut CuMemHandle, *mut c_void) -> CuResult;
    ? mem_handle_properties = c"cuMemGetAllocationPropertiesFromHandle":
        fn(*mut AllocationProp, CuMemHandle) -> CuResult;
    ? mem_export = c"cuMemExportToShareableHandle":
        fn(*mut c_void, CuMemHandle, c_int, c_ulonglong) -> CuResult;
    ? mem_import = c"cuMemImportFromShareableHandle": fn(*mut CuMemHandle, *mut c_void, c_int) -> CuResult;
    ? mem_release = c"cuMemRelease": fn(CuMemHandle) -> CuResult;
    ? mem_reserve = c"cuMemAddressReserve":
        fn(*mut CuDevicePtr, usize, usize, CuDevicePtr, c_ulonglong) -> CuResult;
    ? mem_address_free = c"cuMemAddressFree": fn(CuDevicePtr, usize) -> CuResult;
    ? mem_map = c"cuMemMap": fn(CuDevicePtr, usize, usize, CuMemHandle, c_ulonglong) -> CuResult;
    ? mem_unmap = c"cuMemUnmap": fn(CuDevicePtr, usize) -> CuResult;
    ? mem_set_access = c"cuMemSetAccess": fn(CuDevicePtr, usize, *const MemAccess, usize) -> CuResult;
    ? pool_export = c"cuMemPoolExportToShareableHandle":
        fn(*mut c_void, CuMemPool, c_int, c_ulonglong) -> CuResult;
    ? pool_import = c"cuMemPoolImportFromShareableHandle":
        fn(*mut CuMemPool, *mut c_void, c_int, c_ulonglong) -> CuResult;
    ? pool_export_pointer = c"cuMemPoolExportPointer": fn(*mut CuPoolPointer, CuDevicePtr) -> CuResult;
    ? pool_import_pointer = c"cuMemPoolImportPointer":
        fn(*mut CuDevicePtr, CuMemPool, *mut CuPoolPointer) -> CuResult;
    ? pool_set_access = c"cuMemPoolSetAccess": fn(CuMemPool, *const MemAccess, usize) -> CuResult;
    ? pool_destroy = c"cuMemPoolDestroy": fn(CuMemPool) -> CuResult;
    ? address_range_handle = c"cuMemGetHandleForAddressRange":
        fn(*mut c_void, CuDevicePtr, usize, c_int, c_ulonglong) -> CuResult;
    ? flush_rdma_writes = c"cuFlushGPUDirectRDMAWrites": fn(c_int, c_int) -> CuResult;
    ? ctx_get_id = c"cuCtxGetId": fn(CuContext, *mut c_ulonglong) -> CuResult;
}

/// When the driver's library is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenWhen {
    /// If the process has it, or the kernel has the driver's device.
    Likely,
    /// If the host has it: the user has asked for it.
    Present,
}

static FUNCTIONS: OnceLock<CuFunctions> = OnceLock::new();

/// The driver's functions, if [`functions()`] has found them.
pub fn known_functions() -> Option<&'static CuFunctions> {
    FUNCTIONS.get()
}

/// The driver's functions. `None`: the process does not use CUDA, or the library is missing or too old.
pub fn functions(when: OpenWhen) -> Option<&'static CuFunctions> {
    if let Some(found) = known_functions() {
        return Some(found);
    }
    let expected = when == OpenWhen::Present || std::path::Path::new(CONTROL_FILE).exists();
    let library = match expected {
        true => Library::open(LIBRARY)?,
        false => Library::loaded(LIBRARY)?,
    };
    // SAFETY: the driver's library, by the name that its documentation gives it.
    let functions = unsafe { CuFunctions::resolve(library) }?;
    Some(FUNCTIONS.get_or_init(|| functions))
}
