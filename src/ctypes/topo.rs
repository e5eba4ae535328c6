//! Numbers of the devices of a machine.

/// Number of a device of the machine.
pub type ucs_sys_device_t = u8;

/// Greatest number of a device.
pub const UCS_SYS_DEVICE_ID_MAX: ucs_sys_device_t = u8::MAX;

/// The device is not known, or has no bus.
pub const UCS_SYS_DEVICE_ID_UNKNOWN: ucs_sys_device_t = u8::MAX;
