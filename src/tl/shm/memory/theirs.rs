//! The memory of a peer's inbox that a sender maps: the front, the body of its ring, and its big buffer.

use super::{
    BigBufRequest, FILE_LEN, InboxPart, PARTS, PartState, RING, RINGS_AT, discard, group_of,
    rings_of,
};
use crate::sys::advice;
use crate::sys::log;
use crate::sys::mapping::Mapping;
use crate::sys::mem_monitor::page_size;
use crate::sys::memfd::Memfd;
use crate::sys::posix_shm::PosixShm;
use crate::sys::sync::{AtomicU32, AtomicU64, OnceLock, Ordering};
use crate::sys::sysv::SysvSegment;
use crate::tl::shm::big_buf::{BIG_BUF_BYTES, BigBufs};
use crate::tl::shm::inbox::{FRONT_LEN, InboxTable, RingSearch, start_at};
use crate::tl::shm::ring::{BodyError, BodySource, RingMem, RingParts, Start};
use crate::tl::shm::{FoundInbox, InboxKind, InboxLocator};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::ptr::NonNull;

/// The parts of a peer's inbox that a sender has mapped.
pub(in crate::tl::shm) struct Theirs {
    named: bool,
    key: u64,
    front: Mapping,
    /// Address space was limited when the ring was taken: only what is needed is mapped.
    is_limited: bool,
    /// The page with the start of the ring that was taken, if `front` has only one page.
    start: Option<Mapping>,
    /// Boxed, like `big_buf`: the ring and its big buffers keep pointers to them.
    body: Box<TheirBody>,
    big_buf: Box<TheirBigBuf>,
}

/// How a sender finds the parts of an inbox.
#[derive(Clone, Copy)]
struct TheirParts {
    peer: InboxLocator,
    /// In the front page, which is mapped as long as the sender.
    words: NonNull<[AtomicU32; PARTS]>,
}

/// The body of a sender's ring, mapped when it is needed.
struct TheirBody {
    parts: TheirParts,
    ring: usize,
    /// The mapping, and the offset of the body in it.
    mapped: OnceLock<Result<(Mapping, usize), BodyError>>,
}

/// The big buffer of a sender, mapped when it is claimed.
struct TheirBigBuf {
    parts: TheirParts,
    /// The request word of the inbox: an [`BigBufRequest`].
    wanted: NonNull<AtomicU32>,
    doorbell: NonNull<AtomicU32>,
    mapped: OnceLock<Option<(u8, Mapping)>>,
}

impl Theirs {
    /// Maps the front of a peer's inbox.
    ///
    /// # Errors
    /// `NotFound`: the inbox does not exist any more. Else errors of the system.
    pub(in crate::tl::shm) fn open(found: impl Into<FoundInbox>) -> io::Result<Self> {
        let FoundInbox {
            inbox: peer,
            segment,
        } = found.into();
        let front = match peer.kind() {
            InboxKind::Block => match segment {
                Some(segment) => segment.attach(FRONT_LEN),
                None => SysvSegment::attach(peer.key as u32, FRONT_LEN),
            }?
            .into_mapping(),
            InboxKind::Named => PosixShm::open(peer.key, FILE_LEN)?.map(0, FRONT_LEN)?,
            InboxKind::File => Memfd::open(peer.id, FILE_LEN as u64)?.map(0, FRONT_LEN, None)?,
        };
        let front = front.without_children();
        // SAFETY: the front is mapped for longer than the table is used.
        let table = unsafe { InboxTable::new(front.start()) };
        if !table.is_inbox(peer.key) {
            return Err(io::Error::new(ErrorKind::NotFound, "not that inbox"));
        }
        let words = table.front();
        let parts = TheirParts {
            peer,
            words: NonNull::from(&words.parts),
        };
        let big_buf = TheirBigBuf {
            parts,
            wanted: NonNull::from(&words.wants_big_buf),
            doorbell: NonNull::from(&words.doorbell),
            mapped: OnceLock::new(),
        };
        let body = TheirBody {
            parts,
            ring: 0,
            mapped: OnceLock::new(),
        };
        Ok(Self {
            named: peer.kind() == InboxKind::Named,
            key: peer.key,
            front,
            is_limited: false,
            start: None,
            body: Box::new(body),
            big_buf: Box::new(big_buf),
        })
    }

