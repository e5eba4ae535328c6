//! What contexts and workers hold for the transports. The layers above pass it on: what a transport keeps there is its
//! own affair.

use super::LaneTarget;
use super::program::Program;
use super::tofu::TofuTarget;
use super::tofu::context::{TofuContext, TofuShared};
use super::tofu::region::TofuRegion;
use super::tofu::rkey::StaddRegion;
use super::tofu::stripe::TofuZcopy;
use crate::options::Options;
use crate::wire::address::WorkerAddress;
use crate::wire::rkey_tofu::TofuRkey;
use std::sync::Arc;

/// The transports' part of a context.
pub struct TlContext {
    pub tofu: TofuContext,
}

impl TlContext {
    pub fn new(options: &Options, program: Program) -> TlContext {
        TlContext {
            tofu: TofuContext::new(options, program),
        }
    }

    /// A region of whole pages that peers' devices may access.
    ///
    /// # Safety
    /// `len` bytes at `base` are mapped, and may be read and written by devices, until all copies of the value are
    /// dropped.
    pub unsafe fn region(&self, base: u64, len: u64) -> TlRegion {
        // SAFETY: the caller's memory.
        let tofu = unsafe { self.tofu.region(base, len) };
        TlRegion {
            tofu: tofu.map(Arc::new),
        }
    }
}

/// The transports' part of a worker that all of its threads use; `None` where a transport is not used. `P` names a
/// peer.
pub struct TlWorker<P> {
    pub tofu: Option<TofuShared<P>>,
}

impl<P> TlWorker<P> {
    /// Where the interconnect reaches the worker with this address, if both have it.
    pub fn tofu_target(&self, address: &WorkerAddress) -> Option<LaneTarget> {
        self.tofu.as_ref()?;
        let locator = address.tofu?;
        Some(LaneTarget::Tofu(TofuTarget { locator }))
    }
}

/// The transports' part of a region of registered memory; `None` where a transport is not used. Copies share it.
#[derive(Clone, Default)]
pub struct TlRegion {
    pub tofu: Option<Arc<TofuRegion>>,
}

impl TlRegion {
    /// A packed key with what the transports add to it.
    pub fn pack(&self, key: &[u8]) -> Vec<u8> {
        match self.tofu.as_ref().and_then(|tofu| tofu.rkey()) {
            Some(tofu) => tofu.around(key),
            None => key.to_vec(),
        }
    }
}

/// The transports' part of a remote key.
#[derive(Clone, Debug, Default)]
pub struct TlRkey {
    pub tofu: StaddRegion,
}

impl TlRkey {
    /// The part of a key for the lane to a peer at `target`. `alone`: no threads use the lane concurrently.
    pub fn new(tofu: Option<&TofuRkey>, target: Option<&LaneTarget>, alone: bool) -> TlRkey {
        let tofu = match (tofu, target) {
            (Some(key), Some(LaneTarget::Tofu(to))) => StaddRegion::new(key, &to.locator, alone),
            _ => None,
        };
        TlRkey {
            tofu: tofu.unwrap_or_default(),
        }
    }
}

/// The transports' part of a zero-copy transfer.
#[derive(Default)]
pub struct TlZcopy {
    pub tofu: TofuZcopy,
}
