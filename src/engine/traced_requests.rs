//! Requests whose completion the timeline records ([`trace`]): a table beside the requests, so that those that are not
//! recorded have no field for it. Until a request completes, its callback is replaced by
//! [`complete_traced`](super::completion::complete_traced).

use super::request::{Callback, Request};
use crate::ctypes::*;
use crate::sys::trace::{self, ArgValue, EventArg, EventPhase};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Names operations of the timeline; never 0.
static LAST: AtomicU64 = AtomicU64::new(0);

/// What an operation is called.
#[derive(Clone, Copy)]
pub struct OpName {
    pub category: &'static str,
    pub name: &'static str,
}

/// The recorded requests of a worker that are not complete, by their addresses. Any thread.
#[derive(Default)]
pub struct TracedRequests(Mutex<HashMap<usize, TracedRequest>>);

/// A request whose completion is recorded.
struct TracedRequest {
    /// The request's own callback.
    notify: Callback,
    what: OpName,
    /// Names the operation in the timeline.
    id: u64,
    /// When it began, and its arguments, if that is not recorded yet.
    unrecorded: Option<(u64, Box<[EventArg]>)>,
    /// How its data move, once that is known.
    scheme: &'static str,
}

impl TracedRequest {
    fn record_begin(&mut self) {
        if let Some((began, args)) = self.unrecorded.take() {
            let OpName { category, name } = self.what;
            trace::operation(EventPhase::Begin, category, name, self.id, began, &args);
        }
    }

    fn record_end(mut self, status: ucs_status_t) {
        self.record_begin();
        let args = [
            ("status", ArgValue::from(format!("{status:?}"))),
            ("scheme", self.scheme.into()),
        ];
        let args = if self.scheme.is_empty() {
            &args[..1]
        } else {
            &args
        };
        let OpName { category, name } = self.what;
        trace::operation(EventPhase::End, category, name, self.id, trace::now(), args);
    }
}

impl TracedRequests {
    /// Records the completion of a request, whose callback is set, as the end of an operation that begins at `began`,
    /// with arguments. Its begin is recorded by [`confirm`](Self::confirm), with the number that this function returns,
    /// or with its end, if another thread completes it before. `ended`:
    /// [`complete_traced`](super::completion::complete_traced).
    ///
    /// # Safety
    /// The caller owns the request, which no other thread finds yet.
    pub unsafe fn add(
        &self,
        req: *mut Request,
        (what, began, args): (OpName, u64, &[EventArg]),
        ended: unsafe fn(*mut Request, ucs_status_t),
    ) -> u64 {
        // SAFETY: the caller's promise.
        let r = unsafe { &mut *req };
        // Relaxed: the numbers only have to differ.
        let id = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        let traced = TracedRequest {
            notify: std::mem::replace(&mut r.notify, Callback::Internal(ended)),
            what,
            id,
            unrecorded: Some((began, args.into())),
            scheme: "",
        };
        let stale = self.0.lock().insert(req.addr(), traced);
        // A request that ended without completion.
        if let Some(stale) = stale {
            stale.record_end(UCS_ERR_CANCELED);
        }
        id
    }

    /// Records the begin of a request's operation, if it is not complete. `then` gets the request, which does not
    /// complete meanwhile.
    ///
    /// # Safety
    /// [`add`](Self::add) got the request, and returned this number.
    pub unsafe fn confirm(&self, req: *mut Request, id: u64, then: impl FnOnce(&Request)) {
        let mut table = self.0.lock();
        if let Some(traced) = table.get_mut(&req.addr())
            && traced.id == id
        {
            traced.record_begin();
            // SAFETY: by the number it is the caller's request. It completes by `complete_traced`, which removes it
            // from the table first.
            then(unsafe { &*req });
        }
    }

    /// Records a step of a request's operation, if it is one that is recorded. A scheme is repeated at its end.
    pub fn step(&self, req: *const Request, name: &'static str, scheme: Option<&'static str>) {
        let mut table = self.0.lock();
        let Some(traced) = table.get_mut(&req.addr()) else {
            return;
        };
        if let Some(scheme) = scheme {
            traced.scheme = scheme;
        }
        let args = [("scheme", ArgValue::from(scheme.unwrap_or_default()))];
        let args = &args[..usize::from(scheme.is_some())];
        let category = traced.what.category;
        trace::operation(
            EventPhase::Step,
            category,
            name,
            traced.id,
            trace::now(),
            args,
        );
    }

    /// The callback of a request, recorded or not.
    pub fn callback(&self, r: &Request) -> Callback {
        let table = self.0.lock();
        let traced = table.get(&std::ptr::from_ref(r).addr());
        traced.map_or(r.notify, |traced| traced.notify)
    }

    /// Takes a request out of the table, whose caller is about to complete it in another way, and gives its callback
    /// back. `Some(status)`: its end is recorded; `None`: nothing of it is, unless its begin was.
    /// False: it is not in the table.
    ///
    /// # Safety
    /// The caller owns the request.
    pub unsafe fn take(&self, req: *mut Request, status: Option<ucs_status_t>) -> bool {
        let Some(traced) = self.0.lock().remove(&req.addr()) else {
            return false;
        };
        // SAFETY: the caller's promise.
        unsafe { (*req).notify = traced.notify };
        match status {
            Some(status) => traced.record_end(status),
            None if traced.unrecorded.is_none() => traced.record_end(UCS_OK),
            None => {}
        }
        true
    }
}
