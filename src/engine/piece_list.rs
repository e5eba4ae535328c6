//! Pieces that a scatter-gather list puts or gets by an adapter, which its request owns.

use crate::tl::Token;
use crate::tl::rma_pieces::{Piece, PieceCursor, RmaPieces, RmaRegion};
use std::ops::Range;

/// Pieces in sequence that are posted together.
struct PieceRun {
    /// The number of the first piece, and of the one behind the last.
    pieces: Range<usize>,
    /// The regions of the pieces, as numbers in those of the list.
    regions: Range<usize>,
}

/// The regions of the pieces of a list.
#[derive(Default)]
pub struct PieceRegions {
    regions: Vec<RmaRegion>,
    runs: Vec<PieceRun>,
    /// The region of each piece, as a number in those of its run. Shorter: in the runs of the other pieces there is
    /// one region.
    numbers: Vec<u8>,
}

impl PieceRegions {
    /// Begins a run in front of the piece with this number. A run without a piece does not count.
    pub fn begin_run(&mut self, piece: usize) {
        self.end_run(piece);
        let regions = self.regions.len();
        self.runs.push(PieceRun {
            pieces: piece..piece,
            regions: regions..regions,
        });
    }

    /// Ends the last run in front of the piece with this number.
    fn end_run(&mut self, piece: usize) {
        let Some(run) = self.runs.last_mut() else {
            return;
        };
        (run.pieces.end, run.regions.end) = (piece, self.regions.len());
        if run.pieces.is_empty() {
            self.regions.truncate(run.regions.start);
            self.runs.pop();
        }
    }

    /// Adds a region to the last run.
    pub fn push(&mut self, region: RmaRegion) {
        self.regions.push(region);
    }

    /// Adds pieces of the last run, whose regions have these numbers in those of the run. They follow those of the run
    /// that were added before.
    pub fn add_numbers(&mut self, numbers: &[u8]) {
        let Some(run) = self.runs.last_mut() else {
            return;
        };
        // Pieces of runs before that have one region.
        if self.numbers.len() < run.pieces.start {
            self.numbers.resize(run.pieces.start, 0);
        }
        self.numbers.extend_from_slice(numbers);
    }
}

/// The pieces of a list, none of which is empty. The user's arrays are not needed any more.
pub struct PieceList {
    here: Box<[*mut u8]>,
    lengths: Box<[usize]>,
    there: Box<[u64]>,
    /// Bytes of all pieces.
    bytes: usize,
    regions: PieceRegions,
    /// The first run of which not all is posted.
    run: usize,
    /// How much of all pieces is posted.
    cursor: PieceCursor,
}

// SAFETY: the pieces are the user's memory, valid until the operation completes, whichever thread progresses it.
unsafe impl Send for PieceList {}

impl PieceList {
    /// The pieces of three arrays of one length that are not empty. `regions`: of all of them. `each`: the bytes of
    /// each piece, if all are equally long.
    pub fn new(
        (here, lengths, there): (&[*mut u8], &[usize], &[u64]),
        mut regions: PieceRegions,
        each: Option<usize>,
    ) -> PieceList {
        regions.end_run(lengths.len());
        let sum = || lengths.iter().sum();
        let mut list = PieceList {
            bytes: each.map_or_else(sum, |len| len * lengths.len()),
            here: here.into(),
            lengths: lengths.into(),
            there: there.into(),
            regions,
            run: 0,
            cursor: PieceCursor::default(),
        };
        if each.unwrap_or(0) == 0 && lengths.contains(&0) {
            list.remove_empty();
        }
        list
    }

    fn remove_empty(&mut self) {
        let (mut here, mut lengths, mut there) = (Vec::new(), Vec::new(), Vec::new());
        let (numbers, mut kept) = (&self.regions.numbers, Vec::new());
        for run in &mut self.regions.runs {
            let first = lengths.len();
            for i in run.pieces.clone().filter(|&i| self.lengths[i] != 0) {
                here.push(self.here[i]);
                lengths.push(self.lengths[i]);
                there.push(self.there[i]);
                kept.extend(numbers.get(i));
            }
            run.pieces = first..lengths.len();
        }
        (self.here, self.lengths, self.there) = (here.into(), lengths.into(), there.into());
        self.regions.numbers = kept;
    }

    /// Number of pieces.
    pub fn count(&self) -> usize {
        self.lengths.len()
    }

