//! Gather and scatter lists: pieces of user memory as SGEs of work requests.

use crate::engine::datatype::Data;
use crate::sys::cma::{IoSpan, Spans};
use crate::sys::regcache::Handle;
use crate::tl::ib::bindings::ibv_sge;
use crate::tl::ib::mr::IbMr;
use crate::tl::ib::rc::{RemoteMem, ZcopyDesc};
use crate::tl::ib::sender::IbSender;

/// Maximum number of SGEs of a work request.
const MOST: usize = 16;

/// Posts the pieces from `offset` on that one work request takes; `memory`: the registrations of all pieces that are
/// not empty. Returns their bytes, 0 if there is no room now. `None`: a piece has no key for the port.
///
/// # Safety
/// The user's list of pieces is valid.
pub(super) unsafe fn post_iov(
    sender: &mut IbSender,
    (data, memory): (&Data, &[Handle<IbMr>]),
    offset: u64,
    here: ZcopyDesc,
    there: RemoteMem,
    word: Option<u32>,
) -> Option<usize> {
    let mut spans = Spans::new();
    // SAFETY: the user's list of pieces is valid.
    unsafe { data.spans(0, data.len(), &mut spans) };
    let port = sender.local_port();
    let limits = sender.zcopy_limits();
    let mut list = [ibv_sge::default(); MOST];
    let room = &mut list[..limits.ranges.clamp(1, MOST)];
    let (used, n) = take(spans.as_slice(), offset as usize, limits.bytes, room);
    let pieces = list.get_mut(..used)?;
    for piece in &mut *pieces {
        // Until here `lkey` is the number of the piece.
        let region = memory.get(piece.lkey as usize)?.region();
        piece.lkey = region.local_key(port)?;
    }
    let last = n == here.len;
    let posted = sender.post_zcopy_iov(ZcopyDesc { len: n, ..here }, pieces, there, last, word);
    Some(if posted { n } else { 0 })
}

/// Fills a list with the pieces after the first `offset` bytes, each with its number as key: as many as there is room
/// for, and at most `bytes` bytes. Returns their number and their bytes.
fn take(pieces: &[IoSpan], offset: usize, bytes: usize, list: &mut [ibv_sge]) -> (usize, usize) {
    let (mut at, mut used, mut n) = (0, 0, 0);
    for (number, piece) in pieces.iter().enumerate() {
        let skipped = offset.saturating_sub(at).min(piece.len);
        at += piece.len;
        let len = (piece.len - skipped).min(bytes - n);
        if len == 0 {
            continue;
        }
        let Some(entry) = list.get_mut(used) else {
            break;
        };
        *entry = ibv_sge {
            addr: piece.addr + skipped as u64,
            length: len as u32,
            lkey: number as u32,
        };
        used += 1;
        n += len;
    }
    (used, n)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Addresses, lengths and numbers of the pieces, and their bytes.
    fn taken(offset: usize, bytes: usize, room: usize) -> (Vec<(u64, u32, u32)>, usize) {
        let pieces = [(100, 10), (200, 20), (300, 30)].map(|(addr, len)| IoSpan { addr, len });
        let mut list = [ibv_sge::default(); 4];
        let (used, n) = take(&pieces, offset, bytes, &mut list[..room]);
        let list = list[..used].iter().map(|e| (e.addr, e.length, e.lkey));
        (list.collect(), n)
    }

    #[test]
    fn pieces_are_taken_in_their_order() {
        let all = vec![(100, 10, 0), (200, 20, 1), (300, 30, 2)];
        assert_eq!(taken(0, 1000, 4), (all.clone(), 60));
        assert_eq!(taken(0, 1000, 2), (all[..2].to_vec(), 30));
        assert_eq!(taken(30, 1000, 2), (all[2..].to_vec(), 30));
        assert_eq!(taken(60, 1000, 4), (Vec::new(), 0));
    }

    #[test]
    fn pieces_are_cut_where_a_work_request_ends() {
        assert_eq!(taken(0, 15, 4), (vec![(100, 10, 0), (200, 5, 1)], 15));
        assert_eq!(taken(15, 15, 4), (vec![(205, 15, 1)], 15));
        assert_eq!(taken(45, 1000, 1), (vec![(315, 15, 2)], 15));
    }
}
