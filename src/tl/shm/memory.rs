//! The memory of an inbox: its parts, and which of them a receiver and its senders map.
//!
//! An inbox has room for 1,024 rings and 8 big buffers, 102 MB, of which most is never used. Address space may be
//! limited (`ulimit -v`, batch systems), so it is created in parts: the front with the starts of the first 512 rings,
//! and the bodies of the first 32, when the worker is created; further bodies and big buffers when senders request
//! them. A sender maps the front, its own ring's body once its messages need it ([`Start`]), and its big buffer once it
//! has one. A part is a System V segment of its own, or a range of one sparse file. Big buffers are ranges of the file
//! wherever their sender can open it: a process that is killed between creating a segment and marking it as removed
//! leaks it, and many senders start to use their big buffers at the same time.

use super::big_buf::{BIG_BUF_BYTES, BigBufs, MAX_BIG_BUFS};
use super::inbox::{FRONT_LEN, InboxHeader, InboxTable, RINGS, STARTS, entry_bytes};
use super::ring::{RingMem, RingParts, Start};
use crate::sys::host;
use crate::sys::mapping::Mapping;
use crate::sys::memfd::{Memfd, PAGE};
use crate::sys::populate::{PageAccess, populate};
use crate::sys::posix_shm::PosixShm;
use crate::sys::sync::{OnceLock, Ordering};
use crate::sys::sysv::SysvSegment;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;

mod theirs;
pub(super) use theirs::Theirs;

const RING: usize = size_of::<RingMem>();
/// Rings of the first group. Each further group doubles the number of rings.
pub(super) const FIRST_RINGS: usize = if cfg!(loom) { RINGS } else { 32 };
/// Parts with rings (groups).
const GROUPS: usize = (RINGS / FIRST_RINGS).ilog2() as usize + 1;
const _: () = assert!(FIRST_RINGS << (GROUPS - 1) == RINGS);
/// Parts beside the front: all but the first group of rings are created on request.
pub(super) const PARTS: usize = GROUPS + MAX_BIG_BUFS;

/// Offset of the rings in a file: a multiple of every system's page size.
const RINGS_AT: usize = FRONT_LEN.next_multiple_of(64 << 10);
/// Big buffers begin at a multiple of their size.
const BIG_BUFS_AT: usize = (RINGS_AT + RINGS * RING).next_multiple_of(BIG_BUF_BYTES);
/// Bytes of a file that has all parts.
const FILE_LEN: usize = BIG_BUFS_AT + MAX_BIG_BUFS * BIG_BUF_BYTES;

/// How senders find a part that is created on request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PartState {
    NotMade,
    /// The system refused the memory.
    Refused,
    /// A range of the file, at [`InboxPart::offset`].
    InFile,
    /// The System V segment of this number.
    Block(u32),
}

impl PartState {
    fn from_word(word: u32) -> Self {
        match word {
            0 => PartState::NotMade,
            1 => PartState::InFile,
            u32::MAX => PartState::Refused,
            number => PartState::Block(number - 2),
        }
    }

    fn word(self) -> u32 {
        match self {
            PartState::NotMade => 0,
            PartState::InFile => 1,
            PartState::Refused => u32::MAX,
            // The kernel's numbers are positive numbers of 31 bits.
            PartState::Block(number) => number + 2,
        }
    }
}

/// The word in the inbox by which a sender requests a big buffer, with the kind that it can map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum BigBufRequest {
    Nothing = 0,
    InFile = 1,
    /// The sender cannot open the owner's file, as in another PID namespace.
    Block = 2,
}

impl BigBufRequest {
    fn from_word(word: u32) -> Self {
        match word {
            0 => BigBufRequest::Nothing,
            2 => BigBufRequest::Block,
            _ => BigBufRequest::InFile,
        }
    }
}

/// A part beside the front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InboxPart {
    /// A group of rings, from 0 on.
    Group(usize),
    /// The big buffer of this number, from 1 on.
    BigBuf(usize),
}

impl InboxPart {
    /// Its index among the parts.
    fn index(self) -> usize {
        match self {
            InboxPart::Group(group) => group,
            InboxPart::BigBuf(number) => GROUPS + number - 1,
        }
    }

    fn len(self) -> usize {
        match self {
            InboxPart::Group(group) => rings_of(group).len() * RING,
            InboxPart::BigBuf(_) => BIG_BUF_BYTES,
        }
    }

