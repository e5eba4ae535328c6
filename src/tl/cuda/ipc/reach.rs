//! Where an allocation of another process is opened: in a context whose device can access it, of those that the program
//! uses already. A context of its own would take memory of the device.

use super::devices::CudaDevices;
use crate::sys::cuda::{CuDevice, Cuda, MemoryInfo, MemoryKind};
use crate::wire::device_handle::DeviceHandle;

/// The device for whose context an allocation is opened that is copied from or to `near`: that of `near`, if it can
/// access the allocation, else one whose primary context exists. `None`: there is none.
pub fn device(
    cuda: &Cuda,
    devices: &CudaDevices,
    handle: &DeviceHandle,
    near: &MemoryInfo,
) -> Option<CuDevice> {
    let owner = devices.find(cuda, &handle.device);
    // A device that this process cannot use may be reached all the same: the driver knows.
    let reaches = |device| owner.is_none_or(|of| of == device || cuda.can_access(device, of));
    if near.kind != MemoryKind::Host && near.device >= 0 && reaches(near.device) {
        return Some(near.device);
    }
    let others = (0..devices.count(cuda)).filter(|&device| reaches(device));
    let mut all = owner.into_iter().chain(others);
    all.find(|&device| cuda.is_primary_active(device))
}
