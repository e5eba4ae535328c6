//! What somebody waits for that is short: marks, gets and atomic operations.
//!
//! A ring of places, and a work request of their own in which only a few words change. A place has registered bytes for
//! what is as short as a word; longer reads bring a buffer. A connection by which nothing is read has few places and no
//! such memory.

use super::bindings::*;
use super::buffers::Buffer;
use super::rc::{AmoDesc, RemoteMem};
use crate::sys::copy::{self, TINY};
use std::ffi::c_void;

/// Places, and those of who only marks; powers of two. Twice as many reads as devices have under way for a queue pair.
const PLACES: usize = 32;
const MARKS: usize = 4;
/// Bytes of a place.
const PLACE: usize = 32;
/// Of all of them.
pub const BYTES: usize = PLACES * PLACE;
/// Of operations whose result nobody wants, one in so many tells of its end: what is silent keeps its place.
const TELLS: usize = 16;
const _: () = assert!(TINY <= PLACE && size_of::<u64>() <= TINY && TELLS <= PLACES);

/// What a place is taken for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum OpKind {
    /// All that was posted before.
    Mark,
    Read,
    Atomic,
}

/// Something that has not ended.
#[derive(Clone, Copy)]
struct PendingOp {
    /// Of the send whose end ends it.
    number: u64,
    /// Not followed here. Null: nobody any more.
    owner: *mut c_void,
    /// Where what is read goes.
    into: *mut u8,
    /// The buffer that it comes into; null: the bytes of the place.
    through: *mut u8,
    lkey: u32,
    len: u32,
    what: OpKind,
}

/// One that has ended. What it has brought is where it goes.
pub struct EndedOp {
    pub what: OpKind,
    /// Null: nobody waited.
    pub owner: *mut c_void,
    /// Comes back to where it was taken.
    pub buffer: Option<Buffer>,
}

const NOTHING: PendingOp = PendingOp {
    number: 0,
    owner: std::ptr::null_mut(),
    into: std::ptr::null_mut(),
    through: std::ptr::null_mut(),
    lkey: 0,
    len: 0,
    what: OpKind::Mark,
};

impl PendingOp {
    fn buffer(&self) -> Option<Buffer> {
        (!self.through.is_null()).then_some(Buffer {
            ptr: self.through,
            lkey: self.lkey,
        })
    }
}

/// The places of one connection. Whoever holds the peer's lock.
pub struct OpSlots {
    wr: ibv_send_wr,
    sge: ibv_sge,
    /// The first place's bytes, null for none, and by which key the device knows them.
    bytes: *mut u8,
    lkey: u32,
    places: Box<[PendingOp]>,
    /// The oldest and the next place, counted without an end.
    first: usize,
    next: usize,
}

// SAFETY: whoever ends a wait says what may be done with its pointers; the others lead to what is its own.
unsafe impl Send for OpSlots {}

impl OpSlots {
    /// Of those who only mark.
    pub fn new() -> Box<OpSlots> {
        let mut waits = Box::new(OpSlots {
            wr: ibv_send_wr::default(),
            sge: ibv_sge::default(),
            bytes: std::ptr::null_mut(),
            lkey: 0,
            places: [NOTHING; MARKS].into(),
            first: 0,
            next: 0,
        });
        waits.wr.sg_list = &raw mut waits.sge;
        waits
    }

    /// Places with bytes, in a registered buffer of [`BYTES`].
    pub fn use_buffer(&mut self, buffer: Buffer) {
        let old = std::mem::replace(&mut self.places, vec![NOTHING; PLACES].into());
        for n in self.first..self.next {
            let at = self.at(n);
            self.places[at] = old[n & (old.len() - 1)];
        }
        (self.bytes, self.lkey) = (buffer.ptr, buffer.lkey);
    }

    /// The buffer of the places.
    pub fn buffer(&self) -> Option<Buffer> {
        (!self.bytes.is_null()).then_some(Buffer {
            ptr: self.bytes,
            lkey: self.lkey,
        })
    }

    /// The buffers of longer reads.
    pub fn buffers(&self) -> impl Iterator<Item = Buffer> {
        let taken = (self.first..self.next).map(|n| self.places[self.at(n)]);
        taken.filter_map(|wait| wait.buffer())
    }

    /// Whether there is a place with bytes.
    #[inline(always)]
    pub fn has_bytes(&self) -> bool {
        self.has_place() && !self.bytes.is_null()
    }

    /// Whether places have bytes, those that are taken now, too.
    pub fn is_to_read(&self) -> bool {
        !self.bytes.is_null()
    }

    /// Whether there is a place.
    #[inline(always)]
    pub fn has_place(&self) -> bool {
        self.next - self.first < self.places.len()
    }

    #[inline(always)]
    fn at(&self, n: usize) -> usize {
        n & (self.places.len() - 1)
    }

