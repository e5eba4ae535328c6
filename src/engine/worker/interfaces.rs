//! The interfaces of a worker, opened when it is created.

use crate::engine::context::Context;
use crate::engine::request::PeerRef;
use crate::engine::wakeup::Wakeup;
use crate::engine::worker::WorkerParams;
use crate::tl::address::WorkerAddress;
use crate::tl::shm::worker::ShmWorker;
use crate::tl::{IfaceParams, TlRx};
use std::io;

/// The interfaces of a worker, `None` where a transport is not used.
pub(super) struct Interfaces {
    pub tl: TlRx<PeerRef>,
}

impl Interfaces {
    /// Opens the interfaces of a worker with this uid that the context selects. `wakes`: it may sleep.
    ///
    /// # Errors
    /// The errors of opening one without which peers cannot be reached.
    pub fn open(
        ctx: &Context,
        uid: u64,
        params: &WorkerParams,
        wakes: bool,
    ) -> io::Result<Interfaces> {
        let shm = shm(ctx)?;
        let params = IfaceParams {
            uid,
            client_id: params.client_id.unwrap_or(0),
            keepalive_ms: ctx.policy.keepalive_ms,
            mt: params.is_multi_threaded(),
            wakes,
            has_shm: shm.has_inbox() && ctx.policy.shm,
        };
        let tl = TlRx::open(&ctx.tl, shm, &params)?;
        Ok(Interfaces { tl })
    }

    /// The address of the worker, without its name.
    pub fn address(&self, ctx: &Context, uid: u64, client_id: Option<u64>) -> WorkerAddress {
        let listener = self.tl.tcp.as_ref().map(|tcp| tcp.locator());
        let (tcp, wireup_tcp) = ctx.tl.tcp.sections(listener);
        WorkerAddress {
            uid,
            client_id,
            name: None,
            shm: self.tl.shm.locator().map(|inbox| inbox.section()),
            ib: self.tl.ib.as_ref().map(|ib| ib.locator()),
            tofu: self.tl.tofu.as_ref().map(|tofu| tofu.shared().locator),
            tcp,
            wireup_tcp,
        }
    }

    /// What wakes a worker with these interfaces.
    ///
    /// # Errors
    /// The errors of the system calls.
    pub fn wakeup(&mut self, params: &WorkerParams) -> io::Result<Wakeup> {
        let wake = Wakeup::new(params);
        let wake = wake.map_err(|e| unreachable_reason("wakeup", &e))?;
        self.tl.shm.enable_wake(wake.wake_fd());
        let mut added = Ok(());
        self.tl.each_descriptor(&mut |fd| {
            if added.is_ok() {
                added = wake.add(fd);
            }
        });
        added.map(|()| wake)
    }
}

/// Shared memory, with an inbox if it or the loopback is to be used.
///
/// # Errors
/// The error of making it, if the worker could not reach any peer without it.
fn shm(ctx: &Context) -> io::Result<ShmWorker<PeerRef>> {
    if !ctx.policy.shm && !ctx.policy.loopback {
        return Ok(ShmWorker::new(None));
    }
    let is_optional = !ctx.tl.ib.ports.is_empty() || ctx.tl.tcp.carries_messages();
    let shm = ShmWorker::open(ctx.policy.named_inboxes, is_optional);
    shm.map_err(|e| unreachable_reason("shared memory", &e))
}

/// An error of worker creation, for the log.
fn unreachable_reason(what: &str, e: &io::Error) -> io::Error {
    io::Error::new(e.kind(), format!("no {what}: {e}"))
}