    /// Its offset in a file.
    fn offset(self) -> usize {
        match self {
            InboxPart::Group(group) => RINGS_AT + rings_of(group).start * RING,
            InboxPart::BigBuf(number) => BIG_BUFS_AT + (number - 1) * BIG_BUF_BYTES,
        }
    }
}

/// The rings of a group.
fn rings_of(group: usize) -> Range<usize> {
    match group {
        0 => 0..FIRST_RINGS,
        _ => FIRST_RINGS << (group - 1)..FIRST_RINGS << group,
    }
}

/// The group that has this ring.
fn group_of(ring: usize) -> usize {
    (ring / FIRST_RINGS)
        .checked_ilog2()
        .map_or(0, |log| log as usize + 1)
}

/// Whether the owner of an inbox with `rings` rings has failed to create more.
pub(super) fn cannot_add_rings(front: &InboxHeader, rings: usize) -> bool {
    let word = &front.parts[InboxPart::Group(group_of(rings.min(RINGS - 1))).index()];
    // Relaxed: no other memory is read because of it.
    rings < RINGS && PartState::from_word(word.load(Ordering::Relaxed)) == PartState::Refused
}

/// The memory that the receiver creates parts in.
enum PartSource {
    Blocks,
    Named(PosixShm),
    File,
}

/// The memory of an inbox, in its owner.
pub(super) struct OwnInbox {
    source: PartSource,
    front: Mapping,
    /// Boxed: the big buffers keep a pointer to it.
    parts: Box<[OnceLock<Mapping>; PARTS]>,
    /// Number of rings that exist.
    rings: usize,
}

impl OwnInbox {
    /// Creates the memory. Returns it, the file that identifies the inbox (and may hold the memory), and the low half
    /// of the key if the memory is a segment. `named`: with a name in /dev/shm.
    ///
    /// # Errors
    /// `EMFILE`, `ENOMEM`, `ENOSPC`.
    pub(super) fn create(named: bool) -> io::Result<(Self, Memfd, u64)> {
        if named {
            let file = PosixShm::create(FILE_LEN)?;
            file.reserve(0, PAGE)?;
            let (front, key) = (file.map(0, FRONT_LEN)?, file.key());
            let identity = Memfd::create(PAGE)?;
            let own = Self::with(PartSource::Named(file), front, &identity)?;
            return Ok((own, identity, key));
        }
        if let Ok(made) = Self::create_blocks() {
            return Ok(made);
        }
        let file = Memfd::create(FILE_LEN)?;
        let front = file.map(0, FRONT_LEN, None)?;
        Ok((Self::with(PartSource::File, front, &file)?, file, 0))
    }

    fn create_blocks() -> io::Result<(Self, Memfd, u64)> {
        let block = SysvSegment::create(FRONT_LEN, None)?;
        let (number, front) = (block.number().into(), block.into_mapping());
        let identity = big_buf_file()?;
        let own = Self::with(PartSource::Blocks, front, &identity)?;
        Ok((own, identity, number))
    }

    /// Creates the first rings beside the front.
    fn with(source: PartSource, front: Mapping, identity: &Memfd) -> io::Result<Self> {
        let mut own = Self {
            source,
            front: front.without_children(),
            parts: Box::new(std::array::from_fn(|_| OnceLock::new())),
            rings: 0,
        };
        own.add_rings(identity, 0)?;
        Ok(own)
    }

    /// Whether the parts are System V segments, which senders attach by number.
    pub(super) fn is_block(&self) -> bool {
        matches!(self.source, PartSource::Blocks)
    }

    /// Whether the parts are in a named file in /dev/shm, which senders of other IPC namespaces can open.
    pub(super) fn is_named(&self) -> bool {
        matches!(self.source, PartSource::Named(_))
    }

    /// The front page and the claims; not to be used after `self` is dropped.
    pub(super) fn table(&self) -> InboxTable {
        // SAFETY: the front is mapped as long as `self`, which callers keep beside the table.
        unsafe { InboxTable::new(self.front.start()) }
    }

    /// Number of rings that exist.
    pub(super) fn rings(&self) -> usize {
        self.rings
    }

    /// A ring that exists; not to be used after `self` is dropped.
    pub(super) fn ring(&self, index: usize) -> RingParts {
        assert!(index < self.rings);
        let group = group_of(index);
        let part = self.parts[InboxPart::Group(group).index()].get();
        let base = part.expect("it is counted once it is made").start();
        // SAFETY: the ring lies inside of its part.
        let body = unsafe { base.add((index - rings_of(group).start) * RING) };
        parts_of(self.table().start(index), body.cast())
    }

