//! Lost packets: the provider has reported an error of a receive, and does not say whose packet it was, or a packet has
//! arrived that was damaged, or that any program may have sent.
//!
//! Each peer is asked how many packets it has sent. A connection fails at both ends if the peer answers that all of its
//! packets have left, and some of them do not arrive. After an error of a receive it fails, too, if the peer does not
//! answer in time. After a packet that any program may have sent it does not: such a packet ends no connection.

use super::conn::OfiConn;
use super::iface::OfiIface;
use super::loss_check::{Evidence, LossCheck, LossVerdict};
use super::packet::{Check, FLUSH, Grant, PacketHdr, RESET, Sent, bare};
use super::tx_link::OfiTxLink;
use crate::ctypes::UCS_ERR_CONNECTION_RESET;
use crate::sys::{clock, log};
use crate::tl::sink::Sink;
use std::sync::Arc;

/// Interval at which dropped packets lead to questions, milliseconds: other programs may send many.
const ROUND_MS: u64 = 1000;
/// Time for which a packet may be missing while later ones are here, milliseconds.
const GAP_MS: u64 = 1000;
/// How often the interface is found without a packet, at looks, before one counts as lost that has left the peer.
const LOOKS: u32 = 12;
const UNORDERED_LOOKS: u32 = 100;

/// A packet was lost, and it is unknown whose: every peer is asked.
#[cold]
pub fn on_failed_receive<P: Copy + Eq>(iface: &mut OfiIface<P>) {
    iface.dropped += 1;
    iface.has_losses = true;
    for (_, conn) in &mut iface.conns {
        let check = LossCheck::new(Evidence::FailedReceive, iface.dropped, 0);
        conn.loss = Some(Box::new(check));
    }
}

/// A packet was dropped that is of no connection: any program may have sent it, or it is a damaged one of a peer's.
#[cold]
pub fn on_dropped<P>(iface: &mut OfiIface<P>) {
    iface.dropped += 1;
    iface.has_losses = true;
    iface.is_busy = true;
}

/// A packet of the connection `own` has arrived, and not those before it.
#[cold]
pub fn on_gap<P: Copy + Eq>(iface: &mut OfiIface<P>, own: Grant, before: u32) {
    let next = clock::coarse_ms() + GAP_MS;
    begin(iface, own, Evidence::Gap { before }, next);
}

/// A packet of the connection `own` has a number that another one had: one of both was damaged.
#[cold]
pub fn on_repeated<P: Copy + Eq>(iface: &mut OfiIface<P>, own: Grant) {
    begin(iface, own, Evidence::Dropped, 0);
}

fn begin<P: Copy + Eq>(iface: &mut OfiIface<P>, own: Grant, evidence: Evidence, next: u64) {
    let question = iface.dropped;
    if let Some(conn) = iface.granted(own)
        && conn.loss.is_none()
    {
        conn.loss = Some(Box::new(LossCheck::new(evidence, question, next)));
        iface.has_losses = true;
        iface.is_busy = true;
    }
}

/// Asks peers, and fails the connections that have lost packets. Only if the worker has losses.
#[cold]
pub fn look<P: Copy + Eq>(iface: &mut OfiIface<P>, now: u64) {
    let max_looks = match iface.ep.is_ordered {
        true => LOOKS,
        false => UNORDERED_LOOKS,
    };
    let is_empty = std::mem::take(&mut iface.was_empty);
    let (dropped, is_round) = (iface.dropped, now >= iface.next_round);
    let (mut questions, mut lost, mut begun) = (Vec::new(), Vec::new(), false);
    iface.has_losses = false;
    for (_, conn) in &mut iface.conns {
        let Some(to) = conn.remote.filter(|_| !conn.is_broken) else {
            conn.loss = None;
            conn.checked = dropped;
            continue;
        };
        if conn.loss.is_none() && conn.checked != dropped {
            if is_round {
                begun = true;
                let check = LossCheck::new(Evidence::Dropped, dropped, now);
                conn.loss = Some(Box::new(check));
            }
            iface.has_losses = true;
        }
        let OfiConn { loss, order, .. } = conn;
        let Some(check) = loss else { continue };
        iface.has_losses = true;
        match check.look(order, now, is_empty, max_looks) {
            LossVerdict::Waits => {}
            LossVerdict::Complete => conn.end_check(),
            LossVerdict::Lost => lost.push(conn.link.clone()),
            LossVerdict::Asks => {
                let check = Check {
                    question: check.question,
                };
                questions.push((conn.link.clone(), to, check));
            }
        }
    }
    if begun {
        iface.next_round = now + ROUND_MS;
    }
    for (link, to, check) in questions {
        iface.send_control(&link, check.packet(to));
        flush_again(iface, &link, to);
    }
    for link in lost {
        log::diag!("a packet by libfabric was lost: the connection of its sender ends");
        iface.fail_conn(&link, UCS_ERR_CONNECTION_RESET);
    }
}

impl<P> OfiConn<P> {
    /// No packet is lost of those before the check.
    fn end_check(&mut self) {
        if let Some(check) = self.loss.take() {
            self.checked = check.question;
        }
    }
}

/// Sends the question for the end of writes again that the peer has not answered: one of the two may be lost.
fn flush_again<P: Copy + Eq>(iface: &mut OfiIface<P>, link: &Arc<OfiTxLink>, to: Grant) {
    if let Some(writes) = link.rma.asked() {
        iface.send_control(link, bare(to, FLUSH, writes));
    }
}

/// Handles a question for the connection `own`.
#[cold]
pub fn on_check<S: Sink>(iface: &mut OfiIface<S::Peer>, sink: S, own: Grant, body: &[u8]) {
    let (Some(conn), Some(check)) = (iface.granted(own), Check::decode(body)) else {
        return;
    };
    let Some(to) = conn.remote else { return };
    let (link, peer) = (conn.link.clone(), conn.peer);
    let Some(peer) = peer else {
        // A connection that this side has ended was reset, and the reset was lost.
        return iface.send_control(&link, bare(to, RESET, 0));
    };
    // Under the lock of the peer: no thread has taken a number, and not sent its packet.
    let mut sent = (0, false);
    let count = || (link.sent(), link.has_left());
    if sink.with_lane(peer, |_| sent = count()).is_none() {
        sent = count();
    }
    let (number, has_left) = sent;
    iface.send_control(&link, Sent::packet(to, number, check, has_left));
    flush_again(iface, &link, to);
}

/// Handles the answer to a question, for the connection `own`.
#[cold]
pub fn on_sent<P: Copy + Eq>(iface: &mut OfiIface<P>, own: Grant, hdr: &PacketHdr, body: &[u8]) {
    if let (Some(conn), Some(sent)) = (iface.granted(own), Sent::decode(body))
        && let OfiConn { loss, order, .. } = conn
        && let Some(check) = loss
        && check.answered(hdr.seq, &sent, order, clock::coarse_ms())
    {
        conn.end_check();
    }
}
