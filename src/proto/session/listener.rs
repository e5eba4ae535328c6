//! Listening: where clients connect, until it ends.

use super::guest;
use super::server::turn_away;
use super::{exchange, tuning};
use crate::ctypes::*;
use crate::engine::listener::{Entry, Exchange, Guest, Handler, Listener};
use crate::engine::worker::Worker;
use crate::sys::{clock, log};
use crate::tl::tcp::socket;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

/// Connections accepted in one progress call.
const ACCEPTS: usize = 32;

/// Begins to listen.
///
/// # Errors
/// `UCS_ERR_BUSY` if the address is in use, `UCS_ERR_IO_ERROR` for whatever else the system says.
pub fn listen(
    worker: &Worker,
    at: SocketAddr,
    handler: Handler,
) -> Result<Box<Listener>, ucs_status_t> {
    let policy = &worker.ctx.policy.sockaddr;
    let made = socket::listen(at, &tuning(worker), policy.reuse_address).and_then(|socket| {
        if let Some(backlog) = policy.backlog {
            socket.listen(backlog.min(i32::MAX as u32) as i32)?;
        }
        let local = socket.local_addr()?.as_socket();
        Ok((socket, local.ok_or(ErrorKind::InvalidInput)?))
    });
    let (socket, address) = made.map_err(|e| {
        log::error!("cannot listen on {at}: {e}");
        match e.kind() {
            ErrorKind::AddrInUse => UCS_ERR_BUSY,
            _ => UCS_ERR_IO_ERROR,
        }
    })?;
    let mut guard = exchange(worker)?;
    let x = guard.as_deref_mut().ok_or(UCS_ERR_IO_ERROR)?;
    let token = x.token();
    if let Err(e) = x.epoll.add(socket.as_raw_fd(), token, false) {
        log::error!("cannot watch {address}: {e}");
        return Err(UCS_ERR_IO_ERROR);
    }
    x.entries.insert(token, Entry::Listener { socket, handler });
    Ok(Box::new(Listener {
        worker,
        token,
        address,
    }))
}

/// Ends listening. Who has connected and was not shown to the program is rejected.
pub fn unlisten(worker: &Worker, token: u64) {
    let mut guard = worker.exchange.lock();
    let Some(x) = guard.as_deref_mut() else {
        return;
    };
    let Some(Entry::Listener { socket, .. }) = x.entries.remove(&token) else {
        return;
    };
    while let Ok((waiting, _)) = socket.accept() {
        turn_away(&waiting, UCS_ERR_REJECTED);
    }
    x.epoll.remove(socket.as_raw_fd(), false);
    let of_it = |entry: &Entry| matches!(entry, Entry::Guest(g) if g.listener == token);
    let guests: Vec<u64> = (x.entries.iter())
        .filter(|(_, entry)| of_it(entry))
        .map(|(&guest, _)| guest)
        .collect();
    for guest in guests {
        if let Some(guest) = guest::take(x, guest) {
            turn_away(&guest.socket, UCS_ERR_REJECTED);
        }
    }
    x.due.retain(|due| {
        let stays = due.listener != token;
        if !stays {
            turn_away(&due.request.socket, UCS_ERR_REJECTED);
        }
        stays
    });
}

/// Lets in who knocks at a listener, as far as there is room.
pub(super) fn let_in(worker: &Worker, x: &mut Exchange, token: u64) {
    let tuning = tuning(worker);
    for _ in 0..ACCEPTS {
        let Some(Entry::Listener { socket, .. }) = x.entries.get(&token) else {
            return;
        };
        let (socket, from) = match socket::accept(socket, &tuning) {
            Ok(accepted) => accepted,
            Err(e) if e.kind() == ErrorKind::WouldBlock => return,
            // Descriptors may run out: what waits is still there later.
            Err(e) => return log::debug!("cannot accept a client: {e}"),
        };
        log::trace!("somebody at {from:?} has connected to a listener");
        while x.guests.len() >= socket::max_guests() {
            guest::send_away(x, x.guests[0], "others wait");
        }
        let guest = x.token();
        if let Err(e) = x.epoll.add(socket.as_raw_fd(), guest, false) {
            log::debug!("cannot watch a client: {e}");
            continue;
        }
        x.guests.push_back(guest);
        let entry = Entry::Guest(Guest {
            socket,
            listener: token,
            until: clock::coarse_ms() + guest::GUEST_MS,
            buffer: Vec::new(),
        });
        x.entries.insert(guest, entry);
    }
}
