//! InfiniBand and RoCE as one of the networks of a context.

use super::IbTarget;
use super::address::IbLocator;
use super::context::IbContext;
use super::info;
use super::sender::IbSender;
use super::worker::IbWorker;
use crate::options::Options;
use crate::tl::address::WorkerAddress;
use crate::tl::contract::QpTransport;
use crate::tl::iface_params::IfaceParams;
use crate::tl::lane_info::{LaneInfo, LaneState};
use crate::tl::network::{FoundDevices, Network};
use crate::tl::network_info::{NetworkInfo, ResourceQuery};
use crate::tl::oob::OobTarget;
use crate::tl::program::Program;
use crate::tl::{Resource, TlWorker};
use std::io;

impl Network for IbContext {
    const TRANSPORTS: &'static [&'static str] = &["rc_verbs", "ud_verbs"];
    const SECTIONS: &'static [u8] = &[5];

    type Locator = IbLocator;
    type PeerTarget = IbTarget;
    type Sender = IbSender;
    type Iface<P: Copy + Eq> = IbWorker<P>;

    fn find(options: &Options, program: Program, found: &mut FoundDevices) -> IbContext {
        let context = IbContext::new(options, program, found.amo_by_tni);
        found.wireup_by_tcp = context.wireup_by_tcp();
        found.adapters = context.ports.iter().map(|port| port.name.clone()).collect();
        context
    }

    fn may_reach(&self) -> bool {
        !self.ports.is_empty()
    }

    fn is_sure(&self) -> bool {
        !self.ports.is_empty()
    }

    fn lacks_devices(&self, transport: &str) -> bool {
        Self::TRANSPORTS.contains(&transport) && self.lacks_ports()
    }

    fn open<P: Copy + Eq>(
        &self,
        params: &IfaceParams,
        _reaches_others: bool,
    ) -> io::Result<Option<Box<IbWorker<P>>>> {
        if self.ports.is_empty() {
            return Ok(None);
        }
        let (uid, keepalive_ms) = (params.uid, params.keepalive_ms);
        let ports = IbWorker::new(self, uid, keepalive_ms, params.mt, params.wakes);
        let ports =
            ports.map_err(|e| io::Error::new(e.kind(), format!("no InfiniBand queues: {e}")))?;
        Ok(Some(Box::new(ports)))
    }

    fn locator<P: Copy + Eq>(&self, ports: &IbWorker<P>) -> IbLocator {
        ports.locator()
    }

    fn encode(locator: &IbLocator) -> Vec<(u8, Vec<u8>)> {
        vec![(Self::SECTIONS[0], locator.encode())]
    }

    fn decode(_kind: u8, body: &[u8]) -> Option<IbLocator> {
        IbLocator::decode(body)
    }

    fn target(&self, own: &WorkerAddress, to: &WorkerAddress) -> Option<IbTarget> {
        let oob = || OobTarget::oob_between(own.tcp.as_ref(), to.tcp.as_ref());
        self.target_at(own.ib.as_ref(), to.ib.as_ref(), oob)
    }
}

impl NetworkInfo for IbContext {
    fn lane_info(
        &self,
        _worker: &TlWorker,
        lane: LaneState,
        target: Option<&IbTarget>,
    ) -> Option<LaneInfo> {
        let index = lane.device.or(target.map(|target| target.path.iface))?;
        let own = match lane.qp_transport {
            QpTransport::Unknown => self.by_queue() && !lane.fails_over,
            queues => queues == QpTransport::Own,
        };
        Some(info::lane(self.ports.get(index)?, own))
    }

    fn resources(query: &mut ResourceQuery<'_>) -> Vec<Resource> {
        let ports = info::resources(query.options, query.max_eager);
        query
            .adapters
            .extend(ports.iter().map(|port| port.device.clone()));
        ports
    }
}
