//! The devices of this process, and their names in others.

use crate::sys::cuda::{CuDevice, Cuda};
use crate::sys::sync::OnceLock;
use crate::wire::device_handle::UUID;

/// The devices that this process can use, which do not change once the driver is initialised.
#[derive(Default)]
pub struct CudaDevices(OnceLock<Vec<[u8; UUID]>>);

impl CudaDevices {
    /// UUIDs, by number. None where the driver does not know them, or is not initialised.
    fn all(&self, cuda: &Cuda) -> &[[u8; UUID]] {
        if let Some(known) = self.0.get() {
            return known;
        }
        let Some(count) = cuda.device_count().filter(|&count| count > 0) else {
            return &[];
        };
        let uuids = (0..count as CuDevice).map_while(|device| cuda.uuid(device));
        self.0.get_or_init(|| uuids.collect())
    }

    /// The UUID of a device.
    pub fn uuid(&self, cuda: &Cuda, device: CuDevice) -> Option<[u8; UUID]> {
        let number = usize::try_from(device).ok()?;
        self.all(cuda).get(number).copied()
    }

    /// The device with this UUID. `None`: this process cannot use it, whether or not the host has it.
    pub fn find(&self, cuda: &Cuda, uuid: &[u8; UUID]) -> Option<CuDevice> {
        let number = self.all(cuda).iter().position(|known| known == uuid)?;
        CuDevice::try_from(number).ok()
    }

    /// Number of devices.
    pub fn count(&self, cuda: &Cuda) -> CuDevice {
        CuDevice::try_from(self.all(cuda).len()).unwrap_or(0)
    }
}
