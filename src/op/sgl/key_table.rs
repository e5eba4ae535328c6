//! The keys of a list that change from piece to piece, each of which is resolved once.

use super::check::{Bounds, Pieces};
use crate::tl::rma_pieces::MAX_REGIONS;

const _: () = assert!(MAX_REGIONS <= u8::MAX as usize + 1);

/// Twice as many as keys, so that most are found in their first slot.
const SLOTS: usize = 2 * MAX_REGIONS;
/// 2^64 divided by the golden ratio: the highest bits of a multiple depend on all bits of the factor.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

#[derive(Clone, Copy)]
struct Slot {
    /// Address of the key's handle; 0: the slot is free.
    key: usize,
    /// First remote address that the key gives access to, and the one behind the last.
    base: u64,
    end: u64,
    /// How many keys were resolved before.
    number: u8,
}

/// A hash table with linear probing of up to [`MAX_REGIONS`] keys.
pub(super) struct KeyTable {
    slots: [Slot; SLOTS],
    len: usize,
}

/// The result of a comparison of pieces with the bounds of their keys.
pub(super) struct OfKeys {
    /// Number of pieces that were compared. Not all: the key of the next one has no room in the table.
    pub count: usize,
    /// One of the two highest bits is set: a piece is outside of its key's bounds, or has no key.
    pub faults: u64,
}

impl Slot {
    /// A piece without a key has that of a free slot. No valid address is within its bounds.
    const FREE: Slot = Slot {
        key: 0,
        base: 1 << 63,
        end: 0,
        number: 0,
    };
}

impl KeyTable {
    pub fn new() -> KeyTable {
        KeyTable {
            slots: [Slot::FREE; SLOTS],
            len: 0,
        }
    }

    pub fn clear(&mut self) {
        *self = KeyTable::new();
    }

    /// Compares pieces with the bounds of their keys, and writes the number of each one's key to `numbers`. `bounds_of`
    /// resolves the key of the piece with this number among `pieces`. `None`: it refuses one.
    #[inline(always)]
    pub fn compare(
        &mut self,
        pieces: &Pieces,
        numbers: &mut [u8],
        mut bounds_of: impl FnMut(usize) -> Option<Bounds>,
    ) -> Option<OfKeys> {
        let mut faults = 0;
        let there = pieces.addrs.iter().zip(pieces.lengths).zip(pieces.keys);
        for (i, (((&addr, &len), &key), number)) in there.zip(numbers).enumerate() {
            let mut at = first_slot(key);
            while self.slots[at].key != key {
                if self.slots[at].key != 0 {
                    at = (at + 1) % SLOTS;
                    continue;
                }
                // A piece without a key has ended the loop.
                if self.len == MAX_REGIONS {
                    return Some(OfKeys { count: i, faults });
                }
                self.add(at, key, bounds_of(i)?);
            }
            let slot = &self.slots[at];
            let (before, behind) = (addr.wrapping_sub(slot.base), slot.end.wrapping_sub(addr));
            faults |= before | behind.wrapping_sub(len as u64);
            *number = slot.number;
        }
        let count = pieces.keys.len();
        Some(OfKeys { count, faults })
    }

    fn add(&mut self, at: usize, key: usize, Bounds { base, len }: Bounds) {
        self.slots[at] = Slot {
            key,
            base,
            end: base.wrapping_add(len),
            number: self.len as u8,
        };
        self.len += 1;
    }
}

/// The slot in which a key is if no other one is there.
#[inline(always)]
fn first_slot(key: usize) -> usize {
    ((key as u64).wrapping_mul(GOLDEN) >> (u64::BITS - SLOTS.ilog2())) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::sgl::check::WRONG;

    const LEN: usize = 8;

    /// Compares pieces of these keys, each at the first address of its key's bounds and `beyond` bytes behind it.
    fn compare(table: &mut KeyTable, keys: &[usize], beyond: u64) -> (OfKeys, Vec<u8>, Vec<usize>) {
        let addrs: Vec<u64> = keys
            .iter()
            .map(|&key| (key as u64 * 100).wrapping_add(beyond))
            .collect();
        let (buffers, lengths) = (vec![1; keys.len()], vec![LEN; keys.len()]);
        let pieces = Pieces {
            buffers: &buffers,
            lengths: &lengths,
            addrs: &addrs,
            remote_lengths: &lengths,
            keys,
            key: keys[0],
        };
        let (mut numbers, mut resolved) = (vec![0; keys.len()], Vec::new());
        let found = table.compare(&pieces, &mut numbers, |i| {
            resolved.push(keys[i]);
            let (base, len) = (keys[i] as u64 * 100, 2 * LEN as u64);
            Some(Bounds { base, len })
        });
        (found.unwrap(), numbers, resolved)
    }

    #[test]
    fn each_key_is_resolved_once_and_has_its_bounds() {
        let mut table = KeyTable::new();
        let keys: Vec<usize> = (0..10 * MAX_REGIONS)
            .map(|i| 0x1000 + i * 7 % MAX_REGIONS * 0x110)
            .collect();
        let (found, numbers, resolved) = compare(&mut table, &keys, LEN as u64);
        assert_eq!((found.count, found.faults & WRONG), (keys.len(), 0));
        assert_eq!(resolved, keys[..MAX_REGIONS]);
        assert!((0..keys.len()).all(|i| resolved[numbers[i] as usize] == keys[i]));
        let (found, _, resolved) = compare(&mut table, &keys, LEN as u64 + 1);
        assert!(found.faults & WRONG != 0 && resolved.is_empty());
        let (found, ..) = compare(&mut table, &keys[..1], u64::MAX);
        assert!(found.faults & WRONG != 0, "in front of the first address");
    }

    #[test]
    fn a_full_table_ends_in_front_of_the_next_key() {
        let mut table = KeyTable::new();
        let keys: Vec<usize> = (1..=MAX_REGIONS + 1).map(|i| i * 0x40).collect();
        let (found, ..) = compare(&mut table, &keys, 0);
        assert_eq!((found.count, found.faults & WRONG), (MAX_REGIONS, 0));
        let (found, ..) = compare(&mut table, &[keys[3], 0, keys[MAX_REGIONS]], 0);
        assert_eq!(found.count, 2);
        assert!(found.faults & WRONG != 0, "a piece without a key");
        table.clear();
        let (found, numbers, _) = compare(&mut table, &keys[MAX_REGIONS..], 0);
        assert_eq!((found.count, numbers[0]), (1, 0));
    }

    #[test]
    fn a_key_can_be_refused() {
        let mut table = KeyTable::new();
        let pieces = Pieces {
            buffers: &[1],
            lengths: &[1],
            addrs: &[1],
            remote_lengths: &[1],
            keys: &[64],
            key: 64,
        };
        assert!(table.compare(&pieces, &mut [0], |_| None).is_none());
    }
}
