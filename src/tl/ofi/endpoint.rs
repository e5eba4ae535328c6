//! The objects of libfabric that a worker has: a domain with an endpoint, its completion queue and its address vector.
//!
//! The inline functions of libfabric's headers are methods here: they call the tables inside of the objects.

use super::bindings::*;
use super::closed::{Closed, Opened};
use super::device::OfiDevice;
use super::fabric::{Libfabric, error, text};
use super::object::UserMrs;
use std::ffi::{c_int, c_void};
use std::io::{self, ErrorKind};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr::null_mut;

/// Completions read at once.
pub const BATCH: usize = 16;
/// Completions that were read, the first so many of them.
pub type Entries = [MaybeUninit<fi_cq_data_entry>; BATCH];
/// Longest address of an endpoint, bytes.
pub const MAX_NAME: usize = 128;
/// Sends to, and receives from, peers of any name.
pub(super) const ANY_PEER: fi_addr_t = u64::MAX;

/// A member of a table of functions, which a provider has to have.
macro_rules! entry {
    ($table:expr, $name:ident) => {
        (*$table).$name.ok_or(std::io::ErrorKind::Unsupported)?
    };
}
pub(super) use entry;

/// Why an operation was not posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostError {
    /// There is no room now: it is to be posted again after progress.
    Again,
    /// It fails with this number of an error.
    Failed(c_int),
}

/// The result of a post, from what libfabric returns.
#[inline(always)]
pub(super) fn posted(answer: isize) -> Result<(), PostError> {
    match answer {
        0 => Ok(()),
        n if n == -(FI_EAGAIN as isize) => Err(PostError::Again),
        n => Err(PostError::Failed(n.unsigned_abs() as c_int)),
    }
}

/// An operation that has ended with an error.
#[derive(Clone, Debug)]
pub struct FailedOp {
    /// The operation's context; null where the provider does not say which one.
    pub context: *mut c_void,
    /// What the completion says besides (`FI_MULTI_RECV`).
    pub flags: u64,
    /// Number of the error.
    pub error: c_int,
    /// The provider's own words.
    pub detail: String,
}

/// What a completion queue had.
pub enum Completed {
    Nothing,
    /// The first entries of the array were written.
    Some(usize),
    Failed(Box<FailedOp>),
    /// The queue cannot be read any more, with this number of an error.
    Dead(c_int),
}

/// The frequent functions, as the tables of an endpoint and its queue have them when it was opened; functions that fail
/// when it is [closed](OfiEndpoint::close).
pub(super) struct Calls {
    pub(super) read: unsafe extern "C" fn(*mut fid_cq, *mut c_void, usize) -> isize,
    pub(super) inject: unsafe extern "C" fn(*mut fid_ep, *const c_void, usize, fi_addr_t) -> isize,
    pub(super) recv: unsafe extern "C" fn(
        *mut fid_ep,
        *mut c_void,
        usize,
        *mut c_void,
        fi_addr_t,
        *mut c_void,
    ) -> isize,
}

/// One thread at a time calls its functions (`FI_THREAD_DOMAIN`): a worker's lock holds it.
pub struct OfiEndpoint {
    /// Null when it is [closed](Self::close): the other objects stay open.
    pub(super) ep: *mut fid_ep,
    cq: *mut fid_cq,
    av: *mut fid_av,
    pub(super) domain: *mut fid_domain,
    fabric: *mut fid_fabric,
    pub(super) calls: Calls,
    /// Registrations are bound to the endpoint, and so closed before it; others after it, because receives use them.
    pub(super) binds_mr: bool,
    pub(super) mrs: Vec<Closed>,
    /// Registrations of user memory.
    pub(super) user_mrs: UserMrs,
    pub(super) opened: Opened,
    /// The description from which they were made.
    pub device: OfiDevice,
}

// SAFETY: libfabric's objects are bound to no thread; the lock of the worker that holds them orders the calls.
unsafe impl Send for OfiEndpoint {}

