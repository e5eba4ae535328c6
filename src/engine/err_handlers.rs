//! Error handlers of endpoints: which are due, which one runs, and the closes that wait for its end.
//!
//! Once a close has completed, the handler of its endpoint is not running and is never called, in no thread.

use super::endpoint::{Endpoint, EndpointRef, EpFlags};
use super::request::Request;
use crate::ctypes::ucs_status_t;

/// A worker's error handlers. All of it is guarded by `Worker::handlers`; no function here calls the user's.
#[derive(Default)]
pub struct ErrHandlers {
    /// Endpoints whose handlers are to be called, with the status.
    due: Vec<(EndpointRef, ucs_status_t)>,
    /// Endpoint whose handler runs, and the thread that runs it.
    running: Option<(EndpointRef, i32)>,
    /// Closes of that endpoint by other threads, and the statuses that they complete with.
    waiting: Vec<(*mut Request, ucs_status_t)>,
}

// SAFETY: endpoints and requests of the worker that owns this, used under its lock.
unsafe impl Send for ErrHandlers {}

impl ErrHandlers {
    /// Queues the handler of an endpoint that has failed.
    pub fn push(&mut self, ep: EndpointRef, status: ucs_status_t) {
        self.due.push((ep, status));
    }

    /// The next handler to call, in the calling thread, which `thread` names. Followed by [`end`](Self::end).
    pub fn begin(&mut self, thread: impl FnOnce() -> i32) -> Option<(EndpointRef, ucs_status_t)> {
        loop {
            let (ep, status) = self.due.pop()?;
            // The endpoint can have been closed just before it was pushed.
            if !ep.get().has(EpFlags::CLOSED) {
                self.running = Some((ep, thread()));
                return Some((ep, status));
            }
        }
    }

    /// The handler has returned. Returns the closes that waited for it.
    pub fn end(&mut self) -> Vec<(*mut Request, ucs_status_t)> {
        self.running = None;
        std::mem::take(&mut self.waiting)
    }

    /// Cancels the handler of an endpoint that is closed.
    pub fn forget(&mut self, ep: &Endpoint) {
        self.due.retain(|&(e, _)| !e.is(ep));
    }

    /// Whether an endpoint's handler is due or runs.
    pub fn is_pending(&self, ep: &Endpoint) -> bool {
        self.due.iter().any(|&(e, _)| e.is(ep)) || self.running.is_some_and(|(e, _)| e.is(ep))
    }

    /// Whether an endpoint's handler runs in another thread than the calling one, which `thread` names. A close inside
    /// of the handler does not wait for its end.
    pub fn runs_elsewhere(&self, ep: &Endpoint, thread: impl FnOnce() -> i32) -> bool {
        self.running.is_some_and(|(e, t)| e.is(ep) && t != thread())
    }

    /// Completes a close when the running handler returns.
    pub fn wait(&mut self, close: *mut Request, status: ucs_status_t) {
        self.waiting.push((close, status));
    }
}
