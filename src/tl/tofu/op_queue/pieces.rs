//! Gets of the pieces of a list: several share an edata tag and a buffer, and complete together.
//!
//! No flag orders gets, so each has a notice; only the last notice of a batch is an event.

use super::outstanding::{BcopyRead, CopyTarget, OutstandingOp};
use super::{OpQueue, word_of};
use crate::tl::rma_pieces::RmaPieces;
use crate::tl::tofu::utofu::{OpFlags, Stadd};
use crate::tl::tofu::vcq::{PostFlags, RemoteAddr};
use crate::tl::tofu::vcq_ops::read_before_post;
use std::ffi::c_int;

/// Maximum number of pieces of a batch: while it is posted, nothing is polled.
const MAX_PIECES: usize = 64;

impl OpQueue {
    /// Posts gets of the next pieces, as many as a buffer holds and there is room for, or of a single one if tags run
    /// short; the first one fits into a buffer and nothing of it is posted. `remote`: where an address in the region of
    /// the piece with this number is. [`super::QueueEvent::Completed`] reports the request when all of them have
    /// arrived. False: no room now.
    ///
    /// # Errors
    /// The library's code: the connection is unusable.
    pub fn read_pieces(
        &mut self,
        conn: u32,
        remote: impl Fn(usize, u64) -> RemoteAddr,
        pieces: &mut RmaPieces<'_>,
    ) -> Result<bool, c_int> {
        let next = pieces.cursor.next;
        let count = self.fitting(&pieces.lengths[next..]);
        if count == 1 {
            return self.read_piece(conn, remote, pieces);
        }
        if count == 0 || !self.has_buffers(1) {
            return Ok(false);
        }
        let Some(buffer) = self.buffers.take(conn) else {
            return Ok(false);
        };
        let to = CopyTarget::Pieces(pieces.targets(next, count));
        let read = OutstandingOp::by_buffer(conn, pieces.token, BcopyRead { buffer, to });
        let number = self.under_way.insert(read);
        let Some(edata) = self.slots.alloc_pieces(conn, number, count as u16) else {
            self.under_way.remove(number);
            self.buffers.give_back(buffer);
            return self.read_piece(conn, remote, pieces);
        };
        self.most -= count - 1;
        let post_flags = PostFlags {
            flags: OpFlags::LOCAL_MRQ_NOTICE,
            edata,
            cbdata: word_of(conn, edata),
        };
        // The TNI overwrites the buffer, whose last contents this thread has read.
        read_before_post();
        let mut here: Stadd = self.buffers.stadd(buffer);
        let each = pieces.lengths[next..].iter().zip(&pieces.there[next..]);
        for (posted, (&len, &there)) in each.take(count).enumerate() {
            let from = remote(next + posted, there);
            let result = self.post(|vcq| vcq.get(here, from, len, post_flags));
            if let Err(code) = result {
                self.refused(number, edata, count - posted);
                return Err(code);
            }
            here += len as Stadd;
        }
        pieces.cursor.next += count;
        *pieces.outstanding += 1;
        Ok(true)
    }

    /// [`read_pieces`](Self::read_pieces) of the next piece alone. Its get shares the tag of others if tags run short.
    #[inline(never)]
    fn read_piece(
        &mut self,
        conn: u32,
        remote: impl Fn(usize, u64) -> RemoteAddr,
        pieces: &mut RmaPieces<'_>,
    ) -> Result<bool, c_int> {
        let Some(piece) = pieces.next() else {
            return Ok(false);
        };
        let from = remote(pieces.cursor.next, piece.there);
        let posted = self.read(conn, from, (piece.here, piece.len), pieces.token)?;
        if posted {
            pieces.posted(piece, piece.len);
            *pieces.outstanding += 1;
        }
        Ok(posted)
    }

    /// Number of the next pieces that a buffer holds and that may be outstanding.
    fn fitting(&self, lengths: &[usize]) -> usize {
        let most = self
            .most
            .saturating_sub(self.under_way.len())
            .min(MAX_PIECES);
        let mut left = self.buffers.packet();
        let fits = |&&len: &&usize| {
            let fits = len <= left;
            left -= if fits { len } else { 0 };
            fits
        };
        lengths.iter().take(most).take_while(fits).count()
    }

    /// A get was refused: so many notices do not come. The others complete without a request.
    #[cold]
    fn refused(&mut self, number: u32, edata: u8, missing: usize) {
        self.under_way.detach_owner(number);
        for _ in 0..missing {
            if let Some(hit) = self.slots.complete(edata.into(), false) {
                let event = self.on_tag_hit(hit);
                self.ended.extend(event);
            }
        }
    }
}
