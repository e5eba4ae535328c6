//! Remote accesses that a device carries out: queued as messages are, because a queue pair has to be there and to have
//! room, and posted in their turn.
//!
//! Data is copied through registered buffers: what is written has ended when it is copied, what is read when it has come. A
//! flush waits for both, as for everything that was posted.

use super::access;
use crate::ctypes::*;
use crate::engine::peer::Peer;
use crate::engine::ports::Connection;
use crate::engine::request::{self, Request, Sent};
use crate::proto::attach::Direction;
use crate::tl::ib::rc::Remote;
use crate::tl::ib::sender::Sender;
use crate::wire::rkey::DeviceKeys;
use crate::wire::stats::Protocol;

/// Makes a request, whose data (one piece) and peer are set, an access of the device's.
pub fn by_device(r: &mut Request, direction: Direction, addr: u64, keys: &DeviceKeys) {
    (r.sent, r.imm, r.kind) = (Sent::Device, addr, 0);
    r.stream = direction == Direction::Write;
    r.info.length = r.data.len();
    (r.offset, r.remote) = (0, 0);
    r.head_len = keys.count;
    for (to, key) in r.head.chunks_exact_mut(4).zip(keys.keys) {
        to.copy_from_slice(&key.to_le_bytes());
    }
}

/// The key of a request for a port of the peer's.
fn key(r: &Request, port: usize) -> Option<u32> {
    let keys = r.head.chunks_exact(size_of::<u32>());
    let key = keys.take(r.head_len.into()).nth(port)?;
    Some(u32::from_le_bytes(*key.first_chunk()?))
}

/// Makes it an access by message: there is no queue pair that could do it.
pub(super) fn give_up(r: &mut Request) {
    let direction = match r.stream {
        true => Direction::Write,
        false => Direction::Read,
    };
    r.stream = false;
    access::by_message(r, direction, r.imm);
}

/// Posts as much of a request as there is room for; true when that was all of it. `None`: it cannot be done this way.
///
/// # Safety
/// The request's memory is the user's promise until it ends.
pub(super) unsafe fn advance(peer: &Peer, sender: &mut Sender, req: *mut Request) -> Option<bool> {
    // SAFETY: the caller's request.
    let r = unsafe { &mut *req };
    let (data, len) = (r.data.as_contig()?, r.data.len());
    let key = key(r, sender.remote_port()).filter(|_| sender.is_connected())?;
    while (r.offset as usize) < len {
        let (at, left) = (r.offset as usize, len - r.offset as usize);
        let remote = Remote {
            addr: r.imm.wrapping_add(r.offset),
            key,
        };
        // SAFETY: inside of the user's memory.
        let n = unsafe {
            let here = data.add(at);
            match r.stream {
                true => sender.write(remote, left, |to, n| to.copy_from_nonoverlapping(here, n)),
                false => sender.read(remote, here, left, req.cast()),
            }
        };
        if n == 0 {
            return Some(false);
        }
        r.offset += n as u64;
        r.remote += u64::from(!r.stream);
    }
    peer.stats().of(Protocol::RmaCopy).add(len);
    // The end of a read is the device's to tell.
    r.sent = if r.stream {
        Sent::Complete
    } else {
        Sent::Await
    };
    Some(true)
}

/// A send of this number has ended, and what is before it: ends the requests all of whose reads have come.
pub fn on_end(connection: &mut Connection, number: u64) {
    let mut ended = Vec::new();
    connection.with_sender(|sender| {
        sender.ended(number, |owner| {
            let req = owner.cast::<Request>();
            // SAFETY: who waits for a read lives; the peer's lock is held, as where reads are posted.
            let r = unsafe { &mut *req };
            r.remote -= 1;
            if r.remote == 0 && r.offset as usize == r.data.len() {
                ended.push(req);
            }
        });
    });
    for req in ended {
        // SAFETY: in no list any more: ours.
        unsafe { request::complete(req, UCS_OK) };
    }
}
