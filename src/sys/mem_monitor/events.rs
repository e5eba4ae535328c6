//! Events of unmapped memory in the order of their reports: a ring that any thread writes, inside of `munmap` and
//! `free`, and that every cache reads independently.
//!
//! Writers take no lock, allocate nothing and never wait, wherever they are interrupted. A reader must take an event
//! that is overwritten or not complete for `Everything`.

use crate::sys::arch::OwnLine;
use crate::sys::sync::{AtomicU64, Ordering, fence};
use crate::sys::va_range::VaRange;

/// A change of the address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnmapEvent {
    /// These addresses may lead to other memory now.
    Gone(VaRange),
    /// Any address may lead to other memory now.
    Everything,
    /// The process forked: memory is shared with the child until one of them writes.
    Forked,
}

impl UnmapEvent {
    /// Encodes the event in two words. No range ends before it begins, or with the last address.
    fn words(self) -> (u64, u64) {
        match self {
            UnmapEvent::Gone(extent) => (extent.start as u64, extent.end as u64),
            UnmapEvent::Everything => (0, u64::MAX),
            UnmapEvent::Forked => (1, 0),
        }
    }

    fn of(words: (u64, u64)) -> Self {
        match words {
            (0, u64::MAX) => UnmapEvent::Everything,
            (1, 0) => UnmapEvent::Forked,
            (start, end) => UnmapEvent::Gone(VaRange {
                start: start as usize,
                end: end as usize,
            }),
        }
    }
}

/// Set in `EventSlot::state` while the slot is written.
const BUSY: u64 = 1 << 63;

struct EventSlot {
    /// 0, or the number of the event in it plus one.
    state: AtomicU64,
    start: AtomicU64,
    end: AtomicU64,
}

/// The ring of events. The last `N` events are kept; their numbers count from 0.
pub struct EventRing<const N: usize = 512> {
    /// The number of the next event. In a cache line of its own: every lookup reads it.
    head: OwnLine<AtomicU64>,
    slots: OwnLine<[EventSlot; N]>,
}

