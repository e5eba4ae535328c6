//! Where an allocation of another process is opened: in a context whose device can access it, of those that the program
//! uses already. A context of its own would take memory of the device. And in which context a copy is made: that of a
//! device that can access both memories, as a copy that it cannot do would make the context unusable.

use super::devices::CudaDevices;
use super::opened::OpenedAllocation;
use crate::sys::cuda::{CuContext, CuDevice, Cuda, MemoryInfo, MemoryKind};
use crate::tl::cuda::CudaContext;
use crate::wire::device_handle::DeviceHandle;

/// The device for whose context an allocation is opened that is copied from or to `near`: that of `near`, if it can
/// access the allocation, else the owner's, or the one with the fastest link to it, of those whose primary context
/// exists. `None`: there is none.
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
    let all = 0..devices.count(cuda);
    let usable = all.filter(|&device| reaches(device) && cuda.is_primary_active(device));
    nearest(owner, usable, |device, of| cuda.link_rank(device, of))
}

/// The owner, if it is among these devices, or else the one with the fastest link to it: the first of those.
fn nearest(
    owner: Option<CuDevice>,
    usable: impl Iterator<Item = CuDevice>,
    rank: impl Fn(CuDevice, CuDevice) -> i32,
) -> Option<CuDevice> {
    usable.min_by_key(|&device| match owner {
        Some(of) => (device != of, rank(device, of)),
        None => (false, 0),
    })
}

/// Whether memory is accessible only to the devices that the program has named: that of `cuMemMap` and of pools.
fn is_restricted(memory: &MemoryInfo) -> bool {
    memory.kind == MemoryKind::Device && memory.ctx.is_none()
}

/// Whether the device of a context can access memory. The device on which memory lies need not be among those that the
/// program has named.
fn can_access(shared: &CudaContext, ctx: CuContext, memory: &MemoryInfo) -> bool {
    !is_restricted(memory) || shared.cuda.can_touch(ctx, memory.start)
}

/// The context in which memory of this process is copied from or to other memory of this process: that of the first
/// one, if it can access both. `None`: no device can access both.
pub fn common_context(
    shared: &CudaContext,
    first: &MemoryInfo,
    second: &MemoryInfo,
) -> Option<CuContext> {
    let either = [(first, second), (second, first)].into_iter();
    let mut of_devices = either.filter(|(of, _)| of.kind != MemoryKind::Host);
    of_devices.find_map(|(of, other)| {
        let ctx = shared.context_of(of).ok()?;
        let reaches = |memory| can_access(shared, ctx, memory);
        (reaches(of) && reaches(other)).then_some(ctx)
    })
}

/// The context in which memory of this process is copied from or to an allocation of another one. `None`: no device
/// can access both.
pub fn open_context(
    shared: &CudaContext,
    open: &OpenedAllocation,
    near: &MemoryInfo,
) -> Option<CuContext> {
    if can_access(shared, open.ctx, near) {
        return Some(open.ctx);
    }
    let ctx = shared.context_of(near).ok()?;
    (can_access(shared, ctx, near) && open.allows(near.device)).then_some(ctx)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_link_to_the_owner_is_selected() {
        let rank = |device: CuDevice, of: CuDevice| (device - of).abs() - 1;
        let of = |owner, usable: &[CuDevice]| nearest(owner, usable.iter().copied(), rank);
        assert_eq!(of(Some(3), &[0, 1, 3]), Some(3));
        assert_eq!(of(Some(3), &[0, 1, 2, 5]), Some(2));
        assert_eq!(of(Some(3), &[0, 4, 2]), Some(4), "the first of two");
        assert_eq!(of(Some(3), &[0, 5]), Some(5));
        assert_eq!(of(None, &[2, 0]), Some(2));
        assert_eq!(of(Some(3), &[]), None);
    }
}
