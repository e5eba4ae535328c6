//! The memory of an inbox: its parts, and what a receiver and its senders map of them.
//!
//! An inbox has room for 1,024 rings and 8 areas, 102 MB, of which nearly all is never used. Address space may be
//! limited (`ulimit -v`, batch systems), so it is made in parts: the front with the first 32 rings when the worker is
//! made, further rings and areas when senders ask for them. A sender maps the front page, its own ring, and its area
//! once it has one. A part is a System V block of its own, or a piece of one sparse file. Areas are pieces of the file
//! wherever their sender can open it: a process that is killed between making a block and marking it as removed leaves
//! it behind, and many senders come to their areas at the same time.

use super::area::{AREA, AREAS, Areas};
use super::inbox::{Front, RINGS, RINGS_AT, Table};
use super::ring::RingMem;
use super::{Kind, Locator};
use crate::sys::machine;
use crate::sys::named::Named;
use crate::sys::segment::{Mapping, PAGE, Segment};
use crate::sys::sync::{AtomicU32, AtomicU64, OnceLock, Ordering};
use crate::sys::sysv::Block;
use crate::sys::unmaps::page_size;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::ptr::NonNull;

const RING: usize = size_of::<RingMem>();
/// Rings of the front. Each further part with rings doubles their number.
pub(super) const FIRST_RINGS: usize = if cfg!(loom) { RINGS } else { 32 };
/// Parts with rings, the front included.
const GROUPS: usize = (RINGS / FIRST_RINGS).ilog2() as usize + 1;
const _: () = assert!(FIRST_RINGS << (GROUPS - 1) == RINGS);
/// Parts that are made on request.
pub(super) const PARTS: usize = GROUPS - 1 + AREAS;

/// Areas begin at a multiple of their size.
const AREAS_AT: usize = (RINGS_AT + RINGS * RING).next_multiple_of(AREA);
/// Bytes of a file that has all parts.
const FILE_LEN: usize = AREAS_AT + AREAS * AREA;
const FRONT_LEN: usize = RINGS_AT + FIRST_RINGS * RING;

/// How senders find a part that is made on request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PartState {
    NotMade,
    /// The system refused the memory.
    Refused,
    /// A piece of the file, [`Part::offset`].
    InFile,
    /// The System V block of this number.
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

/// Whether a sender wants an area, and what it can map: the word in the inbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum AreaRequest {
    Nothing = 0,
    InFile = 1,
    /// The sender cannot open the owner's file, as in another PID namespace.
    Block = 2,
}

impl AreaRequest {
    fn from_word(word: u32) -> Self {
        match word {
            0 => AreaRequest::Nothing,
            2 => AreaRequest::Block,
            _ => AreaRequest::InFile,
        }
    }
}

/// A part that is made on request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Rings; 1 is the first one behind the front.
    Group(usize),
    /// The area of this number, from 1 on.
    Area(usize),
}

impl Part {
    /// Its place among the parts.
    fn index(self) -> usize {
        match self {
            Part::Group(group) => group - 1,
            Part::Area(number) => GROUPS - 1 + number - 1,
        }
    }

    fn len(self) -> usize {
        match self {
            Part::Group(group) => rings_of(group).len() * RING,
            Part::Area(_) => AREA,
        }
    }

    /// Where it lies in a file.
    fn offset(self) -> usize {
        match self {
            Part::Group(group) => RINGS_AT + rings_of(group).start * RING,
            Part::Area(number) => AREAS_AT + (number - 1) * AREA,
        }
    }
}

/// The rings of a part.
fn rings_of(group: usize) -> Range<usize> {
    match group {
        0 => 0..FIRST_RINGS,
        _ => FIRST_RINGS << (group - 1)..FIRST_RINGS << group,
    }
}

/// The part that has this ring.
fn group_of(ring: usize) -> usize {
    (ring / FIRST_RINGS)
        .checked_ilog2()
        .map_or(0, |log| log as usize + 1)
}

/// Whether the owner of an inbox with so many rings has failed to make more.
pub(super) fn cannot_add_rings(front: &Front, rings: usize) -> bool {
    // Relaxed: no other memory is read because of it.
    rings < RINGS
        && front.parts[Part::Group(group_of(rings)).index()].load(Ordering::Relaxed) == CANNOT
}

/// What the receiver's parts are made of.
enum Source {
    Blocks,
    Named(Named),
    File,
}

