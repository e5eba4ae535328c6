//! The layout of an operation's memory, some of which is a device's.

use crate::ctypes::ucp_dt_iov_t;

/// The user's memory of one operation; valid until that completes.
#[derive(Clone, Copy, Debug)]
pub enum DevicePieces {
    Contig {
        addr: u64,
    },
    /// A list; its pieces may be of any kind of memory.
    Iov {
        iov: *const ucp_dt_iov_t,
        count: usize,
    },
}

impl DevicePieces {
    /// Number of pieces.
    pub fn count(&self) -> usize {
        match *self {
            DevicePieces::Contig { .. } => 1,
            DevicePieces::Iov { count, .. } => count,
        }
    }

    /// Calls `f` with address and length of each piece of the range `offset..offset + n` that has bytes, until it
    /// fails.
    ///
    /// # Errors
    /// What `f` returns.
    ///
    /// # Safety
    /// The entries of the list are readable.
    pub unsafe fn for_range<E>(
        self,
        mut offset: usize,
        mut n: usize,
        mut f: impl FnMut(u64, usize) -> Result<(), E>,
    ) -> Result<(), E> {
        match self {
            DevicePieces::Contig { .. } if n == 0 => Ok(()),
            DevicePieces::Contig { addr } => f(addr + offset as u64, n),
            DevicePieces::Iov { iov, count } => {
                for i in 0..count {
                    // SAFETY: the caller's list has `count` entries.
                    let entry = unsafe { &*iov.add(i) };
                    if n == 0 {
                        break;
                    }
                    if offset >= entry.length || entry.length == 0 {
                        offset -= entry.length;
                        continue;
                    }
                    let len = n.min(entry.length - offset);
                    f(entry.buffer as u64 + offset as u64, len)?;
                    n -= len;
                    offset = 0;
                }
                Ok(())
            }
        }
    }
}
