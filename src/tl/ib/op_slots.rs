//! Op slots: short operations of a connection that have to be reported as complete: flush markers, gets and atomics.
//!
//! A circular table of slots, and a prepared work request in which only a few words change. A slot has registered bytes
//! for results as short as [`TINY`]; longer reads use a buffer. A connection that reads nothing has few slots and no
//! registered bytes.

use super::bindings::*;
use super::buffers::Buffer;
use super::desc::{AmoDesc, RemoteMem};
use crate::sys::copy::{self, TINY};
use crate::tl::Token;

/// Slots of a connection, and of one that only has flush markers; powers of two. Twice as many as the reads that
/// devices have outstanding per queue pair.
const MAX_OP_SLOTS: usize = 32;
const FLUSH_MARKERS: usize = 4;
/// Bytes of a slot.
const SLOT_BYTES: usize = 32;
/// Bytes of all slots.
pub const BYTES: usize = MAX_OP_SLOTS * SLOT_BYTES;
/// Of the operations without a wanted result one in this many is signaled: an unsignaled one keeps its slot until a
/// later completion.
const SIGNAL_EVERY: usize = 16;
const _: () =
    assert!(TINY <= SLOT_BYTES && size_of::<u64>() <= TINY && SIGNAL_EVERY <= MAX_OP_SLOTS);

/// Kind of the operation of a slot.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum OpKind {
    /// A flush marker: the completion of all that was posted before.
    FlushMarker,
    Read,
    Atomic,
}

/// An operation that is not completed.
#[derive(Clone, Copy)]
struct PendingOp {
    /// Number of the send whose completion completes it.
    number: u64,
    /// The request to complete; not dereferenced here. Null: none any more.
    owner: Token,
    /// Where the result is copied to.
    into: *mut u8,
    /// The buffer that the device writes the result to; null: the bytes of the slot.
    through: *mut u8,
    lkey: u32,
    len: u32,
    what: OpKind,
}

/// A completed operation. Its result is copied already.
pub struct EndedOp {
    pub what: OpKind,
    /// The request to complete; null: none.
    pub owner: Token,
    /// The buffer that was used, to be returned to the interface.
    pub buffer: Option<Buffer>,
}

const NOTHING: PendingOp = PendingOp {
    number: 0,
    owner: Token::NONE,
    into: std::ptr::null_mut(),
    through: std::ptr::null_mut(),
    lkey: 0,
    len: 0,
    what: OpKind::FlushMarker,
};

impl PendingOp {
    fn buffer(&self) -> Option<Buffer> {
        (!self.through.is_null()).then_some(Buffer {
            ptr: self.through,
            lkey: self.lkey,
        })
    }
}

/// The op slots of one connection, used by the thread that holds the peer's lock.
pub struct OpSlots {
    wr: ibv_send_wr,
    sge: ibv_sge,
    /// Registered bytes of the first slot, null for none, and their local key.
    bytes: *mut u8,
    lkey: u32,
    places: Box<[PendingOp]>,
    /// Numbers of the oldest and the next slot, which only grow.
    first: usize,
    next: usize,
}

// SAFETY: owners are only stored here, and the code that completes an operation ensures that its target may be
// accessed; the other pointers lead to memory that the value owns.
unsafe impl Send for OpSlots {}

impl OpSlots {
    /// Creates slots for flush markers only.
    pub fn new() -> Box<OpSlots> {
        let mut waits = Box::new(OpSlots {
            wr: ibv_send_wr::default(),
            sge: ibv_sge::default(),
            bytes: std::ptr::null_mut(),
            lkey: 0,
            places: [NOTHING; FLUSH_MARKERS].into(),
            first: 0,
            next: 0,
        });
        waits.wr.sg_list = &raw mut waits.sge;
        waits
    }

    /// Adds slots with bytes, in a registered buffer of [`BYTES`].
    pub fn use_buffer(&mut self, buffer: Buffer) {
        let old = std::mem::replace(&mut self.places, vec![NOTHING; MAX_OP_SLOTS].into());
        for n in self.first..self.next {
            let at = self.at(n);
            self.places[at] = old[n & (old.len() - 1)];
        }
        (self.bytes, self.lkey) = (buffer.ptr, buffer.lkey);
    }

    /// The buffer of the slots' bytes.
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

    /// Whether a slot with bytes is free.
    #[inline(always)]
    pub fn has_bytes(&self) -> bool {
        self.has_slot() && !self.bytes.is_null()
    }

