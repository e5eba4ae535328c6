//! Reads and writes of an endpoint: the inline functions of libfabric's `fi_rma.h`.

use super::bindings::*;
use super::endpoint::{OfiEndpoint, PostError, UNSUPPORTED, posted};
use std::ffi::c_void;

/// Memory of a peer, as an operation names it.
#[derive(Clone, Copy, Debug)]
pub struct OfiRemoteMem {
    /// The peer.
    pub peer: fi_addr_t,
    /// Address in the peer's process, or offset in the registration.
    pub offset: u64,
    /// The key of the registration.
    pub key: u64,
}

/// Memory of this process, as an operation names it.
#[derive(Clone, Copy, Debug)]
pub struct OfiLocalMem {
    pub ptr: *mut u8,
    pub len: usize,
    /// What the registration says is to be passed; null if none is needed.
    pub desc: *mut c_void,
}

impl OfiEndpoint {
    /// Writes into memory of a peer, which a completion with this context reports. `flags`: of `fi_writemsg`.
    ///
    /// # Errors
    /// It was not posted.
    ///
    /// # Safety
    /// The local memory is readable until the completion, or with `FI_INJECT` during the call, and registered where the
    /// provider wants that; `context` is the provider's until the completion.
    pub unsafe fn write(
        &mut self,
        here: OfiLocalMem,
        there: OfiRemoteMem,
        flags: u64,
        context: *mut c_void,
    ) -> Result<(), PostError> {
        let memory = iovec {
            iov_base: here.ptr.cast(),
            iov_len: here.len,
        };
        let remote = fi_rma_iov {
            addr: there.offset,
            len: here.len,
            key: there.key,
        };
        let mut desc = here.desc;
        let msg = fi_msg_rma {
            msg_iov: &memory,
            desc: &mut desc,
            iov_count: 1,
            addr: there.peer,
            rma_iov: &remote,
            rma_iov_count: 1,
            context,
            data: 0,
        };
        // SAFETY: the endpoint is open and has its table of functions; the memory is the caller's.
        unsafe {
            let rma = self.rma()?;
            if flags == FI_COMPLETION.into() {
                let write = rma.write.ok_or(UNSUPPORTED)?;
                let (at, key) = (there.offset, there.key);
                let data = here.ptr.cast();
                return posted(write(
                    self.ep, data, here.len, desc, there.peer, at, key, context,
                ));
            }
            let write = rma.writemsg.ok_or(UNSUPPORTED)?;
            posted(write(self.ep, &msg, flags))
        }
    }

    /// Reads memory of a peer, which a completion with this context reports.
    ///
    /// # Errors
    /// It was not posted.
    ///
    /// # Safety
    /// The local memory is writable until the completion, and registered where the provider wants that; `context` is
    /// the provider's until then.
    pub unsafe fn read(
        &mut self,
        here: OfiLocalMem,
        there: OfiRemoteMem,
        context: *mut c_void,
    ) -> Result<(), PostError> {
        let OfiLocalMem { ptr, len, desc } = here;
        let OfiRemoteMem { peer, offset, key } = there;
        // SAFETY: the endpoint is open and has its table of functions; the memory is the caller's.
        unsafe {
            let read = self.rma()?.read.ok_or(UNSUPPORTED)?;
            posted(read(
                self.ep,
                ptr.cast(),
                len,
                desc,
                peer,
                offset,
                key,
                context,
            ))
        }
    }

    /// The functions for memory of peers.
    fn rma(&self) -> Result<&fi_ops_rma, PostError> {
        // SAFETY: the endpoint is open; a provider without such functions leaves null.
        unsafe { (*self.ep).rma.as_ref() }.ok_or(UNSUPPORTED)
    }
}
