//! Errors that the interconnect reports: which connections they concern.

use super::disconnect::{post_disconnect, send_disconnect, writers_alone};
use crate::ctypes::*;
use crate::sys::log;
use crate::tl::LaneTarget;
use crate::tl::sink::Sink;
use crate::tl::tofu::connect;
use crate::tl::tofu::op_queue::ErrSource;
use crate::tl::tofu::peer_lane::drop_lane;
use crate::tl::tofu::utofu::code_name;
use crate::tl::tofu::vcq::RemoteAddr;
use crate::tl::tofu::worker::TofuWorker;

/// An operation has failed.
#[cold]
pub(super) fn on_failure<S: Sink>(
    rings: &mut TofuWorker<S::Peer>,
    sink: S,
    source: ErrSource,
    code: i32,
) {
    match source {
        ErrSource::Conn(number) => connect::fail(rings, sink, number, code),
        ErrSource::Credit(number) => connect::fail_writer(rings, sink, number, code),
        ErrSource::Own => log::error!(
            "an operation of the worker on its own memory has failed: {} ({code})",
            code_name(code)
        ),
        ErrSource::Unknown => {}
        ErrSource::Untagged(0, there) => {
            for number in writers(rings, there) {
                connect::fail_writer(rings, sink, number, code);
            }
        }
        ErrSource::Untagged(generation, there) => {
            for number in overdue_writers(rings, generation, there) {
                connect::fail(rings, sink, number, code);
            }
        }
    }
}

/// The incoming rings whose writers a put has not reached: those with control words at this address.
pub(super) fn writers<P: Copy + Eq>(rings: &mut TofuWorker<P>, there: RemoteAddr) -> Vec<u32> {
    let all = rings.all_incoming();
    let matching = all.filter(|(_, incoming)| {
        let ctrl_word = incoming.ctrl_word;
        ctrl_word.vcq == there.vcq
            && there.stadd.wrapping_sub(ctrl_word.stadd) <= size_of::<u64>() as u64
    });
    matching.map(|(number, _)| number).collect()
}

/// The connections of which an operation may have failed: those of this generation; of several, the ones to this VCQ,
/// if there are any, as uTofu does not promise that a notice names the peer's VCQ. Empty: the connection was dropped.
fn overdue_writers<P: Copy + Eq>(
    rings: &mut TofuWorker<P>,
    generation: u8,
    there: RemoteAddr,
) -> Vec<u32> {
    let mut found: Vec<(u32, bool)> = Vec::new();
    for (number, conn) in rings
        .conns()
        .filter(|(_, conn)| conn.tag.generation == generation)
    {
        // Earlier posts can still fail when the peer has failed and the sender is dropped.
        let is_there = conn.to.locator.vcq == there.vcq;
        found.push((number, is_there));
    }
    let names_vcq = found.iter().any(|&(_, is_there)| is_there);
    let found = found
        .into_iter()
        .filter(|&(_, is_there)| is_there || !names_vcq);
    found.map(|(number, _)| number).collect()
}

/// The MRQ has failed: arrivals are not reported any more.
#[cold]
pub(super) fn fail_mrq<S: Sink>(rings: &mut TofuWorker<S::Peer>, sink: S, code: i32) {
    if !rings.fail_mrq() {
        return;
    }
    log::error!(
        "the message receive queue fails: {} ({code}); if it was too short for the notices of all peers, have \
         them send fewer \
         (UCX_TOFU_RX_QUEUE_LEN)",
        code_name(code)
    );
    // Puts are still carried out.
    send_disconnect(rings, sink);
    let mut writers = writers_alone(rings, sink);
    post_disconnect(rings, &mut writers);
    sink.iface_down(
        |target| matches!(target, LaneTarget::Tofu(_)),
        UCS_ERR_IO_ERROR,
    );
}

/// Drops the lanes of peers of which an operation has failed: nothing waits for what was sent to them.
pub(super) fn forget<S: Sink>(rings: &mut TofuWorker<S::Peer>, sink: S, source: ErrSource) {
    let numbers = match source {
        ErrSource::Conn(number) => vec![number],
        ErrSource::Credit(_) | ErrSource::Own | ErrSource::Unknown | ErrSource::Untagged(0, _) => {
            Vec::new()
        }
        ErrSource::Untagged(generation, there) => overdue_writers(rings, generation, there),
    };
    for number in numbers {
        if let Some(peer) = rings.conn(number).map(|conn| conn.peer) {
            drop_lane(sink, peer);
        }
    }
}
