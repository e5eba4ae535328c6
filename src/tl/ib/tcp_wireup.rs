//! What a connection keeps of the TCP sockets by which its queue pairs are connected.

use crate::tl::oob::{OobConn, OobTarget};

/// After so many milliseconds without progress of a TCP connection another address is tried: the kernel has sent two
/// SYNs, and retries for minutes.
const CONNECT_STALL_MS: u64 = 3000;

/// The TCP sockets of a wireup. Closed when the queue pairs are connected, or with the connection.
#[derive(Default)]
pub struct TcpWireup {
    /// Address to connect to, and number of the peer's port; `None`: the peer connects, and does so again when needed.
    pub target: Option<(OobTarget, u8)>,
    /// The socket that this end has connected or is connecting, and since when, coarse milliseconds.
    pub ours: Option<OobConn>,
    pub since: u64,
    /// `ours` is connected.
    pub through: bool,
    /// Index of the peer's address that is tried first.
    pub first: usize,
    /// The last socket that the peer has connected.
    pub theirs: Option<OobConn>,
}

impl TcpWireup {
    /// A wireup without sockets, to the peer's port with the number `far`.
    pub fn to(target: OobTarget, far: u8) -> TcpWireup {
        let mut wireup = TcpWireup::default();
        wireup.target = Some((target, far));
        wireup
    }

    /// Whether this end has to connect a socket: there is none, or the peer may be reached sooner at another address.
    pub fn is_wanted(&mut self, now: u64) -> bool {
        let Some((target, _)) = &self.target else {
            return false;
        };
        let others = target.locator.addresses.len() > 1;
        if self.ours.is_some() && !self.through && others && now - self.since >= CONNECT_STALL_MS {
            self.first += 1;
            self.close();
        }
        self.ours.is_none()
    }

    /// Shuts down the handshake socket of this end, which has nothing left to send: the thread that polls it sees its
    /// end.
    pub fn close(&mut self) {
        if let Some(link) = self.ours.take() {
            link.close();
        }
        self.through = false;
    }
}

impl Drop for TcpWireup {
    fn drop(&mut self) {
        self.close();
        if let Some(link) = &self.theirs {
            link.close();
        }
    }
}