    /// Creates more rings. Populates those of their entries that belong to the first `expected` rings: as many senders
    /// find the pages of their first messages populated.
    ///
    /// # Errors
    /// Errors of the system; the caller logs them.
    pub(super) fn add_rings(&mut self, identity: &Memfd, expected: usize) -> io::Result<()> {
        let group = group_of(self.rings);
        if let PartSource::Named(file) = &self.source {
            let entries = entry_bytes(rings_of(group));
            file.reserve(entries.start, entries.len())?;
        }
        // The first group exists before any sender is expected.
        let first = if group == 1 { 0 } else { rings_of(group).start };
        let expected = expected.min(rings_of(group).end).min(STARTS);
        if first < expected {
            let entries = entry_bytes(first..expected);
            // SAFETY: the range is inside of the front, which is mapped as long as `self`.
            unsafe {
                let first = self.front.start().add(entries.start);
                populate(first.as_ptr(), entries.len(), PageAccess::Write);
            }
        }
        // An endpoint needs a ring, and /proc does not show the file in other PID namespaces.
        let in_file = (!self.is_block()).then_some(identity);
        self.make(InboxPart::Group(group), in_file)?;
        self.rings = rings_of(group).end;
        // Release: pairs with the Acquire load in `InboxTable::claim`; the store to the part's word comes before.
        let table = self.table();
        let rings = &table.front().rings;
        rings.store(self.rings as u32, Ordering::Release);
        Ok(())
    }

    /// Creates a big buffer if a sender has requested one and there are fewer than [`MAX_BIG_BUFS`].
    ///
    /// # Errors
    /// Errors of the system.
    pub(super) fn add_wanted_big_buf(&mut self, identity: &Memfd) -> io::Result<()> {
        // Relaxed: the Acquire load of the doorbell came before, and the sender adds to the doorbell after the word.
        let word = self
            .table()
            .front()
            .wants_big_buf
            .swap(0, Ordering::Relaxed);
        let in_file = match BigBufRequest::from_word(word) {
            BigBufRequest::Nothing => return Ok(()),
            BigBufRequest::InFile => Some(identity),
            BigBufRequest::Block => None,
        };
        let mut all = (1..=MAX_BIG_BUFS).map(InboxPart::BigBuf);
        match all.find(|part| self.parts[part.index()].get().is_none()) {
            Some(part) => self.make(part, in_file),
            None => Ok(()),
        }
    }

    /// Creates a part and publishes how senders find it. `in_file`: create it there; None requests a segment. An inbox
    /// of segments falls back to a segment if the file cannot be mapped.
    fn make(&mut self, part: InboxPart, in_file: Option<&Memfd>) -> io::Result<()> {
        let (offset, len) = (part.offset(), part.len());
        let piece = |file: &Memfd| {
            let map = file.map(offset, len, None)?;
            Ok((map, PartState::InFile))
        };
        let block = || {
            let block = SysvSegment::create(len, None)?;
            let state = PartState::Block(block.number());
            Ok((block.into_mapping(), state))
        };
        let made = match (&self.source, in_file) {
            (PartSource::Named(file), _) => {
                file.map(offset, len).map(|map| (map, PartState::InFile))
            }
            (PartSource::File, Some(file)) => piece(file),
            (PartSource::Blocks, Some(file)) => piece(file).or_else(|_| block()),
            (_, None) => block(),
        };
        let table = self.table();
        let word = &table.front().parts[part.index()];
        // Release: pairs with the Acquire load in `TheirParts::state`.
        match made {
            Ok((map, state)) => {
                let _ = self.parts[part.index()].set(map.without_children());
                word.store(state.word(), Ordering::Release);
                Ok(())
            }
            Err(e) => {
                word.store(PartState::Refused.word(), Ordering::Release);
                Err(e)
            }
        }
    }

    /// The big buffers, as the receiving end of a ring sees them; not to be used after `self` is dropped. None where
    /// memory has to be reserved: once a message is in a big buffer, the memory must exist.
    pub(super) fn big_bufs(&self, ring: usize) -> Option<BigBufs> {
        let owners = NonNull::from(&self.table().front().owners).cast();
        let source = NonNull::from(&*self.parts).cast();
        // SAFETY: `owners` are AREAS words, and the parts are boxed: both exist as long as `self`.
        (!self.is_named()).then(|| unsafe { BigBufs::found_by(owners, ring, source, find_own) })
    }

