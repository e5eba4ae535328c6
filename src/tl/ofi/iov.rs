//! Lists of pieces of user memory, as one operation of a provider has them (`iov_limit`).

use super::bindings::iovec;
use crate::sys::cma::{self, IoSpan};
use std::ffi::c_void;
use std::ptr::null_mut;

/// Maximum number of pieces of one operation, whatever the provider has.
pub const MAX_IOV: usize = 8;

/// The pieces of one operation on memory of a peer.
pub struct OfiIov {
    list: [iovec; MAX_IOV],
    descs: [*mut c_void; MAX_IOV],
    count: usize,
    bytes: usize,
}

impl OfiIov {
    /// The pieces behind the first `offset` bytes of a list: at most `max_count` of them, and `max_bytes` bytes.
    /// `desc`: what operations on the piece with this number have to pass. `None`: a piece has none.
    pub fn take(
        pieces: &[IoSpan],
        offset: usize,
        (max_count, max_bytes): (usize, usize),
        desc: impl Fn(usize) -> Option<*mut c_void>,
    ) -> Option<OfiIov> {
        let none = iovec {
            iov_base: null_mut(),
            iov_len: 0,
        };
        let mut iov = OfiIov {
            list: [none; MAX_IOV],
            descs: [null_mut(); MAX_IOV],
            count: 0,
            bytes: 0,
        };
        let places = iov.list.iter_mut().zip(&mut iov.descs).take(max_count);
        for ((entry, place), (number, piece)) in places.zip(cma::behind(pieces, offset)) {
            let len = piece.len.min(max_bytes - iov.bytes);
            if len == 0 {
                break;
            }
            *entry = iovec {
                iov_base: piece.addr as *mut c_void,
                iov_len: len,
            };
            *place = desc(number)?;
            iov.count += 1;
            iov.bytes += len;
        }
        Some(iov)
    }

    /// The pieces, and what the operation has to pass for each, as libfabric wants them, and their number. Valid as
    /// long as `self`.
    pub fn parts(&mut self) -> (*const iovec, *mut *mut c_void, usize) {
        (self.list.as_ptr(), self.descs.as_mut_ptr(), self.count)
    }

    /// Bytes of all pieces.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::without_provenance_mut;

    /// Addresses, lengths and descriptors of the pieces, and their bytes.
    fn taken(offset: usize, max: (usize, usize)) -> (Vec<(usize, usize, usize)>, usize) {
        let pieces = [(100, 10), (200, 20), (300, 30)].map(|(addr, len)| IoSpan { addr, len });
        let desc = |number: usize| Some(without_provenance_mut(number + 7));
        let iov = OfiIov::take(&pieces, offset, max, desc).unwrap();
        let list = iov.list.iter().zip(&iov.descs).take(iov.count);
        let list = list.map(|(piece, desc)| (piece.iov_base.addr(), piece.iov_len, desc.addr()));
        (list.collect(), iov.bytes())
    }

    #[test]
    fn pieces_of_an_operation_are_in_order_and_within_its_limits() {
        let all = [(100, 10, 7), (200, 20, 8), (300, 30, 9)];
        assert_eq!(taken(0, (8, 1000)), (all.to_vec(), 60));
        assert_eq!(taken(0, (2, 1000)), (all[..2].to_vec(), 30));
        assert_eq!(taken(10, (1, 1000)), (all[1..2].to_vec(), 20));
        assert_eq!(taken(15, (8, 20)), (vec![(205, 15, 8), (300, 5, 9)], 20));
        assert_eq!(taken(60, (8, 1000)), (Vec::new(), 0));
    }

    #[test]
    fn a_piece_without_a_registration_is_not_taken() {
        let piece = IoSpan { addr: 100, len: 10 };
        let desc = |number| (number == 0).then_some(null_mut());
        assert!(OfiIov::take(&[piece, piece], 0, (8, 1000), desc).is_none());
        assert!(OfiIov::take(&[piece, piece], 0, (1, 1000), desc).is_some());
    }
}
