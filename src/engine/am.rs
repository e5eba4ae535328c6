//! Active messages at the receiver: the handlers, and the descriptors of data that a handler keeps.

use super::pointers::PeerRef;
use super::rndv_rts::RtsInfo;
use crate::ctypes::*;
use crate::sys::lock::MtLock;
use crate::sys::pool::Pool;
use crate::wire::header::AmImm;
use std::alloc::{Layout, alloc, dealloc};
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};

/// A handler's function, of either interface.
#[derive(Clone, Copy)]
pub enum AmFunction {
    None,
    /// `ucp_worker_set_am_recv_handler`
    New(
        unsafe extern "C" fn(
            *mut c_void,
            *const c_void,
            usize,
            *mut c_void,
            usize,
            *const ucp_am_recv_param_t,
        ) -> std::mem::MaybeUninit<ucs_status_t>,
    ),
    /// `ucp_worker_set_am_handler`
    Old(
        unsafe extern "C" fn(
            *mut c_void,
            *mut c_void,
            usize,
            ucp_ep_h,
            u32,
        ) -> std::mem::MaybeUninit<ucs_status_t>,
    ),
}

/// What to do with messages of one id.
#[derive(Clone, Copy)]
pub struct AmHandler {
    pub function: AmFunction,
    pub arg: *mut c_void,
    /// Every payload can be kept.
    pub persistent: bool,
}

impl AmHandler {
    /// The entry of an id without a handler: `function` is [`AmFunction::None`], so that its messages are dropped.
    pub const NONE: AmHandler = AmHandler {
        function: AmFunction::None,
        arg: std::ptr::null_mut(),
        persistent: false,
    };
}

/// Where the payload of a descriptor comes from.
#[derive(Clone, Copy)]
pub enum AmPayload {
    /// The payload follows the descriptor.
    Here,
    /// At the sender: a rendezvous that is not started yet. The key bytes of its RTS follow the descriptor, which holds
    /// a reference to the peer.
    Remote(PeerRef, RtsInfo),
}

bitflags::bitflags! {
    /// State of a descriptor.
    #[derive(Clone, Copy, PartialEq, Eq)]
    struct DescState: u8 {
        /// The descriptor is in use, not in a pool.
        const LIVE = 1 << 0;
        /// The handler runs with it.
        const IN_HANDLER = 1 << 1;
        /// The user received or released the payload.
        const TAKEN = 1 << 2;
        /// The descriptor is not needed any more for receiving the payload.
        const DONE = 1 << 3;
    }
}

/// A message as the user holds it: the `data` pointer of a handler points right behind the descriptor.
#[repr(C, align(64))]
pub struct AmDesc {
    /// Overwritten when the descriptor goes back to its pool.
    pub payload: AmPayload,
    /// Bytes of the message.
    pub len: usize,
    /// Bytes in front of the payload, a multiple of the alignment; the descriptor is the last of them.
    front: usize,
    /// `Err`: from the heap, with so many bytes of payload.
    class: Result<u8, usize>,
    /// A [`DescState`]. In a pool it is empty and stays readable, so that a second receive is noticed.
    state: AtomicU8,
}

const _: () = assert!(size_of::<AmDesc>() % 64 == 0);

/// Longest payloads of the pools, bytes: none (it is at the sender), short, medium, and the longest eager one.
const CLASSES: [usize; 4] = [0, 64, 1 << 10, 24 << 10];
/// Descriptors allocated together, by class.
const PER_CHUNK: [usize; 4] = [32, 64, 16, 2];

/// Allocator of descriptors: pools, and the heap for longer ones. All memory of the pools is freed with the worker.
pub struct AmDescs {
    pools: [MtLock<Pool>; CLASSES.len()],
    align: usize,
}

impl AmDescs {
    /// Payloads will begin at multiples of `align`, a power of two. Allocates nothing yet.
    pub fn new(mt: bool, align: usize) -> Self {
        let align = align.max(align_of::<AmDesc>());
        let pool = |i: usize| {
            let bytes = Self::front(align) + CLASSES[i];
            MtLock::new(mt, Pool::new(bytes, align, PER_CHUNK[i]))
        };
        AmDescs {
            pools: std::array::from_fn(pool),
            align,
        }
    }

