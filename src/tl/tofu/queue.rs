//! What is under way by a virtual control queue: buffers that the adapter reads, and operations whose notices somebody waits for.

use super::utofu::{self, Notice, Stadd, code_name};
use super::vcq::{Region, There, Told, Vcq};
use crate::sys::{clock, log};
use crate::wire::packet::{HEAD, most_packets};
use std::ffi::{c_int, c_ulong, c_void};
use std::io;
use std::sync::Arc;

/// Buffers for frames that are too long for a descriptor: as many as keep an adapter busy while it reads them, or as the longest
/// record takes if that is more.
const BUFFERS: usize = 64;
/// Operations that can be waited for: a byte in a notice says which. The first is nobody's, those behind are [`colour`]s.
const SLOTS: usize = 128;
/// A queue that takes nothing for so long is stuck, milliseconds.
const STUCK_MS: u64 = 10_000;
/// Words with entries of ended transmissions: a buffer below this, else a link.
const LINKS: usize = 1 << 16;
/// Of operations that are no connection's.
pub const NO_LINK: u32 = u32::MAX;
/// Of those that tell a writer how far the reader of its ring is: the number of the ring is added.
pub const CREDITS: u32 = 1 << 31;
/// So many errors in a row, without a notice between them, are no single operation's.
const DEAF: u32 = 1000;
/// Entries of ended transmissions that are taken at a time.
const BATCH: usize = 16;

/// A connection of ours, by number, and what of it has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Its turn in the peer's hall.
    Ticket(u32),
    /// Everything before has arrived.
    Flush(u32),
    /// What was read into this buffer has come.
    Read { link: u32, buffer: u16 },
}

impl Owner {
    /// The connection.
    pub fn link(self) -> u32 {
        match self {
            Owner::Ticket(link) | Owner::Flush(link) | Owner::Read { link, .. } => link,
        }
    }
}

/// What a queue tells.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// A peer has written into our memory, at or before this address.
    Arrived(Stadd),
    /// What somebody waited for; `value`: of an atomic operation, what was there before.
    Ended { owner: Owner, value: u64 },
    /// What this connection has read is where it was wanted: who wanted it; null: nobody does any more.
    Came { link: u32, whose: *mut c_void },
    /// Something has failed.
    Failed { whose: Whose, code: c_int },
    /// The queue of notices is of no use any more: what has come is lost.
    Deaf { code: c_int },
}

/// Of what has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// One of ours.
    Link(u32),
    /// What was told to the writer of this ring.
    Credit(u32),
    /// The worker's own.
    Nobody,
    /// Of one that nobody waits for: its colour, and what the notice says of the other end, as far as that can be relied upon.
    Coloured(u8, There),
}

/// Which connection an operation is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    pub link: u32,
    /// The byte in the notice of its error, if nobody waits for the operation: a [`colour`], or 0.
    pub colour: u8,
}

/// The colour of the n-th connection: those that are under way at the same time, and those that have just ended, have others.
pub fn colour(n: u32) -> u8 {
    SLOTS as u8 + (n % (256 - SLOTS as u32)) as u8
}

/// What a buffer is taken for.
#[derive(Clone, Copy, Debug)]
struct User {
    link: u32,
    /// Where what is read goes, if somebody still wants it.
    into: *mut u8,
    len: usize,
    whose: *mut c_void,
}

const NOBODY: User = User {
    link: 0,
    into: std::ptr::null_mut(),
    len: 0,
    whose: std::ptr::null_mut(),
};

// SAFETY: pointers that are followed under the queue's lock only, while their owners wait.
unsafe impl Send for User {}
// SAFETY: as above; the others may be moved.
unsafe impl Send for Queue {}

/// One thread at a time: whoever holds its lock.
pub struct Queue {
    pub vcq: Arc<Vcq>,
    buffers: Region,
    /// Bytes of a buffer.
    packet: usize,
    free: Vec<u16>,
    /// What the buffers are taken for.
    users: Vec<User>,
    /// Those who wait for reads that have failed, by their connections, until those are taken down.
    orphans: Vec<(u32, *mut c_void)>,
    slots: Vec<Option<Owner>>,
    free_slots: Vec<u8>,
    /// Connections of which a transmission has failed, and how.
    failed: Vec<(u32, c_int)>,
    /// Errors in a row that tell nothing.
    errors: u32,
}

