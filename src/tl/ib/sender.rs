//! The sending half of a connection between two workers' queue pairs: cuts records into packets.

mod completion;
mod datagram;
mod imm;
mod record;
mod rma;
mod short;
mod zcopy;

use super::NegotiatedLimits;
pub use super::credits::Credits;
use super::iface::IbIface;
use super::rails::IbRails;
use super::rc::RcEp;
use super::ud::UdTx;
use crate::sys::trace;
use crate::wire::packet_hdr::{CREDIT, HEAD, PacketHdr};
use std::sync::Arc;
pub use zcopy::ZcopyLimits;

/// Maximum bytes of inline data that are prepared on the stack.
const MAX_INLINE: usize = 256;

/// With a tag byte of its own, which is cheaper to read.
#[repr(u8)]
enum RcOrUd {
    Rc {
        rc_ep: RcEp,
        sent: u32,
        limits: NegotiatedLimits,
    },
    Ud(UdTx),
}

/// The sending half of a connection, used by the thread that holds the peer's lock.
pub struct IbSender {
    iface: Arc<IbIface>,
    flow: Arc<Credits>,
    transport: RcOrUd,
    /// Buffer for a record that needs several packets.
    record: Vec<u8>,
    /// The device has refused a send, see [`fail`](Self::fail); its completions report the consequence.
    broken: bool,
    remote_port: usize,
    most_at_once: usize,
    /// Rails to the same peer, through other ports.
    pub rails: IbRails,
}

impl IbSender {
    /// Creates a sender over a queue pair of the connection's own (RC).
    pub fn over_rc(
        iface: Arc<IbIface>,
        flow: Arc<Credits>,
        rc_ep: RcEp,
        limits: NegotiatedLimits,
        remote_port: usize,
    ) -> IbSender {
        let transport = RcOrUd::Rc {
            rc_ep,
            sent: 0,
            limits,
        };
        let mut sender = Self::new(iface, flow, transport);
        sender.remote_port = remote_port;
        sender
    }

    /// Creates a sender over datagrams (UD).
    pub fn over_ud(iface: Arc<IbIface>, flow: Arc<Credits>, ud_tx: UdTx) -> IbSender {
        Self::new(iface, flow, RcOrUd::Ud(ud_tx))
    }

    fn new(iface: Arc<IbIface>, flow: Arc<Credits>, transport: RcOrUd) -> IbSender {
        IbSender {
            most_at_once: iface.port.tuning.rc.seg_size,
            iface,
            flow,
            transport,
            record: Vec::new(),
            broken: false,
            remote_port: 0,
            rails: IbRails::default(),
        }
    }