    /// Whether slots have bytes, be they free or not.
    pub fn is_to_read(&self) -> bool {
        !self.bytes.is_null()
    }

    /// Whether a slot is free.
    #[inline(always)]
    pub fn has_slot(&self) -> bool {
        self.next - self.first < self.places.len()
    }

    #[inline(always)]
    fn at(&self, n: usize) -> usize {
        n & (self.places.len() - 1)
    }

    /// Takes the next slot. The caller has checked that one is free.
    #[inline(always)]
    fn take(&mut self, wait: PendingOp) -> usize {
        let at = self.at(self.next);
        self.places[at] = wait;
        self.next += 1;
        at
    }

    /// Records that `owner` waits for the completion of the send with this number and of all before it. The caller has
    /// checked that a slot is free.
    #[inline(always)]
    pub fn flush_marker(&mut self, number: u64, owner: Token) {
        self.take(PendingOp {
            number,
            owner,
            ..NOTHING
        });
    }

    /// The work request of a signaled write of 0 bytes.
    #[inline(always)]
    pub fn probe(&mut self) -> &mut ibv_send_wr {
        (self.wr.opcode, self.wr.send_flags) = (IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED);
        (self.wr.wr.rdma.remote_addr, self.wr.wr.rdma.rkey) = (0, 0);
        self.wr.num_sge = 0;
        &mut self.wr
    }

    /// The work request of a read of up to [`TINY`] bytes, or of as many as the buffer has, for `owner`. The caller has
    /// checked that a slot with bytes is free.
    #[inline(always)]
    pub fn read(
        &mut self,
        number: u64,
        from: RemoteMem,
        (into, len): (*mut u8, usize),
        buffer: Option<Buffer>,
        owner: Token,
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

    /// The work request of an atomic operation, and whether it is signaled: if the result is not wanted, `into` and
    /// `owner` are null, and it need not be. The caller has checked that a slot with bytes is free.
    #[inline(always)]
    pub fn atomic(
        &mut self,
        number: u64,
        step: AmoDesc,
        at: RemoteMem,
        into: *mut u8,
        owner: Token,
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
        let signaled = !into.is_null() || self.next % SIGNAL_EVERY == 0;
        self.wr.opcode = step.opcode();
        self.wr.send_flags = if signaled { IBV_SEND_SIGNALED } else { 0 };
        step.fill(&mut self.wr, at);
        (&mut self.wr, signaled)
    }

    #[inline(always)]
    fn prepare(&mut self, wait: PendingOp) {
        let at = self.take(wait);
        self.sge.addr = self.place(at, &wait) as u64;
        (self.sge.length, self.sge.lkey, self.wr.num_sge) = (wait.len, wait.lkey, 1);
    }

    /// Where the device writes the result.
    #[inline(always)]
    fn place(&self, at: usize, wait: &PendingOp) -> *mut u8 {
        if wait.through.is_null() {
            // SAFETY: the slot is inside of the registered buffer.
            unsafe { self.bytes.add(at * SLOT_BYTES) }
        } else {
            wait.through
        }
    }

    /// Takes the oldest operation that completes with this send, if there is one, and copies its result.
    #[inline(always)]
    pub fn take_completed(&mut self, number: u64) -> Option<EndedOp> {
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
            // SAFETY: the owner keeps the memory until the operation completes or is detached from it; the source is a
            // slot of the registered buffer, or a buffer, of at least `len` bytes.
            unsafe { copy::short(wait.into, self.place(at, &wait), wait.len as usize) };
        }
        Some(EndedOp {
            what: wait.what,
            owner: wait.owner,
            buffer: wait.buffer(),
        })
    }

    /// Detaches the owners for which `wanted` is true: they are passed to `found`, once for each slot, and their
    /// results are dropped.
    pub fn detach_owner(&mut self, wanted: impl Fn(Token) -> bool, mut found: impl FnMut(Token)) {
        for n in self.first..self.next {
            let at = self.at(n);
            let wait = &mut self.places[at];
            if !wait.owner.is_none() && wanted(wait.owner) {
                found(wait.owner);
                (wait.owner, wait.into) = (Token::NONE, std::ptr::null_mut());
            }
        }
    }

