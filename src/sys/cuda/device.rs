//! What the driver knows of devices.

use super::api::Cuda;
use super::driver::{CuDevice, CuUuid, DeviceAttribute, P2pAttribute};

impl Cuda {
    /// Number of devices. `None`: the program has not initialised the driver.
    pub fn device_count(&self) -> Option<u32> {
        let mut count = 0;
        // SAFETY: a place for the number.
        let found = unsafe { (self.functions().device_count)(&raw mut count) };
        (found == 0).then_some(count.try_into().unwrap_or(0))
    }

    /// UUID of a device, the same in all processes.
    pub fn uuid(&self, device: CuDevice) -> Option<[u8; 16]> {
        let mut uuid = CuUuid([0; 16]);
        // SAFETY: a place for the UUID; the driver checks the number.
        let found = unsafe { (self.functions().device_uuid?)(&raw mut uuid, device) };
        (found == 0).then_some(uuid.0)
    }

    /// A property of a device. `None`: the driver does not know it.
    pub(super) fn device_attribute(
        &self,
        attribute: DeviceAttribute,
        device: CuDevice,
    ) -> Option<i32> {
        let mut value = 0;
        // SAFETY: a place for the value; the driver checks the numbers.
        let found =
            unsafe { (self.functions().device_get_attribute?)(&raw mut value, attribute, device) };
        (found == 0).then_some(value)
    }

    /// Whether the processor may access managed memory while devices run. `None`: the program has not initialised the
    /// driver.
    pub fn shares_managed_memory(&self) -> Option<bool> {
        let count = CuDevice::try_from(self.device_count()?).unwrap_or(0);
        let shares =
            |device| self.device_attribute(DeviceAttribute::ConcurrentManagedAccess, device);
        Some((0..count).all(|device| shares(device).is_some_and(|shares| shares != 0)))
    }

    /// Whether a device can access memory of another one.
    pub fn can_access(&self, device: CuDevice, memory_of: CuDevice) -> bool {
        let mut can = 0;
        // SAFETY: a place for the answer; the driver checks the numbers.
        let asked = |ask: unsafe extern "C" fn(_, _, _) -> _| unsafe {
            ask(&raw mut can, device, memory_of) == 0
        };
        let has_access = self.functions().can_access_peer.is_some_and(asked) && can != 0;
        has_access && self.link(P2pAttribute::AccessSupported, device, memory_of) != Some(0)
    }

    /// How slow the link from a device to memory of another one is, beside other links: 0 for the fastest ones, and
    /// where the driver does not know it.
    pub fn link_rank(&self, device: CuDevice, memory_of: CuDevice) -> i32 {
        let rank = || self.link(P2pAttribute::PerformanceRank, device, memory_of);
        match device == memory_of {
            true => 0,
            false => rank().unwrap_or(0),
        }
    }

    /// A property of the link between two devices. `None`: the driver does not know it.
    fn link(&self, attribute: P2pAttribute, from: CuDevice, to: CuDevice) -> Option<i32> {
        let mut value = 0;
        // SAFETY: a place for the value; the driver checks the numbers.
        let found =
            unsafe { (self.functions().p2p_attribute?)(&raw mut value, attribute, from, to) };
        (found == 0).then_some(value)
    }

    /// Whether the primary context of a device exists: a use of the device needs no memory for another context.
    pub fn is_primary_active(&self, device: CuDevice) -> bool {
        let (mut flags, mut active) = (0, 0);
        // SAFETY: places for the answers; the driver checks the number.
        let asked = |ask: unsafe extern "C" fn(_, _, _) -> _| unsafe {
            ask(device, &raw mut flags, &raw mut active) == 0
        };
        self.functions().primary_ctx_state.is_some_and(asked) && active != 0
    }
}
