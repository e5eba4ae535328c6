//! Checks a list before anything of it is copied, a block of pieces at a time, and without a branch for each.
//!
//! What is wrong with a piece sets one of the highest two bits of a word that all pieces share. No valid address or
//! length has one of them; a negative difference of such values has.

use super::arrays::SglArrays;
use super::key_table::{KeyTable, OfKeys};
use super::{MAX_LEN, memory_of};
use crate::ctypes::*;
use crate::engine::peer::Peer;
use crate::engine::rkey::Rkey;
use crate::engine::worker::Worker;
use std::{ptr, slice};

/// Most pieces of a block.
const BLOCK: usize = 512;

/// The bits that a valid address or length does not have, and a negative difference of three of them has at least one
/// of.
pub(super) const WRONG: u64 = 3 << 62;

/// Fewest pieces in sequence with one key that are checked by themselves. Shorter runs are checked together: to
/// find the key of each piece takes less than to begin a run.
const MIN_RUN: usize = 32;

/// Remote addresses that a key gives access to.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    pub base: u64,
    /// Bytes, without the bits of [`WRONG`].
    pub len: u64,
}

impl Bounds {
    /// All addresses that are valid.
    pub const ALL: Bounds = Bounds {
        base: 0,
        len: (1 << 62) - 1,
    };
}

/// What a way of access asks of the keys of a list.
pub(super) trait ListKeys {
    /// A run begins with the piece of this number: pieces in sequence that have one key, or several that are numbered
    /// in the order in which [`bounds`](Self::bounds) gets them. Of two runs with the same first piece the first one
    /// does not count.
    fn begin_run(&mut self, _first: usize) {}

    /// The remote addresses that a key of the run gives access to. `None`: it gives none in this way.
    fn bounds(&mut self, rkey: &Rkey) -> Option<Bounds>;

    /// Gets the numbers of the keys of the run's next pieces. Not called for a run of one key.
    fn add_numbers(&mut self, _numbers: &[u8]) {}
}

/// A list all of whose pieces may be copied.
pub(super) struct CheckedList<'a> {
    pub arrays: &'a SglArrays,
    /// The key of all pieces, if they have the same.
    pub key: Option<&'a Rkey>,
    /// Bytes of each piece, if all are equally long.
    pub len: Option<usize>,
}

/// What some pieces have in common, and what is wrong with them.
#[derive(Default)]
struct Found {
    /// Not 0: the pieces have not all the same key.
    keys: usize,
    /// A bit of [`WRONG`] is set: a piece is outside of the key's bounds, or has no buffer.
    faults: u64,
    /// Not 0: the lengths of the two sides differ.
    unequal: usize,
    /// Bits by which a length differs from the first one of the list; 0: the pieces are equally long.
    varied: usize,
    /// The highest bit is set: a piece is empty. Of pieces that are as long as the first one nothing is found.
    empty: u64,
}

impl Found {
    /// What is to be found of these pieces. `first`: the length of the list's first one. `BOTH`: the lengths of the two
    /// sides are compared. `EQUAL`: a piece may begin in `base..=end`, and if `varied` is not 0, the faults are not
    /// those of the pieces; otherwise a piece may lie in `base..end`.
    #[inline(never)]
    fn of<const BOTH: bool, const EQUAL: bool>(
        pieces: &Pieces,
        (base, end): (u64, u64),
        first: usize,
    ) -> Found {
        let mut found = Found::default();
        let here = pieces.buffers.iter().zip(pieces.lengths);
        let there = pieces.addrs.iter().zip(pieces.keys);
        let theirs = pieces.remote_lengths;
        // No branch for a piece: the loop works on vectors.
        for (((&buffer, &len), (&addr, &key)), &remote_len) in here.zip(there).zip(theirs) {
            let (at, behind) = (addr.wrapping_sub(base), end.wrapping_sub(addr));
            let rest = behind.wrapping_sub(if EQUAL { 0 } else { len as u64 });
            found.keys |= key ^ pieces.key;
            found.faults |= at | rest | buffer.wrapping_sub(1);
            found.varied |= len ^ first;
            if !EQUAL {
                found.empty |= (len as u64).wrapping_sub(1);
            }
            if BOTH {
                found.unequal |= len ^ remote_len;
            }
        }
        found
    }

    /// Adds what was found of other pieces.
    fn add(&mut self, other: &Found) {
        self.faults |= other.faults;
        self.unequal |= other.unequal;
        self.varied |= other.varied;
        self.empty |= other.empty;
    }
}

/// Some pieces of a list, at least one.
pub(super) struct Pieces<'a> {
    pub buffers: &'a [u64],
    pub lengths: &'a [usize],
    pub addrs: &'a [u64],
    pub remote_lengths: &'a [usize],
    pub keys: &'a [usize],
    /// The key of the first one.
    pub key: usize,
}

