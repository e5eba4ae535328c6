//! TCP as one of the networks of a context.

use super::TcpTarget;
use super::address::{TcpLocator, TcpUsage};
use super::context::TcpContext;
use super::info;
use super::sender::TcpSender;
use super::worker::TcpWorker;
use crate::options::Options;
use crate::tl::address::WorkerAddress;
use crate::tl::iface_params::IfaceParams;
use crate::tl::lane_info::{LaneInfo, LaneState};
use crate::tl::network::{FoundDevices, Network};
use crate::tl::network_info::{NetworkInfo, ResourceQuery};
use crate::tl::program::Program;
use crate::tl::{Resource, TlWorker};
use std::io;

/// The section of a worker whose sockets carry messages.
const MESSAGES: u8 = 4;
/// The section of a worker that only accepts out-of-band connections.
const WIREUP: u8 = 6;

impl Network for TcpContext {
    const TRANSPORTS: &'static [&'static str] = &["tcp"];
    const SECTIONS: &'static [u8] = &[MESSAGES, WIREUP];

    type Locator = TcpLocator;
    type PeerTarget = TcpTarget;
    type Sender = TcpSender;
    type Iface<P: Copy + Eq> = TcpWorker<P>;

    fn find(options: &Options, _program: Program, found: &mut FoundDevices) -> TcpContext {
        let adapters: Vec<&str> = found.adapters.iter().map(String::as_str).collect();
        TcpContext::new(options, found.wireup_by_tcp, &adapters)
    }

    fn may_reach(&self) -> bool {
        self.is_allowed
    }

    fn is_sure(&self) -> bool {
        self.carries_messages()
    }

    fn open<P: Copy + Eq>(
        &self,
        params: &IfaceParams,
        _reaches_others: bool,
    ) -> io::Result<Option<Box<TcpWorker<P>>>> {
        let names = (params.uid, params.client_id.unwrap_or(0));
        let sockets = self.open_sockets(params.keepalive_ms, names);
        sockets.map_err(|e| io::Error::new(e.kind(), format!("no port (UCX_TCP_PORT_RANGE): {e}")))
    }

    fn locator<P: Copy + Eq>(&self, sockets: &TcpWorker<P>) -> TcpLocator {
        sockets.locator()
    }

    fn encode(locator: &TcpLocator) -> Vec<(u8, Vec<u8>)> {
        let kind = match locator.usage {
            TcpUsage::Messages => MESSAGES,
            TcpUsage::Wireup => WIREUP,
        };
        vec![(kind, locator.encode())]
    }

    fn decode(kind: u8, body: &[u8]) -> Option<TcpLocator> {
        let usage = match kind {
            MESSAGES => TcpUsage::Messages,
            _ => TcpUsage::Wireup,
        };
        TcpLocator::decode(usage, body)
    }

    fn target(&self, own: &WorkerAddress, to: &WorkerAddress) -> Option<TcpTarget> {
        TcpTarget::between(own.tcp.as_ref(), to.tcp.as_ref())
    }
}

impl NetworkInfo for TcpContext {
    fn lane_info(
        &self,
        _worker: &TlWorker,
        lane: LaneState,
        target: Option<&TcpTarget>,
    ) -> Option<LaneInfo> {
        self.lane_to(lane.device, target)
    }

    fn resources(query: &mut ResourceQuery<'_>) -> Vec<Resource> {
        if !query.options.tls.allows("tcp") {
            return Vec::new();
        }
        let adapters: Vec<&str> = query.adapters.iter().map(String::as_str).collect();
        info::resources(query.options, &adapters, query.longest)
    }
}
