//! libfabric as one of the networks of a context.

use super::OfiLocator;
use super::context::OfiContext;
use super::info;
use super::sender::OfiSender;
use super::worker::OfiWorker;
use crate::options::Options;
use crate::tl::address::WorkerAddress;
use crate::tl::iface_params::IfaceParams;
use crate::tl::lane_info::{LaneInfo, LaneState};
use crate::tl::network::{FoundDevices, Network};
use crate::tl::network_info::{NetworkInfo, ResourceQuery};
use crate::tl::program::Program;
use crate::tl::{Resource, TlWorker};
use std::io;

impl Network for OfiContext {
    const TRANSPORTS: &'static [&'static str] = &["ofi", "cxi", "efa", "opx", "psm3"];
    const SECTIONS: &'static [u8] = &[8];

    type Locator = OfiLocator;
    type PeerTarget = OfiLocator;
    type Sender = OfiSender;
    type Iface<P: Copy + Eq> = OfiWorker<P>;

    fn find(options: &Options, program: Program, _found: &mut FoundDevices) -> OfiContext {
        OfiContext::new(options, program)
    }

    fn may_reach(&self) -> bool {
        self.is_used()
    }

    /// The provider may have no endpoint for the worker.
    fn is_sure(&self) -> bool {
        false
    }

    fn lacks_devices(&self, transport: &str) -> bool {
        OfiContext::lacks_devices(self, transport)
    }

    fn open<P: Copy + Eq>(
        &self,
        params: &IfaceParams,
        reaches_others: bool,
    ) -> io::Result<Option<Box<OfiWorker<P>>>> {
        self.open_iface(params, reaches_others)
    }

    fn locator<P: Copy + Eq>(&self, iface: &OfiWorker<P>) -> OfiLocator {
        iface.own.clone()
    }

    fn encode(locator: &OfiLocator) -> (u8, Vec<u8>) {
        (Self::SECTIONS[0], locator.encode())
    }

    fn decode(_kind: u8, body: &[u8]) -> Option<OfiLocator> {
        OfiLocator::decode(body)
    }

    fn target(&self, own: &WorkerAddress, to: &WorkerAddress) -> Option<OfiLocator> {
        OfiLocator::between(own.ofi.as_ref(), to.ofi.as_ref())
    }
}

impl NetworkInfo for OfiContext {
    fn lane_info(
        &self,
        _worker: &TlWorker,
        _lane: LaneState,
        _target: Option<&OfiLocator>,
    ) -> Option<LaneInfo> {
        self.device().map(info::lane)
    }

    fn resources(query: &mut ResourceQuery<'_>) -> Vec<Resource> {
        info::resources(query.options, query.max_eager)
    }
}
