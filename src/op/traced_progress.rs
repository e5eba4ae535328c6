//! Progress of a worker whose timeline is recorded, in its
//! [`ProgressTrace`](crate::engine::progress_trace::ProgressTrace).

use crate::engine::progress_trace::QueueLengths;
use crate::engine::worker::{Rx, Worker};
use crate::sys::trace;

/// A call of progress begins.
pub fn begin(worker: &Worker) {
    // In a callback, and while another thread progresses, the call does nothing.
    let Some(mut rx) = worker.rx.try_lock() else {
        return;
    };
    if let Some(call) = rx.trace.as_deref_mut() {
        let now = trace::now();
        call.record(worker.uid, now, || lengths(worker));
        // The end of the call is found with the deferred work.
        call.begin(now, worker.progress_flags.raise_deferred_again());
    }
}

/// A call of progress ends, unless it has more to do. Called several times by a call that has.
#[cold]
#[inline(never)]
pub fn end(worker: &Worker, rx: &mut Rx) {
    if let Some(call) = rx.trace.as_deref_mut() {
        let lengths = lengths(worker);
        if call.end(trace::now(), lengths) {
            trace::counter("queues", worker.uid, &lengths.args());
        }
    }
}

/// Records what is not recorded yet of the last call: the worker is destroyed.
pub fn finish(worker: &Worker) {
    if let Some(mut rx) = worker.rx.try_lock()
        && let Some(call) = rx.trace.as_deref_mut()
    {
        call.record(worker.uid, trace::now(), || lengths(worker));
        trace::counter("queues", worker.uid, &lengths(worker).args());
    }
}

/// The lengths of a worker's queues.
fn lengths(worker: &Worker) -> QueueLengths {
    let matcher = worker.matcher.lock();
    let (posted, unexpected) = (matcher.posted_len(), matcher.unexpected_len());
    drop(matcher);
    QueueLengths {
        requests: worker.pool.lock().in_use() as u64,
        posted,
        unexpected,
        pending: worker.progress_flags.backlog(),
        announced: worker.ids.lock().len(),
    }
}
