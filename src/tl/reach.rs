//! The transports that lead from one worker to another, by the addresses of both.

use super::shm::InboxLocator;
use super::tcp::TcpTarget;
use super::tofu::TofuTarget;
use super::{FallbackTarget, LaneTarget, TlContext, TlWorker, ib, shm};
use crate::sys::log;
use crate::wire::address::WorkerAddress;

/// Where a worker is reached: at its inbox in shared memory, or else through a network.
#[derive(Clone, Debug)]
pub struct Reach {
    pub inbox: Option<InboxLocator>,
    pub target: Option<LaneTarget>,
}

impl TlContext {
    /// The best of the transports that lead from a worker of this context to the worker at `to`: shared memory, Tofu,
    /// InfiniBand, TCP.
    ///
    /// # Errors
    /// Why there is none.
    pub fn reach(&self, worker: &TlWorker, to: &WorkerAddress) -> Result<Reach, &'static str> {
        let own = &worker.own;
        let Some(inbox) = self.shm.target(own, to) else {
            let target = self.network_target(own, to);
            return match target {
                None => Err(self.unreachable_reason(own, to)),
                target => Ok(Reach {
                    inbox: None,
                    target,
                }),
            };
        };
        let other = if own.uid == to.uid {
            None
        } else {
            let error = inbox.mapping_error();
            error.and_then(|e| Some((e, self.network_target(own, to)?)))
        };
        let Some((e, target)) = other else {
            return Ok(Reach {
                inbox: Some(inbox),
                target: None,
            });
        };
        log::warn!(
            "worker {:#x} (pid {}) is not reached by shared memory, which cannot be mapped: {e} (ulimit -v)",
            to.uid,
            inbox.id.pid
        );
        Ok(Reach {
            inbox: None,
            target: Some(target),
        })
    }

    /// The best of the networks.
    fn network_target(&self, own: &WorkerAddress, to: &WorkerAddress) -> Option<LaneTarget> {
        let tofu = || TofuTarget::between(own, to).map(LaneTarget::Tofu);
        let ib = || self.ib.target(own, to).map(LaneTarget::Ib);
        let tcp = || TcpTarget::between(own, to).map(LaneTarget::Tcp);
        tofu().or_else(ib).or_else(tcp)
    }

    /// Why no transport leads from the worker at `own` to that at `to`: the reason that the user can change first.
    fn unreachable_reason(&self, own: &WorkerAddress, to: &WorkerAddress) -> &'static str {
        ib::address::obstacle(own, to)
            .or_else(|| self.shm.own_obstacle(own, to))
            .or_else(|| self.tofu.program_obstacle())
            .or_else(|| (!self.shm.is_allowed).then(|| self.without_shm()))
            .unwrap_or_else(|| shm::address::obstacle(to))
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

/// The inbox of the worker with this address, if shared memory reaches it.
pub fn inbox_of(address: &WorkerAddress) -> Option<InboxLocator> {
    address.shm.as_ref().map(InboxLocator::of)
}

impl TlWorker {
    /// The worker's own inbox, if it has one.
    pub fn inbox(&self) -> Option<InboxLocator> {
        inbox_of(&self.own)
    }

    /// The lane to the worker at `to` in place of one through shared memory that cannot be made.
    pub fn fallback(&self, to: &WorkerAddress) -> Option<FallbackTarget> {
        FallbackTarget::between(&self.own, to)
    }
}
