//! Completion queues, receive queues and queue pairs: objects of the library that are destroyed with their owners.

use super::bindings::*;
use super::hca::Hca;
use super::verbs::{check, made};
use std::ffi::c_int;
use std::io::{self, ErrorKind};
use std::mem::MaybeUninit;
use std::sync::Arc;

type PollCq = unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int;
type PostSend = unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int;

/// What tells that something is in completion queues: a descriptor.
pub struct CompChannel {
    hca: Arc<Hca>,
    raw: *mut ibv_comp_channel,
    fd: i32,
}

/// A completion queue.
pub struct IbvCq {
    raw: *mut ibv_cq,
    /// The device's function, at hand.
    poll: PollCq,
    hca: Arc<Hca>,
    /// Is destroyed after it.
    _channel: Option<Arc<CompChannel>>,
}

/// Receives that many queue pairs share.
pub struct IbvSrq {
    hca: Arc<Hca>,
    raw: *mut ibv_srq,
}

/// A queue pair.
pub struct IbvQp {
    raw: *mut ibv_qp,
    /// The device's function, at hand.
    post: PostSend,
    hca: Arc<Hca>,
    pub number: u32,
    /// Bytes that a work request can carry in itself.
    pub max_inline: u32,
    /// Pieces of memory that a send can name.
    pub max_pieces: u32,
    _needs: CqSizes,
}

/// What a device does not destroy before the queue pairs that use it.
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
            // SAFETY: as above.
            unsafe impl Sync for $name {}
        )+
    };
}
shared_by_threads! { CompChannel IbvCq IbvSrq IbvQp }

impl CompChannel {
    /// # Errors
    /// `EMFILE` and the like.
    pub fn new(hca: &Arc<Hca>) -> io::Result<Arc<CompChannel>> {
        // SAFETY: an open device. The structure begins with the device's context, then the descriptor
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
            let flags = libc::fcntl(fd, libc::F_GETFL);
            match libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) {
                0 => Ok(Arc::new(channel)),
                _ => Err(io::Error::last_os_error()),
            }
        }
    }

    /// Readable when something has come into an armed queue.
    pub fn fd(&self) -> i32 {
        self.fd
    }

    /// Takes what it has told, so that the descriptor is quiet.
    pub fn drain(&self) {
        let (mut cq, mut context) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: writable pointers; the descriptor does not block. An event names one of its queues.
        unsafe {
            while (self.hca.verbs.get_cq_event)(self.raw, &mut cq, &mut context) == 0 {
                (self.hca.verbs.ack_cq_events)(cq, 1);
            }
        }
    }
}

impl Drop for CompChannel {
    fn drop(&mut self) {
        // SAFETY: its queues are gone: they hold it.
        unsafe { (self.hca.verbs.destroy_comp_channel)(self.raw) };
    }
}

impl IbvCq {
    /// With room for so many completions, or as many as the device has.
    ///
    /// # Errors
    /// What the device says.
    pub fn new(
        hca: &Arc<Hca>,
        len: u32,
        channel: Option<&Arc<CompChannel>>,
    ) -> io::Result<Arc<IbvCq>> {
        let poll = hca.ops().poll_cq.ok_or(ErrorKind::Unsupported)?;
        let len = (len as i32).clamp(1, hca.limits.max_cqe.max(1));
        let events = channel.map_or(std::ptr::null_mut(), |c| c.raw);
        // SAFETY: an open device and its channel, or none.
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

    /// Takes completions: how many were written.
    #[inline(always)]
    pub fn poll(&self, into: &mut [MaybeUninit<ibv_wc>]) -> usize {
        // SAFETY: its own queue, as many writable entries as said.
        let n = unsafe { (self.poll)(self.raw, into.len() as i32, into.as_mut_ptr().cast()) };
        n.max(0) as usize
    }

    /// What a completion's status means, in words.
    pub fn status_text(&self, status: ibv_wc_status) -> String {
        self.hca.verbs.status_text(status)
    }

    /// The next completion wakes the channel. One that is there already may not.
    pub fn arm(&self) {
        if let Some(arm) = self.hca.ops().req_notify_cq {
            // SAFETY: its own queue.
            unsafe { arm(self.raw, 0) };
        }
    }
}

impl Drop for IbvCq {
    fn drop(&mut self) {
        // SAFETY: the queue pairs that use it are gone: they hold it.
        unsafe { (self.hca.verbs.destroy_cq)(self.raw) };
    }
}

impl IbvSrq {
    /// For so many receives, or as many as the device has.
    ///
    /// # Errors
    /// What the device says.
    pub fn new(hca: &Arc<Hca>, len: u32) -> io::Result<Arc<IbvSrq>> {
        let mut attr = ibv_srq_init_attr::default();
        attr.attr.max_wr = len.min(hca.limits.max_srq_wr.max(0) as u32);
        attr.attr.max_sge = 1;
        if attr.attr.max_wr == 0 {
            return Err(ErrorKind::Unsupported.into());
        }
        // SAFETY: an open device.
        let raw = made(unsafe { (hca.verbs.create_srq)(hca.pd(), &mut attr) })?;
        Ok(Arc::new(IbvSrq {
            hca: hca.clone(),
            raw,
        }))
    }

