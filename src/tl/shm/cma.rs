//! CMA: copies by the kernel between memory of this process and of a peer, both in pieces (`process_vm_*`).

use super::cma_peer::CmaPeer;
use crate::ctypes::*;
use crate::sys::cma::{self, CmaDirection, IoSpan, Spans};
use crate::sys::copy;
use crate::tl::payload::UserData;

/// Bytes of the bounce buffer for data that only the user's functions can read or write.
const BOUNCE: usize = 64 << 10;

/// Why a copy failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CmaFault {
    /// The peer's memory cannot be reached.
    Access(ucs_status_t),
    /// The user's `unpack` has returned an error.
    Unpack(ucs_status_t),
}

impl CmaFault {
    /// The status for the request that the fault ends, whichever side has failed.
    pub fn status(self) -> ucs_status_t {
        match self {
            CmaFault::Access(status) | CmaFault::Unpack(status) => status,
        }
    }
}

/// Memory of a peer.
#[derive(Clone, Copy)]
pub enum CmaRemote<'a> {
    /// Contiguous memory at this address.
    Piece(u64),
    /// A list of pieces.
    List(&'a [IoSpan]),
}

impl CmaRemote<'_> {
    /// Appends the pieces of `offset..offset + n`, as far as there is room.
    fn spans(self, mut offset: usize, mut n: usize, out: &mut Spans) {
        match self {
            CmaRemote::Piece(addr) => {
                out.push(IoSpan {
                    addr: addr.wrapping_add(offset as u64),
                    len: n,
                });
            }
            CmaRemote::List(list) => {
                for span in list {
                    let part = n.min(span.len.saturating_sub(offset));
                    let addr = span.addr.wrapping_add(offset as u64);
                    if part > 0 && !out.push(IoSpan { addr, len: part }) {
                        return;
                    }
                    offset = offset.saturating_sub(span.len);
                    n -= part;
                }
            }
        }
    }
}

