//! Conversion of C socket addresses.

use crate::ctypes::*;
use socket2::{SockAddr, SockAddrStorage};
use std::mem::size_of;
use std::net::SocketAddr;

/// The address, if its family is known and its length sufficient.
///
/// # Safety
/// `addr` is null or points to `addrlen` bytes.
pub unsafe fn read(address: &ucs_sock_addr_t) -> Option<SocketAddr> {
    let len = address.addrlen as usize;
    if address.addr.is_null() || len < size_of::<libc::sa_family_t>() {
        return None;
    }
    // SAFETY: the caller's bytes. The rest of the storage is zero.
    let known = unsafe {
        let mut storage = SockAddrStorage::zeroed();
        let len = len.min(size_of::<SockAddrStorage>());
        std::ptr::copy_nonoverlapping(
            address.addr.cast::<u8>(),
            (&raw mut storage).cast::<u8>(),
            len,
        );
        let family = storage.view_as::<libc::sockaddr_storage>().ss_family;
        let needed = match i32::from(family) {
            libc::AF_INET => size_of::<libc::sockaddr_in>(),
            libc::AF_INET6 => size_of::<libc::sockaddr_in6>(),
            _ => return None,
        };
        if len < needed {
            return None;
        }
        SockAddr::new(storage, needed as libc::socklen_t)
    };
    known.as_socket()
}

/// Stores an address; the rest of the field becomes 0.
///
/// # Safety
/// `field` is writable.
pub unsafe fn write(field: *mut libc::sockaddr_storage, address: SocketAddr) {
    let known = SockAddr::from(address);
    // SAFETY: the caller's field; `known` gives the length, never longer than a storage.
    unsafe {
        field.write(std::mem::zeroed());
        std::ptr::copy_nonoverlapping(
            known.as_ptr().cast::<u8>(),
            field.cast::<u8>(),
            known.len() as usize,
        );
    }
}