    /// Bytes of all pieces.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Posts the rest: `post` gets the pieces of a run, and returns whether it has posted all of them, or `None` if
    /// it cannot. Returns the same of all pieces.
    #[inline(always)]
    pub fn post(
        &mut self,
        (writes, token): (bool, Token),
        outstanding: &mut u32,
        mut post: impl FnMut(RmaPieces<'_>) -> Option<bool>,
    ) -> Option<bool> {
        while let Some(run) = self.regions.runs.get(self.run) {
            let (end, regions) = (run.pieces.end, &self.regions.regions[run.regions.clone()]);
            let numbers = match regions.len() {
                1 => &[],
                _ => &self.regions.numbers[..end],
            };
            let all = post(RmaPieces {
                writes,
                here: &self.here[..end],
                lengths: &self.lengths[..end],
                there: &self.there[..end],
                regions,
                numbers,
                token,
                cursor: &mut self.cursor,
                outstanding,
            })?;
            if !all {
                return Some(false);
            }
            self.run += 1;
        }
        Some(true)
    }

    /// What is not posted.
    pub fn left(&self) -> impl DoubleEndedIterator<Item = Piece> + '_ {
        let PieceCursor { next, within } = self.cursor;
        (next..self.count()).map(move |i| {
            let skip = if i == next { within } else { 0 };
            Piece {
                here: self.here[i].wrapping_add(skip as usize),
                len: self.lengths[i] - skip as usize,
                there: self.there[i].wrapping_add(skip),
                is_rest: skip > 0,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tl::rma::RmaKey;

    fn region(stadd: u64) -> RmaRegion {
        RmaRegion {
            base: 0x1000,
            len: 0x1000,
            key: RmaKey::Stadd(stadd),
        }
    }

    fn at(n: usize) -> *mut u8 {
        std::ptr::without_provenance_mut(n)
    }

    /// Posts up to `room` bytes of each call, and collects (here, bytes, steering address).
    fn post(list: &mut PieceList, room: usize, into: &mut Vec<(usize, usize, u64)>) -> bool {
        let all = list.post((true, Token::NONE), &mut 0, |mut pieces| {
            let mut left = room;
            while let Some(piece) = pieces.next() {
                let n = piece.len.min(left);
                if n == 0 {
                    return Some(false);
                }
                let RmaKey::Stadd(there) = pieces.region(pieces.cursor.next).key_at(piece.there)
                else {
                    return None;
                };
                into.push((piece.here.addr(), n, there));
                pieces.posted(piece, n);
                left -= n;
            }
            Some(true)
        });
        all.unwrap()
    }

    /// Regions of runs that begin with these pieces, each of one region.
    fn of_runs(runs: &[(usize, RmaRegion)]) -> PieceRegions {
        let mut regions = PieceRegions::default();
        for &(first, region) in runs {
            regions.begin_run(first);
            regions.push(region);
        }
        regions
    }

    #[test]
    fn pieces_are_posted_in_order_by_their_keys_and_empty_ones_are_not() {
        let here = [at(10), at(20), at(30), at(40)];
        let runs = of_runs(&[(0, region(100)), (2, region(5000)), (3, region(100))]);
        let (lengths, there) = ([4, 0, 6, 1], [0x1000, 0, 0x1010, 0x1020]);
        let mut list = PieceList::new((&here, &lengths, &there), runs, None);
        assert_eq!((list.count(), list.bytes()), (3, 11));
        let mut posted = Vec::new();
        assert!(!post(&mut list, 4, &mut posted));
        assert_eq!(posted, [(10, 4, 100), (30, 4, 5016)]);
        let left: Vec<_> = list
            .left()
            .map(|p| (p.here.addr(), p.len, p.there))
            .collect();
        assert_eq!(left, [(34, 2, 0x1014), (40, 1, 0x1020)]);
        assert!(post(&mut list, 4, &mut posted));
        assert_eq!(posted[2..], [(34, 2, 5020), (40, 1, 132)]);
        assert_eq!(list.left().count(), 0);
    }

    #[test]
    fn pieces_of_a_run_have_regions_by_number() {
        let mut regions = of_runs(&[(0, region(100)), (2, region(7000))]);
        // The run in front of it has no piece.
        regions.begin_run(2);
        regions.push(region(200));
        regions.push(region(300));
        regions.add_numbers(&[1, 0]);
        regions.add_numbers(&[0, 1]);
        regions.begin_run(6);
        regions.push(region(400));
        let here: Vec<_> = (0..7).map(at).collect();
        let (lengths, there) = ([1, 1, 1, 0, 1, 1, 1], [0x1000; 7]);
        let mut list = PieceList::new((&here, &lengths, &there), regions, None);
        let mut posted = Vec::new();
        assert!(post(&mut list, 64, &mut posted));
        let stadds: Vec<_> = posted
            .iter()
            .map(|&(here, _, stadd)| (here, stadd))
            .collect();
        let wanted = [(0, 100), (1, 100), (2, 300), (4, 200), (5, 300), (6, 400)];
        assert_eq!(stadds, wanted);
    }

    #[test]
    fn a_list_of_empty_pieces_is_posted() {
        let mut list = PieceList::new(
            (&[at(1)], &[0], &[0x1000]),
            of_runs(&[(0, region(1))]),
            Some(0),
        );
        assert_eq!(list.count(), 0);
        assert!(post(&mut list, 4, &mut Vec::new()));
    }
}