impl Queue {
    /// # Errors
    /// What the library says.
    pub fn new(vcq: Arc<Vcq>, packet: usize) -> io::Result<Queue> {
        let count = BUFFERS.max(most_packets(packet - HEAD));
        let buffers = Region::new(&vcq, count * packet)?;
        Ok(Queue {
            vcq,
            buffers,
            packet,
            free: (0..count as u16).rev().collect(),
            users: vec![NOBODY; count],
            slots: vec![None; SLOTS],
            orphans: Vec::new(),
            free_slots: (1..SLOTS as u8).rev().collect(),
            failed: Vec::new(),
            errors: 0,
        })
    }

    /// Whether so many frames have buffers.
    pub fn has_buffers(&mut self, n: usize) -> bool {
        if self.free.len() < n {
            self.reap();
        }
        self.free.len() >= n
    }

    /// Whether transmissions are under way that will tell of their ends.
    pub fn is_sending(&self) -> bool {
        self.free.len() < self.users.len() || !self.failed.is_empty()
    }

    /// Takes the ends of transmissions: buffers are free again.
    pub fn reap(&mut self) {
        for _ in 0..BATCH {
            let (code, word) = self.vcq.poll_tcq();
            if code == utofu::NOT_FOUND {
                return;
            }
            let link = match word.checked_sub(LINKS) {
                Some(link) => link as u32,
                None => {
                    self.free.push(word as u16);
                    self.users[word].link
                }
            };
            if code != utofu::SUCCESS {
                self.failed.push((link, code));
            }
        }
    }

    /// Posts until the queue takes it: an adapter makes room by itself.
    fn post(&mut self, post: impl Fn(&Vcq) -> c_int) -> Result<(), c_int> {
        let mut since = None;
        loop {
            match post(&self.vcq) {
                utofu::SUCCESS => return Ok(()),
                utofu::BUSY => self.reap(),
                code => return Err(code),
            }
            let now = clock::coarse_ms();
            if now - *since.get_or_insert(now) > STUCK_MS {
                return Err(utofu::BUSY);
            }
            std::hint::spin_loop();
        }
    }

    /// Writes a frame of at most 32 bytes for a connection. Frames are in order.
    ///
    /// # Errors
    /// The library's code: the connection is of no use any more.
    pub fn send_short(
        &mut self,
        mark: Mark,
        frame: &[u8],
        to: There,
        flags: c_ulong,
    ) -> Result<(), c_int> {
        let told = Told {
            flags: utofu::STRONG_ORDER | flags,
            edata: mark.colour,
            cbdata: LINKS + mark.link as usize,
        };
        self.post(|vcq| vcq.put_bytes(frame, to, told))
    }

    /// A buffer for a frame of a connection: its number, and where it is. [`has_buffers`](Self::has_buffers)
    pub fn take_buffer(&mut self, link: u32) -> Option<(u16, *mut u8)> {
        let index = self.free.pop()?;
        self.users[usize::from(index)] = User { link, ..NOBODY };
        let offset = usize::from(index) * self.packet;
        debug_assert!(offset + self.packet <= self.buffers.len());
        // SAFETY: inside of the region.
        Some((index, unsafe { self.buffers.ptr().add(offset) }))
    }

    /// The opposite of [`take_buffer`](Self::take_buffer), of one that was not sent.
    pub fn give_back(&mut self, buffer: u16) {
        self.free.push(buffer);
    }

    /// As [`send_short`](Self::send_short), of a frame of `len` bytes in a buffer, which comes back by itself.
    ///
    /// # Errors
    /// As there.
    pub fn send(
        &mut self,
        mark: Mark,
        buffer: u16,
        len: usize,
        to: There,
        flags: c_ulong,
    ) -> Result<(), c_int> {
        let from = self.buffers.stadd + (usize::from(buffer) * self.packet) as u64;
        let told = Told {
            flags: utofu::STRONG_ORDER | utofu::TCQ_NOTICE | flags,
            edata: mark.colour,
            cbdata: buffer.into(),
        };
        self.post(|vcq| vcq.put(from, to, len, told))
    }

