//! What all CM connections of a worker share: their state, their transports, and the numbers of their endpoints.

use crate::ctypes::*;
use crate::engine::cm::CmState;
use crate::engine::worker::Worker;
use crate::sys::lock::MtGuard;
use crate::sys::log;
use crate::tl::cm::library::Rdmacm;
use crate::tl::cm_conn::{CmTransport, SocketTuning};
use crate::wire::cm_msg::NUMBER_BITS;
use crate::wire::header::SN_BITS;
use std::os::fd::AsFd;

/// Flag in the serial number of a client's endpoint, which no counted number has.
pub(super) const CLIENT: u32 = 0b10 << NUMBER_BITS;
/// Flag in the serial number of a server's endpoint for a client, which no counted number has.
pub(super) const SERVER: u32 = 0b11 << NUMBER_BITS;
const _: () = assert!(NUMBER_BITS + 2 == SN_BITS);

/// The worker's CM state, made on the first call.
pub(super) fn exchange(worker: &Worker) -> Result<MtGuard<'_, Option<Box<CmState>>>, ucs_status_t> {
    let mut guard = worker.cm.lock();
    if guard.is_none() {
        let made = CmState::new(worker.ctx.policy.keepalive_ms).and_then(|x| {
            if let Some(wake) = &worker.wakeup {
                wake.add(x.epoll.as_fd())?;
            }
            Ok(x)
        });
        *guard = Some(Box::new(made.map_err(|e| {
            log::error!("cannot watch connections: {e}");
            UCS_ERR_IO_ERROR
        })?));
    }
    Ok(guard)
}

/// The parameters of the worker's CM sockets: those of `UCX_TCP_*` and of the keepalive interval.
pub(super) fn tuning(worker: &Worker) -> SocketTuning {
    let ctx = worker.ctx;
    ctx.tl.tcp.policy.tuning(ctx.policy.keepalive_ms)
}

/// CM transports of a worker, preferred first.
pub(super) fn transports(worker: &Worker) -> Vec<CmTransport> {
    let by_rdma = !worker.ctx.tl.ib.ports.is_empty();
    let transports = worker.ctx.policy.sockaddr.transports.iter().copied();
    // Without a port the library is not loaded.
    transports
        .filter(|&transport| transport != CmTransport::Rdma || (by_rdma && Rdmacm::get().is_some()))
        .collect()
}
