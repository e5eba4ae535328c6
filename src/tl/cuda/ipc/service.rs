//! The service by which peers get descriptors of memory of `cuMemMap` and of pools. A descriptor is made when a peer
//! asks for it: one that was kept would keep the memory after the program has freed it.

use crate::sys::cuda::Cuda;
use crate::sys::descriptor_service::{self, DescriptorService, REQUEST};
use crate::sys::log;
use crate::wire::device_handle::DeviceHandle;
use parking_lot::Mutex;
use std::io;
use std::os::fd::OwnedFd;

/// The service of a context: started for the first allocation that is exported so.
#[derive(Default)]
pub struct MemoryService(Mutex<ServiceState>);

#[derive(Default)]
enum ServiceState {
    #[default]
    Unused,
    Running(DescriptorService),
    /// It cannot be had: such memory is not exported.
    Failed,
}

/// What a descriptor is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DescriptorOf {
    /// The memory of `cuMemMap`.
    Memory,
    /// The pool of which the memory is a part.
    Pool,
}

impl MemoryService {
    /// By what peers name it. `None`: it cannot be started.
    pub fn name(&self, cuda: &'static Cuda) -> Option<u64> {
        let mut state = self.0.lock();
        if let ServiceState::Unused = *state {
            *state = match DescriptorService::start(move |request| answer(cuda, request)) {
                Ok(service) => ServiceState::Running(service),
                Err(e) => {
                    log::diag!(
                        "memory of cuMemMap and of pools is not exported, messages carry it: no socket or thread for \
                         its descriptors: {e}"
                    );
                    ServiceState::Failed
                }
            };
        }
        match &*state {
            ServiceState::Running(service) => Some(service.name()),
            ServiceState::Unused | ServiceState::Failed => None,
        }
    }
}

/// Asks the owner of an allocation for a descriptor.
///
/// # Errors
/// Those of [`descriptor_service::request`]; `NotFound`: the allocation was freed, or cannot be exported any more.
pub fn request(service: u64, of: DescriptorOf, handle: &DeviceHandle) -> io::Result<OwnedFd> {
    let mut bytes = [0; REQUEST];
    bytes[0] = match of {
        DescriptorOf::Memory => 0,
        DescriptorOf::Pool => 1,
    };
    bytes[1..9].copy_from_slice(&handle.base.to_le_bytes());
    bytes[9..].copy_from_slice(&handle.buffer_id.to_le_bytes());
    descriptor_service::request(service, &bytes)
}

/// The descriptor that a peer asks for, in the service's thread. `None`: the allocation is not there any more, or the
/// driver does not export it.
fn answer(cuda: &Cuda, request: &[u8; REQUEST]) -> Option<OwnedFd> {
    let (&of, rest) = request.split_first()?;
    let (&base, id) = rest.split_first_chunk()?;
    let (base, id) = (
        u64::from_le_bytes(base),
        u64::from_le_bytes(*id.first_chunk()?),
    );
    let is_there = || {
        let memory = cuda.memory_at(base);
        memory.start == base && memory.buffer_id == id && id != 0
    };
    if !is_there() {
        return None;
    }
    let exported = match of {
        0 => cuda.export_mapped(base),
        1 => cuda.export_pool(base),
        _ => return None,
    };
    exported
        .inspect_err(|e| log::diag!("memory at {base:#x} is not exported to a peer: {e}"))
        .ok()
        // Other memory may have taken its place meanwhile.
        .filter(|_| is_there())
}