    /// Writes a word behind everything else to the same peer. With an owner: who hears when it is there, and all before it; false
    /// if too many wait.
    ///
    /// # Errors
    /// As of [`send_short`](Self::send_short).
    pub fn put_word(
        &mut self,
        mark: Mark,
        word: u64,
        to: There,
        owner: Option<Owner>,
    ) -> Result<bool, c_int> {
        let (mut flags, mut edata) = (utofu::STRONG_ORDER, mark.colour);
        if let Some(owner) = owner {
            let Some(slot) = self.take_slot(owner) else {
                return Ok(false);
            };
            (flags, edata) = (flags | utofu::LOCAL_MRQ_NOTICE, slot);
        }
        let told = Told {
            flags,
            edata,
            cbdata: LINKS + mark.link as usize,
        };
        let posted = self.post(|vcq| vcq.put_word(word, to, told));
        self.posted(posted, edata)
    }

    /// Reads `len` bytes, no more than a buffer has, to `into`; `whose` hears of it from [`Event::Came`]. False: not now.
    ///
    /// # Errors
    /// As of [`send_short`](Self::send_short).
    pub fn read(
        &mut self,
        link: u32,
        from: There,
        (into, len): (*mut u8, usize),
        whose: *mut c_void,
    ) -> Result<bool, c_int> {
        if !self.has_buffers(1) || self.free_slots.is_empty() {
            return Ok(false);
        }
        let (Some((buffer, _)), true) = (self.take_buffer(link), len <= self.packet) else {
            return Ok(false);
        };
        let Some(edata) = self.take_slot(Owner::Read { link, buffer }) else {
            self.free.push(buffer);
            return Ok(false);
        };
        self.users[usize::from(buffer)] = User {
            link,
            into,
            len,
            whose,
        };
        let here = self.buffers.stadd + (usize::from(buffer) * self.packet) as u64;
        let told = Told {
            flags: utofu::LOCAL_MRQ_NOTICE,
            edata,
            cbdata: LINKS + link as usize,
        };
        let posted = self.post(|vcq| vcq.get(here, from, len, told));
        if posted.is_err() {
            self.users[usize::from(buffer)] = NOBODY;
            self.free.push(buffer);
        }
        self.posted(posted, edata)
    }

    /// Those who wait for reads by this connection.
    pub fn readers(&self, link: u32) -> impl Iterator<Item = *mut c_void> {
        let users = self.users.iter();
        let ours = users.filter(move |u| u.link == link && !u.whose.is_null());
        let orphans = self.orphans.iter().filter(move |(of, _)| *of == link);
        ours.map(|u| u.whose)
            .chain(orphans.map(|&(_, whose)| whose))
    }

    /// Those who wait for reads by this connection, and of whom this is true, wait no more: who they are.
    pub fn disown(&mut self, link: u32, wanted: impl Fn(*mut c_void) -> bool) -> Vec<*mut c_void> {
        let mut found = Vec::new();
        for user in &mut self.users {
            if user.link == link && !user.whose.is_null() && wanted(user.whose) {
                found.push(user.whose);
                (user.into, user.whose) = (std::ptr::null_mut(), std::ptr::null_mut());
            }
        }
        self.orphans.retain(|&(of, whose)| {
            let taken = of == link && wanted(whose);
            if taken {
                found.push(whose);
            }
            !taken
        });
        found
    }

    /// What was to be read here is not: who waits for it is told when the connection is taken down.
    fn orphan(&mut self, buffer: u16) {
        let user = std::mem::replace(&mut self.users[usize::from(buffer)], NOBODY);
        self.free.push(buffer);
        if !user.whose.is_null() {
            self.orphans.push((user.link, user.whose));
        }
    }

    /// What was read is here.
    fn land(&mut self, buffer: u16) -> *mut c_void {
        let user = std::mem::replace(&mut self.users[usize::from(buffer)], NOBODY);
        self.free.push(buffer);
        if !user.whose.is_null() {
            let offset = usize::from(buffer) * self.packet;
            // SAFETY: as many bytes as the buffer had room for; who waits for them has room, too.
            unsafe {
                let from = self.buffers.ptr().add(offset);
                user.into.copy_from_nonoverlapping(from, user.len);
            }
        }
        user.whose
    }

