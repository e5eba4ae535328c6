//! Tofu as one of the networks of a context.

use super::address::{TofuLocator, TofuTarget};
use super::context::TofuContext;
use super::info;
use super::sender::TofuSender;
use super::worker::TofuWorker;
use crate::options::Options;
use crate::tl::address::WorkerAddress;
use crate::tl::iface_params::IfaceParams;
use crate::tl::lane_info::{LaneInfo, LaneState};
use crate::tl::network::{FoundDevices, Network};
use crate::tl::network_info::{NetworkInfo, ResourceQuery};
use crate::tl::program::Program;
use crate::tl::{Resource, TlWorker};
use std::io;

impl Network for TofuContext {
    const TRANSPORTS: &'static [&'static str] = &["tofu"];
    const SECTIONS: &'static [u8] = &[7];

    type Locator = TofuLocator;
    type PeerTarget = TofuTarget;
    type Sender = TofuSender;
    type Iface<P: Copy + Eq> = TofuWorker<P>;

    fn find(options: &Options, program: Program, found: &mut FoundDevices) -> TofuContext {
        let context = TofuContext::new(options, program);
        found.amo_by_tni = context.amo_by_tni;
        context
    }

    fn may_reach(&self) -> bool {
        self.has_tnis()
    }

    /// There may be no VCQ for the worker.
    fn is_sure(&self) -> bool {
        false
    }

    /// It has devices that a program which wants to sleep does not use.
    fn lacks_devices(&self, transport: &str) -> bool {
        transport == "tofu" && self.lacks_tnis() && !self.sleeps
    }

    fn program_obstacle(&self) -> Option<&'static str> {
        self.lacks_events().then_some(
            "the program uses UCP_FEATURE_WAKEUP, for which tofu has no events; no other transport leads from one end \
             to the other (UCX_TLS)",
        )
    }

    fn open<P: Copy + Eq>(
        &self,
        params: &IfaceParams,
        reaches_others: bool,
    ) -> io::Result<Option<Box<TofuWorker<P>>>> {
        let iface = self.open_iface(params.mt, reaches_others)?;
        Ok(iface.map(|iface| TofuWorker::new(iface, params.uid, params.keepalive_ms)))
    }

    fn locator<P: Copy + Eq>(&self, rings: &TofuWorker<P>) -> TofuLocator {
        rings.locator()
    }

    fn encode(locator: &TofuLocator) -> Vec<(u8, Vec<u8>)> {
        vec![(Self::SECTIONS[0], locator.encode())]
    }

    fn decode(_kind: u8, body: &[u8]) -> Option<TofuLocator> {
        TofuLocator::decode(body)
    }

    fn target(&self, own: &WorkerAddress, to: &WorkerAddress) -> Option<TofuTarget> {
        TofuTarget::between(own.tofu.as_ref(), to.tofu.as_ref())
    }
}

impl NetworkInfo for TofuContext {
    fn lane_info(
        &self,
        worker: &TlWorker,
        _lane: LaneState,
        _target: Option<&TofuTarget>,
    ) -> Option<LaneInfo> {
        worker.tofu.as_ref().map(|tofu| tofu.lane_info())
    }

    fn resources(query: &mut ResourceQuery<'_>) -> Vec<Resource> {
        if !query.options.tls.allows("tofu") {
            return Vec::new();
        }
        info::resources(&query.options.net_devices, query.max_eager)
    }
}
