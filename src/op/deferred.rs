//! Work that operations and callbacks leave to progress: see
//! [`raise_deferred`](crate::engine::progress_flags::ProgressFlags::raise_deferred).

use super::{endpoint, traced_progress};
use crate::engine::worker::{Rx, Worker};
use crate::proto::tx::device_copy;
use crate::proto::{close_grace, failure, release, rndv, split_copy, tx};

/// Does the deferred work: copies of devices and of rendezvous, failed peers, error handlers.
#[cold]
#[inline(never)]
pub fn progress(worker: &Worker, rx: &mut Rx) -> u32 {
    let copied = match worker.progress_flags.has_copies() {
        true => device_copy::progress(worker),
        false => 0,
    };
    if !worker.progress_flags.has_deferred() {
        return copied;
    }
    worker.progress_flags.take_deferred();
    endpoint::free_retired(worker);
    tx::end_moved(worker);
    failure::handle_failed(worker, rx);
    close_grace::end_due(worker);
    let racing = rndv::progress_races(worker);
    let (pulling, pushing) = (
        rndv::progress_gets(worker),
        split_copy::progress_split_pushes(worker),
    );
    if racing || pulling || pushing {
        worker.progress_flags.raise_deferred();
    }
    release::progress(worker);
    let count = failure::call_handlers(worker) + copied;
    if let Some(call) = rx.trace.as_deref() {
        // A flag that only the record of this call has raised is no event.
        let raised = u32::from(!call.has_raised());
        traced_progress::end(worker, rx);
        return count + raised;
    }
    count + 1
}