    /// Adds to a word at a peer; the owner, if there is one, hears what was there. False: too many wait.
    ///
    /// # Errors
    /// As of [`send_short`](Self::send_short).
    pub fn add(
        &mut self,
        link: u32,
        what: u64,
        to: There,
        owner: Option<Owner>,
    ) -> Result<bool, c_int> {
        let (mut flags, mut edata) = (0, 0);
        if let Some(owner) = owner {
            let Some(slot) = self.take_slot(owner) else {
                return Ok(false);
            };
            (flags, edata) = (utofu::LOCAL_MRQ_NOTICE, slot);
        }
        let told = Told {
            flags,
            edata,
            cbdata: LINKS + link as usize,
        };
        let posted = self.post(|vcq| vcq.add(what, to, told));
        self.posted(posted, edata)
    }

    /// Of what was refused no notice comes.
    fn posted(&mut self, posted: Result<(), c_int>, slot: u8) -> Result<bool, c_int> {
        if posted.is_err() {
            self.end_slot(slot.into());
        }
        posted.map(|()| true)
    }

    fn take_slot(&mut self, owner: Owner) -> Option<u8> {
        let slot = self.free_slots.pop()?;
        self.slots[usize::from(slot)] = Some(owner);
        Some(slot)
    }

    fn end_slot(&mut self, edata: u64) -> Option<Owner> {
        let slot = usize::try_from(edata).ok()?;
        let owner = self.slots.get_mut(slot)?.take()?;
        self.free_slots.push(slot as u8);
        Some(owner)
    }

    /// Something of this connection was refused: whoever polls next hears of it.
    pub fn fail(&mut self, link: u32, code: c_int) {
        self.failed.push((link, code));
    }

    /// Whether something of this connection waits for its notice: until that has come its number is not another's.
    pub fn is_awaited(&self, link: u32) -> bool {
        let waits = |owner: &Owner| owner.link() == link;
        self.slots.iter().flatten().any(waits)
    }

    /// The next thing that has happened.
    #[inline]
    pub fn poll(&mut self) -> Option<Event> {
        let (code, notice) = self.vcq.poll_mrq();
        match code {
            utofu::SUCCESS if notice.notice_type == utofu::RMT_PUT => {
                self.errors = 0;
                Some(Event::Arrived(notice.rmt_stadd))
            }
            utofu::NOT_FOUND => self.poll_failed(),
            code => self.on_notice(code, &notice),
        }
    }

    fn poll_failed(&mut self) -> Option<Event> {
        if self.is_sending() {
            self.reap();
        }
        let (link, code) = self.failed.pop()?;
        let whose = match link {
            NO_LINK => Whose::Nobody,
            CREDITS.. => Whose::Credit(link - CREDITS),
            link => Whose::Link(link),
        };
        Some(Event::Failed { whose, code })
    }

    /// A notice of an operation of ours, or an error.
    fn on_notice(&mut self, code: c_int, notice: &Notice) -> Option<Event> {
        let ours = matches!(
            notice.notice_type,
            utofu::LCL_PUT | utofu::LCL_GET | utofu::LCL_ARMW
        );
        let owner = ours.then(|| self.end_slot(notice.edata)).flatten();
        if code != utofu::SUCCESS {
            if let Some(Owner::Read { buffer, .. }) = owner {
                self.orphan(buffer);
            }
            log::diag!(
                "the interconnect tells of an error: {} ({code}), notice of type {}, edata {}",
                code_name(code),
                notice.notice_type,
                notice.edata
            );
            let is_vague = owner.is_none() && code == utofu::MRQ_OTHER;
            self.errors = if is_vague { self.errors + 1 } else { 0 };
            if self.errors > DEAF {
                return Some(Event::Deaf { code });
            }
            let whose = match owner {
                Some(owner) => Whose::Link(owner.link()),
                None => {
                    let there = There {
                        vcq: notice.vcq_id,
                        stadd: notice.rmt_stadd,
                    };
                    Whose::Coloured(notice.edata as u8, there)
                }
            };
            return Some(Event::Failed { whose, code });
        }
        self.errors = 0;
        let value = notice.rmt_value;
        Some(match owner? {
            Owner::Read { link, buffer } => Event::Came {
                link,
                whose: self.land(buffer),
            },
            owner => Event::Ended { owner, value },
        })
    }
}