impl Pieces<'_> {
    /// Number of pieces up to the first one with another key, at most so many.
    #[inline(always)]
    fn run(&self, most: usize) -> usize {
        let keys = self.keys.iter().take(most);
        keys.take_while(|&&key| key == self.key).count()
    }
}

impl SglArrays {
    /// So many pieces, from this number on.
    ///
    /// # Safety
    /// The arrays have so many pieces, and stay as they are.
    #[inline(always)]
    unsafe fn pieces(&self, from: usize, count: usize) -> Pieces<'_> {
        let theirs = match self.remote_lengths.is_null() {
            true => self.lengths,
            false => self.remote_lengths,
        };
        // SAFETY: the caller's promise; pointers are as wide as addresses.
        unsafe {
            let keys: &[usize] = slice::from_raw_parts(self.rkeys.add(from).cast(), count);
            Pieces {
                buffers: slice::from_raw_parts(self.buffers.add(from).cast(), count),
                lengths: slice::from_raw_parts(self.lengths.add(from), count),
                addrs: slice::from_raw_parts(self.addrs.add(from), count),
                remote_lengths: slice::from_raw_parts(theirs.add(from), count),
                keys,
                key: keys[0],
            }
        }
    }

    /// The key of a piece, and the remote addresses that it gives access to. `None`: it gives none in this way.
    ///
    /// # Safety
    /// The arrays have a piece with this number; its key is valid or null.
    #[inline(always)]
    unsafe fn key_of(
        &self,
        piece: usize,
        owner: u64,
        keys: &mut impl ListKeys,
    ) -> Option<(&Rkey, Bounds)> {
        // SAFETY: the caller's promise.
        let key = unsafe { (*self.rkeys.add(piece)).cast::<Rkey>().as_ref() }?;
        // A client can have unpacked the key before it had the server's uid: the general way knows that.
        let is_owner = key.identity.owner == owner;
        let bounds = is_owner.then(|| keys.bounds(key)).flatten()?;
        Some((key, bounds))
    }
}

/// A check in progress.
struct Check<'a, 'k, K> {
    arrays: &'a SglArrays,
    /// Uid of the peer.
    owner: u64,
    keys: &'k mut K,
    /// Bytes of the list's first piece.
    first: usize,
    /// The other side has lengths of its own.
    has_both: bool,
    /// Pieces that were checked, and what was found of them.
    from: usize,
    found: Found,
    /// Most pieces of the next block.
    most: usize,
    /// All pieces have one key.
    is_one: bool,
    /// The key of the last run, and what it gives access to. `None`: the run has several.
    key: Option<(&'a Rkey, Bounds)>,
    /// The keys of the last run of several. `None`: there was no such run.
    table: Option<KeyTable>,
    /// The last run has several keys.
    is_mixed: bool,
}

impl<K: ListKeys> Check<'_, '_, K> {
    /// What is to be found of pieces whose remote memory is to be within these bounds.
    #[inline(always)]
    fn find(&self, pieces: &Pieces, bounds: Bounds, is_equal: bool) -> Found {
        let (base, end) = (bounds.base, bounds.base.wrapping_add(bounds.len));
        let first = self.first;
        let (all, starts) = ((base, end), (base, end.wrapping_sub(first as u64)));
        match (self.has_both, is_equal) {
            (true, true) => Found::of::<true, true>(pieces, starts, first),
            (true, false) => Found::of::<true, false>(pieces, all, first),
            (false, true) => Found::of::<false, true>(pieces, starts, first),
            (false, false) => Found::of::<false, false>(pieces, all, first),
        }
    }

    /// Adds what was found of the next pieces.
    #[inline(always)]
    fn add(&mut self, pieces: &Pieces, bounds: Bounds, mut found: Found) {
        if self.found.varied == 0 && found.varied != 0 {
            found = self.find(pieces, bounds, false);
        }
        self.found.add(&found);
        self.from += pieces.keys.len();
    }

    /// Checks the next pieces. `None`: the list is not of this kind.
    ///
    /// # Safety
    /// The arrays are valid, and so are the keys that are not null. There is a piece.
    #[inline(always)]
    unsafe fn check_next(&mut self) -> Option<()> {
        let (arrays, from) = (self.arrays, self.from);
        let is_equal = self.found.varied == 0;
        // SAFETY: the caller's promise.
        unsafe {
            let mut pieces = arrays.pieces(from, self.most.min(arrays.count - from));
            if self.is_mixed || pieces.keys.get(1).is_some_and(|&key| key != pieces.key) {
                self.is_mixed = pieces.run(MIN_RUN) < MIN_RUN;
                if self.is_mixed {
                    return self.check_mixed();
                }
            }
            let bounds = match self.key {
                Some((key, bounds)) if ptr::from_ref(key).addr() == pieces.key => bounds,
                _ => {
                    self.is_one &= self.key.is_none();
                    self.keys.begin_run(from);
                    let key = arrays.key_of(from, self.owner, self.keys)?;
                    self.key = Some(key);
                    key.1
                }
            };
            let mut found = self.find(&pieces, bounds, is_equal);
            if found.keys != 0 {
                let run = pieces.run(BLOCK);
                if run < MIN_RUN {
                    self.is_mixed = true;
                    return self.check_mixed();
                }
                pieces = arrays.pieces(from, run);
                found = self.find(&pieces, bounds, is_equal);
                // At most as many pieces are checked twice as were checked once.
                self.most = run;
            }
            self.most = (2 * self.most).min(BLOCK);
            self.add(&pieces, bounds, found);
        }
        Some(())
    }

