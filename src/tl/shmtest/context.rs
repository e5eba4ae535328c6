//! What a context knows of the transport.

use super::worker::ShmtestWorker;
use crate::options::Options;
use crate::sys::log;
use crate::tl::program::Program;
use std::io;

/// The transport, as far as a context uses it.
pub struct ShmtestContext {
    /// `UCX_TLS` allows it.
    is_allowed: bool,
    /// The program may wait for events, of which the transport has none.
    sleeps: bool,
}

impl ShmtestContext {
    /// The transport as the options and the program have it.
    pub fn new(options: &Options, program: Program) -> ShmtestContext {
        let is_allowed = options.tls.allows("shmtest");
        if is_allowed && program.sleeps {
            log::diag!("shmtest is not used: the program uses UCP_FEATURE_WAKEUP");
        }
        ShmtestContext {
            is_allowed,
            sleeps: program.sleeps,
        }
    }

    /// Whether workers use it.
    pub fn is_used(&self) -> bool {
        self.is_allowed && !self.sleeps
    }

    /// Whether the program wants to sleep, and the transport is allowed.
    pub fn lacks_events(&self) -> bool {
        self.is_allowed && self.sleeps
    }

    /// The interface of the worker with this uid, if workers have one.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn open_iface<P: Copy + Eq>(&self, uid: u64) -> io::Result<Option<Box<ShmtestWorker<P>>>> {
        if !self.is_used() {
            return Ok(None);
        }
        let worker = ShmtestWorker::new(uid);
        let worker =
            worker.map_err(|e| io::Error::new(e.kind(), format!("no socket of shmtest: {e}")));
        worker.map(|worker| Some(Box::new(worker)))
    }
}