    /// The name of the transport.
    pub fn transport(&self) -> &'static str {
        if self.is_connected() {
            "rc_verbs"
        } else {
            "ud_verbs"
        }
    }

    /// Whether the connection has a queue pair of its own (RC).
    pub fn is_connected(&self) -> bool {
        matches!(self.transport, RcOrUd::Rc { .. })
    }

    /// Bytes of a record per packet.
    #[inline(always)]
    fn segment(&self) -> usize {
        match &self.transport {
            RcOrUd::Rc { limits, .. } => limits.packet - HEAD,
            RcOrUd::Ud(ud_tx) => ud_tx.segment(),
        }
    }

    /// Number of packets that can be sent now.
    #[inline(always)]
    fn room(&self) -> usize {
        match &self.transport {
            RcOrUd::Rc {
                rc_ep,
                sent,
                limits,
            } => {
                let flying = self.flow.in_flight(*sent);
                let window = limits.window.saturating_sub(flying);
                rc_ep.room().min(window as usize)
            }
            RcOrUd::Ud(ud_tx) => ud_tx.room(),
        }
    }

    /// Whether `packets` packets can be sent now.
    #[inline(always)]
    fn has_space(&mut self, packets: usize) -> bool {
        if self.room() >= packets {
            return true;
        }
        if let RcOrUd::Rc { rc_ep, .. } = &mut self.transport {
            let _ = rc_ep.has_room(packets);
        }
        false
    }

    /// The RC queue pair, if it has inline budget. A caller to which it reports that the device refuses calls
    /// [`fail`](Self::fail).
    #[inline(always)]
    pub fn ready_rc(&mut self) -> Option<&mut RcEp> {
        self.rc().filter(|rc_ep| rc_ep.has_inline_budget())
    }

    /// The RC queue pair with inline budget and a free slot, for an operation that has to be reported as complete.
    #[inline(always)]
    pub fn rc_with_slot(&mut self) -> Option<&mut RcEp> {
        if !self.has_inline_budget() {
            self.open();
            if !self.has_inline_budget() {
                return None;
            }
        }
        let rc_ep = self.rc()?;
        rc_ep.has_op_slot().then_some(rc_ep)
    }

    /// The RC queue pair, if the connection has one.
    #[inline(always)]
    pub fn rc(&mut self) -> Option<&mut RcEp> {
        match &mut self.transport {
            RcOrUd::Rc { rc_ep, .. } => Some(rc_ep),
            RcOrUd::Ud(_) => None,
        }
    }

    /// Stops sending after the device has refused a send: the peer would take the packets behind it for the next ones.
    #[cold]
    #[inline(never)]
    pub fn fail(&mut self) {
        self.broken = true;
        if let RcOrUd::Rc { rc_ep, .. } = &mut self.transport {
            rc_ep.revoke_inline_budget();
        }
    }

    /// Whether the inline budget is not used up.
    #[inline(always)]
    pub fn has_inline_budget(&self) -> bool {
        match &self.transport {
            RcOrUd::Rc { rc_ep, .. } => rc_ep.has_inline_budget(),
            RcOrUd::Ud(_) => false,
        }
    }

    /// Refills the inline budget after another send, if it is used up.
    #[inline(always)]
    fn refill_inline_budget(&mut self) {
        if !self.has_inline_budget() {
            self.open();
        }
    }

    #[inline(never)]
    fn open(&mut self) {
        let packets = self.room();
        match &mut self.transport {
            RcOrUd::Rc { rc_ep, .. } if !self.broken => rc_ep.refill_inline_budget(packets),
            _ => {}
        }
    }

    /// Index of the peer's port at the other end, among those of its address.
    #[inline(always)]
    pub fn remote_port(&self) -> usize {
        self.remote_port
    }

    /// Maximum bytes that one write or read moves.
    #[inline(always)]
    pub fn most_at_once(&self) -> usize {
        self.most_at_once
    }

    /// Index of the port in use among this worker's.
    pub fn local_port(&self) -> usize {
        match &self.transport {
            RcOrUd::Rc { .. } => self.iface.index.into(),
            RcOrUd::Ud(ud_tx) => ud_tx.local_port(),
        }
    }

    /// Index of the port of the connection's RC queue pair, if it has one.
    pub fn main_port(&self) -> Option<usize> {
        self.is_connected().then(|| self.iface.index.into())
    }

    /// The RC queue pairs of the connection, rails included.
    fn rcs(&self) -> impl Iterator<Item = &RcEp> {
        let own = match &self.transport {
            RcOrUd::Rc { rc_ep, .. } => Some(rc_ep),
            RcOrUd::Ud(_) => None,
        };
        let rails = self.rails.lines.iter().map(|rail| &rail.rc_ep);
        own.into_iter().chain(rails)
    }

    /// Whether the device has refused a send. No completion may ever report the consequence.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Checks that the peer is alive: sends something that it has to acknowledge.
    pub fn probe(&mut self) {
        if trace::is_on() {
            trace::instant("wire", "keepalive probe", &[]);
        }
        match &mut self.transport {
            // If only unsignaled sends are outstanding no completion would report a failure.
            RcOrUd::Rc { rc_ep, .. } if !rc_ep.has_signaled() => {
                rc_ep.probe();
            }
            RcOrUd::Ud(ud_tx) if ud_tx.is_drained() => {
                let head = PacketHdr {
                    len: 0,
                    kind: CREDIT,
                    aux: 0,
                    credit: 0,
                    imm: 0,
                };
                if ud_tx.room() > 0 {
                    ud_tx.send(&self.flow, head, 0, |_| {});
                }
            }
            // The device, or the retransmission timer of datagrams, already waits for the peer.
            RcOrUd::Rc { .. } | RcOrUd::Ud(_) => {}
        }
    }
}
