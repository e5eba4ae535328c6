//! Out-of-band connections: a transport without datagrams establishes its connections by their messages. Each is a TCP
//! socket between two workers, accepted where the worker listens for messages.

use super::tcp::worker::TcpWorker;
use super::tcp::{SharedSocket, TcpTarget, socket};
use std::net::Shutdown;
use std::sync::Arc;

pub use socket::max_half_open;

/// The interface of a worker that makes and accepts out-of-band connections. `P` names a peer.
pub type OobIface<P> = TcpWorker<P>;
/// Where a worker accepts out-of-band connections.
pub type OobTarget = TcpTarget;

/// An out-of-band connection. Its socket is closed when the interface and all copies of this value have dropped it.
#[derive(Clone)]
pub struct OobConn(pub(super) Arc<SharedSocket>);

impl OobConn {
    /// Sends a message. A connection that has no room for it is closed: the peer has not read for long.
    pub fn send(&self, message: &[u8]) {
        if self.0.send_whole(message).is_err() {
            self.close();
        }
    }

    /// Shuts the connection down: progress of the interface finds its end.
    pub fn close(&self) {
        let _ = self.0.socket.shutdown(Shutdown::Both);
    }
}

impl PartialEq for OobConn {
    fn eq(&self, other: &OobConn) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// The peer to which this end connects, as the first bytes on the connection name it.
#[derive(Clone, Copy, Debug)]
pub struct OobContact {
    pub uid: u64,
    /// Earlier peers with this uid that have failed.
    pub losses: u32,
    /// Secret in the peer's address.
    pub secret: u64,
}

/// The address at which an attempt to connect begins, among those of the target, best first.
#[derive(Clone, Copy, Debug)]
pub enum OobStart {
    /// At this one, modulo their number.
    At(usize),
    /// Behind this one, which was tried.
    After(usize),
}

/// What the interface calls in the transport that uses out-of-band connections. The thread that progresses the worker
/// calls these functions, with no lock held. `number` is the one that the transport gave with its request to connect.
pub trait OobSink {
    /// Bytes of a message.
    const MESSAGE_BYTES: usize;
    /// Maximum number of messages that one connection carries to this end.
    const MAX_MESSAGES: u32;

    /// Whether a message may begin with these bytes, of which there are fewer than [`Self::MESSAGE_BYTES`] or as many.
    fn may_begin(bytes: &[u8]) -> bool;

    /// The peer to which a connection of this end leads. `None`: the connection is not needed any more.
    fn contact(&mut self, number: u32, conn: &OobConn) -> Option<OobContact>;

    /// A connection of this end is established: messages can be sent.
    fn connected(&mut self, number: u32, conn: &OobConn);

    /// A connection of this end, to the address with the index `tried`, could not be made: it is dropped. The transport
    /// may connect to the next address.
    fn connect_failed<P: Copy>(
        &mut self,
        iface: &mut OobIface<P>,
        number: u32,
        conn: &OobConn,
        tried: usize,
    );

    /// A message has arrived. `first`: it is the first one on a connection that the peer has made.
    ///
    /// # Errors
    /// Why the connection is closed.
    fn message(&mut self, conn: &OobConn, bytes: &[u8], first: bool) -> Result<(), &'static str>;

    /// An established connection has ended, or was closed for an error: it is dropped.
    fn closed(&mut self, conn: &OobConn);
}
