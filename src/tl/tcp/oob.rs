//! Out-of-band connections on sockets of the worker: made by either end, they carry messages of another transport.

use super::accept::reject;
use super::conn::TcpConnPhase;
use super::stream::ReadError;
use super::worker::TcpWorker;
use super::{TcpTarget, socket};
use crate::sys::log;
use crate::tl::oob::{OobConn, OobSink, OobStart};
use crate::wire::tcp_hello::{MAGIC, TO_QUEUES, TcpHello};
use std::io::{self, ErrorKind};

impl<P: Copy> TcpWorker<P> {
    /// Number of out-of-band connections that this end may still make.
    pub fn oob_room(&self) -> usize {
        socket::max_half_open().saturating_sub(self.oob_conns)
    }

    /// Begins to connect to a worker. `number`: names the connection to its user. `Ok(None)`: no attempt could be begun
    /// at the addresses from `start` on.
    ///
    /// # Errors
    /// `NetworkUnreachable` if no device leads to the target.
    pub fn connect_oob(
        &mut self,
        number: u32,
        uid: u64,
        target: &TcpTarget,
        start: OobStart,
    ) -> io::Result<Option<OobConn>> {
        let paths = target.paths(&self.devices);
        if paths.is_empty() {
            return Err(ErrorKind::NetworkUnreachable.into());
        }
        let first = match start {
            OobStart::At(index) => index % paths.len(),
            OobStart::After(tried) => tried + 1,
        };
        for (candidate, tcp_path) in paths.iter().enumerate().skip(first) {
            log::debug!(
                "connecting to worker {uid:#x} at {} for wireup",
                tcp_path.to
            );
            let phase = TcpConnPhase::OobConnecting { number, candidate };
            let made = socket::connect(tcp_path, &self.tuning)
                .and_then(|s| self.add(s, phase, None, true));
            match made.map(|token| self.get(token)) {
                Ok(Some(c)) => return Ok(Some(OobConn(c.link.clone()))),
                Ok(None) => {}
                Err(e) => log::debug!("no wireup connection to worker {uid:#x}: {e}"),
            }
        }
        Ok(None)
    }
}

/// Handles an event of an out-of-band connection.
pub(super) fn on_event<P: Copy>(sockets: &mut TcpWorker<P>, oob: &mut impl OobSink, token: u64) {
    match sockets.get(token).map(|c| c.phase) {
        Some(TcpConnPhase::OobConnecting { number, candidate }) => {
            on_connected(sockets, oob, token, (number, candidate));
        }
        Some(TcpConnPhase::OobOpen { .. }) => read(sockets, oob, token),
        _ => {}
    }
}

/// Handles the end of a connect: success or failure.
fn on_connected<P: Copy>(
    sockets: &mut TcpWorker<P>,
    oob: &mut impl OobSink,
    token: u64,
    (number, candidate): (u32, usize),
) {
    let from = sockets.uid;
    let Some(c) = sockets.get(token) else { return };
    let conn = OobConn(c.link.clone());
    let Some(to) = oob.contact(number, &conn) else {
        sockets.remove(token);
        return;
    };
    let done = socket::connected(&c.link.socket).and_then(|()| {
        let hello = TcpHello {
            magic: MAGIC,
            purpose: TO_QUEUES,
            losses: to.losses,
            from,
            to: to.uid,
            secret: to.secret,
            client_id: 0,
        };
        c.link.send_whole(&hello.encode())
    });
    match done {
        Ok(()) => {
            c.phase = TcpConnPhase::OobOpen {
                ours: true,
                read: 0,
            };
            c.link.epoll.watch_room(&c.link.socket, token, false);
            oob.connected(number, &conn);
        }
        Err(e) if e.kind() == ErrorKind::NotConnected => {}
        Err(e) => {
            log::debug!("no wireup connection to worker {:#x}: {e}", to.uid);
            sockets.remove(token);
            oob.connect_failed(sockets, number, &conn, candidate);
        }
    }
}

/// Reads messages, or the end of them.
fn read<P: Copy>(sockets: &mut TcpWorker<P>, oob: &mut impl OobSink, token: u64) {
    let Some(c) = sockets.get(token) else { return };
    match c.receiver.read(usize::MAX) {
        Err(ReadError::WouldBlock) => {}
        Err(e) => {
            let conn = OobConn(c.link.clone());
            if c.receiver.buffered().is_empty() {
                log::debug!("wireup connection closed: {}", io::Error::from(e));
                sockets.remove(token);
            } else {
                reject(sockets, token, "it was closed in the middle of a message");
            }
            oob.closed(&conn);
        }
        Ok(_) => deliver(sockets, oob, token),
    }
}

/// Hands over the messages in the buffer. A malformed one closes the connection.
pub(super) fn deliver<P: Copy>(sockets: &mut TcpWorker<P>, oob: &mut impl OobSink, token: u64) {
    loop {
        match next(sockets, oob, token) {
            Ok(true) => {}
            Ok(false) => return,
            Err(why) => {
                let conn = sockets.get(token).map(|c| OobConn(c.link.clone()));
                reject(sockets, token, why);
                conn.iter().for_each(|conn| oob.closed(conn));
                return;
            }
        }
    }
}

/// Hands over one message. False: none is complete.
fn next<P: Copy, O: OobSink>(
    sockets: &mut TcpWorker<P>,
    oob: &mut O,
    token: u64,
) -> Result<bool, &'static str> {
    let Some(c) = sockets.get(token) else {
        return Ok(false);
    };
    let TcpConnPhase::OobOpen { ours, read } = &mut c.phase else {
        return Ok(false);
    };
    let Some(bytes) = c.receiver.buffered().get(..O::MESSAGE_BYTES) else {
        return match O::may_begin(c.receiver.buffered()) {
            true => Ok(false),
            false => Err("unknown protocol"),
        };
    };
    if *read == O::MAX_MESSAGES {
        return Err("too many wireup messages");
    }
    let first = !*ours && *read == 0;
    *read += 1;
    oob.message(&OobConn(c.link.clone()), bytes, first)?;
    c.receiver.take(O::MESSAGE_BYTES);
    Ok(true)
}
