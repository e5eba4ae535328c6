//! Guests: who has connected to a listener and has not said yet who he is.

use super::handshake::read_hello;
use crate::engine::listener::{ConnRequest, Due, Entry, Exchange, Guest};
use crate::engine::worker::Worker;
use crate::sys::{clock, log};
use std::io::ErrorKind;

/// A guest who has not said who he is after so many milliseconds is sent away.
pub(super) const GUEST_MS: u64 = 5000;

pub(super) fn take(x: &mut Exchange, token: u64) -> Option<Guest> {
    let Some(Entry::Guest(guest)) = x.entries.remove(&token) else {
        return None;
    };
    x.guests.retain(|&t| t != token);
    guest.contact.unwatch(&x.epoll, false);
    Some(guest)
}

/// A guest is not, or no longer, welcome.
pub(super) fn send_away(x: &mut Exchange, token: u64, why: &str) {
    if let Some(guest) = take(x, token) {
        let from = guest
            .contact
            .remote()
            .map_or_else(|| "?".to_owned(), |a| a.to_string());
        log::diag!("connection from {from} to a listener closed: {why}");
    }
}

/// Sends away who takes too long to say who he is.
pub(super) fn expire(x: &mut Exchange) {
    while let Some(&token) = x.guests.front() {
        match x.entries.get(&token) {
            Some(Entry::Guest(guest)) if guest.until > clock::coarse_ms() => return,
            _ => send_away(x, token, "it did not say who it is"),
        }
    }
}

/// A guest says who he is, or a part of it.
pub(super) fn on_guest(worker: &Worker, x: &mut Exchange, token: u64) {
    let Some(Entry::Guest(guest)) = x.entries.get_mut(&token) else {
        return;
    };
    match read_hello(&mut guest.contact, &mut guest.buffer) {
        Ok(None) => {}
        Ok(Some((hello, address))) => {
            let Some(guest) = take(x, token) else {
                return;
            };
            let Some(remote) = guest.contact.remote() else {
                return log::diag!("connection to a listener closed: it has gone");
            };
            x.due.push_back(Due {
                listener: guest.listener,
                request: ConnRequest {
                    worker,
                    contact: guest.contact,
                    hello,
                    address,
                    remote,
                },
            });
        }
        Err(e) if e.kind() == ErrorKind::InvalidData => {
            send_away(x, token, "it speaks something else")
        }
        Err(_) => send_away(x, token, "it went before it said who it is"),
    }
}
