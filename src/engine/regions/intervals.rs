//! An index of intervals of addresses that may overlap, nest and repeat: finds those that contain a range.
//!
//! The intervals are kept by size class, the power of two that their length rounds up to, and in a class in the order
//! of their starts. One of at most `2^c` bytes that contains a range begins at most `2^c` bytes below the end of the
//! range, and of disjoint intervals of more than half that length at most three do. So a search costs a look into the
//! map of each class that has any, however many intervals there are, and a step for each start of others that overlap
//! the range.

use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Lengths of up to `2^0` to `2^62` bytes, and all longer ones.
const CLASSES: usize = u64::BITS as usize;
const LAST: usize = CLASSES - 1;

/// Key of an interval: its begin, its end, and its number, which is larger than those of all inserted before. A search
/// goes through them backwards: the nearest start first, of one start the longest first, of one range the newest first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IntervalKey {
    pub start: u64,
    pub end: u64,
    pub number: u64,
}

impl Ord for IntervalKey {
    fn cmp(&self, other: &Self) -> Ordering {
        #[cfg(test)]
        tests::count_comparison();
        let parts = |key: &IntervalKey| (key.start, key.end, key.number);
        parts(self).cmp(&parts(other))
    }
}

impl PartialOrd for IntervalKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Intervals of addresses, each with a value. Several may have the same bounds.
pub struct Intervals<T> {
    classes: [BTreeMap<IntervalKey, T>; CLASSES],
    /// Mask of the classes that have an interval.
    populated: u64,
    /// Number of the newest interval.
    newest: u64,
}

impl<T> Default for Intervals<T> {
    fn default() -> Self {
        Intervals {
            classes: std::array::from_fn(|_| BTreeMap::new()),
            populated: 0,
            newest: 0,
        }
    }
}

impl<T> Intervals<T> {
    /// Adds the bytes from `start` to before `end`, which is not below it.
    pub fn insert(&mut self, start: u64, end: u64, value: T) -> IntervalKey {
        self.newest += 1;
        let key = IntervalKey {
            start,
            end,
            number: self.newest,
        };
        let class = class_of(end - start);
        self.classes[class].insert(key, value);
        self.populated |= 1 << class;
        key
    }

    /// Removes an interval. Returns its value; `None` if it was removed before.
    pub fn remove(&mut self, key: IntervalKey) -> Option<T> {
        let class = class_of(key.end - key.start);
        let removed = self.classes[class].remove(&key);
        if self.classes[class].is_empty() {
            self.populated &= !(1 << class);
        }
        removed
    }

    /// The first result of `f` for an interval that contains the bytes from `start` to before `end`; in a class the
    /// nearest start comes first.
    pub fn find<R>(
        &self,
        start: u64,
        end: u64,
        mut f: impl FnMut(IntervalKey, &T) -> Option<R>,
    ) -> Option<R> {
        let mut left = self.populated & (u64::MAX << class_of(end - start));
        while left != 0 {
            let class = left.trailing_zeros() as usize;
            left &= left - 1;
            let lowest = match class {
                LAST => 0,
                _ => end.saturating_sub(1 << class),
            };
            let map = &self.classes[class];
            let mut before = last_of(start);
            while let Some((&key, value)) = map.range(..before).next_back()
                && key.start >= lowest
            {
                if key.end < end {
                    // The longest of this start is too short, and so are all others.
                    before = first_of(key.start);
                    continue;
                }
                if let Some(found) = f(key, value) {
                    return Some(found);
                }
                before = key;
            }
        }
        None
    }
}

/// Not behind any interval that begins there.
fn first_of(start: u64) -> IntervalKey {
    let (end, number) = (0, 0);
    IntervalKey { start, end, number }
}

/// Behind every interval that begins there.
fn last_of(start: u64) -> IntervalKey {
    let (end, number) = (u64::MAX, u64::MAX);
    IntervalKey { start, end, number }
}