/// The memory of an inbox, in its owner.
pub(super) struct Own {
    source: Source,
    front: Mapping,
    /// Behind a pointer: areas point here.
    parts: Box<[OnceLock<Mapping>; PARTS]>,
    /// Rings that there are.
    rings: usize,
}

impl Own {
    /// New memory, its first bytes, and the low half of the key if it is a block. The identity of the inbox is the file
    /// that it may lie in. `named`: with a name in /dev/shm.
    ///
    /// # Errors
    /// `EMFILE`, `ENOMEM`, `ENOSPC`.
    pub(super) fn create(named: bool) -> io::Result<(Self, Segment, u64)> {
        if named {
            let file = Named::create(FILE_LEN)?;
            file.reserve(0, RINGS_AT)?;
            let (front, key) = (file.map(0, FRONT_LEN)?, file.key());
            let own = Self::with(Source::Named(file), front);
            return Ok((own, Segment::create(PAGE)?, key));
        }
        if let Ok(block) = Block::create(FRONT_LEN, None) {
            let number = block.number().into();
            let own = Self::with(Source::Blocks, block.into_mapping());
            return Ok((own, area_file()?, number));
        }
        let file = Segment::create(FILE_LEN)?;
        let front = file.map(0, FRONT_LEN, None)?;
        Ok((Self::with(Source::File, front), file, 0))
    }

    fn with(source: Source, front: Mapping) -> Self {
        let own = Self {
            source,
            front: front.without_children(),
            parts: Box::new(std::array::from_fn(|_| OnceLock::new())),
            rings: FIRST_RINGS,
        };
        let table = own.table();
        // Release: pairs with the Acquire load in `Table::claim`.
        let rings = &table.front().rings;
        rings.store(FIRST_RINGS as u32, Ordering::Release);
        own
    }

    pub(super) fn is_block(&self) -> bool {
        matches!(self.source, Source::Blocks)
    }

    pub(super) fn is_named(&self) -> bool {
        matches!(self.source, Source::Named(_))
    }

    /// Front page and claims; not to be used after `self`.
    pub(super) fn table(&self) -> Table {
        // SAFETY: both are mapped; users keep `self` beside it.
        unsafe { Table::new(self.front.start()) }
    }

    /// Rings that there are.
    pub(super) fn rings(&self) -> usize {
        self.rings
    }

    /// A ring that there is; not to be used after `self`.
    pub(super) fn ring(&self, index: usize) -> NonNull<RingMem> {
        assert!(index < self.rings);
        let group = group_of(index);
        let (base, offset) = match group {
            0 => (self.front.start(), RINGS_AT + index * RING),
            _ => {
                let part = self.parts[Part::Group(group).index()].get();
                let at = index - rings_of(group).start;
                (
                    part.expect("it is counted once it is made").start(),
                    at * RING,
                )
            }
        };
        // SAFETY: inside of the part.
        unsafe { base.add(offset).cast() }
    }

