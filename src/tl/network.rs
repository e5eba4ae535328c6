//! What a context and worker addresses know of a network: a transport, or several that share devices, that leads from
//! one worker to others, and whose interface implements [`Interface`](super::interface::Interface).

use super::address::WorkerAddress;
use super::contract::LaneOps;
use super::iface_params::IfaceParams;
use super::program::Program;
use crate::options::Options;
use std::fmt::Debug;
use std::io;

/// What networks have found, for those that are less preferred.
#[derive(Debug, Default)]
pub struct FoundDevices {
    /// TNIs execute atomic operations on the context's memory.
    pub amo_by_tni: bool,
    /// Queue pairs are connected by out-of-band connections.
    pub wireup_by_tcp: bool,
    /// Names of InfiniBand and RoCE devices in use.
    pub adapters: Vec<String>,
}

/// A network, as a context has it: its settings and its devices.
pub trait Network: Sized {
    /// Names of its transports, as `UCX_TLS` has them, preferred first.
    const TRANSPORTS: &'static [&'static str];
    /// The kinds of its sections in a worker address. 1 and 2 are those of [`crate::wire::address`], 3 is shared
    /// memory's; a number is never used again.
    const SECTIONS: &'static [u8];

    /// Its sections of a worker address: where its interfaces are reached.
    type Locator: Clone + Debug + PartialEq + Eq;
    /// Where a lane leads.
    type PeerTarget: Clone + Debug;
    /// The sending half of a lane.
    type Sender: LaneOps;
    /// What a worker has of it. `P` names a peer.
    type Iface<P: Copy + Eq>;

    /// Finds the devices that the options allow. That there are none is not an error.
    fn find(options: &Options, program: Program, found: &mut FoundDevices) -> Self;

    /// Whether a worker may reach others through it. Devices that can come and go are not asked for.
    fn may_reach(&self) -> bool;

    /// Whether a worker cannot be made without an interface of it: [`open`](Self::open) returns one, or an error.
    fn is_sure(&self) -> bool;

    /// Whether this transport of it is allowed, and has no device.
    fn lacks_devices(&self, _transport: &str) -> bool {
        false
    }

    /// Why no worker of a context uses it, if only its program excludes it.
    fn program_obstacle(&self) -> Option<&'static str> {
        None
    }

    /// Opens the interface of a worker; `None` without a device. `reaches_others`: the worker has another transport.
    ///
    /// # Errors
    /// The interface cannot be opened, and the worker is not to be without it.
    fn open<P: Copy + Eq>(
        &self,
        params: &IfaceParams,
        reaches_others: bool,
    ) -> io::Result<Option<Box<Self::Iface<P>>>>;

    /// The section of a worker with this interface.
    fn locator<P: Copy + Eq>(&self, iface: &Self::Iface<P>) -> Self::Locator;

    /// The kinds and the bodies of its sections, each of at most 255 bytes.
    fn encode(locator: &Self::Locator) -> Vec<(u8, Vec<u8>)>;

    /// Decodes the body of a section of one of its kinds. `None`: it is malformed.
    fn decode(kind: u8, body: &[u8]) -> Option<Self::Locator>;

    /// Adds what a further section of the same address says. `None`: the address has too many.
    fn join(known: &mut Self::Locator, further: Self::Locator) -> Option<()> {
        *known = further;
        Some(())
    }

    /// Where a lane leads from the worker at `own` to that at `to`, if the network connects them.
    fn target(&self, own: &WorkerAddress, to: &WorkerAddress) -> Option<Self::PeerTarget>;
}
