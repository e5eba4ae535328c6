//! The transports that lead from one worker to another, by the addresses of both.

use super::address::WorkerAddress;
use super::network::Network;
use super::networks::networks;
use super::oob::OobTarget;
use super::shm::{FoundInbox, InboxLocator};
use super::{FallbackTarget, LaneTarget, TlContext, TlWorker, ib, shm};
use crate::sys::{advice, log};

/// Where a worker is reached.
#[derive(Clone, Debug)]
pub enum Reach {
    /// At its inbox in shared memory.
    Inbox(FoundInbox),
    /// Through a network.
    Network(LaneTarget),
}

macro_rules! network_target {
    ($($(#[$cfg:meta])* $Kind:ident $net:ident $Context:ident;)* @) => {
        impl TlContext {
            /// The best of the networks.
            fn network_target(&self, own: &WorkerAddress, to: &WorkerAddress) -> Option<LaneTarget> {
                $(
                    $(#[$cfg])*
                    if let Some(target) = self.$net.target(own, to) {
                        return Some(LaneTarget::$Kind(target));
                    }
                )*
                None
            }

            /// Why the program of this context excludes a network.
            fn program_obstacle(&self) -> Option<&'static str> {
                let obstacles = [$($(#[$cfg])* Network::program_obstacle(&self.$net)),*];
                obstacles.into_iter().flatten().next()
            }
        }
    };
}
networks!(network_target);

impl TlContext {
    /// The best of the transports that lead from a worker of this context to the worker at `to`: shared memory, then
    /// the networks in the order of their list.
    ///
    /// # Errors
    /// Why there is none.
    pub fn reach(&self, worker: &TlWorker, to: &WorkerAddress) -> Result<Reach, &'static str> {
        let own = &worker.own;
        let is_self = own.uid == to.uid;
        let inbox = if is_self {
            own.inbox().map(FoundInbox::from)
        } else {
            let user = worker.shm.user;
            self.shm.target(user, own.shm.as_ref(), to.shm.as_ref())
        };
        let Some(found) = inbox else {
            let target = self.network_target(own, to).map(Reach::Network);
            return target.ok_or_else(|| self.unreachable_reason(own, to));
        };
        if !is_self
            && let Some(e) = found.inbox.mapping_error()
            && let Some(target) = self.network_target(own, to)
        {
            log::once!(
                Warn, each log::words(&e),
                "worker {:#x} (pid {}) is not reached by shared memory, which cannot be mapped: {e}{}",
                to.uid,
                found.inbox.id.pid,
                advice::on_shared_memory(&e)
            );
            return Ok(Reach::Network(target));
        }
        Ok(Reach::Inbox(found))
    }

    /// Why no transport leads from the worker at `own` to that at `to`: the reason that the user can change first.
    fn unreachable_reason(&self, own: &WorkerAddress, to: &WorkerAddress) -> &'static str {
        let has_oob = || OobTarget::oob_between(own.tcp.as_ref(), to.tcp.as_ref()).is_some();
        ib::address::obstacle(own.ib.as_ref(), to.ib.as_ref(), has_oob)
            .or_else(|| self.shm.own_obstacle(own.shm.as_ref(), to.shm.as_ref()))
            .or_else(|| self.program_obstacle())
            .or_else(|| (!self.shm.is_allowed).then(|| self.without_shm()))
            .unwrap_or_else(|| shm::address::obstacle(to.shm.as_ref()))
    }

    /// The reason where shared memory is excluded.
    fn without_shm(&self) -> &'static str {
        if self.tofu.lacks_library() {
            "shared memory is excluded, and no other transport leads from one end to the other \
             (UCX_TLS, UCX_NET_DEVICES); for tofu \
             libtofucom.so was not found (LD_LIBRARY_PATH)"
        } else {
            "shared memory is excluded, and no other transport leads from one end to the other \
             (UCX_TLS, UCX_NET_DEVICES)"
        }
    }
}

impl TlWorker {
    /// The worker's own inbox, if it has one.
    pub fn inbox(&self) -> Option<InboxLocator> {
        self.own.inbox()
    }

    /// What a look-up finds of a peer's inbox.
    pub fn find_inbox(&self, inbox: InboxLocator) -> FoundInbox {
        inbox.find(self.shm.user).unwrap_or(inbox.into())
    }

    /// The lane to the worker at `to` in place of one through shared memory that cannot be made.
    pub fn fallback(&self, to: &WorkerAddress) -> Option<FallbackTarget> {
        FallbackTarget::between(self.own.tcp.as_ref(), to.tcp.as_ref())
    }
}
