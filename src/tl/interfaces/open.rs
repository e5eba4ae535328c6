//! Opening the interfaces of a worker.

use super::TlRx;
use crate::tl::address::WorkerAddress;
use crate::tl::ib::context::IbShared;
use crate::tl::ib::worker::IbWorker;
use crate::tl::shm::worker::ShmWorker;
use crate::tl::tofu::worker::TofuWorker;
use crate::tl::{TlContext, TlWorker};
use std::io;

/// What a worker needs its interfaces to know.
#[derive(Clone, Copy, Debug)]
pub struct IfaceParams {
    pub uid: u64,
    pub client_id: Option<u64>,
    /// Interval of liveness probes, milliseconds.
    pub keepalive_ms: u64,
    /// Threads may call the worker concurrently.
    pub mt: bool,
    /// It may sleep.
    pub wakes: bool,
    /// Shared memory may be used for other workers.
    pub shm: bool,
    /// It may be used for the worker itself.
    pub loopback: bool,
    /// Inboxes have names in /dev/shm.
    pub named_inboxes: bool,
}

impl<P: Copy + Eq> TlRx<P> {
    /// Opens the interfaces of a worker that the context selects.
    ///
    /// # Errors
    /// The errors of opening one without which peers cannot be reached.
    pub fn open(context: &TlContext, params: &IfaceParams) -> io::Result<TlRx<P>> {
        let shm = shm(context, params)?;
        let ib = ports(context, params)?;
        let names = (params.uid, params.client_id.unwrap_or(0));
        let tcp = (context.tcp).open(params.keepalive_ms, names, ib.is_some());
        let tcp = tcp.map_err(|e| reason("port (UCX_TCP_PORT_RANGE)", &e))?;
        let by_tcp = tcp.is_some() && context.tcp.carries_messages();
        let reaches_others = shm.has_inbox() && params.shm || by_tcp || ib.is_some();
        let tofu = context.tofu.open(params.mt, reaches_others)?;
        let tofu = tofu.map(|iface| TofuWorker::new(iface, params.uid, params.keepalive_ms));
        Ok(TlRx { shm, ib, tofu, tcp })
    }

    /// What all threads of the worker use. Not to be used after the interfaces are dropped.
    pub fn shared(&self, context: &TlContext, params: &IfaceParams) -> TlWorker {
        TlWorker {
            shm: self.shm.shared(),
            ib: IbShared::new(params.mt),
            tofu: self.tofu.as_deref().map(TofuWorker::shared),
            own: self.address(context, params),
        }
    }

    /// The address of the worker, without its name.
    fn address(&self, context: &TlContext, params: &IfaceParams) -> WorkerAddress {
        let listener = self.tcp.as_ref().map(|tcp| tcp.locator());
        let (tcp, wireup_tcp) = context.tcp.sections(listener);
        WorkerAddress {
            uid: params.uid,
            client_id: params.client_id,
            name: None,
            shm: self.shm.locator().map(|inbox| inbox.section()),
            ib: self.ib.as_ref().map(|ib| ib.locator()),
            tofu: self.tofu.as_ref().map(|tofu| tofu.locator()),
            tcp,
            wireup_tcp,
        }
    }
}

/// Shared memory, with an inbox if it or the loopback is to be used.
///
/// # Errors
/// The error of making it, if the worker could not reach any peer without it.
fn shm<P: Copy + Eq>(context: &TlContext, params: &IfaceParams) -> io::Result<ShmWorker<P>> {
    if !params.shm && !params.loopback {
        return Ok(ShmWorker::new(None));
    }
    let is_optional = !context.ib.ports.is_empty() || context.tcp.carries_messages();
    let shm = ShmWorker::open(params.named_inboxes, is_optional);
    shm.map_err(|e| reason("shared memory", &e))
}

/// The InfiniBand interface of a worker.
fn ports<P: Copy + Eq>(
    context: &TlContext,
    params: &IfaceParams,
) -> io::Result<Option<Box<IbWorker<P>>>> {
    if context.ib.ports.is_empty() {
        return Ok(None);
    }
    let (uid, keepalive_ms) = (params.uid, params.keepalive_ms);
    let ports = IbWorker::new(&context.ib, uid, keepalive_ms, params.mt, params.wakes);
    let ports = ports.map_err(|e| reason("InfiniBand queues", &e))?;
    Ok(Some(Box::new(ports)))
}

/// An error of opening an interface, for the log.
fn reason(what: &str, e: &io::Error) -> io::Error {
    io::Error::new(e.kind(), format!("no {what}: {e}"))
}
