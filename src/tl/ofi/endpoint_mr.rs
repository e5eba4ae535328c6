//! Registration of memory in the domain of an endpoint.

use super::bindings::*;
use super::closed::Closed;
use super::endpoint::{OfiEndpoint, check, entry};
use super::object::OfiRegistered;
use std::ffi::c_int;
use std::io;
use std::ptr::null_mut;

/// Keys that are tried if others have them.
const ATTEMPTS: u64 = 64;
/// The key of a registration that has none of 64 bits.
const NO_KEY: u64 = u64::MAX;

impl OfiEndpoint {
    /// Registers user memory, until [`deregister`](Self::deregister).
    ///
    /// # Errors
    /// The provider's error.
    ///
    /// # Safety
    /// `len` bytes at `base` stay mapped until then, or no operation uses the registration any more.
    pub unsafe fn register_user(
        &mut self,
        base: *mut u8,
        len: usize,
        access: u64,
    ) -> io::Result<OfiRegistered> {
        // SAFETY: the caller's memory; the registration is open.
        unsafe {
            let (object, mr) = self.open_mr(base, len, access)?;
            let (key, desc) = ((*mr).key, (*mr).mem_desc);
            if key == NO_KEY {
                return Err(io::ErrorKind::Unsupported.into());
            }
            let index = self.user_mrs.objects.insert(object);
            Ok(OfiRegistered { index, key, desc })
        }
    }

    /// Ends a registration of user memory.
    pub fn deregister(&mut self, index: usize) {
        drop(self.user_mrs.objects.try_remove(index));
    }

    /// Registers memory. Where the provider does not choose keys, no two registrations of a domain have the same.
    ///
    /// # Errors
    /// The provider's error.
    ///
    /// # Safety
    /// `len` bytes at `base` stay mapped as long as the object, or no operation uses it any more.
    pub(super) unsafe fn open_mr(
        &mut self,
        base: *mut u8,
        len: usize,
        access: u64,
    ) -> io::Result<(Closed, *mut fid_mr)> {
        let most = match self.device.key_bytes() {
            bytes @ 1..8 => (1 << (8 * bytes)) - 1,
            _ => u64::MAX >> 1,
        };
        let mut mr = null_mut::<fid_mr>();
        // SAFETY: the domain is open; the memory is the caller's.
        unsafe {
            let reg = entry!((*self.domain).mr, reg);
            let domain = &raw mut (*self.domain).fid;
            for attempt in 1.. {
                self.user_mrs.key = self.user_mrs.key % most + 1;
                let key = self.user_mrs.key;
                let none = null_mut();
                let answer = reg(domain, base.cast(), len, access, 0, key, 0, &mut mr, none);
                if answer != -(FI_ENOKEY as c_int) || attempt == ATTEMPTS {
                    check(answer)?;
                    break;
                }
            }
            let object = Closed::new(&raw mut (*mr).fid);
            if self.binds_mr {
                let fid = &raw mut (*mr).fid;
                let ep = self.open_ep().ok_or(io::ErrorKind::NotConnected)?;
                let ep = (&raw const ep.fid).cast_mut();
                check(entry!((*fid).ops, bind)(fid, ep, 0))?;
                check(entry!((*fid).ops, control)(
                    fid,
                    FI_ENABLE as c_int,
                    null_mut(),
                ))?;
            }
            Ok((object, mr))
        }
    }
}
