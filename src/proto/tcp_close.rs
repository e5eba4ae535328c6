//! The end of a worker's TCP connections: what was sent arrives, as far as the peers are there.
//!
//! A socket that is closed with something unread in it, or to which the peer sends later, drops what is still to be
//! delivered. So the worker says that nothing more comes, and reads, and drops, what the peer sends until the peer
//! answers with the end of its own stream: it has read everything then. A peer that does not progress does not answer:
//! its kernel's acknowledgement, which can be delayed by 40 ms, will do. Nothing more comes of a peer that is gone or
//! has reset the connection.

use crate::ctypes::UCS_OK;
use crate::engine::tcp_worker::{TcpConn, TcpConnPhase, TcpWorker};
use crate::engine::wakeup;
use crate::engine::worker::Worker;
use crate::sys::clock;
use crate::tl::Lane;
use crate::tl::tcp::receiver::TcpReceiver;
use std::io::ErrorKind;
use std::os::fd::RawFd;

/// How long a worker that goes waits for its peers, all together, milliseconds.
const LINGER_MS: u64 = 1000;
/// Milliseconds between two looks at what the kernels have acknowledged, which wakes nothing.
const LOOK_MS: i32 = 1;
/// Reads of one socket before the next one's turn: a peer may send without end.
const READS: usize = 16;

/// Ends all connections.
pub fn all(worker: &Worker, sockets: &mut TcpWorker) {
    let until = clock::coarse_ms() + LINGER_MS;
    loop {
        let tokens: Vec<u64> = sockets.iter().map(|c| c.link.token).collect();
        for token in tokens {
            if sockets.get(token).is_some_and(|c| has_ended(worker, c)) {
                // Now, because the peer may wait for the end of this stream.
                sockets.remove(token);
            }
        }
        let waiting: Vec<RawFd> = sockets.iter().map(|c| c.link.fd()).collect();
        if waiting.is_empty() || clock::coarse_ms() >= until {
            break;
        }
        wakeup::poll(&waiting, LOOK_MS);
    }
    let tokens: Vec<u64> = sockets.iter().map(|c| c.link.token).collect();
    for token in tokens {
        sockets.remove(token);
    }
    for peer in worker.all_peers() {
        let mut tx = peer.tx.lock();
        // Other transports have a last word of their own to say.
        if matches!(tx.lane, Some(Lane::Tcp(_))) {
            tx.lane = None;
        }
    }
}

/// Moves the end of a connection on. True if there is nothing to wait for any more: the connection's halves are to be
/// dropped.
fn has_ended(worker: &Worker, c: &mut TcpConn) -> bool {
    if c.phase != TcpConnPhase::Open {
        return true;
    }
    // SAFETY: peers that lists of progress name are not freed; an open connection has one.
    let peer = unsafe { &*c.peer };
    if peer.status() != UCS_OK || peer.uid == worker.uid {
        return true;
    }
    let mut tx = peer.tx.lock();
    let ended = match tx.lane.as_mut() {
        Some(Lane::Tcp(sender)) if sender.is_of(&c.link) => {
            !drop_incoming(&mut c.receiver) || sender.finish()
        }
        // Nothing was sent by this connection.
        _ => return true,
    };
    if ended {
        tx.lane = None;
    }
    ended
}

/// Reads and drops what has come. False if nothing more comes: the peer has ended its stream, or the connection is
/// gone.
fn drop_incoming(receiver: &mut TcpReceiver) -> bool {
    for _ in 0..READS {
        receiver.take(receiver.buffered().len());
        match receiver.read(usize::MAX) {
            Ok(_) => {}
            Err(e) => return e.kind() == ErrorKind::WouldBlock,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::descriptor::OwnedDescriptor;
    use crate::tl::tcp::SharedSocket;
    use crate::tl::tcp::epoll::Epoll;
    use crate::tl::tcp::sender::TcpSender;
    use crate::wire::header::Kind;
    use socket2::Socket;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::sync::Arc;

    /// Both halves of a connection, and its other end.
    fn connection() -> (TcpSender, TcpReceiver, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        socket.set_nonblocking(true).unwrap();
        let link = Arc::new(SharedSocket {
            socket: OwnedDescriptor::new(Socket::from(socket)),
            epoll: Arc::new(Epoll::new().unwrap()),
            token: 1,
        });
        let (peer, _) = listener.accept().unwrap();
        (
            TcpSender::new(link.clone(), 4096),
            TcpReceiver::new(link, 0),
            peer,
        )
    }

    /// Sends more than the other end's kernel takes.
    fn fill(sender: &mut TcpSender) {
        let record = [7; 4096];
        for _ in 0..64 << 10 {
            if !sender.send_parts(Kind::TagEager as u8, 0, 0, [&record, &[], &[]]) {
                return;
            }
        }
        panic!("64 Ki messages are not enough");
    }

    #[test]
    fn the_peer_reads_everything_and_its_end_is_the_answer() {
        let (mut sender, mut receiver, mut peer) = connection();
        fill(&mut sender);
        assert!(!sender.finish(), "the peer has not read yet");
        peer.write_all(&[1; 1000]).unwrap();
        let reader = std::thread::spawn(move || {
            let read = std::io::copy(&mut peer, &mut std::io::sink()).unwrap();
            // What it says last is the end of its stream.
            drop(peer);
            read
        });
        while drop_incoming(&mut receiver) && !sender.finish() {
            wakeup::poll(&[receiver.link().fd()], LOOK_MS);
        }
        let drained = sender.is_drained();
        drop((sender, receiver));
        assert!(drained && reader.join().unwrap() > 64 << 10);
    }

    #[test]
    fn nothing_is_waited_for_where_all_has_arrived() {
        let (mut sender, mut receiver, mut peer) = connection();
        assert!(sender.finish(), "nothing was sent");
        assert!(
            drop_incoming(&mut receiver),
            "the peer has not ended its stream"
        );
        assert!(sender.send(Kind::TagEager as u8, 0, 0, 0, |_| ()));
        // The answer confirms what it answers.
        peer.read_exact(&mut [0; 16]).unwrap();
        peer.write_all(&[1]).unwrap();
        while !sender.finish() {
            wakeup::poll(&[receiver.link().fd()], LOOK_MS);
        }
    }

    #[test]
    fn a_reset_ends_the_wait() {
        let (mut sender, mut receiver, peer) = connection();
        let record = [7; 4096];
        // Not all of it is read, so that the peer's socket resets the connection when it is closed.
        assert!(sender.send_parts(Kind::TagEager as u8, 0, 0, [&record, &[], &[]]));
        let mut peer = peer;
        peer.read_exact(&mut [0; 16]).unwrap();
        drop(peer);
        // No limit of time: it takes one look at a loopback connection.
        while drop_incoming(&mut receiver) {
            wakeup::poll(&[receiver.link().fd()], LOOK_MS);
        }
    }
}