fn class_of(len: u64) -> usize {
    match len {
        0 | 1 => 0,
        _ => ((len - 1).ilog2() as usize + 1).min(LAST),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cell::Cell;

    /// Few addresses, so that ranges overlap, nest, touch and repeat, and some of any size.
    fn range() -> impl Strategy<Value = (u64, u64)> {
        let near = (0u64..40, 0u64..40).prop_map(|(start, len)| (start, start + len));
        let any = (any::<u64>(), any::<u64>()).prop_map(|(a, b)| (a.min(b), a.max(b)));
        let top = (0u64..5, 0u64..5).prop_map(|(a, b)| (u64::MAX - a.max(b), u64::MAX - a.min(b)));
        prop_oneof![8 => near, 1 => any, 1 => top]
    }

    /// All that contain these bytes, as they are found.
    fn containing<T: Copy>(index: &Intervals<T>, start: u64, end: u64) -> Vec<(IntervalKey, T)> {
        let mut all = Vec::new();
        index.find(start, end, |key, &value| {
            all.push((key, value));
            None::<()>
        });
        all
    }

    #[derive(Clone, Debug)]
    enum SearchStep {
        Insert(u64, u64),
        /// The one at this place in the model, counted modulo their number.
        Remove(usize),
        Find(u64, u64),
    }

    fn step() -> impl Strategy<Value = SearchStep> {
        prop_oneof![
            3 => range().prop_map(|(start, end)| SearchStep::Insert(start, end)),
            1 => any::<usize>().prop_map(SearchStep::Remove),
            3 => range().prop_map(|(start, end)| SearchStep::Find(start, end)),
        ]
    }

    proptest! {
        #[test]
        fn finds_the_same_as_a_linear_search(steps in proptest::collection::vec(step(), 1..200)) {
            let mut index = Intervals::default();
            let mut model: Vec<(IntervalKey, usize)> = Vec::new();
            for (i, step) in steps.into_iter().enumerate() {
                match step {
                    SearchStep::Insert(start, end) => model.push((index.insert(start, end, i), i)),
                    SearchStep::Remove(_) if model.is_empty() => {}
                    SearchStep::Remove(which) => {
                        let (key, value) = model.swap_remove(which % model.len());
                        prop_assert_eq!(index.remove(key), Some(value));
                        prop_assert_eq!(index.remove(key), None);
                    }
                    SearchStep::Find(start, end) => {
                        let contains = |key: &IntervalKey| key.start <= start && key.end >= end;
                        let mut all: Vec<_> = model.iter().copied().filter(|(k, _)| contains(k)).collect();
                        let mut found = containing(&index, start, end);
                        all.sort_unstable();
                        found.sort_unstable();
                        prop_assert_eq!(found, all);
                    }
                }
            }
        }
    }

    thread_local! {
        static COMPARED: Cell<u64> = const { Cell::new(0) };
    }

    pub(super) fn count_comparison() {
        COMPARED.set(COMPARED.get() + 1);
    }

    /// Comparisons of keys that a search for any one takes: its time, whatever else the machine does.
    fn comparisons(index: &Intervals<()>, start: u64, end: u64) -> (bool, u64) {
        let before = COMPARED.get();
        let found = index.find(start, end, |_, _| Some(())).is_some();
        (found, COMPARED.get() - before)
    }

    #[test]
    fn a_search_among_many_takes_few_comparisons() {
        const REGIONS: u64 = 100_000;
        let mut index = Intervals::default();
        for i in 1..=REGIONS {
            index.insert(i << 13, (i << 13) + 4096, ());
        }
        index.insert(0, 64, ());
        for i in [1, REGIONS / 3, REGIONS] {
            for (len, contained) in [
                (0, true),
                (8, true),
                (4096, true),
                (4097, false),
                (1 << 20, false),
            ] {
                let (found, compared) = comparisons(&index, i << 13, (i << 13) + len);
                assert_eq!(found, contained, "{len} bytes of region {i}");
                assert!(
                    compared < 400,
                    "{compared} comparisons for {len} bytes of region {i}"
                );
            }
        }
    }

    #[test]
    fn equal_ranges_that_are_too_short_are_passed_over_at_once() {
        let mut index = Intervals::default();
        for _ in 0..10_000 {
            index.insert(4096, 8192, ());
        }
        let (found, compared) = comparisons(&index, 8000, 8193);
        assert!(!found && compared < 400, "{compared} comparisons");
        assert_eq!(containing(&index, 8000, 8192).len(), 10_000);
    }

    #[test]
    fn the_newest_of_one_range_comes_first() {
        let mut index = Intervals::default();
        let keys: Vec<IntervalKey> = (0..3).map(|i| index.insert(100, 200, i)).collect();
        let found: Vec<i32> = containing(&index, 100, 200)
            .iter()
            .map(|(_, v)| *v)
            .collect();
        assert_eq!(found, [2, 1, 0]);
        index.remove(keys[2]);
        assert_eq!(
            index.find(150, 151, |k, &v| Some((k, v))),
            Some((keys[1], 1))
        );
    }
}
