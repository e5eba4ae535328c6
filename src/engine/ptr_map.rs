//! Ids by which peers name this worker's requests (UCX: `ptr_map`); a removed id names nothing.
#![forbid(unsafe_code)]

/// Slots with a generation each. Ids are never 0; one that a peer sends is checked.
pub struct PtrMap<T> {
    slots: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

impl<T: Copy> Default for PtrMap<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Copy> PtrMap<T> {
    /// A map without values. Allocates nothing before the first [`insert`](Self::insert).
    pub const fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Stores `value` and returns its id.
    pub fn insert(&mut self, value: T) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        slot.0 = slot.0.wrapping_add(1).max(1);
        slot.1 = Some(value);
        u64::from(slot.0) << 32 | u64::from(index)
    }

    /// The value with this id.
    pub fn get(&self, id: u64) -> Option<T> {
        self.slots
            .get(id as u32 as usize)
            .filter(|s| s.0 == (id >> 32) as u32)?
            .1
    }

    /// Removes a value.
    pub fn remove(&mut self, id: u64) -> Option<T> {
        self.remove_if(id, |_| true)
    }

    /// Removes a value, if it `fits`.
    #[inline]
    pub fn remove_if(&mut self, id: u64, fits: impl FnOnce(&T) -> bool) -> Option<T> {
        let value = self.borrow(id, fits)?;
        self.free.push(id as u32);
        Some(value)
    }

    /// Takes a value out, if it `fits`; the id names nothing until [`return_borrowed`](Self::return_borrowed).
    pub fn borrow(&mut self, id: u64, fits: impl FnOnce(&T) -> bool) -> Option<T> {
        self.slots
            .get_mut(id as u32 as usize)
            .filter(|s| s.0 == (id >> 32) as u32)?
            .1
            .take_if(|v| fits(v))
    }

    /// The id that [`brief`] shortened to this.
    pub fn of_brief(&self, brief: u32) -> Option<u64> {
        let index = brief as u16;
        let (generation, _) = self.slots.get(usize::from(index))?;
        let same = *generation & GENERATION == brief >> BRIEF_BITS;
        same.then_some(u64::from(*generation) << 32 | u64::from(index))
    }

    /// Ends a `borrow`.
    pub fn return_borrowed(&mut self, id: u64, value: T) {
        if let Some(slot) = self.slots.get_mut(id as u32 as usize) {
            slot.1 = Some(value);
        }
    }

    /// Number of values, with the borrowed ones.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// The values in the slots from number `from` on, with their numbers.
    pub fn iter_from(&self, from: usize) -> impl Iterator<Item = (u64, T)> + '_ {
        let slots = self.slots.iter().enumerate().skip(from);
        slots.filter_map(|(i, s)| Some((u64::from(s.0) << 32 | i as u64, s.1?)))
    }

    /// All values, with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u64, T)> + '_ {
        self.iter_from(0)
    }
}

/// Bits of a short id that are the slot, and those of the generation. The highest of the 32 bits is never set: with
/// that bit the word is something else (`wire::header::SignalWord`).
const BRIEF_BITS: u32 = 16;
const GENERATION: u32 = 0x7FFF;

/// An id in 32 bits, for messages with no more room. `None`: its slot has no such number.
pub fn brief(id: u64) -> Option<u32> {
    let (generation, index) = ((id >> 32) as u32, u16::try_from(id as u32).ok()?);
    Some((generation & GENERATION) << BRIEF_BITS | u32::from(index))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_given_back_names_nothing() {
        let mut table = PtrMap::new();
        let a = table.insert('a');
        assert_eq!((table.get(a), table.remove(a)), (Some('a'), Some('a')));
        let b = table.insert('b');
        assert_ne!(a, b);
        assert_eq!(
            (
                table.get(a),
                table.remove(a),
                table.get(0),
                table.get(u64::MAX)
            ),
            (None, None, None, None)
        );
        assert_eq!(table.iter().collect::<Vec<_>>(), [(b, 'b')]);
    }

    #[test]
    fn brief_numbers_are_found_again() {
        let mut table = PtrMap::new();
        let ids: Vec<u64> = (0..=1 << BRIEF_BITS).map(|n| table.insert(n)).collect();
        let found = |id: u64| brief(id).and_then(|brief| table.of_brief(brief));
        assert!(
            ids[..1 << BRIEF_BITS]
                .iter()
                .all(|&id| found(id) == Some(id))
        );
        assert_eq!(found(ids[1 << BRIEF_BITS]), None, "one of too many");
        let old = brief(ids[7]).unwrap();
        table.remove(ids[7]);
        table.insert(0);
        assert_eq!(table.of_brief(old), None, "given back");
    }

    #[test]
    fn a_borrowed_request_is_not_found_and_keeps_its_number() {
        let mut table = PtrMap::new();
        let a = table.insert('a');
        assert_eq!(table.borrow(a, |_| false), None);
        assert_eq!(table.borrow(a, |_| true), Some('a'));
        assert_eq!(
            (table.get(a), table.remove(a), table.borrow(a, |_| true)),
            (None, None, None)
        );
        assert_eq!((table.iter().count(), table.len()), (0, 1));
        assert_ne!(table.insert('b') as u32, a as u32);
        table.return_borrowed(a, 'a');
        assert_eq!(table.remove(a), Some('a'));
    }
}