impl OfiEndpoint {
    /// Opens an endpoint of the device. `waits`: its completion queue has a descriptor; `depth`: completions that may
    /// be outstanding.
    ///
    /// # Errors
    /// The provider's error.
    pub fn open(device: &OfiDevice, waits: bool, depth: usize) -> io::Result<OfiEndpoint> {
        let (mut opened, made) = (Opened::default(), check);
        let info = device.info();
        let library = Libfabric::get().ok_or(ErrorKind::NotFound)?;
        let (mut fabric, mut domain) = (null_mut::<fid_fabric>(), null_mut::<fid_domain>());
        let (mut cq, mut ep) = (null_mut::<fid_cq>(), null_mut::<fid_ep>());
        let av;
        // SAFETY: the description stays as long as the device; each object is made by the one before it, which is open.
        unsafe {
            made((library.fabric)(
                (*info).fabric_attr,
                &mut fabric,
                null_mut(),
            ))?;
            opened.push(&raw mut (*fabric).fid);
            made(entry!((*fabric).ops, domain)(
                fabric,
                info,
                &mut domain,
                null_mut(),
            ))?;
            opened.push(&raw mut (*domain).fid);
            let mut attr = fi_cq_attr {
                size: depth,
                format: FI_CQ_FORMAT_DATA,
                wait_obj: if waits { FI_WAIT_FD } else { FI_WAIT_NONE },
                ..fi_cq_attr::default()
            };
            made(entry!((*domain).ops, cq_open)(
                domain,
                &mut attr,
                &mut cq,
                null_mut(),
            ))?;
            opened.push(&raw mut (*cq).fid);
            av = open_av(domain)?;
            opened.push(&raw mut (*av).fid);
            made(entry!((*domain).ops, endpoint)(
                domain,
                info,
                &mut ep,
                null_mut(),
            ))?;
            opened.push(&raw mut (*ep).fid);
            let bind = entry!((*ep).fid.ops, bind);
            let queue = u64::from(FI_SEND | FI_RECV);
            made(bind(&raw mut (*ep).fid, &raw mut (*cq).fid, queue))?;
            made(bind(&raw mut (*ep).fid, &raw mut (*av).fid, 0))?;
            let control = entry!((*ep).fid.ops, control);
            made(control(&raw mut (*ep).fid, FI_ENABLE as c_int, null_mut()))?;
        }
        // SAFETY: the objects are open, and have their tables as long as they live.
        let calls = unsafe {
            Calls {
                read: entry!((*cq).ops, read),
                inject: entry!((*ep).msg, inject),
                recv: entry!((*ep).msg, recv),
            }
        };
        Ok(OfiEndpoint {
            calls,
            ep,
            cq,
            av,
            domain,
            fabric,
            binds_mr: device.needs(FI_MR_ENDPOINT),
            mrs: Vec::new(),
            user_mrs: UserMrs::default(),
            opened,
            device: device.clone(),
        })
    }

    /// The endpoint's address, which peers insert.
    ///
    /// # Errors
    /// The provider's error; `FileTooLarge` if it is longer than [`MAX_NAME`].
    pub fn name(&self) -> io::Result<Vec<u8>> {
        let mut name = vec![0; MAX_NAME];
        let mut len = name.len();
        // SAFETY: the endpoint is open, and `len` bytes are writable.
        unsafe {
            let ep = self.open_ep().ok_or(ErrorKind::NotConnected)?;
            let getname = entry!(ep.cm, getname);
            check(getname(
                &raw mut (*self.ep).fid,
                name.as_mut_ptr().cast(),
                &mut len,
            ))?;
        }
        if len > name.len() {
            return Err(ErrorKind::FileTooLarge.into());
        }
        name.truncate(len);
        Ok(name)
    }

    /// The descriptor that is readable while there may be completions. Only of an endpoint that waits.
    ///
    /// # Errors
    /// The provider's error.
    pub fn descriptor(&self) -> io::Result<RawFd> {
        let mut fd: RawFd = -1;
        // SAFETY: the queue is open, and the command writes a descriptor.
        unsafe {
            let control = entry!((*self.cq).fid.ops, control);
            check(control(
                &raw mut (*self.cq).fid,
                FI_GETWAIT as c_int,
                (&raw mut fd).cast(),
            ))?;
        }
        if fd < 0 {
            Err(ErrorKind::Unsupported.into())
        } else {
            Ok(fd)
        }
    }

