//! End of a worker's TCP connections: waits until the peers that are alive have received what was sent.
//!
//! A socket that is closed with unread data, or to which the peer sends later, resets the connection and drops unsent
//! data. The worker shuts down the sending side, and reads and drops what the peer sends until the peer ends its own
//! stream: then the peer has read everything. For a peer that does not progress the acknowledgement of its kernel is
//! enough, which can be delayed by 40 ms. A dead peer, or one that has reset the connection, is not waited for.

use super::conn::{TcpConn, TcpConnPhase};
use super::receiver::TcpReceiver;
use super::stream::ReadError;
use super::worker::TcpWorker;
use crate::sys::clock;
use crate::sys::poll::wait_readable;
use crate::tl::Lane;
use crate::tl::interface::LINGER_MS;
use crate::tl::sink::Sink;
use std::os::fd::AsFd;
use std::time::Duration;

/// Time between two reads of what the kernels have acknowledged, which is no event for `poll`.
const LOOK: Option<Duration> = Some(Duration::from_millis(1));
/// Reads of one socket before the next one: a peer may send without end.
const READS: usize = 16;

impl<P: Copy + Eq> TcpWorker<P> {
    /// Closes all connections, and drops the lanes that use them.
    pub fn close<S: Sink<Peer = P>>(&mut self, sink: S) {
        all(self, sink);
    }
}

fn all<S: Sink>(sockets: &mut TcpWorker<S::Peer>, sink: S) {
    let uid = sockets.uid;
    let until = clock::coarse_ms() + LINGER_MS;
    loop {
        let tokens: Vec<u64> = sockets.iter().map(|c| c.link.token).collect();
        for token in tokens {
            if sockets.get(token).is_some_and(|c| has_ended(c, sink, uid)) {
                // Closed at once, because the peer may wait for the end of this stream.
                sockets.remove(token);
            }
        }
        if sockets.iter().next().is_none() || clock::coarse_ms() >= until {
            break;
        }
        let _ = wait_readable(sockets.iter().map(|c| c.link.socket.as_fd()), LOOK);
    }
    let tokens: Vec<u64> = sockets.iter().map(|c| c.link.token).collect();
    for token in tokens {
        if let Some(peer) = sockets.remove(token).and_then(|c| c.peer) {
            drop(sink.take_lane(peer, is_socket));
        }
    }
}

fn is_socket(lane: &Lane) -> bool {
    matches!(lane, Lane::Tcp(_))
}

/// Progresses the end of a connection. True if there is nothing to wait for: the connection can be dropped.
fn has_ended<S: Sink>(c: &mut TcpConn<S::Peer>, sink: S, uid: u64) -> bool {
    if c.phase != TcpConnPhase::Open {
        return true;
    }
    let Some(peer) = c.peer else { return true };
    if sink.has_failed(peer) || sink.uid(peer) == uid {
        return true;
    }
    let ended = sink.with_lane(peer, |lane| match lane {
        Lane::Tcp(sender) if sender.is_of(&c.link) => {
            Some(!drop_incoming(&mut c.receiver) || sender.finish())
        }
        _ => None,
    });
    // Nothing was sent on a connection that is not the lane's.
    let Some(ended) = ended.flatten() else {
        return true;
    };
    if ended {
        drop(sink.take_lane(peer, is_socket));
    }
    ended
}

/// Reads and drops arrived data. False if no more arrive: the peer has ended its stream, or the connection is lost.
fn drop_incoming(receiver: &mut TcpReceiver) -> bool {
    for _ in 0..READS {
        receiver.take(receiver.buffered().len());
        match receiver.read(usize::MAX) {
            Ok(_) => {}
            Err(e) => return e == ReadError::WouldBlock,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::descriptor::OwnedDescriptor;
    use crate::sys::epoll::Epoll;
    use crate::tl::tcp::SharedSocket;
    use crate::tl::tcp::sender::TcpSender;
    use crate::wire::header::Kind;
    use socket2::Socket;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::sync::Arc;

    /// Both halves of a connection, and the peer's socket.
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

    /// Sends more than the peer's kernel takes.
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
            // The end of the stream is the last thing that the peer sends.
            drop(peer);
            read
        });
        while drop_incoming(&mut receiver) && !sender.finish() {
            let _ = wait_readable([receiver.link().socket.as_fd()], LOOK);
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
        // The peer's data acknowledge what it has read.
        peer.read_exact(&mut [0; 16]).unwrap();
        peer.write_all(&[1]).unwrap();
        while !sender.finish() {
            let _ = wait_readable([receiver.link().socket.as_fd()], LOOK);
        }
    }

    #[test]
    fn a_reset_ends_the_wait() {
        let (mut sender, mut receiver, peer) = connection();
        let record = [7; 4096];
        // A part stays unread, so that the peer's socket resets the connection when it is closed.
        assert!(sender.send_parts(Kind::TagEager as u8, 0, 0, [&record, &[], &[]]));
        let mut peer = peer;
        peer.read_exact(&mut [0; 16]).unwrap();
        drop(peer);
        // No time limit: one read of a loopback connection is enough.
        while drop_incoming(&mut receiver) {
            let _ = wait_readable([receiver.link().socket.as_fd()], LOOK);
        }
    }
}
