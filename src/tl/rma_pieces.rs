//! Pieces of a list that an adapter puts or gets, as a lane posts them.

use super::Token;
use super::rma::RmaKey;
use crate::sys::copy;
use crate::sys::sync::dma_mem;
use std::slice;

/// Maximum number of regions of pieces that are posted together.
pub const MAX_REGIONS: usize = 32;

/// Memory of a peer that an adapter accesses by one key.
#[derive(Clone, Copy, Debug)]
pub struct RmaRegion {
    pub base: u64,
    /// Bytes.
    pub len: u64,
    /// The key for the first byte.
    pub key: RmaKey,
}

impl RmaRegion {
    /// The key for an address in the region.
    #[inline(always)]
    pub fn key_at(&self, addr: u64) -> RmaKey {
        match self.key {
            RmaKey::Stadd(first) => RmaKey::Stadd(first.wrapping_add(addr - self.base)),
            key => key,
        }
    }
}

/// How much of some pieces is posted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PieceCursor {
    /// Pieces of which all bytes are posted.
    pub next: usize,
    /// Bytes of the piece behind them that are posted.
    pub within: u64,
}

/// Pieces of one region or a few, none of which is empty. The arrays are as long as each other.
pub struct RmaPieces<'a> {
    /// A put.
    pub writes: bool,
    /// The pieces of the request with this token. They stay where they are until the lane has reported all of them, or
    /// the token was taken back.
    pub here: &'a [*mut u8],
    pub lengths: &'a [usize],
    pub there: &'a [u64],
    /// At most [`MAX_REGIONS`], at least one.
    pub regions: &'a [RmaRegion],
    /// The region of each piece, as a number in `regions`. Empty: there is one region.
    pub numbers: &'a [u8],
    pub token: Token,
    pub cursor: &'a mut PieceCursor,
    /// Posted operations that the lane will report by the token.
    pub outstanding: &'a mut u32,
}

/// Where the bytes of gets are copied to that an adapter reads side by side. The request owns both arrays until it
/// completes.
#[derive(Clone, Copy, Debug)]
pub struct PieceTargets {
    here: *const *mut u8,
    lengths: *const usize,
    count: u32,
}

impl PieceTargets {
    /// Number of pieces.
    #[inline(always)]
    pub fn count(&self) -> usize {
        self.count as usize
    }

    /// Copies the bytes to their targets.
    ///
    /// # Safety
    /// The bytes of all pieces are at `from`. The request and its targets are valid.
    #[inline(always)]
    pub unsafe fn scatter(&self, mut from: *const u8) {
        // SAFETY: parts of the arrays of the request's list, with `count` entries (`targets`), which nothing writes.
        let (here, lengths) = unsafe {
            let here = slice::from_raw_parts(self.here, self.count());
            (here, slice::from_raw_parts(self.lengths, self.count()))
        };
        let (blocks, rest) = here.as_chunks::<BLOCK>();
        let (lengths_of_blocks, lengths_of_rest) = lengths.as_chunks::<BLOCK>();
        for (here, lengths) in blocks.iter().zip(lengths_of_blocks) {
            // SAFETY: the caller's promise; the bytes of these pieces follow those of the pieces in front of them.
            from = unsafe {
                match *lengths {
                    WORDS => scatter_words(here, from),
                    _ => scatter_some(here, lengths, from),
                }
            };
        }
        // SAFETY: as for the blocks.
        unsafe { scatter_some(rest, lengths_of_rest, from) };
    }
}

/// Number of pieces of which one comparison finds whether they are words.
const BLOCK: usize = 4;
const WORD: usize = size_of::<u64>();
/// The lengths of most blocks of short pieces.
const WORDS: [usize; BLOCK] = [WORD; BLOCK];

/// Copies a word to each target. Returns what is behind the last one.
///
/// # Safety
/// Their bytes are at `from`; the targets have room for them.
#[inline(always)]
unsafe fn scatter_words(here: &[*mut u8; BLOCK], mut from: *const u8) -> *const u8 {
    dma_mem::reads(from, WORD * BLOCK);
    for &to in here {
        dma_mem::writes(to, WORD);
        // SAFETY: the caller's promise.
        unsafe {
            to.copy_from_nonoverlapping(from, WORD);
            from = from.add(WORD);
        }
    }
    from
}

/// Copies as many bytes to each target as its length states. Returns what is behind the last one.
///
/// # Safety
/// The bytes of all are at `from`; the targets have room for them.
#[inline(always)]
unsafe fn scatter_some(here: &[*mut u8], lengths: &[usize], mut from: *const u8) -> *const u8 {
    for (&to, &len) in here.iter().zip(lengths) {
        dma_mem::reads(from, len);
        dma_mem::writes(to, len);
        // SAFETY: the caller's promise.
        unsafe {
            copy::short(to, from, len);
            from = from.add(len);
        }
    }
    from
}

/// A piece, or what is left of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    pub here: *mut u8,
    pub len: usize,
    pub there: u64,
    /// Bytes of the piece in front of this part are posted.
    pub is_rest: bool,
}

impl RmaPieces<'_> {
    /// The region of the piece with this number.
    #[inline(always)]
    pub fn region(&self, piece: usize) -> &RmaRegion {
        let number = self.numbers.get(piece).copied().unwrap_or(0);
        &self.regions[usize::from(number)]
    }

    /// What is to be posted next. `None`: all is posted.
    #[inline(always)]
    pub fn next(&self) -> Option<Piece> {
        let PieceCursor { next, within } = *self.cursor;
        let &len = self.lengths.get(next)?;
        Some(Piece {
            here: self.here[next].wrapping_add(within as usize),
            len: len - within as usize,
            there: self.there[next].wrapping_add(within),
            is_rest: within > 0,
        })
    }

    /// The piece of which a part is to be posted next, in its whole length. `None`: all is posted.
    #[inline(always)]
    pub fn whole(&self) -> Option<Piece> {
        let next = self.cursor.next;
        let &len = self.lengths.get(next)?;
        Some(Piece {
            here: self.here[next],
            len,
            there: self.there[next],
            is_rest: false,
        })
    }

    /// Where the bytes of `count` pieces from number `first` on are copied to.
    pub fn targets(&self, first: usize, count: usize) -> PieceTargets {
        PieceTargets {
            here: self.here[first..first + count].as_ptr(),
            lengths: self.lengths[first..first + count].as_ptr(),
            count: count as u32,
        }
    }

    /// Records that so many bytes of the [next](Self::next) piece are posted.
    #[inline(always)]
    pub fn posted(&mut self, piece: Piece, bytes: usize) {
        if bytes == piece.len {
            self.cursor.next += 1;
            self.cursor.within = 0;
        } else {
            self.cursor.within += bytes as u64;
        }
    }
}
