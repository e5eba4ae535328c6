//! Completion queues, receive queues and queue pairs: objects of the library that are destroyed with their owners.

use super::bindings::*;
use super::hca::Hca;
use super::verbs::{check, made};
use crate::sys::descriptor;
use std::ffi::c_int;
use std::io::{self, ErrorKind};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

type PollCq = unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int;
type PostSend = unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int;

/// A completion channel: its descriptor reports completions in armed queues.
pub struct CompChannel {
    hca: Arc<Hca>,
    raw: *mut ibv_comp_channel,
    fd: i32,
}

/// A completion queue.
pub struct IbvCq {
    raw: *mut ibv_cq,
    /// The device's function, cached.
    poll: PollCq,
    hca: Arc<Hca>,
    /// Keeps the channel until the queue is destroyed.
    _channel: Option<Arc<CompChannel>>,
}

/// A shared receive queue.
pub struct IbvSrq {
    hca: Arc<Hca>,
    raw: *mut ibv_srq,
}

/// A queue pair.
pub struct IbvQp {
    raw: *mut ibv_qp,
    /// The device's function, cached.
    post: PostSend,
    hca: Arc<Hca>,
    pub number: u32,
    /// Maximum bytes of inline data in a work request.
    pub max_inline: u32,
    /// Maximum number of memory ranges (SGEs) of a send.
    pub max_pieces: u32,
    _needs: CqSizes,
}

/// Keeps the queues that must be destroyed after the queue pair.
struct CqSizes {
    _send_cq: Arc<IbvCq>,
    _recv_cq: Arc<IbvCq>,
    _srq: Option<Arc<IbvSrq>>,
}

macro_rules! shared_by_threads {
    ($($name:ident)+) => {
        $(
            // SAFETY: libibverbs is thread-safe; the pointer is not changed.
            unsafe impl Send for $name {}
            // SAFETY: libibverbs is thread-safe, and the pointer does not change.
            unsafe impl Sync for $name {}
        )+
    };
}
shared_by_threads! { CompChannel IbvCq IbvSrq IbvQp }

impl CompChannel {
    /// # Errors
    /// `EMFILE` and the like.
    pub fn new(hca: &Arc<Hca>) -> io::Result<Arc<CompChannel>> {
        // SAFETY: the device is open. The structure begins with the device's context, followed by the descriptor
        // (ibv_create_comp_channel(3)).
        unsafe {
            let raw = made((hca.verbs.create_comp_channel)(hca.context()))?;
            let fd = raw
                .cast::<u8>()
                .add(size_of::<usize>())
                .cast::<i32>()
                .read();
            let channel = CompChannel {
                hca: hca.clone(),
                raw,
                fd,
            };
            descriptor::set_nonblocking(channel.as_fd())?;
            Ok(Arc::new(channel))
        }
    }

    /// Takes and acknowledges all events, so that the descriptor is not readable any more.
    pub fn drain(&self) {
        let (mut cq, mut context) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the pointers are writable, and the descriptor does not block. An event names one of the channel's
        // queues, which exists.
        unsafe {
            while (self.hca.verbs.get_cq_event)(self.raw, &mut cq, &mut context) == 0 {
                (self.hca.verbs.ack_cq_events)(cq, 1);
            }
        }
    }
}

impl AsFd for CompChannel {
    /// Readable when a completion has arrived in an armed queue.
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: libibverbs keeps it open until the channel is destroyed, when `self` is dropped.
        unsafe { BorrowedFd::borrow_raw(self.fd) }
    }
}

impl Drop for CompChannel {
    fn drop(&mut self) {
        // SAFETY: its queues hold a reference to it, so they are destroyed.
        unsafe { (self.hca.verbs.destroy_comp_channel)(self.raw) };
    }
}

