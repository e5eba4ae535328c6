//! Completion queues (UCPX): signals and completions, in order, until the user polls them.
//!
//! A queue that is not polled grows without limit, as the list of unexpected messages does. Entries for a queue that
//! does not exist yet are kept until it is created.

use super::pointers::WorkerRef;
use crate::ctypes::*;
use crate::sys::lock::MtLock;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr;

/// Handed out as `ucpx_cq_h`. Its address is stable until the worker is destroyed.
pub struct Cq {
    worker: WorkerRef,
    id: u8,
    state: MtLock<State>,
}

#[derive(Default)]
struct State {
    /// The user has created it.
    open: bool,
    entries: VecDeque<ucpx_cq_entry_t>,
}

/// A worker's queues, by their numbers.
pub struct Cqs {
    /// Threads may call the worker concurrently.
    mt: bool,
    all: MtLock<Vec<Option<Box<Cq>>>>,
}

/// The part of a signal's entry that the transport supplies.
pub struct CqNotice {
    pub peer_uid: u64,
    pub value: u64,
    /// Bytes in front of the signal.
    pub len: usize,
    pub addr: Option<u64>,
}

impl CqNotice {
    /// The whole entry.
    #[inline(always)]
    pub fn entry(self) -> ucpx_cq_entry_t {
        ucpx_cq_entry_t {
            field_mask: match self.addr {
                Some(_) => UCPX_CQ_ENTRY_FIELD_ADDRESS as u64,
                None => 0,
            },
            value: self.value,
            length: self.len,
            address: self.addr.unwrap_or(0),
            peer_uid: self.peer_uid,
            ..BLANK
        }
    }
}

/// An entry with no field set.
const BLANK: ucpx_cq_entry_t = ucpx_cq_entry_t {
    kind: UCPX_CQ_ENTRY_SIGNAL,
    status: UCS_OK,
    field_mask: 0,
    value: 0,
    length: 0,
    address: 0,
    peer_uid: 0,
    request: ptr::null_mut(),
    user_data: ptr::null_mut(),
};

impl Cqs {
    /// No queues yet. `mt`: threads may call the worker concurrently, so that every access takes a lock.
    pub fn new(mt: bool) -> Cqs {
        Cqs {
            mt,
            all: MtLock::new(mt, Vec::new()),
        }
    }

    /// Opens the worker's queue with this number, with the entries that arrived before. `None`: it is open already.
    ///
    /// # Safety
    /// The worker is the one whose queues these are.
    pub(super) unsafe fn open(&self, worker: WorkerRef, id: u8) -> Option<&Cq> {
        // SAFETY: the caller's promise.
        let cq = unsafe { self.of(worker, id) };
        let was_open = std::mem::replace(&mut cq.state.lock().open, true);
        (!was_open).then_some(cq)
    }

    /// The worker's queue with this number, created or not.
    ///
    /// # Safety
    /// The worker is the one whose queues these are.
    #[inline]
    unsafe fn of(&self, worker: WorkerRef, id: u8) -> &Cq {
        let mut all = self.all.lock();
        let index = usize::from(id);
        let known = all.get(index).and_then(Option::as_deref);
        let cq: *const Cq = match known {
            Some(cq) => cq,
            None => add(&mut all, worker, self.mt, index),
        };
        // SAFETY: boxed, and dropped with the worker only.
        unsafe { &*cq }
    }

    /// Adds the entry of a signal that has arrived.
    ///
    /// # Safety
    /// The worker is the one whose queues these are.
    pub(super) unsafe fn notify(&self, worker: WorkerRef, id: u8, notice: CqNotice) {
        // SAFETY: the caller's promise.
        unsafe { self.of(worker, id) }.push(notice.entry());
    }

    /// [`notify`](Self::notify) in single-thread mode.
    ///
    /// # Safety
    /// That of `notify`; the worker is in single-thread mode, and no reference to a queue's entries lives.
    #[inline(always)]
    pub(super) unsafe fn notify_alone(&self, worker: WorkerRef, id: u8, notice: CqNotice) {
        // SAFETY: the caller's promise. A queue is boxed, and dropped with the worker only.
        unsafe {
            let all = self.all.alone();
            let Some(Some(cq)) = all.get(usize::from(id)) else {
                return self.notify(worker, id, notice);
            };
            cq.state.alone().entries.push_back(notice.entry());
        }
    }

    /// Whether an open queue has an entry.
    pub fn any_ready(&self) -> bool {
        self.all.lock().iter().flatten().any(|cq| cq.is_ready())
    }
}

/// Adds the worker's queue at this index, which there is not yet.
#[cold]
fn add(all: &mut Vec<Option<Box<Cq>>>, worker: WorkerRef, mt: bool, index: usize) -> &Cq {
    if all.len() <= index {
        all.resize_with(index + 1, || None);
    }
    all[index].insert(Box::new(Cq {
        worker,
        id: index as u8,
        state: MtLock::new(mt, State::default()),
    }))
}

impl Cq {
    /// The worker of the queue.
    pub(super) fn worker_ref(&self) -> WorkerRef {
        self.worker
    }

    fn is_ready(&self) -> bool {
        let state = self.state.lock();
        state.open && !state.entries.is_empty()
    }

    fn push(&self, entry: ucpx_cq_entry_t) {
        self.state.lock().entries.push_back(entry);
    }

    /// Adds the completion of an operation of this process.
    pub(super) fn complete(
        &self,
        request: *mut c_void,
        status: ucs_status_t,
        user_data: *mut c_void,
        (value, length): (u64, usize),
    ) {
        self.push(ucpx_cq_entry_t {
            kind: UCPX_CQ_ENTRY_COMPLETION,
            status,
            value,
            length,
            request,
            user_data,
            ..BLANK
        });
    }

    /// Its number in the worker.
    #[inline(always)]
    pub fn id(&self) -> u8 {
        self.id
    }

    /// Whether it has no entry. True only in single-thread mode.
    #[inline(always)]
    pub fn is_empty_alone(&self) -> bool {
        // SAFETY: single-thread mode; references to the entries live no longer than a function of this file.
        !self.state.is_shared() && unsafe { self.state.alone() }.entries.is_empty()
    }

    /// Moves the oldest entries to `out` and returns their number.
    pub fn take(&self, out: &mut [MaybeUninit<ucpx_cq_entry_t>]) -> usize {
        let mut state = self.state.lock();
        let mut n = 0;
        for slot in out {
            let Some(entry) = state.entries.pop_front() else {
                break;
            };
            slot.write(entry);
            n += 1;
        }
        n
    }

    /// Drops the entries. Those that arrive from now on are kept for the next queue with this number.
    pub fn close(&self) {
        *self.state.lock() = State::default();
    }
}