    /// Frees a ring's big buffers, and discards what was written there and in the ring.
    pub(super) fn empty(&self, ring: usize) {
        if let Some(big_bufs) = self.big_bufs(ring) {
            // SAFETY: big buffers are mapped as long as `self`, and the ring is closed.
            big_bufs.release(|big_buf| unsafe { discard(big_buf.memory, BIG_BUF_BYTES) });
        }
        let RingParts { start, body } = self.ring(ring);
        // SAFETY: the parts of the ring are mapped as long as `self`, and the ring is closed. The pages of starts are
        // shared with other rings, so a start is zeroed instead of discarded.
        unsafe {
            if ring < STARTS {
                start.write_bytes(0, 1);
            }
            discard(body.cast(), RING);
        }
    }
}

/// A ring whose start is at `start`, or in its body.
fn parts_of(start: Option<NonNull<Start>>, body: NonNull<RingMem>) -> RingParts {
    let whole = RingParts::from(body);
    RingParts {
        start: start.unwrap_or(whole.start),
        body,
    }
}

/// The memory of a big buffer that the owner of the parts at `source` has created.
///
/// # Safety
/// `source` is [`OwnInbox::parts`].
unsafe fn find_own(source: NonNull<()>, number: u8) -> Option<NonNull<u8>> {
    // SAFETY: by the caller, `source` points to the parts of an `OwnInbox`.
    let parts = unsafe { source.cast::<[OnceLock<Mapping>; PARTS]>().as_ref() };
    let part = InboxPart::BigBuf(number.into());
    parts[part.index()].get().map(Mapping::start)
}

/// The file of an inbox of segments: it identifies the inbox, and has room for big buffers unless the file size is
/// limited (`ulimit -f`).
fn big_buf_file() -> io::Result<Memfd> {
    Memfd::create(match host::max_file_size() {
        Some(limit) if limit < FILE_LEN as u64 => PAGE,
        _ => FILE_LEN,
    })
}

/// Frees memory that several processes have mapped: it reads as zero afterwards.
///
/// # Safety
/// The range is of whole mapped pages, whose content no process needs any more.
unsafe fn discard(start: NonNull<u8>, len: usize) {
    // Not by rustix: its `madvise` calls `posix_madvise`, which the memory hooks do not intercept.
    // SAFETY: by the caller, the pages are mapped and their content is not needed.
    unsafe { libc::madvise(start.as_ptr().cast(), len, libc::MADV_REMOVE) };
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn states_of_parts_are_in_words() {
        let all = [
            PartState::NotMade,
            PartState::Refused,
            PartState::InFile,
            PartState::Block(0),
            PartState::Block(i32::MAX as u32),
        ];
        for state in all {
            assert_eq!(PartState::from_word(state.word()), state);
        }
    }

    #[test]
    fn a_big_buffer_is_where_its_sender_can_map_it() {
        let (mut own, file, key) = OwnInbox::create(false).unwrap();
        let is_block = own.is_block();
        let mut want = |request: BigBufRequest| {
            let words = own.table();
            let words = words.front();
            words.wants_big_buf.store(request as u32, Ordering::Relaxed);
            own.add_wanted_big_buf(&file).unwrap();
            let made = own.table();
            let states = made.front().parts[GROUPS..].iter();
            states
                .map(|word| PartState::from_word(word.load(Ordering::Relaxed)))
                .filter(|state| *state != PartState::NotMade)
                .collect::<Vec<_>>()
        };
        assert_eq!(want(BigBufRequest::Nothing), []);
        assert_eq!(want(BigBufRequest::InFile), [PartState::InFile]);
        if is_block {
            let all = want(BigBufRequest::Block);
            assert!(
                matches!(all[..], [PartState::InFile, PartState::Block(_)]),
                "{all:?}"
            );
        } else {
            assert_eq!(key, 0);
        }
    }

    #[test]
    fn parts_cover_all_rings_once() {
        let mut next = 0;
        for group in 0..GROUPS {
            assert_eq!(rings_of(group).start, next);
            next = rings_of(group).end;
            assert!(rings_of(group).all(|ring| group_of(ring) == group));
        }
        assert_eq!(next, RINGS);
        let groups = (0..GROUPS).map(InboxPart::Group);
        let parts: Vec<_> = groups
            .chain((1..=MAX_BIG_BUFS).map(InboxPart::BigBuf))
            .collect();
        assert!(parts.iter().map(|p| p.index()).eq(0..PARTS));
        let ends = parts.iter().map(|p| p.offset() + p.len());
        assert!(
            ends.zip(&parts[1..])
                .all(|(end, next)| end <= next.offset())
        );
    }
}
