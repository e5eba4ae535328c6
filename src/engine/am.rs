//! Active messages at the receiver: the handlers, and data that a handler keeps.

use super::peer::Peer;
use crate::ctypes::*;
use std::alloc::{Layout, alloc, dealloc};
use std::ffi::c_void;
use std::ptr::NonNull;

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
    pub const NONE: AmHandler = AmHandler {
        function: AmFunction::None,
        arg: std::ptr::null_mut(),
        persistent: false,
    };
}

/// Where the payload of a descriptor comes from.
#[derive(Clone, Copy)]
pub enum AmPayload {
    /// It is behind the descriptor.
    Here,
    /// The sender has it: a rendezvous that nobody has started yet.
    Remote {
        peer: *const Peer,
        req: u64,
        addr: u64,
    },
    /// A rendezvous under way, or taken: nothing to give.
    Taken,
}

/// What the user holds of a message: `data` pointers of handlers point right behind it.
#[repr(C, align(64))]
pub struct AmDesc {
    pub payload: AmPayload,
    /// Bytes of the message.
    pub len: usize,
    /// Bytes in front of the payload, a multiple of the alignment; the descriptor is its last 64.
    front: usize,
    layout: Layout,
    /// The handler has it now: it is freed after the handler unless he keeps it.
    pub in_handler: bool,
    /// It was consumed while the handler ran.
    pub consumed: bool,
}

const _: () = assert!(size_of::<AmDesc>() % 64 == 0);

impl AmDesc {
    /// A descriptor with `room` bytes behind it, that begin at a multiple of `align`. `None` if there
    /// is not that much memory: the length comes from a peer.
    pub fn new(
        payload: AmPayload,
        len: usize,
        room: usize,
        align: usize,
    ) -> Option<NonNull<AmDesc>> {
        let align = align.max(64);
        let front = size_of::<AmDesc>().next_multiple_of(align);
        let layout = Layout::from_size_align(front.checked_add(room)?, align).ok()?;
        // SAFETY: the layout is not empty: it has a descriptor.
        let base = NonNull::new(unsafe { alloc(layout) })?;
        // SAFETY: inside the allocation, aligned to 64.
        unsafe {
            let desc = base.add(front - size_of::<AmDesc>()).cast::<AmDesc>();
            desc.write(AmDesc {
                payload,
                len,
                front,
                layout,
                in_handler: false,
                consumed: false,
            });
            Some(desc)
        }
    }

    /// The user's pointer.
    pub fn data(this: NonNull<AmDesc>) -> *mut u8 {
        // SAFETY: one past the descriptor is in its allocation, or its end.
        unsafe { this.add(1) }.cast().as_ptr()
    }

    /// The descriptor behind a user's pointer.
    ///
    /// # Safety
    /// `data` was handed out as a descriptor's.
    pub unsafe fn of(data: *mut c_void) -> NonNull<AmDesc> {
        // SAFETY: the caller's promise.
        unsafe { NonNull::new_unchecked(data.cast::<AmDesc>().sub(1)) }
    }

    /// Frees it.
    ///
    /// # Safety
    /// Nobody uses it or its payload any more.
    pub unsafe fn free(this: NonNull<AmDesc>) {
        // SAFETY: allocated in `new` with this layout.
        unsafe {
            let AmDesc { front, layout, .. } = *this.as_ptr();
            dealloc(
                this.cast::<u8>().as_ptr().sub(front - size_of::<AmDesc>()),
                layout,
            );
        }
    }
}