    /// Front page, entries and claims; not to be used after `self` is dropped. After [`trim`](Self::trim) only the
    /// front page may be accessed.
    pub(in crate::tl::shm) fn table(&self) -> InboxTable {
        // SAFETY: the front is mapped as long as `self`, which callers keep beside the table.
        unsafe { InboxTable::new(self.front.start()) }
    }

    /// Populates the page with the claim and the first messages of the ring that `search` is likely to find: a sender's
    /// first message then causes no page fault. Not in a file whose memory has to be reserved.
    pub(in crate::tl::shm) fn touch(&self, search: RingSearch) {
        if !self.named {
            self.table().touch(search);
        }
    }

    /// Whether the body of a ring can be mapped: nothing stays mapped.
    ///
    /// # Errors
    /// Errors of the system.
    pub(in crate::tl::shm) fn probe_ring(&self) -> io::Result<()> {
        self.body.parts.map_ring(0).map(drop)
    }

    /// Prepares the claimed ring for this sender: returns its start, not to be used after `self` is dropped.
    ///
    /// Also maps the body where that must not fail later: if its memory has to be reserved, because the receiver reads
    /// the slots there whether they are written or not; and if address space `is_limited`, because another transport
    /// can still be selected now.
    ///
    /// # Errors
    /// Errors of the system in mapping the body.
    pub(in crate::tl::shm) fn take_ring(
        &mut self,
        index: usize,
        is_limited: bool,
    ) -> io::Result<NonNull<Start>> {
        self.body.ring = index;
        self.is_limited = is_limited;
        let start = self.table().start(index);
        match start {
            Some(start) if !self.named && !self.is_limited => Ok(start),
            _ => {
                let body = self.body.map()?;
                Ok(start.unwrap_or(RingParts::from(body).start))
            }
        }
    }

    /// If address space is limited: unmaps the front but for its first page and the start of this sender's ring.
    pub(in crate::tl::shm) fn trim(mut self, ring: usize) -> Self {
        if !self.is_limited {
            return self;
        }
        let page = page_size();
        let (front, rest) = self.front.split(page);
        self.front = front;
        self.start = start_at(ring).map(|at| {
            let (pages, _) = pages_of(at, size_of::<Start>());
            rest.cut(pages.start.saturating_sub(page)..pages.end - page)
        });
        self
    }

    /// How the producer of the ring that was taken maps its body; not to be used after `self` is dropped.
    pub(in crate::tl::shm) fn body(&self) -> BodySource {
        // SAFETY: the body is boxed, and stays mapped as long as the box exists.
        unsafe { BodySource::new(NonNull::from(&*self.body).cast(), find_body) }
    }

    /// The counter of the senders' epochs; not to be used after `self` is dropped.
    pub(in crate::tl::shm) fn epochs(&self) -> NonNull<AtomicU64> {
        NonNull::from(&self.table().front().epochs.0)
    }

    /// Whether the owner has not marked the inbox as destroyed.
    pub(in crate::tl::shm) fn is_used(&self) -> bool {
        self.table().is_inbox(self.key)
    }

    /// The big buffers, as the sending end of a ring sees them. None where memory has to be reserved, see
    /// [`super::OwnInbox::big_bufs`].
    pub(in crate::tl::shm) fn big_bufs(&self, ring: usize) -> Option<BigBufs> {
        let owners = NonNull::from(&self.table().front().owners).cast();
        let source = NonNull::from(&*self.big_buf).cast();
        // SAFETY: `owners` are AREAS words, and the big buffer is boxed: both exist as long as `self`.
        (!self.named).then(|| unsafe { BigBufs::found_by(owners, ring, source, find_theirs) })
    }

    /// Discards what the sender wrote, in the memory of an inbox whose owner is dead: the memory exists as long as a
    /// process has it mapped.
    pub(in crate::tl::shm) fn discard_unread(&self, ring: usize) {
        if let Some(Some((_, big_buf))) = self.big_buf.mapped.get() {
            if let Some(big_bufs) = self.big_bufs(ring) {
                big_bufs.release(|_| ());
            }
            // SAFETY: this sender owns the big buffer, and its only reader is dead.
            unsafe { discard(big_buf.start(), BIG_BUF_BYTES) };
        }
        if let Some(Ok((body, at))) = self.body.mapped.get() {
            // SAFETY: this sender owns the ring, whose only reader is dead; the ring lies in its mapping.
            unsafe { discard(body.start().add(*at), RING) };
        }
    }
}