    /// Makes more rings. False: there are as many as there can be, or no more memory can be had, which is logged by the
    /// caller.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn add_rings(&mut self, identity: &Segment) -> io::Result<()> {
        let group = group_of(self.rings);
        // An endpoint cannot do without a ring, and another host's /proc does not show the file.
        let in_file = (!self.is_block()).then_some(identity);
        self.make(Part::Group(group), in_file)?;
        self.rings = rings_of(group).end;
        // Release: pairs with the Acquire load in `Table::claim`; the part's number comes before.
        let table = self.table();
        let rings = &table.front().rings;
        rings.store(self.rings as u32, Ordering::Release);
        Ok(())
    }

    /// Makes an area if a sender wants one, and there can be one more.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn add_wanted_area(&mut self, identity: &Segment) -> io::Result<()> {
        // Relaxed: the bell that called us comes after the word.
        let word = self.table().front().wants_area.swap(0, Ordering::Relaxed);
        let in_file = match AreaRequest::from_word(word) {
            AreaRequest::Nothing => return Ok(()),
            AreaRequest::InFile => Some(identity),
            AreaRequest::Block => None,
        };
        let mut all = (1..=AREAS).map(Part::Area);
        match all.find(|part| self.parts[part.index()].get().is_none()) {
            Some(part) => self.make(part, in_file),
            None => Ok(()),
        }
    }

    /// Makes a part, and tells senders how it is found. `in_file`: there, if it is not a block that is asked for; an
    /// inbox of blocks makes one if the file cannot be mapped.
    fn make(&mut self, part: Part, in_file: Option<&Segment>) -> io::Result<()> {
        let (offset, len) = (part.offset(), part.len());
        let piece = |file: &Segment| {
            let map = file.map(offset, len, None)?;
            Ok((map, PartState::InFile))
        };
        let block = || {
            let block = Block::create(len, None)?;
            let state = PartState::Block(block.number());
            Ok((block.into_mapping(), state))
        };
        let made = match (&self.source, in_file) {
            (Source::Named(file), _) => file.map(offset, len).map(|map| (map, PartState::InFile)),
            (Source::File, Some(file)) => piece(file),
            (Source::Blocks, Some(file)) => piece(file).or_else(|_| block()),
            (_, None) => block(),
        };
        let table = self.table();
        let word = &table.front().parts[part.index()];
        // Release: pairs with the Acquire load in `Theirs::find`.
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

    /// The areas, as the receiving end of a ring sees them; not to be used after `self`. None where memory has to be
    /// reserved: nobody could do without once a message lies there.
    pub(super) fn areas(&self, ring: usize) -> Option<Areas> {
        let owners = NonNull::from(&self.table().front().owners).cast();
        let source = NonNull::from(&*self.parts).cast();
        // SAFETY: AREAS words; the parts are behind a pointer.
        (!self.is_named()).then(|| unsafe { Areas::found_by(owners, ring, source, find_own) })
    }

    /// Gives back a ring's areas, and frees what was written there and in the ring.
    pub(super) fn empty(&self, ring: usize) {
        if let Some(areas) = self.areas(ring) {
            // SAFETY: areas are mapped as long as `self`; their ring is at its end.
            areas.release(|area| unsafe { discard(area.memory, AREA) });
        }
        // SAFETY: as above.
        unsafe { discard(self.ring(ring).cast(), RING) };
    }
}

/// The memory of an area that the owner of the parts at `source` has made.
///
/// # Safety
/// `source` is [`Own::parts`].
unsafe fn find_own(source: NonNull<()>, number: u8) -> Option<NonNull<u8>> {
    // SAFETY: the caller's promise.
    let parts = unsafe { source.cast::<[OnceLock<Mapping>; PARTS]>().as_ref() };
    let part = Part::Area(number.into());
    parts[part.index()].get().map(Mapping::start)
}

/// Frees memory that several processes have mapped: it reads as zero afterwards.
///
/// # Safety
/// Whole pages that are mapped and whose content nobody needs.
unsafe fn discard(start: NonNull<u8>, len: usize) {
    // SAFETY: the caller's promise.
    unsafe { libc::madvise(start.as_ptr().cast(), len, libc::MADV_REMOVE) };
}

/// What a sender has mapped of an inbox.
pub(super) struct Theirs {
    peer: Locator,
    named: bool,
    /// The front page; before [`take_ring`](Self::take_ring) the claims, and the rings of the front if it is a block.
    front: Mapping,
    ring: Option<Mapping>,
    /// Where the ring begins in its mapping.
    ring_at: usize,
    /// Behind a pointer: areas point here.
    area: Box<TheirArea>,
}

/// The area of a sender, mapped when it is claimed.
struct TheirArea {
    peer: Locator,
    /// Of the inbox: how the parts are found, and whether somebody wants one more.
    words: NonNull<[AtomicU32; PARTS]>,
    wanted: NonNull<AtomicU32>,
    doorbell: NonNull<AtomicU32>,
    mapped: OnceLock<Option<(u8, Mapping)>>,
}

impl Theirs {
    /// Maps the front of a peer's inbox.
    ///
    /// # Errors
    /// `NotFound`: it is gone. Else what the system said.
    pub(super) fn open(peer: Locator) -> io::Result<Self> {
        let front = match peer.kind() {
            Kind::Block => Block::attach(peer.key as u32, FRONT_LEN)?.into_mapping(),
            Kind::Named => Named::open(peer.key, FILE_LEN)?.map(0, RINGS_AT)?,
            Kind::File => Segment::open(peer.id, FILE_LEN as u64)?.map(0, RINGS_AT, None)?,
        };
        let front = front.without_children();
        // SAFETY: both are mapped for longer than this block.
        let table = unsafe { Table::new(front.start()) };
        if !table.is_inbox(peer.key) {
            return Err(io::Error::new(ErrorKind::NotFound, "not that inbox"));
        }
        let words = table.front();
        let area = TheirArea {
            peer,
            words: NonNull::from(&words.parts),
            wanted: NonNull::from(&words.wants_area),
            doorbell: NonNull::from(&words.doorbell),
            mapped: OnceLock::new(),
        };
        Ok(Self {
            peer,
            named: peer.kind() == Kind::Named,
            front,
            ring: None,
            ring_at: 0,
            area: Box::new(area),
        })
    }