    /// Takes the next place, of which there is one.
    #[inline(always)]
    fn take(&mut self, wait: PendingOp) -> usize {
        let at = self.at(self.next);
        self.places[at] = wait;
        self.next += 1;
        at
    }

    /// `owner` waits for the end of the send with this number and of all before it. There is a place.
    #[inline(always)]
    pub fn mark(&mut self, number: u64, owner: *mut c_void) {
        self.take(PendingOp {
            number,
            owner,
            ..NOTHING
        });
    }

    /// The work request of a write of nothing, which tells of its end.
    #[inline(always)]
    pub fn probe(&mut self) -> &mut ibv_send_wr {
        (self.wr.opcode, self.wr.send_flags) = (IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED);
        (self.wr.wr.rdma.remote_addr, self.wr.wr.rdma.rkey) = (0, 0);
        self.wr.num_sge = 0;
        &mut self.wr
    }

    /// The work request of a read of up to [`TINY`] bytes, or as many as the buffer takes, for `owner`. There is a
    /// place with bytes.
    #[inline(always)]
    pub fn read(
        &mut self,
        number: u64,
        from: RemoteMem,
        (into, len): (*mut u8, usize),
        buffer: Option<Buffer>,
        owner: *mut c_void,
    ) -> &mut ibv_send_wr {
        let none = Buffer {
            ptr: std::ptr::null_mut(),
            lkey: self.lkey,
        };
        let Buffer { ptr, lkey } = buffer.unwrap_or(none);
        let wait = PendingOp {
            number,
            owner,
            into,
            through: ptr,
            lkey,
            len: len as u32,
            what: OpKind::Read,
        };
        self.prepare(wait);
        (self.wr.opcode, self.wr.send_flags) = (IBV_WR_RDMA_READ, IBV_SEND_SIGNALED);
        (self.wr.wr.rdma.remote_addr, self.wr.wr.rdma.rkey) = (from.addr, from.key);
        &mut self.wr
    }

    /// As [`read`](Self::read), of an atomic operation, and whether it tells of its end: if nobody waits for the
    /// result, `into` and `owner` are null, it need not always.
    #[inline(always)]
    pub fn atomic(
        &mut self,
        number: u64,
        step: AmoDesc,
        at: RemoteMem,
        into: *mut u8,
        owner: *mut c_void,
    ) -> (&mut ibv_send_wr, bool) {
        let wait = PendingOp {
            number,
            owner,
            into,
            lkey: self.lkey,
            len: size_of::<u64>() as u32,
            what: OpKind::Atomic,
            ..NOTHING
        };
        self.prepare(wait);
        let tells = !into.is_null() || self.next % TELLS == 0;
        self.wr.opcode = step.opcode();
        self.wr.send_flags = if tells { IBV_SEND_SIGNALED } else { 0 };
        step.fill(&mut self.wr, at);
        (&mut self.wr, tells)
    }

    #[inline(always)]
    fn prepare(&mut self, wait: PendingOp) {
        let at = self.take(wait);
        self.sge.addr = self.place(at, &wait) as u64;
        (self.sge.length, self.sge.lkey, self.wr.num_sge) = (wait.len, wait.lkey, 1);
    }

    /// Where what is read comes into.
    #[inline(always)]
    fn place(&self, at: usize, wait: &PendingOp) -> *mut u8 {
        match wait.through.is_null() {
            // SAFETY: inside of the buffer.
            true => unsafe { self.bytes.add(at * PLACE) },
            false => wait.through,
        }
    }

    /// The oldest one that ends with this send, if one does.
    #[inline(always)]
    pub fn ended(&mut self, number: u64) -> Option<EndedOp> {
        if self.first == self.next {
            return None;
        }
        let at = self.at(self.first);
        let wait = self.places[at];
        if wait.number > number {
            return None;
        }
        self.first += 1;
        if !wait.into.is_null() {
            // SAFETY: the owner keeps the memory until he is told or has disowned the read; the place is in the buffer,
            // or is one.
            unsafe { copy::short(wait.into, self.place(at, &wait), wait.len as usize) };
        }
        Some(EndedOp {
            what: wait.what,
            owner: wait.owner,
            buffer: wait.buffer(),
        })
    }

    /// Those of whom this is true wait no more: they are told to `found`, once for each place.
    pub fn disown(
        &mut self,
        wanted: impl Fn(*mut c_void) -> bool,
        mut found: impl FnMut(*mut c_void),
    ) {
        for n in self.first..self.next {
            let at = self.at(n);
            let wait = &mut self.places[at];
            if !wait.owner.is_null() && wanted(wait.owner) {
                found(wait.owner);
                (wait.owner, wait.into) = (std::ptr::null_mut(), std::ptr::null_mut());
            }
        }
    }

