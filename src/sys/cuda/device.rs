//! What the driver knows of devices.

use super::api::Cuda;
use super::driver::{CuDevice, CuUuid};

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

    /// Whether a device can access memory of another one.
    pub fn can_access(&self, device: CuDevice, memory_of: CuDevice) -> bool {
        let mut can = 0;
        // SAFETY: a place for the answer; the driver checks the numbers.
        let asked = |ask: unsafe extern "C" fn(_, _, _) -> _| unsafe {
            ask(&raw mut can, device, memory_of) == 0
        };
        self.functions().can_access_peer.is_some_and(asked) && can != 0
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