    /// Whether a thread may sleep until the descriptor is readable: there is no completion.
    pub fn may_wait(&self) -> bool {
        // SAFETY: the objects are open.
        unsafe {
            let mut fids = [&raw mut (*self.cq).fid];
            let trywait = (*(*self.fabric).ops).trywait;
            trywait.is_some_and(|trywait| trywait(self.fabric, fids.as_mut_ptr(), 1) == 0)
        }
    }

    /// The number by which operations name the peer at this address.
    ///
    /// # Errors
    /// The provider's error.
    pub fn insert(&mut self, name: &[u8]) -> io::Result<fi_addr_t> {
        let mut addr = ANY_PEER;
        // SAFETY: the vector is open; the address has the length that the provider's addresses have, which the caller
        // has checked, or is one of its own strings, with the zero at its end.
        let inserted = unsafe {
            let insert = entry!((*self.av).ops, insert);
            insert(self.av, name.as_ptr().cast(), 1, &mut addr, 0, null_mut())
        };
        match inserted {
            1 if addr != ANY_PEER => Ok(addr),
            n if n < 0 => Err(error(n)),
            _ => Err(ErrorKind::AddrNotAvailable.into()),
        }
    }

    /// Removes a peer, to which no operation is outstanding.
    pub fn remove(&mut self, mut addr: fi_addr_t) {
        // SAFETY: the vector is open, and the number is of a peer that was inserted.
        unsafe {
            if let Some(remove) = (*(*self.av).ops).remove {
                remove(self.av, &mut addr, 1, 0);
            }
        }
    }

    /// Registers memory for operations of this side, until the endpoint is dropped. Returns what they have to pass.
    ///
    /// # Errors
    /// The provider's error.
    ///
    /// # Safety
    /// `len` bytes at `base` stay mapped as long as the endpoint.
    pub unsafe fn register(&mut self, base: *mut u8, len: usize) -> io::Result<*mut c_void> {
        let rma = if self.device.has_rma() {
            FI_READ | FI_WRITE
        } else {
            0
        };
        let access = u64::from(FI_SEND | FI_RECV | rma);
        // SAFETY: the caller's memory.
        let (object, mr) = unsafe { self.open_mr(base, len, access)? };
        self.mrs.push(object);
        // SAFETY: the registration is open.
        Ok(unsafe { (*mr).mem_desc })
    }

    /// Sends a message of up to the provider's `inject_size`, which is copied: no completion reports it.
    ///
    /// # Errors
    /// It was not posted.
    ///
    /// # Safety
    /// `len` bytes at `data` are readable.
    #[inline(always)]
    pub unsafe fn inject(
        &mut self,
        data: *const u8,
        len: usize,
        to: fi_addr_t,
    ) -> Result<(), PostError> {
        // SAFETY: the memory is the caller's; the call of a closed endpoint does not use it.
        unsafe { posted((self.calls.inject)(self.ep, data.cast(), len, to)) }
    }

    /// Sends a message, which a completion with this context reports.
    ///
    /// # Errors
    /// It was not posted.
    ///
    /// # Safety
    /// `len` bytes at `data` are readable until the completion, and registered with `desc` where the provider wants
    /// that; `context` is the provider's until then.
    pub unsafe fn send(
        &mut self,
        data: *const u8,
        len: usize,
        desc: *mut c_void,
        to: fi_addr_t,
        context: *mut c_void,
    ) -> Result<(), PostError> {
        // SAFETY: the endpoint is open, and the memory is the caller's.
        unsafe {
            let send = (*self.open_ep().ok_or(CLOSED)?.msg).send;
            let send = send.ok_or(UNSUPPORTED)?;
            posted(send(self.ep, data.cast(), len, desc, to, context))
        }
    }

    /// Posts a receive of a message from any peer.
    ///
    /// # Errors
    /// It was not posted.
    ///
    /// # Safety
    /// `len` bytes at `memory` are writable until the completion, and registered with `desc` where the provider wants
    /// that; `context` is the provider's until then.
    #[inline(always)]
    pub unsafe fn receive(
        &mut self,
        memory: *mut u8,
        len: usize,
        desc: *mut c_void,
        context: *mut c_void,
    ) -> Result<(), PostError> {
        // SAFETY: the memory is the caller's; the call of a closed endpoint does not use it.
        unsafe {
            let recv = self.calls.recv;
            posted(recv(self.ep, memory.cast(), len, desc, ANY_PEER, context))
        }
    }

