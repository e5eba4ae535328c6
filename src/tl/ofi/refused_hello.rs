//! Requests to connect that go on with a connection of which this worker has nothing: each is answered by a reset.
//!
//! The worker has ended the connection, or any program that knows the address has invented one, and a uid. So neither
//! a peer nor a connection is made: the way of the reset is kept until that has left, of a few requests at a time. The
//! others wait.

use super::hello::RefusedHello;
use super::iface::OfiIface;
use super::packet::{ParsedHello, RESET, bare};
use super::tx_link::{NO_CONN, OfiTxLink};
use crate::sys::log;
use std::sync::Arc;

/// Resets that have not left, at most.
const MAX_REFUSED: usize = 64;

/// Answers a request to connect by a reset. False: it is to be called again at the next clock tick, because too many
/// resets have not left.
pub fn refuse<P: Copy + Eq>(iface: &mut OfiIface<P>, parsed: &ParsedHello) -> bool {
    if iface.refused.len() >= MAX_REFUSED {
        forget_reset(iface);
        if iface.refused.len() >= MAX_REFUSED {
            return false;
        }
    }
    let (uid, to, from) = (parsed.hello.from, parsed.hello.grant, &parsed.from);
    log::diag!("worker {uid:#x} goes on with a connection that has ended");
    let lock = from.liveness.key_here(&iface.own.liveness);
    match iface.ep.insert(&from.name) {
        Ok((addr, name)) => {
            let link = Arc::new(OfiTxLink::new(NO_CONN, addr, from.number, lock));
            // A provider may wait for ever for a lock that a dead process has held.
            if !link.is_peer_dead() {
                iface.send_control(&link, bare(to, RESET, 0));
            }
            iface.refused.push(RefusedHello { link, name });
        }
        Err(e) => log::diag!("worker {uid:#x} is not reset: {e}"),
    }
    true
}

/// Forgets the requests whose resets have left, or are given up. Called at clock ticks.
pub fn forget_reset<P>(iface: &mut OfiIface<P>) {
    let OfiIface {
        refused,
        control,
        ep,
        ..
    } = iface;
    refused.retain(|refused| {
        if refused.link.is_peer_dead() {
            control.forget(&refused.link);
        }
        if control.has(&refused.link) || !refused.link.is_idle() {
            return true;
        }
        ep.remove(&refused.name);
        false
    });
}
