//! A worker's endpoint as the unit that executes atomic operations on memory of this process: they are atomic with
//! those that peers post to it.

use super::bindings::fi_cq_data_entry;
use super::context::{OfiContext, OfiShared};
use super::endpoint::{BATCH, Completed, FailedOp, PostError};
use super::endpoint_rma::OfiRemoteMem;
use super::fabric::error;
use super::region::OfiRegion;
use super::rma_pool::RmaAccess;
use super::shared_ep::{OfiQueues, OfiSharedEp};
use super::tx_link::{NO_CONN, OfiTxLink};
use crate::tl::Token;
use crate::tl::amo::{AmoOp, AmoUnit, load};
use crate::tl::rma::MrKey;
use std::ffi::c_void;
use std::io;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time within which the provider has to execute an operation.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// An endpoint, and the key of the word's registration in its domain.
struct OfiAmoUnit<'a> {
    ep: &'a OfiSharedEp,
    key: MrKey,
    addr: u64,
}

impl AmoUnit for OfiAmoUnit<'_> {
    fn step(&mut self, amo: AmoOp) -> Option<io::Result<u64>> {
        let mut queues = self.ep.queues.lock();
        Some(queues.execute(self.key, self.addr, amo))
    }
}

impl OfiContext {
    /// Executes an operation on registered memory by the provider, for a peer of a worker. `shared`: that of the
    /// worker, if it has one; `region`: the memory's region. `None`: processors execute operations on this memory.
    /// To be called only if the context [has](OfiContext::has_atomics) such operations.
    ///
    /// # Safety
    /// `addr` points to `amo.size` bytes of the region and is aligned to them.
    #[cold]
    pub unsafe fn execute_amo(
        &self,
        shared: Option<&OfiShared>,
        region: impl FnOnce() -> Option<Arc<OfiRegion>>,
        addr: u64,
        amo: AmoOp,
    ) -> Option<io::Result<u64>> {
        let region = region().filter(|region| region.is_amo_alone())?;
        let number = shared.map_or(0, OfiShared::number);
        let Some((ep, key)) = region.unit(number) else {
            let lost = "the endpoints that execute atomic operations on the memory are closed";
            return Some(Err(io::Error::other(lost)));
        };
        let mut unit = OfiAmoUnit { ep: &ep, key, addr };
        // SAFETY: the caller's memory is valid.
        Some(unsafe { unit.execute(addr, amo) })
    }
}

impl OfiQueues {
    /// Executes an operation on memory of this process, and waits for it. Completions of others are kept for
    /// [`OfiSharedEp::poll`]. Returns the value before it.
    ///
    /// # Errors
    /// The provider's error, or `TimedOut`: it is unknown whether the operation was executed.
    fn execute(&mut self, key: MrKey, addr: u64, amo: AmoOp) -> io::Result<u64> {
        let link = self.own_link()?;
        let there = OfiRemoteMem {
            peer: link.addr,
            offset: key.offset(addr),
            key: key.key(),
        };
        let (op, here) = self.take_op(&link, RmaAccess::Put, Token::NONE)?;
        let until = Instant::now() + MAX_WAIT;
        loop {
            // SAFETY: the operation keeps the buffer.
            match unsafe { self.ep.atomic(here, there, amo, op.context()) } {
                Ok(()) => break,
                Err(PostError::Again)
                    if Instant::now() < until && self.keep_completions(op.context()).is_ok() => {}
                Err(failed) => {
                    self.give_back_op(op);
                    return Err(match failed {
                        PostError::Failed(code) => error(code),
                        PostError::Again => io::ErrorKind::TimedOut.into(),
                    });
                }
            }
        }
        loop {
            if let Some(ended) = self.keep_completions(op.context())? {
                // SAFETY: the buffer begins with the result.
                let old = unsafe { load(here.ptr, amo.size) };
                self.give_back_op(op);
                return ended.map(|()| old);
            }
            // Buffer and context stay the provider's.
            if Instant::now() >= until {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }

    /// Reads completions, and keeps those of other operations than that of `context`, whose result is returned.
    ///
    /// # Errors
    /// The queue cannot be read any more.
    fn keep_completions(&mut self, context: *mut c_void) -> io::Result<Option<io::Result<()>>> {
        let mut entries = [const { MaybeUninit::uninit() }; BATCH];
        let read = self.ep.read_queue(&mut entries);
        let mut ended = None;
        for entry in entries.iter().take(read.max(0) as usize) {
            // SAFETY: so many entries were written.
            let entry = *unsafe { entry.assume_init_ref() };
            if entry.op_context == context {
                ended = Some(Ok(()));
            } else {
                self.keep(Ok(entry));
            }
        }
        if read > 0 {
            return Ok(ended);
        }
        match self.ep.completed(read) {
            Completed::Nothing | Completed::Some(_) => Ok(None),
            Completed::Failed(failed) if failed.context == context => {
                Ok(Some(Err(error(failed.error))))
            }
            Completed::Failed(failed) => {
                self.keep(Err(failed));
                Ok(None)
            }
            Completed::Dead(code) => Err(error(code)),
        }
    }

    /// Keeps a completion for [`OfiSharedEp::poll`].
    fn keep(&mut self, completion: Result<fi_cq_data_entry, Box<FailedOp>>) {
        self.kept.0.push_back(completion);
        self.has_work = true;
    }

    /// The connection of the endpoint with itself.
    fn own_link(&mut self) -> io::Result<Arc<OfiTxLink>> {
        if let Some(link) = &self.own {
            return Ok(link.clone());
        }
        let name = self.ep.name()?;
        let (addr, _) = (self.addresses).take(&name, || self.ep.insert(&name))?;
        let link = Arc::new(OfiTxLink::new(NO_CONN, addr, 0, None));
        Ok(self.own.insert(link).clone())
    }
}
