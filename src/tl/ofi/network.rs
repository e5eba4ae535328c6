//! libfabric as one of the networks of a context.

use super::address::{OfiLocator, OfiLocators, OfiTarget};
use super::context::OfiContext;
use super::device::OfiDevice;
use super::fabric_hash::fabric_hash;
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

    type Locator = OfiLocators;
    type PeerTarget = OfiTarget;
    type Sender = OfiSender;
    type Iface<P: Copy + Eq> = OfiWorker<P>;

    fn find(options: &Options, program: Program, _found: &mut FoundDevices) -> OfiContext {
        OfiContext::new(options, program)
    }

    fn may_reach(&self) -> bool {
        self.is_used()
    }

    /// The providers may have no endpoint for the worker.
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
        OfiWorker::open(self, params, reaches_others)
    }

    fn locator<P: Copy + Eq>(&self, iface: &OfiWorker<P>) -> OfiLocators {
        iface.locators()
    }

    fn encode(locators: &OfiLocators) -> Vec<(u8, Vec<u8>)> {
        let all = locators.all().iter();
        all.map(|locator| (Self::SECTIONS[0], locator.encode()))
            .collect()
    }

    fn decode(_kind: u8, body: &[u8]) -> Option<OfiLocators> {
        OfiLocators::new(vec![OfiLocator::decode(body)?])
    }

    fn join(known: &mut OfiLocators, further: OfiLocators) -> Option<()> {
        known.join(further)
    }

    fn target(&self, own: &WorkerAddress, to: &WorkerAddress) -> Option<OfiTarget> {
        OfiTarget::between(own.ofi.as_ref(), to.ofi.as_ref())
    }
}

impl NetworkInfo for OfiContext {
    fn lane_info(
        &self,
        _worker: &TlWorker,
        lane: LaneState,
        target: Option<&OfiTarget>,
    ) -> Option<LaneInfo> {
        let devices = self.devices();
        // After a failure the device of a rail may have a lane.
        let device_of = |index| devices.iter().chain(self.rails()).nth(index);
        let connected = lane.device.and_then(device_of);
        let leads = |device: &&OfiDevice| {
            target.is_some_and(|target| target.first.to.fabric == fabric_hash(device))
        };
        let device = connected.or_else(|| devices.iter().find(leads));
        device.or(devices.first()).map(info::lane)
    }

    fn resources(query: &mut ResourceQuery<'_>) -> Vec<Resource> {
        info::resources(query.options, query.max_eager)
    }
}
