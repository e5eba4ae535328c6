//! IB wireup by out-of-band connections (TCP), where the user excludes UD.
//!
//! The side that needs a connection connects a socket and sends its HELLO once: TCP delivers it as long as the socket
//! is open. The replies use the same socket. A socket that breaks is connected again when a HELLO would be repeated by
//! UD, and the timeouts are those of UD (`connect`). When both sides have acknowledged READY, the side that connected
//! the socket closes it.

use super::conn::IbConn;
use super::connect::{fail, on_tcp_msg, send_hello};
use super::tcp_wireup::TcpWireup;
use super::worker::IbWorker;
use crate::sys::clock;
use crate::tl::oob::{OobConn, OobContact, OobIface, OobSink, OobStart};
use crate::tl::sink::Sink;
use crate::wire::ib_packet::TcpWireupMsg;

/// Time after which a socket of this side without an answer is closed to make room for others, in milliseconds.
const TURN_MS: u64 = 1000;

/// The user of out-of-band connections: the connections by queue pairs of a worker. `ports`: `None` where it has none.
pub struct IbOob<'a, S: Sink> {
    pub sink: S,
    pub ports: Option<&'a mut IbWorker<S::Peer>>,
}

impl<S: Sink> IbOob<'_, S> {
    /// Whether connections were requested.
    pub fn is_due(&self) -> bool {
        (self.ports.as_ref()).is_some_and(|ports| !ports.oob_requests.is_empty())
    }

    /// Connects the sockets that were requested, as far as there is room. The others are requested again when their
    /// HELLO is due.
    pub fn start<P: Copy>(&mut self, iface: &mut OobIface<P>) {
        let Some(ports) = self.ports.as_deref_mut() else {
            return;
        };
        let wanted = std::mem::take(&mut ports.oob_requests);
        let mut room = iface.oob_room();
        if room < wanted.len() {
            // Places of sockets that are closed now are used by the next call.
            close_oldest(ports, wanted.len() - room);
        }
        for number in wanted {
            if room > 0 && connect(self.sink, iface, ports, number, None) {
                room -= 1;
            }
        }
    }
}

/// Closes sockets without an answer for long: their connections request others when a HELLO is due.
fn close_oldest<P: Copy + Eq>(ports: &mut IbWorker<P>, most: usize) {
    let before = clock::coarse_ms().saturating_sub(TURN_MS);
    let all = ports.iter().filter_map(IbConn::oob);
    let old = all.filter(|oob| oob.ours.is_some() && oob.since < before);
    old.take(most).for_each(TcpWireup::close);
}

/// Connects to the next address of a peer, after one that has failed, if the connection is still needed. Returns
/// whether a socket is connecting.
fn connect<S: Sink, P: Copy>(
    sink: S,
    iface: &mut OobIface<P>,
    ports: &mut IbWorker<S::Peer>,
    number: u32,
    after: Option<usize>,
) -> bool {
    let still = |c: &&mut IbConn<S::Peer>| !c.ended && !c.is_settled();
    let Some(c) = ports.get(number).filter(still) else {
        return false;
    };
    let peer = c.peer;
    let Some(oob) = c.oob().filter(|oob| oob.ours.is_none()) else {
        return false;
    };
    let Some((target, _)) = &oob.target else {
        return false;
    };
    let start = after.map_or(OobStart::At(oob.first), OobStart::After);
    match iface.connect_oob(number, sink.uid(peer), target, start) {
        Ok(Some(conn)) => {
            (oob.ours, oob.through) = (Some(conn), false);
            oob.since = clock::coarse_ms();
            true
        }
        Ok(None) => {
            oob.first = 0;
            false
        }
        Err(e) => {
            fail(sink, peer, &e);
            false
        }
    }
}

/// The sockets of a connection whose own one is `conn`.
fn oob_of<'a, P: Copy + Eq>(
    ports: &'a mut IbWorker<P>,
    number: u32,
    conn: &OobConn,
) -> Option<&'a mut TcpWireup> {
    let oob = ports.get(number)?.oob()?;
    (oob.ours.as_ref() == Some(conn)).then_some(oob)
}

impl<S: Sink> OobSink for IbOob<'_, S> {
    const MESSAGE_BYTES: usize = TcpWireupMsg::SIZE;
    /// Three are needed if neither side has a connection yet.
    const MAX_MESSAGES: u32 = 16;

    fn may_begin(bytes: &[u8]) -> bool {
        TcpWireupMsg::may_begin(bytes)
    }

    fn contact(&mut self, number: u32, conn: &OobConn) -> Option<OobContact> {
        let ports = self.ports.as_deref_mut()?;
        let (target, _) = oob_of(ports, number, conn)?.target.as_ref()?;
        let secret = target.locator.secret;
        let contact = self.sink.contact(ports.get(number)?.peer);
        Some(OobContact {
            uid: contact.uid,
            losses: contact.losses,
            secret,
        })
    }

    fn connected(&mut self, number: u32, conn: &OobConn) {
        let Some(ports) = self.ports.as_deref_mut() else {
            return;
        };
        if let Some(oob) = oob_of(ports, number, conn) {
            oob.through = true;
            send_hello(ports, self.sink, number);
        }
    }

    fn connect_failed<P: Copy>(
        &mut self,
        iface: &mut OobIface<P>,
        number: u32,
        conn: &OobConn,
        tried: usize,
    ) {
        let Some(ports) = self.ports.as_deref_mut() else {
            return;
        };
        if let Some(oob) = oob_of(ports, number, conn) {
            oob.ours = None;
            connect(self.sink, iface, ports, number, Some(tried));
        }
    }

    fn message(&mut self, conn: &OobConn, bytes: &[u8], first: bool) -> Result<(), &'static str> {
        let ports = self.ports.as_deref_mut().ok_or("there are no ports")?;
        let msg = TcpWireupMsg::read(bytes).ok_or("unknown protocol")?;
        on_tcp_msg(ports, self.sink, conn, &msg, first)
    }

    fn closed(&mut self, conn: &OobConn) {
        let ports = self.ports.iter_mut();
        for oob in ports.flat_map(|ports| ports.iter()).filter_map(IbConn::oob) {
            if oob.ours.as_ref() == Some(conn) {
                (oob.ours, oob.through) = (None, false);
            }
            if oob.theirs.as_ref() == Some(conn) {
                oob.theirs = None;
            }
        }
    }
}