    /// Posts linked receives: 0, or what the device says of the one that it puts into `bad`.
    ///
    /// # Safety
    /// They are receives into registered memory, which is the device's until it says otherwise.
    pub unsafe fn post(&self, wr: *mut ibv_recv_wr, bad: &mut *mut ibv_recv_wr) -> i32 {
        *bad = wr;
        match self.hca.ops().post_srq_recv {
            // SAFETY: its own queue; the caller's requests.
            Some(post) => unsafe { post(self.raw, wr, bad) },
            None => libc::ENOSYS,
        }
    }
}

impl Drop for IbvSrq {
    fn drop(&mut self) {
        // SAFETY: the queue pairs that use it are gone: they hold it.
        unsafe { (self.hca.verbs.destroy_srq)(self.raw) };
    }
}

/// What a queue pair is made of.
pub struct QpInit<'a> {
    pub kind: ibv_qp_type,
    pub send_cq: &'a Arc<IbvCq>,
    pub recv_cq: &'a Arc<IbvCq>,
    /// None: it has receives of its own, `receives` of them.
    pub srq: Option<&'a Arc<IbvSrq>>,
    pub sends: u32,
    pub receives: u32,
    /// Bytes in a work request, if the device can.
    pub inline: u32,
    /// Pieces of memory that a send names, if the device can.
    pub pieces: u32,
}

impl IbvQp {
    /// With as many sends, receives and bytes as the device has, if that is less.
    ///
    /// # Errors
    /// `ENOMEM` when the device has no more queue pairs or the process may lock no more memory.
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
            // SAFETY: an open device and its queues.
            match made(unsafe { (hca.verbs.create_qp)(hca.pd(), &mut attr) }) {
                Ok(raw) => {
                    return Ok(IbvQp {
                        hca: hca.clone(),
                        raw,
                        post,
                        // SAFETY: just made.
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
                // Nothing tells how much a device takes.
                Err(_) if inline > 0 => inline /= 2,
                Err(e) => return Err(e),
            }
        }
    }

    /// Changes its state and what `mask` says.
    ///
    /// # Errors
    /// What the device says.
    pub fn modify(&self, attr: &mut ibv_qp_attr, mask: u32) -> io::Result<()> {
        // SAFETY: its own queue pair.
        check(unsafe { (self.hca.verbs.modify_qp)(self.raw, attr, mask as i32) })
    }

    /// Nothing that was posted, here or by the other end, takes effect any more.
    ///
    /// # Errors
    /// What the device says.
    pub fn reset(&self) -> io::Result<()> {
        let mut attr = ibv_qp_attr {
            qp_state: IBV_QPS_RESET,
            ..Default::default()
        };
        self.modify(&mut attr, IBV_QP_STATE)
    }

    /// Puts it into the error state: nothing arrives any more, and what was posted ends with an error.
    ///
    /// # Errors
    /// What the device says.
    pub fn stop(&self) -> io::Result<()> {
        let mut attr = ibv_qp_attr {
            qp_state: IBV_QPS_ERR,
            ..Default::default()
        };
        self.modify(&mut attr, IBV_QP_STATE)
    }

    /// Posts one send. False: the device takes no more.
    #[inline(always)]
    pub fn post_send(&self, wr: &mut ibv_send_wr) -> bool {
        let mut bad = MaybeUninit::uninit();
        // SAFETY: its own queue pair; the caller's request names registered memory or carries its bytes. `bad` is
        // written to.
        unsafe { (self.post)(self.raw, wr, bad.as_mut_ptr()) == 0 }
    }

    /// As [`IbvSrq::post`].
    ///
    /// # Safety
    /// As there.
    pub unsafe fn post_receives(&self, wr: *mut ibv_recv_wr, bad: &mut *mut ibv_recv_wr) -> i32 {
        *bad = wr;
        match self.hca.ops().post_recv {
            // SAFETY: its own queue pair; the caller's requests.
            Some(post) => unsafe { post(self.raw, wr, bad) },
            None => libc::ENOSYS,
        }
    }
}

impl Drop for IbvQp {
    fn drop(&mut self) {
        // SAFETY: nothing is posted to it any more: its owner goes.
        unsafe { (self.hca.verbs.destroy_qp)(self.raw) };
    }
}
