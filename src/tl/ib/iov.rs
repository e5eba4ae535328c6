//! Gather and scatter lists: pieces of user memory as SGEs of work requests.

use super::bindings::ibv_sge;
use super::mr::IbMr;
use super::rc::{RemoteMem, ZcopyDesc};
use super::sender::IbSender;
use crate::sys::cma::{self, IoSpan};
use crate::sys::regcache::Handle;

/// Maximum number of SGEs of a work request.
const MOST: usize = 16;

/// Posts the pieces from `offset` on that one work request takes; `memory`: their registrations. Returns their bytes, 0
/// if there is no room now. `None`: a piece has no key for the port.
pub(super) fn post(
    sender: &mut IbSender,
    (pieces, memory): (&[IoSpan], &[Handle<IbMr>]),
    offset: u64,
    here: ZcopyDesc,
    there: RemoteMem,
    word: Option<u32>,
) -> Option<usize> {
    let port = sender.local_port();
    let limits = sender.zcopy_limits();
    let mut list = [ibv_sge::default(); MOST];
    let room = &mut list[..limits.ranges.clamp(1, MOST)];
    let (used, n) = take(pieces, offset as usize, limits.bytes, room);
    let sges = list.get_mut(..used)?;
    for sge in &mut *sges {
        // Until here `lkey` is the number of the piece.
        let region = memory.get(sge.lkey as usize)?.region();
        sge.lkey = region.local_key(port)?;
    }
    let last = n == here.len;
    let posted = sender.post_zcopy_iov(ZcopyDesc { len: n, ..here }, sges, there, last, word);
    Some(if posted { n } else { 0 })
}

/// Fills a list with the pieces after the first `offset` bytes, each with its number as key: as many as there is room
/// for, and at most `bytes` bytes. Returns their number and their bytes.
fn take(pieces: &[IoSpan], offset: usize, bytes: usize, list: &mut [ibv_sge]) -> (usize, usize) {
    let (mut used, mut n) = (0, 0);
    for (entry, (number, piece)) in list.iter_mut().zip(cma::behind(pieces, offset)) {
        let len = piece.len.min(bytes - n);
        if len == 0 {
            break;
        }
        *entry = ibv_sge {
            addr: piece.addr,
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
