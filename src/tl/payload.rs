//! Payloads: the memory of an operation, records of which a part has arrived, and the memory that their payload goes
//! to.

use crate::ctypes::ucs_status_t;
use crate::sys::cma::Spans;
use crate::wire::frame::Frame;

/// The user's memory of one operation: contiguous, a list of pieces, or what the user's functions read and write.
///
/// # Safety
/// What [`spans`](Self::spans) appends is memory of the user, readable, and writable if it receives.
pub unsafe trait UserData {
    /// Appends the pieces of memory of the range `offset..offset + n` as far as the list has room. False: only
    /// [`pack`](Self::pack) and [`unpack`](Self::unpack) access the memory.
    ///
    /// # Safety
    /// The range is inside the data; the user's memory is valid.
    unsafe fn spans(&self, offset: usize, n: usize, out: &mut Spans) -> bool;

    /// Writes `n` bytes of the packed form, from `offset` on, to `dst`.
    ///
    /// # Safety
    /// The range is inside the data; the user's memory is valid; `dst` has room for `n` bytes.
    unsafe fn pack(&self, offset: usize, dst: *mut u8, n: usize);

    /// Stores `n` bytes that belong at `offset`.
    ///
    /// # Errors
    /// What the user's function returns.
    ///
    /// # Safety
    /// The range is inside the data; the user's memory is valid; `n` bytes are readable at `src`.
    unsafe fn unpack(&self, offset: usize, src: *const u8, n: usize) -> Result<(), ucs_status_t>;
}

/// A long record that has arrived in part.
#[derive(Clone, Copy)]
pub struct PartialRecord {
    pub frame: Frame,
    /// The fixed header of its kind; its length depends on the kind.
    pub head: [u8; 8],
    /// Bytes of payload that were handled.
    pub done: usize,
    /// The status of the first piece that was refused; `UCS_OK`: none was.
    pub status: ucs_status_t,
}

impl PartialRecord {
    /// Bytes of payload that were not handled yet.
    pub fn left(&self) -> usize {
        self.frame.len - self.frame.kind.header_size() - self.done
    }
}

/// Contiguous memory for payload that has not arrived yet, as the layer above gives it to a transport. `H` holds the
/// memory: dropped, it is given back.
pub struct PayloadMem<H> {
    at: *mut u8,
    len: usize,
    hold: H,
}

impl<H> PayloadMem<H> {
    /// # Safety
    /// `len` bytes at `at` are writable until `hold` is dropped.
    pub unsafe fn new(at: *mut u8, len: usize, hold: H) -> Self {
        PayloadMem { at, len, hold }
    }

    /// The memory, writable as long as `self` exists.
    pub(super) fn bytes(&mut self) -> (*mut u8, usize) {
        (self.at, self.len)
    }

    /// Gives up the memory, and returns what held it.
    pub fn into_hold(self) -> H {
        self.hold
    }
}

/// How the payload of a record is received that has not arrived yet.
pub enum PayloadPlace<H> {
    /// Into this memory, which has room for all that is left.
    Memory(PayloadMem<H>),
    /// By [`Sink::deliver_part`](super::sink::Sink::deliver_part), in pieces that are as long as packing functions
    /// expect.
    Pieces,
    /// By [`Sink::deliver_part`](super::sink::Sink::deliver_part), which stores nothing of it.
    Nowhere,
}