    /// Checks the next pieces, whose keys differ.
    ///
    /// # Safety
    /// That of [`check_next`](Self::check_next).
    #[inline(never)]
    unsafe fn check_mixed(&mut self) -> Option<()> {
        let (arrays, from) = (self.arrays, self.from);
        // SAFETY: the caller's promise.
        let mut pieces = unsafe { arrays.pieces(from, BLOCK.min(arrays.count - from)) };
        if self.key.take().is_some() || self.table.is_none() {
            self.table = Some(KeyTable::new());
            self.keys.begin_run(from);
        }
        (self.is_one, self.most) = (false, BLOCK);
        let table = self.table.get_or_insert_with(KeyTable::new);
        let mut numbers = [0; BLOCK];
        // SAFETY: the caller's promise: a piece of the arrays.
        let mut key_of = |i| unsafe { arrays.key_of(from + i, self.owner, self.keys) };
        let OfKeys { count, faults } = table.compare(&pieces, &mut numbers, |i| {
            key_of(i).map(|(_, bounds)| bounds)
        })?;
        self.keys.add_numbers(&numbers[..count]);
        if count < pieces.keys.len() {
            table.clear();
            self.keys.begin_run(from + count);
            if count == 0 {
                return Some(());
            }
            // SAFETY: the caller's promise.
            pieces = unsafe { arrays.pieces(from, count) };
        }
        self.found.faults |= faults;
        let found = self.find(&pieces, Bounds::ALL, self.found.varied == 0);
        self.add(&pieces, Bounds::ALL, found);
        Some(())
    }
}

/// Checks all pieces of a list without blocks. `keys` knows the remote addresses that a key gives access to in the way
/// that is asked for. `None`: the list is not of this kind, or something is wrong.
///
/// # Safety
/// The arrays are valid, and so are the keys that are not null.
#[inline(always)]
pub(super) unsafe fn check<'a>(
    arrays: &'a SglArrays,
    (worker, peer): (&Worker, &Peer),
    may_be_empty: bool,
    keys: &mut impl ListKeys,
) -> Option<CheckedList<'a>> {
    // SAFETY: the caller's promise.
    unsafe {
        let first = if arrays.count > 0 { *arrays.lengths } else { 0 };
        let mut check = Check {
            arrays,
            owner: peer.uid,
            keys,
            first,
            has_both: !arrays.remote_lengths.is_null() && arrays.remote_lengths != arrays.lengths,
            from: 0,
            found: Found::default(),
            most: BLOCK,
            is_one: true,
            key: None,
            table: None,
            is_mixed: false,
        };
        while check.from < arrays.count {
            check.check_next()?;
        }
        let found = check.found;
        let lengths = (found.varied | first) as u64;
        // A length that is not less has one of its higher bits.
        let is_fine = found.faults & WRONG == 0
            && lengths < MAX_LEN as u64
            && found.unequal == 0
            && (may_be_empty || first != 0 && found.empty >> 63 == 0)
            && (arrays.memhs.is_null() || are_in_handles(worker, arrays));
        is_fine.then_some(CheckedList {
            arrays,
            key: check.key.filter(|_| check.is_one).map(|(key, _)| key),
            len: (found.varied == 0).then_some(first),
        })
    }
}

/// Whether all pieces are inside of the memory of their handles. Most lists use few: one is looked up where it differs
/// from that of the piece before.
///
/// # Safety
/// The arrays are valid, with handles.
unsafe fn are_in_handles(worker: &Worker, arrays: &SglArrays) -> bool {
    let handles = worker.ctx.handles.lock();
    let (mut memh, mut memory): (ucp_mem_h, _) = (ptr::null_mut(), None);
    (0..arrays.count).all(|i| {
        // SAFETY: the caller's promise.
        let (next, buffer, len) = unsafe {
            (
                *arrays.memhs.add(i),
                *arrays.buffers.add(i) as u64,
                *arrays.lengths.add(i),
            )
        };
        if next != memh {
            (memh, memory) = (next, memory_of(next, &handles));
        }
        memory.is_some_and(|memory| memory.contains(buffer, len))
    })
}
