//! The interfaces of a worker, opened when it is created.

use crate::engine::context::Context;
use crate::engine::request::PeerRef;
use crate::engine::wakeup::Wakeup;
use crate::engine::worker::WorkerParams;
use crate::sys::log;
use crate::tl::address::WorkerAddress;
use crate::tl::shm::inbox::Inbox;
use crate::tl::{IfaceParams, TlRx};
use std::io;

/// The interfaces of a worker, `None` where a transport is not used.
pub(super) struct Interfaces {
    pub inbox: Option<Inbox>,
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
        let inbox = inbox(ctx)?;
        let tl = TlRx::open(
            &ctx.tl,
            &IfaceParams {
                uid,
                client_id: params.client_id.unwrap_or(0),
                keepalive_ms: ctx.policy.keepalive_ms,
                mt: params.is_multi_threaded(),
                wakes,
                has_shm: inbox.is_some() && ctx.policy.shm,
            },
        )?;
        Ok(Interfaces { inbox, tl })
    }

    /// The address of the worker, without its name.
    pub fn address(&self, ctx: &Context, uid: u64, client_id: Option<u64>) -> WorkerAddress {
        let listener = self.tl.tcp.as_ref().map(|tcp| tcp.locator());
        let (tcp, wireup_tcp) = ctx.tl.tcp.sections(listener);
        WorkerAddress {
            uid,
            client_id,
            name: None,
            shm: self.inbox.as_ref().map(|inbox| inbox.locator().section()),
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
        let wake = Wakeup::new(params, self.inbox.as_ref());
        let wake = wake.map_err(|e| unreachable_reason("wakeup", &e))?;
        let mut added = Ok(());
        self.tl.each_descriptor(&mut |fd| {
            if added.is_ok() {
                added = wake.add(fd);
            }
        });
        added.map(|()| wake)
    }
}

/// The worker's inbox, if shared memory or the loopback is to be used.
///
/// # Errors
/// The error of making it, if the worker could not reach any peer without it.
fn inbox(ctx: &Context) -> io::Result<Option<Inbox>> {
    if !ctx.policy.shm && !ctx.policy.loopback {
        return Ok(None);
    }
    match Inbox::create(ctx.policy.named_inboxes) {
        Ok(inbox) => Ok(Some(inbox)),
        Err(e) if !ctx.tl.ib.ports.is_empty() || ctx.tl.tcp.carries_messages() => {
            log::warn!(
                "this worker does not use shared memory, which cannot be allocated: {e} (ulimit -v)"
            );
            Ok(None)
        }
        Err(e) => Err(unreachable_reason("shared memory", &e)),
    }
}

/// An error of worker creation, for the log.
fn unreachable_reason(what: &str, e: &io::Error) -> io::Error {
    io::Error::new(e.kind(), format!("no {what}: {e}"))
}