    /// Front page and claims; not to be used after `self`, and the claims not after [`take_ring`](Self::take_ring).
    pub(super) fn table(&self) -> Table {
        // SAFETY: both are mapped; users keep `self` beside it.
        unsafe { Table::new(self.front.start()) }
    }

    /// Maps the ring that was claimed.
    ///
    /// # Errors
    /// `ENOSPC` where memory has to be reserved; else what the system said.
    pub(super) fn map_ring(&mut self, index: usize) -> io::Result<()> {
        let group = group_of(index);
        if self.peer.kind() != Kind::Block {
            let (pages, at) = pages_of(RINGS_AT + index * RING, RING);
            let map = self.map_file(pages, Some(index))?;
            (self.ring, self.ring_at) = (Some(map.without_children()), at);
            return Ok(());
        }
        if group == 0 {
            return Ok(()); // It is mapped: see `take_ring`.
        }
        let part = Part::Group(group);
        let all = self.area.map_part(part)?;
        let (pages, at) = pages_of((index - rings_of(group).start) * RING, RING);
        (self.ring, self.ring_at) = (Some(all.cut(pages).without_children()), at);
        Ok(())
    }

    /// Pages of the file that the inbox lies in. `ring`: a ring for which memory is reserved where that is necessary.
    fn map_file(&self, pages: Range<usize>, ring: Option<usize>) -> io::Result<Mapping> {
        match self.peer.kind() {
            Kind::Named => {
                let file = Named::open(self.peer.key, FILE_LEN)?;
                if let Some(index) = ring {
                    file.reserve(RINGS_AT + index * RING, RING)?;
                }
                file.map(pages.start, pages.len())
            }
            _ => map_segment(self.peer, pages),
        }
    }

    /// The ring that was claimed and mapped is this sender's: everything else but the front page is unmapped. The ring
    /// is not to be used after `self`.
    pub(super) fn take_ring(mut self, index: usize) -> Self {
        let page = page_size();
        let (front, rest) = self.front.split(page);
        self.front = front;
        if self.ring.is_none() {
            let (pages, at) = pages_of(RINGS_AT + index * RING - page, RING);
            (self.ring, self.ring_at) = (Some(rest.cut(pages)), at);
        }
        self
    }

    /// The sender's ring; not to be used after `self`.
    pub(super) fn ring(&self) -> NonNull<RingMem> {
        let ring = self.ring.as_ref().expect("taken");
        // SAFETY: inside of the mapping.
        unsafe { ring.start().add(self.ring_at).cast() }
    }

    /// The counter of the senders' epochs; not to be used after `self`.
    pub(super) fn epochs(&self) -> NonNull<AtomicU64> {
        NonNull::from(&self.table().front().epochs.0)
    }

    /// Whether the owner has not marked the inbox as destroyed.
    pub(super) fn is_used(&self) -> bool {
        self.table().is_inbox(self.peer.key)
    }

    /// The areas, as the sending end of a ring sees them; as [`Own::areas`].
    pub(super) fn areas(&self, ring: usize) -> Option<Areas> {
        let owners = NonNull::from(&self.table().front().owners).cast();
        let source = NonNull::from(&*self.area).cast();
        // SAFETY: AREAS words; the area is behind a pointer.
        (!self.named).then(|| unsafe { Areas::found_by(owners, ring, source, find_theirs) })
    }

    /// Frees what the sender wrote, in the memory of an inbox whose owner is gone: it stays as long as anybody has it
    /// mapped.
    pub(super) fn forsake(&self, ring: usize) {
        if let Some(Some((_, area))) = self.area.mapped.get() {
            if let Some(areas) = self.areas(ring) {
                areas.release(|_| ());
            }
            // SAFETY: an area of this sender's; nobody reads it any more.
            unsafe { discard(area.start(), AREA) };
        }
        // SAFETY: as above.
        unsafe { discard(self.ring().cast(), RING) };
    }
}

/// The file of an inbox of blocks: it identifies the inbox, and has room for areas unless files are limited
/// (`ulimit -f`).
fn area_file() -> io::Result<Segment> {
    Segment::create(match machine::max_file_size() {
        Some(limit) if limit < FILE_LEN as u64 => PAGE,
        _ => FILE_LEN,
    })
}

