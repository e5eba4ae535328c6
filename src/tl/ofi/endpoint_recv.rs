//! Receives of an endpoint that take several messages (`FI_MULTI_RECV`).

use super::bindings::*;
use super::endpoint::{ANY_PEER, CLOSED, OfiEndpoint, PostError, UNSUPPORTED};
use super::endpoint::{check, entry, posted};
use std::ffi::{c_int, c_void};
use std::io;

impl OfiEndpoint {
    /// Has the provider release a buffer of several packets where it has less room than `len` bytes. The endpoint is
    /// enabled: libfabric 1.17 crashes in `shm` if it is not.
    ///
    /// # Errors
    /// The provider's error.
    pub fn set_min_room(&mut self, len: usize) -> io::Result<()> {
        // SAFETY: the endpoint is open; the value of the option is a `size_t`.
        unsafe {
            let ep = self.open_ep().ok_or(io::ErrorKind::NotConnected)?;
            let setopt = entry!(ep.ops, setopt);
            let (level, option) = (FI_OPT_ENDPOINT as c_int, FI_OPT_MIN_MULTI_RECV as c_int);
            let (value, size) = ((&raw const len).cast(), size_of_val(&len));
            check(setopt(&raw mut (*self.ep).fid, level, option, value, size))
        }
    }

    /// Posts a receive of messages from any peers, one behind the other, until the room that is left is too little for
    /// the longest packet. Each has a completion; the last one, or another one, says that the memory is released.
    ///
    /// # Errors
    /// It was not posted.
    ///
    /// # Safety
    /// `len` bytes at `memory` are writable until it is released, and registered with `desc` where the provider wants
    /// that; `context` is the provider's until then.
    pub unsafe fn receive_many(
        &mut self,
        memory: *mut u8,
        len: usize,
        mut desc: *mut c_void,
        context: *mut c_void,
    ) -> Result<(), PostError> {
        let iov = iovec {
            iov_base: memory.cast(),
            iov_len: len,
        };
        let msg = fi_msg {
            msg_iov: &iov,
            desc: &mut desc,
            iov_count: 1,
            addr: ANY_PEER,
            context,
            data: 0,
        };
        // SAFETY: the endpoint is open, and the memory is the caller's.
        unsafe {
            let recv = (*self.open_ep().ok_or(CLOSED)?.msg).recvmsg;
            let recv = recv.ok_or(UNSUPPORTED)?;
            let flags = FI_MULTI_RECV | FI_COMPLETION;
            posted(recv(self.ep, &msg, flags.into()))
        }
    }
}