/// The whole pages that hold `len` bytes at an offset, and the offset of those bytes in the pages.
fn pages_of(offset: usize, len: usize) -> (Range<usize>, usize) {
    let page = page_size();
    let start = offset / page * page;
    (start..(offset + len).next_multiple_of(page), offset - start)
}

fn map_segment(peer: InboxLocator, pages: Range<usize>) -> io::Result<Mapping> {
    Memfd::open(peer.id, FILE_LEN as u64)?.map(pages.start, pages.len(), None)
}

impl TheirParts {
    fn state(&self, part: InboxPart) -> PartState {
        // SAFETY: the front page is mapped as long as the sender.
        let words = unsafe { self.words.as_ref() };
        // Acquire: pairs with the Release stores in `OwnInbox::make`.
        PartState::from_word(words[part.index()].load(Ordering::Acquire))
    }

    /// Maps all of a part. The untrusted peer writes the word that says how: a segment or a file of another user or of
    /// another length is refused.
    fn map_part(&self, part: InboxPart) -> io::Result<Mapping> {
        match self.state(part) {
            PartState::NotMade | PartState::Refused => Err(ErrorKind::WouldBlock.into()),
            PartState::Block(number) => Ok(SysvSegment::attach(number, part.len())?.into_mapping()),
            PartState::InFile => map_segment(self.peer, part.offset()..part.offset() + part.len()),
        }
    }

    /// Maps a ring's body; returns the mapping and the offset of the body in it.
    ///
    /// # Errors
    /// `ENOSPC` where memory has to be reserved; else errors of the system.
    fn map_ring(&self, index: usize) -> io::Result<(Mapping, usize)> {
        let (group, offset) = (group_of(index), RINGS_AT + index * RING);
        let (mapping, at) = match self.peer.kind() {
            InboxKind::Block => {
                let (pages, at) = pages_of((index - rings_of(group).start) * RING, RING);
                (self.map_part(InboxPart::Group(group))?.cut(pages), at)
            }
            InboxKind::Named => {
                let file = PosixShm::open(self.peer.key, FILE_LEN)?;
                file.reserve(offset, RING)?;
                let (pages, at) = pages_of(offset, RING);
                (file.map(pages.start, pages.len())?, at)
            }
            InboxKind::File => {
                let (pages, at) = pages_of(offset, RING);
                (map_segment(self.peer, pages)?, at)
            }
        };
        Ok((mapping.without_children(), at))
    }
}

impl TheirBody {
    /// Maps the body before the ring is used.
    fn map(&self) -> io::Result<NonNull<RingMem>> {
        let _ = self.mapped.set(Ok(self.parts.map_ring(self.ring)?));
        self.find().map_err(io::Error::from)
    }

    /// The address of the body, which is mapped now if it was not. A failure is final, and logged.
    fn find(&self) -> Result<NonNull<RingMem>, BodyError> {
        let mapped = self.mapped.get_or_init(|| {
            self.parts.map_ring(self.ring).map_err(|e| match e.kind() {
                ErrorKind::NotFound => BodyError::Gone,
                _ => {
                    let pid = self.parts.peer.id.pid;
                    log::once!(
                        Error, each log::words(&e),
                        "cannot map the shared memory of process {pid}: {e}{}",
                        advice::on_shared_memory(&e)
                    );
                    BodyError::Unmapped
                }
            })
        });
        match mapped {
            // SAFETY: the body lies inside of the mapping.
            Ok((body, at)) => Ok(unsafe { body.start().add(*at).cast() }),
            Err(none) => Err(*none),
        }
    }
}

/// The body of the ring that the sender at `source` has taken, which is mapped now if it was not.
///
/// # Safety
/// `source` is [`Theirs::body`].
unsafe fn find_body(source: NonNull<()>) -> Result<NonNull<RingMem>, BodyError> {
    // SAFETY: by the caller, `source` points to the body of a `Theirs`.
    unsafe { source.cast::<TheirBody>().as_ref() }.find()
}

