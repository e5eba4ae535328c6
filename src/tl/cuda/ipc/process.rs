//! Identity of this process among those that share memory of devices.

use crate::sys::host;
use crate::wire::device_handle::ProcessIdentity;
use parking_lot::Mutex;

/// The identity of this process: in a child of `fork` another one than in its parent.
pub fn identity() -> ProcessIdentity {
    /// The number, and the process that has drawn it.
    static NUMBER: Mutex<Option<(u32, u64)>> = Mutex::new(None);
    let here = std::process::id();
    let mut drawn = NUMBER.lock();
    let number = match *drawn {
        Some((process, number)) if process == here => number,
        _ => host::random_u64(),
    };
    *drawn = Some((here, number));
    ProcessIdentity {
        host: host::place().host,
        number,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_one_identity() {
        assert_eq!(identity(), identity());
    }
}