impl<const N: usize> EventRing<N> {
    /// A ring without events.
    #[cfg(not(loom))]
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        const fn empty() -> EventSlot {
            EventSlot {
                state: AtomicU64::new(0),
                start: AtomicU64::new(0),
                end: AtomicU64::new(0),
            }
        }
        EventRing {
            head: OwnLine(AtomicU64::new(0)),
            slots: OwnLine([const { empty() }; N]),
        }
    }

    #[cfg(loom)]
    pub fn new() -> Self {
        let zero = || AtomicU64::new(0);
        EventRing {
            head: OwnLine(zero()),
            slots: OwnLine(std::array::from_fn(|_| EventSlot {
                state: zero(),
                start: zero(),
                end: zero(),
            })),
        }
    }

    /// Number of events so far. If it is unchanged since a reader last read them, no event was reported since then; and
    /// everything that happened before a counted report is visible.
    #[inline(always)]
    pub fn head(&self) -> u64 {
        // Acquire: pairs with the increment in `note`.
        self.head.0.load(Ordering::Acquire)
    }

    /// Adds an event.
    pub fn note(&self, event: UnmapEvent) {
        // AcqRel: what the writer did before is visible to a thread that reads the number, by the Acquire load in
        // `head`.
        let number = self.head.0.fetch_add(1, Ordering::AcqRel);
        let slot = &self.slots.0[number as usize % N];
        let state = slot.state.load(Ordering::Relaxed);
        // A busy slot belongs to a writer that other writers have lapped: it keeps the slot, and readers take this
        // event for `Everything`. The same applies to a slot with a later event.
        if state & BUSY != 0 || state > number {
            return;
        }
        // Acquire: pairs with the Release store of the previous writer, so that its words do not overwrite ours.
        let claimed = slot.state.compare_exchange(
            state,
            (number + 1) | BUSY,
            Ordering::Acquire,
            Ordering::Relaxed,
        );
        if claimed.is_err() {
            return;
        }
        // Release: pairs with the fence in `read`: a reader that sees one of the words below sees that the slot is
        // busy, too.
        fence(Ordering::Release);
        let (start, end) = event.words();
        slot.start.store(start, Ordering::Relaxed);
        slot.end.store(end, Ordering::Relaxed);
        // Release: pairs with the Acquire load in `read`.
        slot.state.store(number + 1, Ordering::Release);
    }

    /// The events from number `from` up to, and without, number `to`; an `Everything` stands for those that cannot be
    /// read.
    pub fn events(&self, from: u64, to: u64) -> impl Iterator<Item = UnmapEvent> {
        let lost = to.saturating_sub(from) > N as u64;
        let numbers = if lost { to..to } else { from..to };
        let read = numbers.map(|number| self.read(number).unwrap_or(UnmapEvent::Everything));
        lost.then_some(UnmapEvent::Everything)
            .into_iter()
            .chain(read)
    }

    /// Whether one of these events affects any of `extent`.
    pub fn concerned(&self, from: u64, to: u64, extent: VaRange) -> bool {
        self.events(from, to).any(|event| match event {
            UnmapEvent::Gone(gone) => gone.overlaps(extent),
            UnmapEvent::Everything | UnmapEvent::Forked => true,
        })
    }

    fn read(&self, number: u64) -> Option<UnmapEvent> {
        let slot = &self.slots.0[number as usize % N];
        // Acquire: pairs with the last store in `note`.
        if slot.state.load(Ordering::Acquire) != number + 1 {
            return None;
        }
        let words = (
            slot.start.load(Ordering::Relaxed),
            slot.end.load(Ordering::Relaxed),
        );
        // Acquire: pairs with the fence in `note`: if a word were of a later writer, the slot's state would have
        // changed.
        fence(Ordering::Acquire);
        let unchanged = slot.state.load(Ordering::Relaxed) == number + 1;
        unchanged.then(|| UnmapEvent::of(words))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn gone(start: usize, end: usize) -> UnmapEvent {
        UnmapEvent::Gone(VaRange { start, end })
    }

    #[test]
    fn events_come_in_order() {
        let ring = EventRing::<4>::new();
        let noted = [gone(0, 4096), UnmapEvent::Forked, UnmapEvent::Everything];
        noted.into_iter().for_each(|event| ring.note(event));
        assert_eq!(ring.events(0, ring.head()).collect::<Vec<_>>(), noted);
        assert_eq!(
            ring.events(1, 2).collect::<Vec<_>>(),
            [UnmapEvent::Forked],
            "a part"
        );
        assert_eq!(ring.events(3, 3).count(), 0);
    }

    #[test]
    fn an_overtaken_reader_drops_everything() {
        let ring = EventRing::<4>::new();
        (0..5).for_each(|i| ring.note(gone(i * 4096, (i + 1) * 4096)));
        assert_eq!(
            ring.events(0, 5).collect::<Vec<_>>(),
            [UnmapEvent::Everything],
            "five in a ring of four"
        );
        let kept: Vec<_> = ring.events(1, 5).collect();
        assert_eq!(kept[0], gone(4096, 8192));
        assert_eq!(kept.len(), 4);
    }

    #[test]
    fn matching_ranges() {
        let ring = EventRing::<4>::new();
        ring.note(gone(4096, 8192));
        let whether = |start, end| ring.concerned(0, 1, VaRange { start, end });
        assert!(!whether(0, 4096) && !whether(8192, 12288));
        assert!(whether(0, 4097) && whether(8191, 9000) && whether(5000, 5001));
    }

    #[test]
    fn pages_hold_the_span() {
        let pages = |addr, len| VaRange::new(addr, len).pages(4096);
        assert_eq!(pages(5000, 1), VaRange::new(4096, 4096));
        assert_eq!(pages(4096, 4096), VaRange::new(4096, 4096));
        assert_eq!(pages(4095, 2), VaRange::new(0, 8192));
        assert!(pages(usize::MAX - 1, 1).len() <= 4096, "no overflow");
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// Both words identify the event, so that a torn one is detected.
    fn event(number: usize) -> UnmapEvent {
        let start = number * 4096;
        let end = start + 4096;
        UnmapEvent::Gone(VaRange { start, end })
    }

    fn is_whole(read: UnmapEvent) {
        if let UnmapEvent::Gone(extent) = read {
            assert_eq!(extent.len(), 4096, "torn: {extent:?}");
        }
    }

    /// With three threads the number of preemptions is bounded, as all orders would take too long.
    fn model(threads: impl Fn() + Sync + Send + 'static) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(threads);
    }

    /// Two writers in a ring of one slot, which overtake each other, and a reader beside them.
    #[test]
    fn loom_no_event_is_torn_or_lost() {
        model(|| {
            let ring = Arc::new(EventRing::<1>::new());
            let writers: Vec<_> = (1..3)
                .map(|number| {
                    let ring = ring.clone();
                    thread::spawn(move || ring.note(event(number)))
                })
                .collect();
            ring.events(0, ring.head()).for_each(is_whole);
            writers.into_iter().for_each(|w| w.join().unwrap());
            assert_eq!(ring.head(), 2);
            let last: Vec<_> = ring.events(1, 2).collect();
            assert_eq!(last.len(), 1);
            is_whole(last[0]);
            assert_eq!(ring.events(0, 2).next(), Some(UnmapEvent::Everything));
        });
    }

    /// A reader to which a writer has published an event finds it, while others write.
    #[test]
    fn loom_reported_events_are_found() {
        use loom::sync::atomic::AtomicU32;
        model(|| {
            let ring = Arc::new(EventRing::<2>::new());
            let noted = Arc::new(AtomicU32::new(0));
            let first = {
                let (ring, noted) = (ring.clone(), noted.clone());
                thread::spawn(move || {
                    ring.note(event(1));
                    // Publishes the event, as the mutex of an allocator does, or the kernel's lock on the address
                    // space.
                    noted.store(1, Ordering::Release);
                })
            };
            let second = {
                let ring = ring.clone();
                thread::spawn(move || ring.note(event(2)))
            };
            if noted.load(Ordering::Acquire) == 1 {
                let head = ring.head();
                assert!(head >= 1);
                let UnmapEvent::Gone(of_first) = event(1) else {
                    unreachable!()
                };
                assert!(ring.concerned(0, head, of_first));
            }
            first.join().unwrap();
            second.join().unwrap();
        });
    }
}