impl TheirBigBuf {
    /// Maps the big buffer of this number, if it exists.
    fn map(&self, number: u8) -> Option<(u8, Mapping)> {
        let mapped = self.parts.map_part(InboxPart::BigBuf(number.into()));
        mapped.ok().map(|map| (number, map.without_children()))
    }

    /// Requests one more big buffer from the receiver.
    fn want_one(&self) {
        // SAFETY: the front page, which has both words, is mapped as long as the sender.
        let (wanted, doorbell) = unsafe { (self.wanted.as_ref(), self.doorbell.as_ref()) };
        // Relaxed, here and below: the word comes before the addition to the doorbell, whose Release pairs with the
        // Acquire load in `InboxTable::accept`.
        if wanted.load(Ordering::Relaxed) != BigBufRequest::Nothing as u32 {
            return;
        }
        let request = match Memfd::open(self.parts.peer.id, FILE_LEN as u64) {
            Ok(_) => BigBufRequest::InFile,
            Err(_) => BigBufRequest::Block,
        };
        if wanted.swap(request as u32, Ordering::Relaxed) == BigBufRequest::Nothing as u32 {
            doorbell.fetch_add(1, Ordering::Release);
        }
    }
}

/// The memory of the big buffer that the sender at `source` has claimed, which is mapped now if it was not. A sender
/// has one big buffer; if it cannot be mapped no other one is tried.
///
/// # Safety
/// `source` is [`Theirs::big_buf`].
unsafe fn find_theirs(source: NonNull<()>, number: u8) -> Option<NonNull<u8>> {
    // SAFETY: by the caller, `source` points to the big buffer of a `Theirs`.
    let big_buf = unsafe { source.cast::<TheirBigBuf>().as_ref() };
    if let Some(mapped) = big_buf.mapped.get() {
        let (known, map) = mapped.as_ref()?;
        return (*known == number).then(|| map.start());
    }
    if big_buf.parts.state(InboxPart::BigBuf(number.into())) == PartState::NotMade {
        big_buf.want_one();
        return None;
    }
    let mapped = big_buf.mapped.get_or_init(|| big_buf.map(number));
    mapped.as_ref().map(|(_, map)| map.start())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::tl::shm::RingOwner;
    use crate::tl::shm::inbox::Inbox;
    use crate::tl::shm::memory::FIRST_RINGS;
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    /// Whether a page table of this process has the page of an address: an access does not fault.
    fn is_populated(address: *const u8) -> bool {
        let mut entry = [0; 8];
        let at = (address as usize / page_size() * 8) as u64;
        let pagemap = File::open("/proc/self/pagemap").unwrap();
        pagemap.read_exact_at(&mut entry, at).unwrap();
        u64::from_ne_bytes(entry) >> 63 == 1
    }

    /// A sender that is prepared claims a ring and writes its first messages without a page fault. It is prepared
    /// before the receiver has created a ring for it.
    #[test]
    fn the_entry_of_a_prepared_sender_is_populated() {
        let mut inbox = Inbox::create(false).unwrap();
        let senders: Vec<_> = (0..2 * FIRST_RINGS)
            .map(|_| {
                let theirs = Theirs::open(inbox.locator()).unwrap();
                let search = theirs.table().begin_search();
                theirs.touch(search);
                (theirs, search)
            })
            .collect();
        let doorbell = inbox.doorbell();
        (0..senders.len()).for_each(|_| doorbell.expect_one());
        inbox.accept(&doorbell);
        for (uid, (theirs, search)) in senders.iter().enumerate().rev() {
            let owner = RingOwner {
                uid: uid as u64,
                inbox: inbox.locator(),
            };
            let ring = theirs.table().start(uid).unwrap();
            assert!(is_populated(ring.as_ptr().cast()), "ring {uid}");
            assert_eq!(theirs.table().claim(&owner, *search), Some(uid));
        }
    }

    /// The receiver reads the slots of the body whether the sender has mapped it or not: without a reservation that is
    /// a SIGBUS where /dev/shm is full.
    #[test]
    fn only_a_named_file_has_its_body_reserved_at_once() {
        for named in [false, true] {
            let inbox = Inbox::create(named).unwrap();
            let mut theirs = Theirs::open(inbox.locator()).unwrap();
            theirs.take_ring(0, false).unwrap();
            assert_eq!(theirs.body.mapped.get().is_some(), named);
        }
    }
}