impl IbvCq {
    /// Creates a queue of `len` completions, or as many as the device supports.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn new(
        hca: &Arc<Hca>,
        len: u32,
        channel: Option<&Arc<CompChannel>>,
    ) -> io::Result<Arc<IbvCq>> {
        let poll = hca.ops().poll_cq.ok_or(ErrorKind::Unsupported)?;
        let len = (len as i32).clamp(1, hca.limits.max_cqe.max(1));
        let events = channel.map_or(std::ptr::null_mut(), |c| c.raw);
        // SAFETY: the device is open; `events` is its channel, or null.
        let raw = made(unsafe {
            (hca.verbs.create_cq)(hca.context(), len, std::ptr::null_mut(), events, 0)
        })?;
        Ok(Arc::new(IbvCq {
            raw,
            poll,
            hca: hca.clone(),
            _channel: channel.cloned(),
        }))
    }

    /// Polls completions into `into`; returns their number.
    #[inline(always)]
    pub fn poll(&self, into: &mut [MaybeUninit<ibv_wc>]) -> usize {
        // SAFETY: the queue exists, and `into` is writable for its length.
        let n = unsafe { (self.poll)(self.raw, into.len() as i32, into.as_mut_ptr().cast()) };
        n.max(0) as usize
    }

    /// The text of a completion's status.
    pub fn status_text(&self, status: ibv_wc_status) -> String {
        self.hca.verbs.status_text(status)
    }

    /// Requests an event on the channel for the next completion. A completion that is already in the queue may cause
    /// none.
    pub fn arm(&self) {
        if let Some(arm) = self.hca.ops().req_notify_cq {
            // SAFETY: the queue exists.
            unsafe { arm(self.raw, 0) };
        }
    }
}

impl Drop for IbvCq {
    fn drop(&mut self) {
        // SAFETY: the queue pairs hold a reference to the queue, so they are destroyed.
        unsafe { (self.hca.verbs.destroy_cq)(self.raw) };
    }
}

impl IbvSrq {
    /// Creates a queue of `len` receives, or as many as the device supports.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn new(hca: &Arc<Hca>, len: u32) -> io::Result<Arc<IbvSrq>> {
        let mut attr = ibv_srq_init_attr::default();
        attr.attr.max_wr = len.min(hca.limits.max_srq_wr.max(0) as u32);
        attr.attr.max_sge = 1;
        if attr.attr.max_wr == 0 {
            return Err(ErrorKind::Unsupported.into());
        }
        // SAFETY: the device is open.
        let raw = made(unsafe { (hca.verbs.create_srq)(hca.pd(), &mut attr) })?;
        Ok(Arc::new(IbvSrq {
            hca: hca.clone(),
            raw,
        }))
    }

    /// Posts linked receives: 0, or the error of the device for the receive that it puts into `bad`.
    ///
    /// # Safety
    /// The requests are receives into registered memory, which only the device accesses until they complete.
    pub unsafe fn post(&self, wr: *mut ibv_recv_wr, bad: &mut *mut ibv_recv_wr) -> i32 {
        *bad = wr;
        match self.hca.ops().post_srq_recv {
            // SAFETY: the queue exists, and the caller's requests are valid.
            Some(post) => unsafe { post(self.raw, wr, bad) },
            None => libc::ENOSYS,
        }
    }
}

impl Drop for IbvSrq {
    fn drop(&mut self) {
        // SAFETY: the queue pairs hold a reference to the queue, so they are destroyed.
        unsafe { (self.hca.verbs.destroy_srq)(self.raw) };
    }
}

/// Parameters of a queue pair.
pub struct QpInit<'a> {
    pub kind: ibv_qp_type,
    pub send_cq: &'a Arc<IbvCq>,
    pub recv_cq: &'a Arc<IbvCq>,
    /// None: the queue pair has a receive queue of its own, with `receives` entries.
    pub srq: Option<&'a Arc<IbvSrq>>,
    pub sends: u32,
    pub receives: u32,
    /// Wanted bytes of inline data.
    pub inline: u32,
    /// Wanted number of SGEs of a send.
    pub pieces: u32,
}