    /// The owners of the slots, once for each slot.
    pub fn owners(&self) -> impl Iterator<Item = Token> {
        let waits = (self.first..self.next).map(|n| self.places[self.at(n)].owner);
        waits.filter(|owner| !owner.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::null_mut;

    const KEY: u32 = 9;

    fn owner(n: usize) -> Token {
        Token::new(std::ptr::without_provenance_mut::<u8>(n))
    }

    fn completed_owners(waits: &mut OpSlots, number: u64) -> Vec<usize> {
        std::iter::from_fn(|| waits.take_completed(number))
            .map(|wait| wait.owner.address::<u8>().addr())
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
            for n in 1..=FLUSH_MARKERS {
                assert!(waits.has_slot());
                waits.flush_marker(round * 10 + n as u64, owner(n));
            }
            assert!(!waits.has_slot() && !waits.has_bytes());
            assert_eq!(completed_owners(&mut waits, round * 10 + 2), [1, 2]);
            assert_eq!(completed_owners(&mut waits, round * 10 + 9), [3, 4]);
        }
    }

    #[test]
    fn operations_stay_when_slots_get_bytes() {
        let mut memory = [0; BYTES];
        let mut waits = OpSlots::new();
        (1..4).for_each(|n| waits.flush_marker(n as u64, owner(n)));
        assert_eq!(completed_owners(&mut waits, 1), [1]);
        (4..6).for_each(|n| waits.flush_marker(n as u64, owner(n)));
        let buffer = Buffer {
            ptr: memory.as_mut_ptr(),
            lkey: KEY,
        };
        waits.use_buffer(buffer);
        assert!(waits.has_bytes());
        assert_eq!(completed_owners(&mut waits, 9), [2, 3, 4, 5]);
    }

    #[test]
    fn read_data_go_to_their_destination() {
        let (mut memory, mut long) = ([0; BYTES], [7u8; 100]);
        let (mut word, mut bytes) = ([0u8; 8], [0u8; 100]);
        let mut waits = with_bytes(&mut memory);
        let from = RemoteMem { addr: 1, key: 2 };
        let wr = waits.read(1, from, (word.as_mut_ptr(), 8), None, owner(1));
        // SAFETY: the work request points to the `sge` of `waits`.
        let sge = unsafe { *wr.sg_list };
        assert_eq!((sge.length, sge.lkey), (8, KEY));
        // SAFETY: the slot's bytes, in `memory`, written as the device does.
        unsafe { (sge.addr as *mut [u8; 8]).write([3; 8]) };
        let buffer = Buffer {
            ptr: long.as_mut_ptr(),
            lkey: KEY + 1,
        };
        let into = (bytes.as_mut_ptr(), bytes.len());
        waits.read(2, from, into, Some(buffer), owner(2));
        assert_eq!(waits.buffers().count(), 1);
        let first = waits.take_completed(2).unwrap();
        assert!(first.what == OpKind::Read && first.buffer.is_none());
        let second = waits.take_completed(2).unwrap();
        assert_eq!(second.buffer.unwrap().lkey, KEY + 1);
        assert!(waits.take_completed(2).is_none());
        assert_eq!((word, bytes), ([3; 8], [7; 100]));
    }

    #[test]
    fn a_detached_owner_gets_no_result() {
        let (mut memory, mut word) = ([5; BYTES], [0u8; 8]);
        let mut waits = with_bytes(&mut memory);
        let from = RemoteMem { addr: 1, key: 2 };
        waits.read(1, from, (word.as_mut_ptr(), 8), None, owner(1));
        waits.flush_marker(1, owner(2));
        let mut found = Vec::new();
        waits.detach_owner(|other| other == owner(1), |other| found.push(other));
        assert_eq!(found, [owner(1)]);
        assert_eq!(waits.owners().collect::<Vec<_>>(), [owner(2)]);
        assert_eq!(completed_owners(&mut waits, 1), [0, 2]);
        assert_eq!(word, [0; 8]);
    }

    #[test]
    fn unwanted_results_are_signaled_now_and_then() {
        let mut memory = [0; BYTES];
        let mut waits = with_bytes(&mut memory);
        let at = RemoteMem { addr: 8, key: 2 };
        let signaled = (1..=MAX_OP_SLOTS as u64)
            .map(|n| {
                waits
                    .atomic(n, AmoDesc::Add(1), at, null_mut(), Token::NONE)
                    .1
            })
            .collect::<Vec<_>>();
        let signaled_count = signaled.iter().filter(|&&signaled| signaled);
        assert_eq!(signaled_count.count(), MAX_OP_SLOTS / SIGNAL_EVERY);
        assert!(signaled[MAX_OP_SLOTS - 1] && !waits.has_slot());
    }
}