    fn front(align: usize) -> usize {
        size_of::<AmDesc>().next_multiple_of(align)
    }

    /// A descriptor of a message of `len` bytes, flagged as used by the handler, with `room` bytes behind it. `None` if
    /// there is not that much memory: the length comes from a peer.
    pub fn get(&self, payload: AmPayload, len: usize, room: usize) -> Option<NonNull<AmDesc>> {
        let front = Self::front(self.align);
        let class = CLASSES.iter().position(|&c| room <= c);
        let base = match class {
            Some(i) => self.pools[i].lock().get(|_| ()),
            // SAFETY: the layout is not empty: it has a descriptor.
            None => NonNull::new(unsafe { alloc(self.layout(room)?) })?,
        };
        // SAFETY: the last bytes of the front, which is aligned as the payload is.
        unsafe {
            let desc = base.add(front - size_of::<AmDesc>()).cast::<AmDesc>();
            desc.write(AmDesc {
                payload,
                len,
                front,
                class: class.map(|i| i as u8).ok_or(room),
                state: AtomicU8::new((DescState::LIVE | DescState::IN_HANDLER).bits()),
            });
            Some(desc)
        }
    }

    fn layout(&self, room: usize) -> Option<Layout> {
        Layout::from_size_align(Self::front(self.align).checked_add(room)?, self.align).ok()
    }

    unsafe fn free(&self, desc: NonNull<AmDesc>) {
        // SAFETY: no flag keeps it in use; it returns to the pool or to the heap, as its `class` says.
        unsafe {
            let AmDesc { front, class, .. } = *desc.as_ptr();
            // Relaxed: a `take` of a freed descriptor is a user error, which the 0 shows until the descriptor is used
            // again.
            desc.as_ref()
                .state
                .store(DescState::empty().bits(), Ordering::Relaxed);
            let base = desc.cast::<u8>().sub(front - size_of::<AmDesc>());
            match class {
                Ok(i) => self.pools[usize::from(i)].lock().put(base),
                Err(room) => {
                    if let Some(layout) = self.layout(room) {
                        dealloc(base.as_ptr(), layout);
                    }
                }
            }
        }
    }

    /// Drops a message whose last fragments will not arrive: its peer has failed, or the worker is destroyed.
    pub fn discard(&self, partial: Option<PartialAm>) {
        if let Some(desc) = partial.and_then(|p| p.desc) {
            // SAFETY: no handler has seen the descriptor, and the partial message was its only owner.
            unsafe { self.leave_handler(desc, false) };
        }
    }

    /// Claims the payload for a receive or a release by the user. False: it was claimed before.
    ///
    /// # Safety
    /// `desc` was passed to the user by a handler.
    pub unsafe fn take(&self, desc: NonNull<AmDesc>) -> bool {
        // SAFETY: the caller's promise; a pooled descriptor stays readable.
        let state = unsafe { &desc.as_ref().state };
        let free = |bits: u8| {
            let s = DescState::from_bits_retain(bits);
            let is_free = s & (DescState::LIVE | DescState::TAKEN) == DescState::LIVE;
            is_free.then_some((s | DescState::TAKEN).bits())
        };
        // Acquire: pairs with the Release of `leave_handler`, where the descriptor changes hands.
        state
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, free)
            .is_ok()
    }

    /// Ends the use that `take` allowed. If the handler still runs, `leave_handler` frees the descriptor.
    ///
    /// # Safety
    /// Once after `take`; the descriptor is not used by the caller any more.
    pub unsafe fn done(&self, desc: NonNull<AmDesc>) {
        // SAFETY: live until freed here or in `leave_handler`; AcqRel: of the two, the later one frees.
        unsafe {
            if desc
                .as_ref()
                .state
                .fetch_or(DescState::DONE.bits(), Ordering::AcqRel)
                & DescState::IN_HANDLER.bits()
                == 0
            {
                self.free(desc);
            }
        }
    }

    /// The handler has returned. If it did not keep the descriptor and the payload was not taken, the descriptor is
    /// freed and its payload is returned for the caller to receive or drop.
    ///
    /// # Safety
    /// Once per descriptor, by the code that called the handler; not used by the caller any more.
    pub unsafe fn leave_handler(&self, desc: NonNull<AmDesc>, kept: bool) -> Option<AmPayload> {
        // SAFETY: live: the bit is still set.
        unsafe {
            if !kept && self.take(desc) {
                let payload = desc.as_ref().payload;
                self.free(desc);
                return Some(payload);
            }
            // AcqRel: pairs with the AcqRel in `done`.
            if desc
                .as_ref()
                .state
                .fetch_and(!DescState::IN_HANDLER.bits(), Ordering::AcqRel)
                & DescState::DONE.bits()
                != 0
            {
                self.free(desc);
            }
            None
        }
    }
}

