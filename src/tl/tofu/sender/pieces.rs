//! Puts and gets of short pieces of a list, several under one lock.

use super::{MAX_UNACKED, TofuSender};
use crate::tl::rma_pieces::RmaPieces;
use crate::tl::tofu::tni::PIGGYBACK;
use crate::tl::tofu::utofu::{OpFlags, Stadd};
use crate::tl::tofu::vcq::RemoteAddr;
use std::slice;

/// Most puts under one lock: room for posts is checked as often, and a flush request is posted in time.
const MOST: u32 = 32;

impl TofuSender {
    /// Puts the next pieces, which descriptors carry, up to the first one that is longer: as many as there is room for.
    /// `stadd`: the steering address of an address in the region of the piece with this number. False: there is no
    /// room now.
    ///
    /// # Safety
    /// The pieces are valid.
    pub unsafe fn write_pieces(
        &mut self,
        pieces: &mut RmaPieces<'_>,
        stadd: impl Fn(usize, u64) -> Stadd,
    ) -> bool {
        if self.is_held_back() {
            return false;
        }
        // There is room for one at least, even if the acknowledgement that made it was not counted yet.
        let room = MAX_UNACKED.saturating_sub(self.flow.unacked(self.posted()));
        let (mut count, mut result) = (0, Ok(()));
        let mut queue = self.iface.queue.lock();
        while count < room.clamp(1, MOST)
            && result.is_ok()
            && let Some(piece) = pieces.next().filter(|piece| piece.len <= PIGGYBACK)
        {
            let to = RemoteAddr {
                vcq: self.to.vcq,
                stadd: stadd(pieces.cursor.next, piece.there),
            };
            // SAFETY: the caller's piece; the call copies it.
            let bytes = unsafe { slice::from_raw_parts(piece.here, piece.len) };
            result = queue.send_short(self.tag, bytes, to, OpFlags::empty());
            pieces.posted(piece, piece.len);
            count += 1;
        }
        drop(queue);
        self.until = self.until.wrapping_add(count);
        if let Err(code) = result {
            self.fail(code);
        }
        true
    }

    /// Gets the next pieces through a buffer, as many as fit and there is room for. The first one fits, and nothing of
    /// it is posted. `stadd`: the steering address of an address in the region of the piece with this number. False:
    /// there is no room now.
    pub fn read_pieces(
        &mut self,
        pieces: &mut RmaPieces<'_>,
        stadd: impl Fn(usize, u64) -> Stadd,
    ) -> bool {
        if self.is_held_back() || self.is_behind_writes() {
            return false;
        }
        let vcq = self.to.vcq;
        let from = |piece, there| RemoteAddr {
            vcq,
            stadd: stadd(piece, there),
        };
        let read = (self.iface.queue.lock()).read_pieces(self.tag.conn, from, pieces);
        self.has_posted_read(read, 1) == 1
    }
}