/// The whole pages that hold `len` bytes at an offset, and where those begin in the pages.
fn pages_of(offset: usize, len: usize) -> (Range<usize>, usize) {
    let page = page_size();
    let start = offset / page * page;
    (start..(offset + len).next_multiple_of(page), offset - start)
}

fn map_segment(peer: Locator, pages: Range<usize>) -> io::Result<Mapping> {
    Segment::open(peer.id, FILE_LEN as u64)?.map(pages.start, pages.len(), None)
}

impl TheirArea {
    fn state(&self, part: Part) -> PartState {
        // SAFETY: the front page is mapped as long as the sender.
        let words = unsafe { self.words.as_ref() };
        // Acquire: pairs with the Release stores in `Own::make`.
        PartState::from_word(words[part.index()].load(Ordering::Acquire))
    }

    /// Maps all of a part. The word that tells how comes from the peer, which is not trusted: a block or a file of
    /// another user or of another length is refused.
    fn map_part(&self, part: Part) -> io::Result<Mapping> {
        match self.state(part) {
            PartState::NotMade | PartState::Refused => Err(ErrorKind::WouldBlock.into()),
            PartState::Block(number) => Ok(Block::attach(number, part.len())?.into_mapping()),
            PartState::InFile => map_segment(self.peer, part.offset()..part.offset() + part.len()),
        }
    }

    /// Maps the area of this number, if there is one.
    fn map(&self, number: u8) -> Option<(u8, Mapping)> {
        let mapped = self.map_part(Part::Area(number.into()));
        mapped.ok().map(|map| (number, map.without_children()))
    }

    /// Asks the receiver for one area more.
    fn want_one(&self) {
        // SAFETY: the front page is mapped as long as the sender.
        let (wanted, doorbell) = unsafe { (self.wanted.as_ref(), self.doorbell.as_ref()) };
        // Relaxed, here and below: the word comes before the bell, whose Release pairs with the Acquire load in
        // `Table::accept`.
        if wanted.load(Ordering::Relaxed) != AreaRequest::Nothing as u32 {
            return;
        }
        let request = match Segment::open(self.peer.id, FILE_LEN as u64) {
            Ok(_) => AreaRequest::InFile,
            Err(_) => AreaRequest::Block,
        };
        if wanted.swap(request as u32, Ordering::Relaxed) == AreaRequest::Nothing as u32 {
            doorbell.fetch_add(1, Ordering::Release);
        }
    }
}

/// The memory of the area that the sender at `source` has claimed: mapped now, or before. A sender has one; if it
/// cannot be mapped none is tried again.
///
/// # Safety
/// `source` is [`Theirs::area`].
unsafe fn find_theirs(source: NonNull<()>, number: u8) -> Option<NonNull<u8>> {
    // SAFETY: the caller's promise.
    let area = unsafe { source.cast::<TheirArea>().as_ref() };
    if let Some(mapped) = area.mapped.get() {
        let (known, map) = mapped.as_ref()?;
        return (*known == number).then(|| map.start());
    }
    if area.state(Part::Area(number.into())) == PartState::NotMade {
        area.want_one();
        return None;
    }
    let mapped = area.mapped.get_or_init(|| area.map(number));
    mapped.as_ref().map(|(_, map)| map.start())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn states_of_parts_are_told_by_words() {
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
    fn an_area_is_where_its_sender_can_map_it() {
        let (mut own, file, key) = Own::create(false).unwrap();
        let is_block = own.is_block();
        let mut want = |request: AreaRequest| {
            let words = own.table();
            let words = words.front();
            words.wants_area.store(request as u32, Ordering::Relaxed);
            own.add_wanted_area(&file).unwrap();
            let made = own.table();
            let states = made.front().parts[GROUPS - 1..].iter();
            states
                .map(|word| PartState::from_word(word.load(Ordering::Relaxed)))
                .filter(|state| *state != PartState::NotMade)
                .collect::<Vec<_>>()
        };
        assert_eq!(want(AreaRequest::Nothing), []);
        assert_eq!(want(AreaRequest::InFile), [PartState::InFile]);
        if is_block {
            let all = want(AreaRequest::Block);
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
        let groups = (1..GROUPS).map(Part::Group);
        let parts: Vec<_> = groups.chain((1..=AREAS).map(Part::Area)).collect();
        assert!(parts.iter().map(|p| p.index()).eq(0..PARTS));
        let ends = parts.iter().map(|p| p.offset() + p.len());
        assert!(
            ends.zip(&parts[1..])
                .all(|(end, next)| end <= next.offset())
        );
    }
}
