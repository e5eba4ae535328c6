//! The interfaces of a worker, opened when it is created.

use crate::engine::context::Context;
use crate::engine::request::PeerRef;
use crate::engine::wakeup::Wakeup;
use crate::engine::worker::WorkerParams;
use crate::sys::log;
use crate::tl::TlRx;
use crate::tl::ib::worker::IbWorker;
use crate::tl::shm::inbox::Inbox;
use crate::tl::tofu::worker::TofuWorker;
use crate::wire::address::IbLocator;
use std::io;
use std::os::fd::AsFd;

/// The interfaces of a worker, `None` where a transport is not used.
pub(super) struct Interfaces {
    pub inbox: Option<Inbox>,
    pub tl: TlRx<PeerRef>,
    pub ib: Option<Box<IbWorker<PeerRef>>>,
    pub tofu: Option<Box<TofuWorker<PeerRef>>>,
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
        let mt = params.is_multi_threaded();
        let inbox = inbox(ctx)?;
        let ib = ib(ctx, uid, mt, wakes)?;
        let names = (uid, params.client_id.unwrap_or(0));
        let tcp = (ctx.tl.tcp).open(ctx.policy.keepalive_ms, names, ib.is_some());
        let tcp = tcp.map_err(|e| unreachable_reason("port (UCX_TCP_PORT_RANGE)", &e))?;
        let by_tcp = tcp.is_some() && ctx.tl.tcp.carries_messages();
        let reaches_others = inbox.is_some() && ctx.policy.shm || by_tcp || ib.is_some();
        let tofu = ctx.tl.tofu.open(mt, reaches_others)?;
        Ok(Interfaces {
            inbox,
            tl: TlRx { tcp },
            ib,
            tofu: tofu.map(|iface| TofuWorker::new(iface, uid, ctx.policy.keepalive_ms)),
        })
    }

    /// The queue pairs in the worker's address.
    pub fn ib_locator(&self) -> Option<IbLocator> {
        self.ib.as_ref().map(|ib| ib.locator())
    }

    /// What wakes a worker with these interfaces.
    ///
    /// # Errors
    /// The errors of the system calls.
    pub fn wakeup(&self, params: &WorkerParams) -> io::Result<Wakeup> {
        let wake = Wakeup::new(params, self.inbox.as_ref());
        let wake = wake.map_err(|e| unreachable_reason("wakeup", &e))?;
        if let Some(tcp) = &self.tl.tcp {
            wake.add(tcp.epoll.as_fd())?;
        }
        for fd in self.ib.iter().flat_map(|ib| ib.descriptors()) {
            wake.add(fd)?;
        }
        Ok(wake)
    }
}

/// The InfiniBand state of a worker with this uid.
fn ib(
    ctx: &Context,
    uid: u64,
    mt: bool,
    wakes: bool,
) -> io::Result<Option<Box<IbWorker<PeerRef>>>> {
    if ctx.tl.ib.ports.is_empty() {
        return Ok(None);
    }
    let ports = IbWorker::new(&ctx.tl.ib, uid, ctx.policy.keepalive_ms, mt, wakes);
    let ports = ports.map_err(|e| unreachable_reason("InfiniBand queues", &e))?;
    Ok(Some(Box::new(ports)))
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