impl AmDesc {
    /// The `data` pointer that the user gets.
    pub fn data(this: NonNull<AmDesc>) -> *mut u8 {
        // SAFETY: one past the descriptor is in its allocation, or its end.
        unsafe { this.add(1) }.cast().as_ptr()
    }

    /// The descriptor in front of a `data` pointer.
    ///
    /// # Safety
    /// `data` was returned by [`data`](Self::data) for a descriptor of this worker.
    pub unsafe fn of(data: *mut c_void) -> NonNull<AmDesc> {
        // SAFETY: the caller's promise.
        unsafe { NonNull::new_unchecked(data.cast::<AmDesc>().sub(1)) }
    }
}

/// An eager active message of which some fragments have arrived. The owner returns the descriptor to the [`AmDescs`] of
/// its worker.
pub struct PartialAm {
    /// With room for the whole message. `None`: there was no memory, and the message is dropped when it is complete.
    pub desc: Option<NonNull<AmDesc>>,
    /// The immediate, equal in all fragments.
    pub imm: AmImm,
    /// Bytes of the message's data.
    pub total: u64,
    /// Of them, those that have arrived.
    pub received: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descs() -> AmDescs {
        AmDescs::new(false, 256)
    }

    #[test]
    fn payloads_are_aligned_and_as_long_as_asked() {
        let descs = descs();
        for room in [0, 1, 64, 65, 1000, 24 << 10, 1 << 20] {
            let desc = descs.get(AmPayload::Here, room, room).unwrap();
            let data = AmDesc::data(desc);
            assert_eq!(data as usize % 256, 0);
            // SAFETY: a fresh descriptor with that much room, left once.
            unsafe {
                data.write_bytes(1, room);
                assert!(matches!(
                    descs.leave_handler(desc, false),
                    Some(AmPayload::Here)
                ));
            }
        }
        assert!(descs.pools.iter().all(|p| p.lock().in_use() == 0));
        assert!(descs.get(AmPayload::Here, 0, usize::MAX / 2).is_none());
    }

    /// `take` during the handler, after it, and not at all; a second `take` always fails.
    #[test]
    fn a_payload_is_taken_once() {
        let descs = descs();
        // SAFETY: every descriptor is live, or in its pool, where it is readable.
        unsafe {
            let inside = descs.get(AmPayload::Here, 8, 8).unwrap();
            assert!(descs.take(inside) && !descs.take(inside));
            descs.done(inside);
            assert!(descs.leave_handler(inside, true).is_none());
            assert!(!descs.take(inside), "it is in the pool");

            let kept = descs.get(AmPayload::Here, 8, 8).unwrap();
            assert!(descs.leave_handler(kept, true).is_none());
            assert!(descs.take(kept) && !descs.take(kept));
            descs.done(kept);
            assert!(!descs.take(kept));

            let under_way = descs.get(AmPayload::Here, 8, 8).unwrap();
            assert!(descs.take(under_way));
            assert!(
                descs.leave_handler(under_way, false).is_none(),
                "it is in use"
            );
            descs.done(under_way);
        }
        assert!(descs.pools.iter().all(|p| p.lock().in_use() == 0));
    }
}