impl IbvQp {
    /// Creates a queue pair, with less sends, receives, SGEs or inline data than wanted if the device supports less.
    ///
    /// # Errors
    /// `ENOMEM` when the device has no queue pair left or the process may lock no more memory.
    pub fn new(hca: &Arc<Hca>, parts: &QpInit) -> io::Result<IbvQp> {
        let post = hca.ops().post_send.ok_or(ErrorKind::Unsupported)?;
        let most = hca.limits.max_qp_wr.max(1) as u32;
        let mut inline = parts.inline;
        loop {
            let mut attr = ibv_qp_init_attr {
                send_cq: parts.send_cq.raw,
                recv_cq: parts.recv_cq.raw,
                srq: parts.srq.map_or(std::ptr::null_mut(), |s| s.raw),
                qp_type: parts.kind,
                ..Default::default()
            };
            attr.cap.max_send_wr = parts.sends.min(most);
            attr.cap.max_recv_wr = parts.receives.min(most);
            attr.cap.max_send_sge = parts.pieces.min(hca.limits.max_sge.max(1) as u32);
            attr.cap.max_recv_sge = 1;
            attr.cap.max_inline_data = inline;
            // SAFETY: the device is open, and the queues exist.
            match made(unsafe { (hca.verbs.create_qp)(hca.pd(), &mut attr) }) {
                Ok(raw) => {
                    return Ok(IbvQp {
                        hca: hca.clone(),
                        raw,
                        post,
                        // SAFETY: the queue pair was just created.
                        number: unsafe { (*raw).qp_num },
                        max_inline: attr.cap.max_inline_data,
                        max_pieces: attr.cap.max_send_sge,
                        _needs: CqSizes {
                            _send_cq: parts.send_cq.clone(),
                            _recv_cq: parts.recv_cq.clone(),
                            _srq: parts.srq.cloned(),
                        },
                    });
                }
                // No query returns the maximum of inline data, so smaller values are tried.
                Err(_) if inline > 0 => inline /= 2,
                Err(e) => return Err(e),
            }
        }
    }

    /// Changes the state, and the attributes in `mask`.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn modify(&self, attr: &mut ibv_qp_attr, mask: u32) -> io::Result<()> {
        // SAFETY: the queue pair exists. `attr` has no pointers: the library copies it, and checks the values.
        check(unsafe { (self.hca.verbs.modify_qp)(self.raw, attr, mask as i32) })
    }

    /// Resets the queue pair: nothing that was posted, here or by the remote end, takes effect afterwards.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn reset(&self) -> io::Result<()> {
        let mut attr = ibv_qp_attr {
            qp_state: IBV_QPS_RESET,
            ..Default::default()
        };
        self.modify(&mut attr, IBV_QP_STATE)
    }

    /// Moves the queue pair to the error state: nothing arrives any more, and what was posted completes with an error.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn stop(&self) -> io::Result<()> {
        let mut attr = ibv_qp_attr {
            qp_state: IBV_QPS_ERR,
            ..Default::default()
        };
        self.modify(&mut attr, IBV_QP_STATE)
    }

    /// Posts a send, or a list of sends. False: the device refuses it, or one of them.
    ///
    /// # Safety
    /// `next` is null or the next send, of which the same is true, and `sg_list` has `num_sge` entries. Inline data are
    /// readable. Other entries name registered memory, which stays registered until the request completes, and which
    /// until then is not accessed if the device writes it, and not changed if the device reads it. The address handle
    /// of a datagram exists.
    #[inline(always)]
    pub unsafe fn post_send(&self, wr: &mut ibv_send_wr) -> bool {
        let mut bad = MaybeUninit::uninit();
        // SAFETY: the queue pair exists, and the caller's request is valid; `bad` is writable.
        unsafe { (self.post)(self.raw, wr, bad.as_mut_ptr()) == 0 }
    }

    /// Posts linked receives: 0, or the error of the device for the receive that it puts into `bad`.
    ///
    /// # Safety
    /// The requests are receives into registered memory, which only the device accesses until they complete.
    pub unsafe fn post_receives(&self, wr: *mut ibv_recv_wr, bad: &mut *mut ibv_recv_wr) -> i32 {
        *bad = wr;
        match self.hca.ops().post_recv {
            // SAFETY: the queue pair exists, and the caller's requests are valid.
            Some(post) => unsafe { post(self.raw, wr, bad) },
            None => libc::ENOSYS,
        }
    }
}

impl Drop for IbvQp {
    fn drop(&mut self) {
        // SAFETY: the owner is dropped, so nothing is posted to it any more.
        unsafe { (self.hca.verbs.destroy_qp)(self.raw) };
    }
}
