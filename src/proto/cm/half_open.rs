//! Half-open clients: connected to a listener, before the first complete hello.

use super::hello::read_hello;
use crate::engine::cm::{CmEntry, CmState, ConnRequest, HalfOpen, PendingAccept};
use crate::engine::worker::Worker;
use crate::sys::{clock, log};
use std::io::ErrorKind;

/// Time after which a connection without a complete hello is closed, in milliseconds.
pub(super) const HALF_OPEN_MS: u64 = 5000;

/// Removes a half-open client from the worker's connections and from its epoll set. Its connection stays open and
/// belongs to the caller. `None`: no half-open client has this token.
pub(super) fn take(x: &mut CmState, token: u64) -> Option<HalfOpen> {
    let Some(CmEntry::HalfOpen(half_open)) = x.entries.remove(&token) else {
        return None;
    };
    x.half_open.retain(|&t| t != token);
    half_open.contact.unwatch(&x.epoll, false);
    Some(half_open)
}

/// Closes a half-open connection.
pub(super) fn reject(x: &mut CmState, token: u64, why: &str) {
    if let Some(half_open) = take(x, token) {
        let from = half_open
            .contact
            .remote()
            .map_or_else(|| "?".to_owned(), |a| a.to_string());
        log::diag!("connection from {from} to a listener closed: {why}");
    }
}

/// Closes the connections that have sent no complete hello in time.
pub(super) fn expire(x: &mut CmState) {
    while let Some(&token) = x.half_open.front() {
        match x.entries.get(&token) {
            Some(CmEntry::HalfOpen(half_open)) if half_open.until > clock::coarse_ms() => return,
            _ => reject(x, token, "no hello in time"),
        }
    }
}

/// Reads a hello, or a part of it.
pub(super) fn on_readable(worker: &Worker, x: &mut CmState, token: u64) {
    let Some(CmEntry::HalfOpen(half_open)) = x.entries.get_mut(&token) else {
        return;
    };
    match read_hello(&mut half_open.contact, &mut half_open.buffer) {
        Ok(None) => {}
        Ok(Some((hello, address))) => {
            let Some(half_open) = take(x, token) else {
                return;
            };
            let Some(remote) = half_open.contact.remote() else {
                return log::diag!("connection to a listener closed: the client has disconnected");
            };
            x.due.push_back(PendingAccept {
                listener: half_open.listener,
                request: ConnRequest {
                    worker_uid: worker.uid,
                    contact: half_open.contact,
                    hello,
                    address,
                    remote,
                },
            });
        }
        Err(e) if e.kind() == ErrorKind::InvalidData => reject(x, token, "unknown protocol"),
        Err(_) => reject(x, token, "closed before the hello"),
    }
}
