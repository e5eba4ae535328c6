//! What the hot path asks of a lane: its ring in mapped memory, the sender that posts short records, and a record that
//! is copied straight from the call.

use super::contract::LaneOps;
use super::lane::{Lane, with_sender};
use super::shm::outbox::Outbox;

/// The sender of lanes that are a ring in memory of the peer's process that is mapped here.
pub type RingSender = Outbox;

/// Evaluates an expression with the type of a lane's sender, if it posts short records
/// ([`ShortAm`](super::contract::ShortAm)); another expression for other lanes. The lane is an `Option`.
macro_rules! with_short_am {
    ($lane:expr, $sender:ident => $value:expr, _ => $other:expr) => {
        match $lane {
            Some($crate::tl::Lane::Ib(_)) => {
                type $sender = $crate::tl::adapter::RkeySender;
                $value
            }
            Some($crate::tl::Lane::Tofu(_)) => {
                type $sender = $crate::tl::adapter::StaddSender;
                $value
            }
            Some($crate::tl::Lane::Ofi(_)) => {
                type $sender = $crate::tl::adapter::MessageSender;
                $value
            }
            _ => $other,
        }
    };
}
pub(crate) use with_short_am;

/// The part of [`LaneOps`] that copies records of the hot path into memory of this process, by the sender's own
/// function `send`: in an `impl` of the trait.
macro_rules! copies_records {
    () => {
        #[inline(always)]
        unsafe fn am_now(
            &mut self,
            kind: u8,
            imm: u64,
            data: *const u8,
            len: usize,
            _received: impl FnOnce() -> Option<u64>,
        ) -> bool {
            self.send(kind, 0, imm, len, move |record| {
                // SAFETY: the record has room for `len` bytes, as many as are readable at `data`.
                unsafe { $crate::sys::copy::short(record, data, len) };
            })
        }
    };
}
pub(super) use copies_records;

impl Lane {
    /// The ring in mapped memory that the lane is. `None`: the lane uses a device.
    #[inline(always)]
    pub fn ring(&mut self) -> Option<&mut RingSender> {
        match self {
            Lane::Shm(ring) => Some(ring.as_mut()),
            _ => None,
        }
    }

    /// Sends a record of `len` bytes that are copied from `data`, if the lane takes it now. False: nothing was done.
    /// `received`: how many messages the peer has sent; `None` if threads share the peer.
    ///
    /// # Safety
    /// `data` is readable for `len` bytes.
    #[inline(always)]
    pub unsafe fn am_now(
        &mut self,
        kind: u8,
        imm: u64,
        data: *const u8,
        len: usize,
        received: impl FnOnce() -> Option<u64>,
    ) -> bool {
        // SAFETY: the caller's bytes.
        with_sender!(self, sender => unsafe { sender.am_now(kind, imm, data, len, received) })
    }
}