    /// Progresses the provider, and leaves completions in the queue.
    #[cold]
    pub fn progress(&mut self) {
        // SAFETY: the queue is open, and no entry is read.
        unsafe { (self.calls.read)(self.cq, null_mut(), 0) };
    }

    /// Reads completions: the number of entries that were written, or what [`completed`](Self::completed) explains.
    /// Progresses the provider.
    #[inline(always)]
    pub fn read_queue(&mut self, entries: &mut Entries) -> isize {
        // SAFETY: the queue is open, and its entries have the format of `entries`.
        unsafe { (self.calls.read)(self.cq, entries.as_mut_ptr().cast(), BATCH) }
    }

    /// What a [`read`](Self::read) says that has returned no entry.
    pub fn completed(&mut self, read: isize) -> Completed {
        if read == -(FI_EAVAIL as isize) {
            self.read_error()
        } else {
            nothing_or_dead(read)
        }
    }

    #[cold]
    fn read_error(&mut self) -> Completed {
        let mut entry = fi_cq_err_entry::default();
        // SAFETY: the queue is open; the entry has the size of API 1.15, and no buffer for the provider's data.
        unsafe {
            let Some(readerr) = (*(*self.cq).ops).readerr else {
                return Completed::Nothing;
            };
            let read = readerr(self.cq, &mut entry, 0);
            if read <= 0 {
                return nothing_or_dead(read);
            }
            let detail = (*(*self.cq).ops).strerror.map(|strerror| {
                text(strerror(
                    self.cq,
                    entry.prov_errno,
                    entry.err_data,
                    null_mut(),
                    0,
                ))
            });
            Completed::Failed(Box::new(FailedOp {
                context: entry.op_context,
                flags: entry.flags,
                error: entry.err,
                detail: detail.unwrap_or_default(),
            }))
        }
    }
}

impl Drop for OfiEndpoint {
    fn drop(&mut self) {
        self.close();
        self.mrs.clear();
        self.user_mrs.clear();
    }
}

/// The error of an operation that a provider does not have.
pub(super) const UNSUPPORTED: PostError = PostError::Failed(FI_ENOSYS as c_int);
/// The error of a post to an endpoint that is closed.
pub(super) const CLOSED: PostError = PostError::Failed(FI_ESHUTDOWN as c_int);

/// An address vector whose numbers are indices, or else whatever the provider makes them.
///
/// # Safety
/// The domain is open.
unsafe fn open_av(domain: *mut fid_domain) -> io::Result<*mut fid_av> {
    let mut last = Err(ErrorKind::Unsupported.into());
    for type_ in [FI_AV_TABLE, FI_AV_MAP] {
        let (mut av, mut attr) = (
            null_mut(),
            fi_av_attr {
                type_,
                ..fi_av_attr::default()
            },
        );
        // SAFETY: the domain is open.
        last = unsafe {
            let open = entry!((*domain).ops, av_open);
            check(open(domain, &mut attr, &mut av, null_mut())).map(|()| av)
        };
        if last.is_ok() {
            break;
        }
    }
    last
}

/// What a read of a completion queue says that has returned neither an entry nor an error.
fn nothing_or_dead(read: isize) -> Completed {
    match u32::try_from(-read).unwrap_or(0) {
        0 | FI_EAGAIN | FI_EINTR => Completed::Nothing,
        error => Completed::Dead(error as c_int),
    }
}

/// The result of a call, from what libfabric returns.
pub(super) fn check(answer: c_int) -> io::Result<()> {
    match answer {
        0 => Ok(()),
        n => Err(error(n)),
    }
}

/// A descriptor of the provider's.
///
/// # Safety
/// It is open as long as the endpoint, which outlives `'a`.
pub unsafe fn borrowed<'a>(fd: RawFd) -> BorrowedFd<'a> {
    // SAFETY: the caller's promise.
    unsafe { BorrowedFd::borrow_raw(fd) }
}
