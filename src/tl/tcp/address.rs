//! TCP's sections of a worker address: one for messages, or one for the wireup of queue pairs alone.

use super::TcpTarget;
use super::context::TcpContext;
use crate::wire::address::{TcpLocator, WorkerAddress};

impl TcpContext {
    /// The sections of a worker with this listening socket: for messages, and for wireup alone.
    pub fn sections(
        &self,
        listener: Option<TcpLocator>,
    ) -> (Option<TcpLocator>, Option<TcpLocator>) {
        if self.carries_messages() {
            (listener, None)
        } else {
            (None, listener)
        }
    }
}

impl TcpTarget {
    /// Where the worker at `own` reaches that at `to`.
    pub fn between(own: &WorkerAddress, to: &WorkerAddress) -> Option<TcpTarget> {
        // Without a device there is no listening socket either.
        own.tcp.as_ref()?;
        TcpTarget::of(to.tcp.as_ref()?)
    }

    /// Where out-of-band connections of the worker at `own` lead to that at `to`, if both have a listening socket.
    pub fn oob_between(own: &WorkerAddress, to: &WorkerAddress) -> Option<TcpTarget> {
        own.tcp.as_ref().or(own.wireup_tcp.as_ref())?;
        TcpTarget::of(to.wireup_tcp.as_ref().or(to.tcp.as_ref())?)
    }
}
