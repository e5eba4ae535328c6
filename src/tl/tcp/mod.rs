//! TCP between hosts: sockets, and the devices and routes that they take.

pub mod device;
pub mod netlink;
pub mod route;