    /// Those who wait, once for each place.
    pub fn owners(&self) -> impl Iterator<Item = *mut c_void> {
        let waits = (self.first..self.next).map(|n| self.places[self.at(n)].owner);
        waits.filter(|owner| !owner.is_null())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::null_mut;

    const KEY: u32 = 9;

    fn owner(n: usize) -> *mut c_void {
        std::ptr::without_provenance_mut(n)
    }

    fn told(waits: &mut OpSlots, number: u64) -> Vec<usize> {
        std::iter::from_fn(|| waits.ended(number))
            .map(|wait| wait.owner.addr())
            .collect()
    }

    fn with_bytes(memory: &mut [u8; BYTES]) -> Box<OpSlots> {
        let mut waits = OpSlots::new();
        let buffer = Buffer {
            ptr: memory.as_mut_ptr(),
            lkey: KEY,
        };
        waits.use_buffer(buffer);
        waits
    }

    #[test]
    fn ends_come_in_order_and_give_places_back() {
        let mut waits = OpSlots::new();
        for round in 0..3 {
            for n in 1..=MARKS {
                assert!(waits.has_place());
                waits.mark(round * 10 + n as u64, owner(n));
            }
            assert!(!waits.has_place() && !waits.has_bytes());
            assert_eq!(told(&mut waits, round * 10 + 2), [1, 2]);
            assert_eq!(told(&mut waits, round * 10 + 9), [3, 4]);
        }
    }

    #[test]
    fn what_is_there_stays_when_places_get_bytes() {
        let mut memory = [0; BYTES];
        let mut waits = OpSlots::new();
        (1..4).for_each(|n| waits.mark(n as u64, owner(n)));
        assert_eq!(told(&mut waits, 1), [1]);
        (4..6).for_each(|n| waits.mark(n as u64, owner(n)));
        let buffer = Buffer {
            ptr: memory.as_mut_ptr(),
            lkey: KEY,
        };
        waits.use_buffer(buffer);
        assert!(waits.has_bytes());
        assert_eq!(told(&mut waits, 9), [2, 3, 4, 5]);
    }

    #[test]
    fn what_is_read_goes_where_it_is_wanted() {
        let (mut memory, mut long) = ([0; BYTES], [7u8; 100]);
        let (mut word, mut bytes) = ([0u8; 8], [0u8; 100]);
        let mut waits = with_bytes(&mut memory);
        let from = RemoteMem { addr: 1, key: 2 };
        let wr = waits.read(1, from, (word.as_mut_ptr(), 8), None, owner(1));
        // SAFETY: a work request of ours.
        let sge = unsafe { *wr.sg_list };
        assert_eq!((sge.length, sge.lkey), (8, KEY));
        // SAFETY: the place's bytes, as the device writes them.
        unsafe { (sge.addr as *mut [u8; 8]).write([3; 8]) };
        let buffer = Buffer {
            ptr: long.as_mut_ptr(),
            lkey: KEY + 1,
        };
        let into = (bytes.as_mut_ptr(), bytes.len());
        waits.read(2, from, into, Some(buffer), owner(2));
        assert_eq!(waits.buffers().count(), 1);
        let first = waits.ended(2).unwrap();
        assert!(first.what == OpKind::Read && first.buffer.is_none());
        let second = waits.ended(2).unwrap();
        assert_eq!(second.buffer.unwrap().lkey, KEY + 1);
        assert!(waits.ended(2).is_none());
        assert_eq!((word, bytes), ([3; 8], [7; 100]));
    }

    #[test]
    fn who_waits_no_more_gets_nothing() {
        let (mut memory, mut word) = ([5; BYTES], [0u8; 8]);
        let mut waits = with_bytes(&mut memory);
        let from = RemoteMem { addr: 1, key: 2 };
        waits.read(1, from, (word.as_mut_ptr(), 8), None, owner(1));
        waits.mark(1, owner(2));
        let mut found = Vec::new();
        waits.disown(|who| who == owner(1), |who| found.push(who));
        assert_eq!(found, [owner(1)]);
        assert_eq!(waits.owners().collect::<Vec<_>>(), [owner(2)]);
        assert_eq!(told(&mut waits, 1), [0, 2]);
        assert_eq!(word, [0; 8]);
    }

    #[test]
    fn results_that_nobody_wants_are_told_of_now_and_then() {
        let mut memory = [0; BYTES];
        let mut waits = with_bytes(&mut memory);
        let at = RemoteMem { addr: 8, key: 2 };
        let tells = (1..=PLACES as u64)
            .map(|n| {
                waits
                    .atomic(n, AmoDesc::Add(1), at, null_mut(), null_mut())
                    .1
            })
            .collect::<Vec<_>>();
        let told = tells.iter().filter(|&&tells| tells);
        assert_eq!(told.count(), PLACES / TELLS);
        assert!(tells[PLACES - 1] && !waits.has_place());
    }
}
