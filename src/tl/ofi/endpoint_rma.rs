//! Reads and writes of an endpoint: the inline functions of libfabric's `fi_rma.h`.

use super::bindings::*;
use super::endpoint::{CLOSED, OfiEndpoint, PostError, UNSUPPORTED, posted};
use super::iov::OfiIov;
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

impl OfiRemoteMem {
    /// The first `len` bytes.
    fn span(self, len: usize) -> fi_rma_iov {
        fi_rma_iov {
            addr: self.offset,
            len,
            key: self.key,
        }
    }
}

/// An operation between pieces of memory of this process and a span of a peer's memory, which both outlive the value.
fn message(
    here: &mut OfiIov,
    peer: fi_addr_t,
    remote: &fi_rma_iov,
    context: *mut c_void,
) -> fi_msg_rma {
    let (msg_iov, desc, iov_count) = here.parts();
    fi_msg_rma {
        msg_iov,
        desc,
        iov_count,
        addr: peer,
        rma_iov: remote,
        rma_iov_count: 1,
        context,
        data: 0,
    }
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
        let remote = there.span(here.len);
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

    /// Writes pieces of memory, one behind the other, into memory of a peer, which a completion with this context
    /// reports. `flags`: of `fi_writemsg`.
    ///
    /// # Errors
    /// It was not posted.
    ///
    /// # Safety
    /// The pieces are readable until the completion, at most `iov_limit`, and registered where the provider wants that;
    /// `context` is the provider's until the completion.
    pub unsafe fn writev(
        &mut self,
        here: &mut OfiIov,
        there: OfiRemoteMem,
        flags: u64,
        context: *mut c_void,
    ) -> Result<(), PostError> {
        let remote = there.span(here.bytes());
        let msg = message(here, there.peer, &remote, context);
        // SAFETY: the endpoint is open and has its table of functions; the memory is the caller's.
        unsafe {
            let write = self.rma()?.writemsg.ok_or(UNSUPPORTED)?;
            posted(write(self.ep, &msg, flags))
        }
    }

    /// Reads memory of a peer into pieces of memory, one behind the other, which a completion with this context
    /// reports.
    ///
    /// # Errors
    /// It was not posted.
    ///
    /// # Safety
    /// The pieces are writable until the completion, at most `iov_limit`, and registered where the provider wants that;
    /// `context` is the provider's until the completion.
    pub unsafe fn readv(
        &mut self,
        here: &mut OfiIov,
        there: OfiRemoteMem,
        context: *mut c_void,
    ) -> Result<(), PostError> {
        let remote = there.span(here.bytes());
        let msg = message(here, there.peer, &remote, context);
        // SAFETY: the endpoint is open and has its table of functions; the memory is the caller's.
        unsafe {
            let read = self.rma()?.readmsg.ok_or(UNSUPPORTED)?;
            posted(read(self.ep, &msg, FI_COMPLETION.into()))
        }
    }

    /// The functions for memory of peers.
    fn rma(&self) -> Result<&fi_ops_rma, PostError> {
        let ep = self.open_ep().ok_or(CLOSED)?;
        // SAFETY: the endpoint is open; a provider without such functions leaves null.
        unsafe { ep.rma.as_ref() }.ok_or(UNSUPPORTED)
    }
}
