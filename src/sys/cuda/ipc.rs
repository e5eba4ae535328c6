//! Memory that processes of a host share, by the legacy handles of `cuMemAlloc`.

use super::api::Cuda;
use super::driver::{CuIpcMemHandle, IPC_MEM_LAZY_ENABLE_PEER_ACCESS};
use super::error::CudaError;

impl Cuda {
    /// The handle by which other processes open the allocation at an address. Its context is current.
    ///
    /// # Errors
    /// Those of `cuIpcGetMemHandle`: the memory is of another kind than `cuMemAlloc`'s, or the platform has no handles.
    pub fn ipc_handle(&self, addr: u64) -> Result<[u8; 64], CudaError> {
        const CALL: &str = "cuIpcGetMemHandle";
        let mut handle = CuIpcMemHandle([0; 64]);
        let Some(get) = self.functions().ipc_get_mem_handle else {
            return Err(self.unsupported(CALL));
        };
        // SAFETY: a place for the handle; the driver checks the address.
        self.check(CALL, unsafe { get(&raw mut handle, addr) })?;
        Ok(handle.0)
    }

    /// Opens an allocation of another process for the current context, which may be one of another device. Returns its
    /// first byte; to be given to [`close_ipc`](Self::close_ipc) as often as it was opened.
    ///
    /// # Errors
    /// Those of `cuIpcOpenMemHandle`.
    pub fn open_ipc(&self, handle: [u8; 64]) -> Result<u64, CudaError> {
        const CALL: &str = "cuIpcOpenMemHandle";
        let mut addr = 0;
        let Some(open) = self.functions().ipc_open_mem_handle else {
            return Err(self.unsupported(CALL));
        };
        let (handle, flags) = (CuIpcMemHandle(handle), IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
        // SAFETY: a place for the address; the driver checks the handle, whatever its bytes are.
        self.check(CALL, unsafe { open(&raw mut addr, handle, flags) })?;
        Ok(addr)
    }

    /// Closes an allocation of another process. The context for which it was opened is current. An error means that it
    /// is gone with its context.
    pub fn close_ipc(&self, addr: u64) {
        if let Some(close) = self.functions().ipc_close_mem_handle {
            // SAFETY: the driver checks the address, which the caller does not use any more.
            let _ = unsafe { close(addr) };
        }
    }
}
