//! The transport's section of a worker address.
#![forbid(unsafe_code)]

use crate::sys::host;
use crate::wire::le_struct::packed;

packed! {
    /// Where a worker listens.
    ShmtestLocator, 28 {
        /// Hash of the boot id, equal for one boot of one kernel.
        host: u64,
        /// Inode of the network namespace, in which the socket's name is valid.
        net_ns: u32,
        /// Name of the listening socket, which is not 0.
        name: u64,
        /// Secret that a hello has to carry.
        secret: u64,
    } valid when |locator| locator.name != 0
}

impl ShmtestLocator {
    /// The section of a worker of this process that listens on a socket of this name.
    pub fn here(name: u64, secret: u64) -> ShmtestLocator {
        let here = host::place();
        ShmtestLocator {
            host: here.host,
            net_ns: here.net_ns,
            name,
            secret,
        }
    }

    /// Where a worker with the section `own` reaches that with the section `to`. `None`: it is on another host, or in
    /// another network namespace, or one of the two does not use the transport.
    pub fn between(
        own: Option<&ShmtestLocator>,
        to: Option<&ShmtestLocator>,
    ) -> Option<ShmtestLocator> {
        let (own, to) = (own?, to?);
        (own.host == to.host && own.net_ns == to.net_ns).then_some(*to)
    }
}
