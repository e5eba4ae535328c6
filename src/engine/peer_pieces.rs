//! Pieces of a list of a peer, in memory of devices of this process, that have arrived and are not executed yet.

use std::mem::size_of;

/// A piece that one message of the peer puts or gets.
pub struct PeerPiece {
    /// In this process.
    pub addr: u64,
    /// Bytes; not 0.
    pub len: usize,
    pub access: PieceAccess,
}

/// What the peer does with a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PieceAccess {
    /// Its bytes are those at this index of [`PeerPieces::bytes`].
    Put { start: usize },
    /// The peer's request is `req`.
    Get { req: u64 },
}

/// The pieces of a peer in the order of their messages. Dropped, nothing of them is executed.
#[derive(Default)]
pub struct PeerPieces {
    pieces: Vec<PeerPiece>,
    bytes: Vec<u8>,
    /// Bytes of all pieces.
    total: usize,
}

/// Most bytes of pieces, and of their entries, that are collected for a peer.
const MAX_BYTES: usize = 2 << 20;

impl PeerPieces {
    /// Adds a put of these bytes.
    pub fn add_put(&mut self, addr: u64, bytes: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        self.add(addr, bytes.len(), PieceAccess::Put { start });
    }

    /// Adds a get of `len` bytes by the peer's request `req`.
    pub fn add_get(&mut self, addr: u64, len: usize, req: u64) {
        self.add(addr, len, PieceAccess::Get { req });
    }

    fn add(&mut self, addr: u64, len: usize, access: PieceAccess) {
        self.pieces.push(PeerPiece { addr, len, access });
        self.total += len;
    }

    /// Whether they are to be executed before others are added.
    pub fn is_full(&self) -> bool {
        self.total + self.pieces.len() * size_of::<PeerPiece>() >= MAX_BYTES
    }

    /// The pieces, and the bytes of those that are put.
    pub fn into_parts(self) -> (Vec<PeerPiece>, Vec<u8>) {
        (self.pieces, self.bytes)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn short_and_long_pieces_fill_it() {
        for len in [1, 8 << 10] {
            let (mut pieces, bytes) = (PeerPieces::default(), vec![7u8; len]);
            while !pieces.is_full() {
                pieces.add_put(64, &bytes);
            }
            let (pieces, all) = pieces.into_parts();
            assert_eq!(all.len(), pieces.len() * len);
            let each = len + size_of::<PeerPiece>();
            assert_eq!(pieces.len(), MAX_BYTES.div_ceil(each));
            let last = pieces.last().map(|piece| piece.access);
            assert_eq!(
                last,
                Some(PieceAccess::Put {
                    start: all.len() - len
                })
            );
        }
    }
}