impl CmaPeer<'_> {
    /// Copies `n` bytes at `offset` of `data` from or to the same offset of the peer's memory.
    ///
    /// # Errors
    /// Those of [`transfer`](Self::transfer), and what the user's `unpack` returns.
    ///
    /// # Safety
    /// `offset + n` is at most the length of the data; the user's memory is valid. In the same process the peer's
    /// memory is valid too: its request is not completed before the answer.
    pub unsafe fn copy(
        self,
        direction: CmaDirection,
        data: &impl UserData,
        remote: CmaRemote,
        offset: usize,
        n: usize,
    ) -> Result<(), CmaFault> {
        let mut bounce = Vec::new();
        let (mut local, mut there) = (Spans::new(), Spans::new());
        let mut done = 0;
        while done < n {
            local.clear();
            there.clear();
            let mut part = n - done;
            remote.spans(offset + done, part, &mut there);
            // SAFETY: the range is inside the data.
            if unsafe { data.spans(offset + done, part, &mut local) } {
                part = local.bytes();
            } else {
                bounce.resize(BOUNCE.min(n), 0u8);
                part = part.min(BOUNCE);
                local.push(IoSpan {
                    addr: bounce.as_mut_ptr() as u64,
                    len: part,
                });
            }
            part = part.min(there.bytes());
            if part == 0 {
                return Err(CmaFault::Access(UCS_ERR_IO_ERROR));
            }
            // SAFETY: the caller promises that both lists are valid; the buffer has room for a part.
            unsafe {
                if !bounce.is_empty() && direction == CmaDirection::Write {
                    data.pack(offset + done, bounce.as_mut_ptr(), part);
                }
                self.transfer(direction, &mut local, &mut there)
                    .map_err(CmaFault::Access)?;
                if !bounce.is_empty() && direction == CmaDirection::Read {
                    data.unpack(offset + done, bounce.as_ptr(), part)
                        .map_err(CmaFault::Unpack)?;
                }
            }
            done += part;
        }
        Ok(())
    }

    /// Copies one list to the other, as many bytes as the shorter one has, and consumes them. Between workers of one
    /// process by loads and stores.
    ///
    /// # Errors
    /// `UCS_ERR_UNSUPPORTED`: not permitted, use messages. `UCS_ERR_CONNECTION_RESET` if the peer is dead,
    /// `UCS_ERR_IO_ERROR` for invalid remote memory.
    ///
    /// # Safety
    /// The local pieces are valid memory of this process; in the same process the others too.
    pub unsafe fn transfer(
        self,
        direction: CmaDirection,
        local: &mut Spans,
        remote: &mut Spans,
    ) -> Result<(), ucs_status_t> {
        if self.same_process {
            // SAFETY: the caller promises that both lists are memory of this process.
            unsafe { copy_here(direction, local, remote) };
            return Ok(());
        }
        let Some(pid) = self.inbox.map(|inbox| inbox.id.pid) else {
            return Err(UCS_ERR_UNSUPPORTED);
        };
        let mut by_kernel = false;
        while !local.as_slice().is_empty() && !remote.as_slice().is_empty() {
            // SAFETY: the caller promises that the local pieces are valid.
            if unsafe { self.copy_mapped(direction, local, remote) } {
                continue;
            }
            by_kernel = true;
            let (here, there) = (local.as_slice(), remote.as_slice());
            // SAFETY: the caller promises that the local pieces are valid; the kernel checks the remote ones.
            let moved = unsafe {
                match direction {
                    CmaDirection::Read => cma::read(pid, here, there),
                    CmaDirection::Write => cma::write(pid, here, there),
                }
            };
            match moved {
                Ok(0) => return Err(UCS_ERR_IO_ERROR),
                Ok(n) => (local.advance(n), remote.advance(n)),
                Err(e) => return Err(self.copy_failed(&e)),
            };
        }
        if by_kernel {
            self.note_copy();
        }
        Ok(())
    }

    /// Copies what the first pieces of both lists share, if that of the peer is in its shared heap. Else returns false.
    ///
    /// # Safety
    /// The local pieces are valid memory of this process.
    unsafe fn copy_mapped(
        self,
        direction: CmaDirection,
        local: &mut Spans,
        remote: &mut Spans,
    ) -> bool {
        let (Some(&here), Some(&there)) = (local.as_slice().first(), remote.as_slice().first())
        else {
            return false;
        };
        let n = here.len.min(there.len);
        let Some(mapped) = self.mapped(there.addr, n) else {
            return false;
        };
        // SAFETY: `mapped` is `n` bytes that stay mapped as long as the peer; the caller promises the others. The two
        // do not overlap: the mapping is this library's own.
        unsafe {
            match direction {
                CmaDirection::Read => {
                    copy::from_shared(here.addr as *mut u8, mapped.as_ptr(), n);
                }
                CmaDirection::Write => {
                    copy::to_shared(mapped.as_ptr(), here.addr as *const u8, n);
                }
            }
        }
        local.advance(n);
        remote.advance(n);
        true
    }

    /// The status of a copy that the kernel has refused.
    fn copy_failed(self, e: &std::io::Error) -> ucs_status_t {
        match e.raw_os_error() {
            Some(libc::EPERM | libc::ENOSYS | libc::EACCES) => {
                self.note_forbidden();
                UCS_ERR_UNSUPPORTED
            }
            Some(libc::ESRCH) => UCS_ERR_CONNECTION_RESET,
            _ => UCS_ERR_IO_ERROR,
        }
    }
}

unsafe fn copy_here(direction: CmaDirection, local: &mut Spans, remote: &mut Spans) {
    while let (Some(&l), Some(&r)) = (local.as_slice().first(), remote.as_slice().first()) {
        let n = l.len.min(r.len);
        let (mut src, mut dst) = (r.addr, l.addr);
        if direction == CmaDirection::Write {
            (src, dst) = (dst, src);
        }
        // SAFETY: the caller's pieces are valid. `copy`: they can overlap in a program's own memory.
        unsafe { std::ptr::copy(src as *const u8, dst as *mut u8, n) };
        local.advance(n);
        remote.advance(n);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(remote: CmaRemote, offset: usize, n: usize) -> Vec<(u64, usize)> {
        let mut out = Spans::new();
        remote.spans(offset, n, &mut out);
        out.as_slice().iter().map(|s| (s.addr, s.len)).collect()
    }

    #[test]
    fn ranges_of_lists() {
        let list: Vec<IoSpan> = [(100, 4), (0, 0), (200, 2), (300, 10)]
            .map(|(addr, len)| IoSpan { addr, len })
            .into();
        let list = CmaRemote::List(&list);
        assert_eq!(pieces(list, 0, 16), [(100, 4), (200, 2), (300, 10)]);
        assert_eq!(pieces(list, 3, 2), [(103, 1), (200, 1)]);
        assert_eq!(pieces(list, 4, 3), [(200, 2), (300, 1)]);
        assert_eq!(pieces(list, 15, 1), [(309, 1)]);
        assert_eq!(
            pieces(list, 16, 9),
            [],
            "a peer may announce more than it lists"
        );
        assert_eq!(pieces(CmaRemote::Piece(50), 5, 7), [(55, 7)]);
    }
}
