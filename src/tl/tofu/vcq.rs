//! A virtual control queue, and memory that is registered for it.

use super::amo::{AmoVerb, AmoWidth, TofuAmo};
use super::route::{self, RouteEnd};
use super::utofu::{self, MrqNotice, Stadd, TniId, Utofu, VcqHdl, VcqId, code_name};
use super::vcq_alloc;
use super::vcq_ops::{self, VcqOps};
use crate::sys::fork::PrivateInChild;
use crate::sys::log;
use crate::sys::sync::OnceLock;
use std::ffi::{c_int, c_ulong, c_void};
use std::io;
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

/// Registered memory of ours is made of whole pages of the machines that have the interconnect, bytes.
const PAGE: usize = 64 << 10;

/// Where an operation goes: a queue at the other end, and an address that it knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteAddr {
    pub vcq: VcqId,
    pub stadd: Stadd,
}

/// What an operation is told by: flags of uTofu's, the byte in its notices, the word with an entry of the queue of
/// ended transmissions.
#[derive(Clone, Copy, Debug, Default)]
pub struct PostFlags {
    pub flags: c_ulong,
    pub edata: u8,
    pub cbdata: usize,
}

/// Who keeps memory registered for a queue that nobody uses any more.
pub trait RegReclaimer: Send + Sync {
    /// Deregisters up to so many registrations that are only kept. False: there were none. It may be asked with any
    /// lock held but its own, which it holds while it calls nobody.
    fn give_up(&self, most: usize) -> bool;
}

/// Freed when its owner and all that it has registered are gone. The library wants one thread at a time: callers lock.
pub struct Vcq {
    lib: &'static Utofu,
    hdl: VcqHdl,
    pub id: VcqId,
    pub tni: TniId,
    pub room: CqSharing,
    keeper: OnceLock<Weak<dyn RegReclaimer>>,
}

/// Whose control queue a virtual one is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CqSharing {
    /// Nobody else's.
    Alone,
    /// Others may be there, of this process and, if the library lets them, of others.
    Shared,
}

impl CqSharing {
    /// What queues on one control queue post into is one: the library keeps their threads apart there, if anybody does.
    fn flags(self) -> c_ulong {
        match self {
            CqSharing::Alone => utofu::VCQ_EXCLUSIVE,
            CqSharing::Shared => utofu::VCQ_THREAD_SAFE,
        }
    }
}

/// The library's answer as an error of its own.
fn failure(what: &str, code: c_int) -> io::Error {
    io::Error::other(format!("{what}: {} ({code})", code_name(code)))
}

impl Vcq {
    /// A queue on this network interface; if it is to be alone, one that was reserved.
    ///
    /// # Errors
    /// What the library says: there are no more.
    pub fn new(lib: &'static Utofu, tni: TniId, room: CqSharing) -> io::Result<Vcq> {
        let (mut hdl, mut id) = (0, 0);
        // SAFETY: room for the handle.
        let code = unsafe { (lib.create_vcq)(tni, room.flags(), &mut hdl) };
        if code != utofu::SUCCESS {
            vcq_alloc::give_back(room);
            return Err(failure("utofu_create_vcq", code));
        }
        // SAFETY: just made; room for the name.
        let code = unsafe { (lib.query_vcq_id)(hdl, &mut id) };
        let vcq = Vcq {
            lib,
            hdl,
            id,
            tni,
            room,
            keeper: OnceLock::new(),
        };
        match code {
            utofu::SUCCESS => Ok(vcq),
            code => Err(failure("utofu_query_vcq_id", code)),
        }
    }

    /// The name of a peer's queue by which all goes the path that is this connection's; its own, for the default path,
    /// where the library knows no such.
    pub fn route(&self, peer: VcqId) -> VcqId {
        let mut routed = peer;
        let (Some(from), Some(to)) = (self.end(self.id), self.end(peer)) else {
            return peer;
        };
        let mut path = route::between(from, to);
        // SAFETY: a number, and the three coordinates that it takes.
        let code = unsafe { (self.lib.set_vcq_id_path)(&mut routed, path.as_mut_ptr()) };
        if code != utofu::SUCCESS {
            log::debug!("the default path, not {path:?}: {}", code_name(code));
            return peer;
        }
        routed
    }

    /// Where a queue is.
    fn end(&self, id: VcqId) -> Option<RouteEnd> {
        let (mut coords, mut tni, mut cq, mut extra) = ([0; 6], 0, 0, 0);
        // SAFETY: room for the six coordinates and the others.
        let code = unsafe {
            (self.lib.query_vcq_info)(id, coords.as_mut_ptr(), &mut tni, &mut cq, &mut extra)
        };
        (code == utofu::SUCCESS).then_some(RouteEnd { coords, tni })
    }

    /// Names who is to make room for what has to be registered: the first one.
    pub fn set_keeper(&self, keeper: Weak<dyn RegReclaimer>) {
        self.keeper.get_or_init(|| keeper);
    }

    /// Makes room for a registration, at the expense of up to so many that are only kept. False: nothing is.
    fn make_room(&self, most: usize) -> bool {
        let keeper = self.keeper.get().and_then(Weak::upgrade);
        keeper.is_some_and(|keeper| keeper.give_up(most))
    }

    /// What is called most of it.
    pub fn line(&self) -> VcqOps {
        VcqOps::new(self.lib, self.hdl)
    }

    /// Writes `len` bytes of registered memory. What the library answers: success, busy or an error.
    pub fn put(&self, from: Stadd, to: RemoteAddr, len: usize, told: PostFlags) -> c_int {
        // SAFETY: steering addresses are checked by the adapter; the owner keeps the memory until it is told.
        unsafe {
            (self.lib.put)(
                self.hdl,
                to.vcq,
                from,
                to.stadd,
                len,
                told.edata.into(),
                told.flags,
                told.cbdata as *mut c_void,
            )
        }
    }

    /// As [`put`](Self::put), of bytes that ride in the descriptor: at most 32.
    pub fn put_bytes(&self, bytes: &[u8], to: RemoteAddr, told: PostFlags) -> c_int {
        // SAFETY: the bytes are copied before the function returns.
        unsafe {
            (self.lib.put_piggyback)(
                self.hdl,
                to.vcq,
                bytes.as_ptr() as *mut c_void,
                to.stadd,
                bytes.len(),
                told.edata.into(),
                told.flags,
                told.cbdata as *mut c_void,
            )
        }
    }

    /// As [`put`](Self::put), of 8 bytes.
    pub fn put_word(&self, word: u64, to: RemoteAddr, told: PostFlags) -> c_int {
        // SAFETY: nothing is lent.
        unsafe {
            (self.lib.put_piggyback8)(
                self.hdl,
                to.vcq,
                word,
                to.stadd,
                size_of::<u64>(),
                told.edata.into(),
                told.flags,
                told.cbdata as *mut c_void,
            )
        }
    }

    /// Reads into registered memory.
    pub fn get(&self, into: Stadd, from: RemoteAddr, len: usize, told: PostFlags) -> c_int {
        // SAFETY: as of `put`.
        unsafe {
            (self.lib.get)(
                self.hdl,
                from.vcq,
                into,
                from.stadd,
                len,
                told.edata.into(),
                told.flags,
                told.cbdata as *mut c_void,
            )
        }
    }

    /// Changes 4 or 8 bytes there, aligned to as many; the notice has what was there before.
    pub fn change(&self, step: TofuAmo, to: RemoteAddr, told: PostFlags) -> c_int {
        let (lib, hdl) = (self.lib, self.hdl);
        let (edata, cbdata) = (u64::from(told.edata), told.cbdata as *mut c_void);
        let (value, compare) = (step.value, step.compare);
        // Of 4 bytes the lower halves of the operands count.
        let (value4, compare4) = (value as u32, compare as u32);
        let (flags, vcq, at) = (told.flags, to.vcq, to.stadd);
        // SAFETY: nothing is lent; steering addresses are checked by the adapter.
        unsafe {
            match (step.verb, step.width) {
                (AmoVerb::CompareSwap, AmoWidth::Four) => {
                    (lib.cswap4)(hdl, vcq, compare4, value4, at, edata, flags, cbdata)
                }
                (AmoVerb::CompareSwap, AmoWidth::Eight) => {
                    (lib.cswap8)(hdl, vcq, compare, value, at, edata, flags, cbdata)
                }
                (verb, AmoWidth::Four) => {
                    (lib.armw4)(hdl, vcq, verb.code(), value4, at, edata, flags, cbdata)
                }
                (verb, AmoWidth::Eight) => {
                    (lib.armw8)(hdl, vcq, verb.code(), value, at, edata, flags, cbdata)
                }
            }
        }
    }

    /// The next ended transmission: the answer, and its word.
    pub fn poll_tcq(&self) -> (c_int, usize) {
        let mut cbdata = std::ptr::null_mut();
        // SAFETY: room for the word.
        let code = unsafe { (self.lib.poll_tcq)(self.hdl, 0, &mut cbdata) };
        vcq_ops::has_notice();
        (code, cbdata as usize)
    }

    /// The next notice: the answer, and the notice.
    #[inline]
    pub fn poll_mrq(&self) -> (c_int, MrqNotice) {
        let mut notice = MrqNotice::default();
        // SAFETY: room for the notice.
        let code = unsafe { (self.lib.poll_mrq)(self.hdl, 0, &mut notice) };
        vcq_ops::has_notice();
        (code, notice)
    }
}

impl Drop for Vcq {
    fn drop(&mut self) {
        // SAFETY: ours, and nothing is registered for it any more.
        unsafe { (self.lib.free_vcq)(self.hdl) };
        vcq_alloc::give_back(self.room);
    }
}

/// Memory that a queue, and peers that know the address, may read and write.
pub struct RegisteredMem {
    /// Memory that users keep does not keep the queue of a worker that has gone, with which the registration went, too.
    vcq: Weak<Vcq>,
    pub stadd: Stadd,
}

impl RegisteredMem {
    /// Whoever has it keeps the memory mapped. What is only kept goes for it, more and more while that does not
    /// suffice.
    ///
    /// # Errors
    /// What the library says.
    ///
    /// # Safety
    /// `len` bytes at `ptr` are mapped, and may be read and written by others, until it is dropped.
    pub unsafe fn new(vcq: &Arc<Vcq>, ptr: *mut u8, len: usize) -> io::Result<RegisteredMem> {
        let mut most = 1;
        loop {
            // SAFETY: passed on.
            let code = match unsafe { RegisteredMem::with(vcq, ptr, len, 0) } {
                Ok(registered) => return Ok(registered),
                Err(code) => code,
            };
            if !utofu::is_shortage(code) || !vcq.make_room(most) {
                return Err(failure(&format!("utofu_reg_mem of {len} bytes"), code));
            }
            most *= 2;
        }
    }

    /// Registers or fails, with flags: nothing goes for it, and the error is the library's code.
    ///
    /// # Errors
    /// The code.
    ///
    /// # Safety
    /// As there; of memory that is only to be read nobody writes.
    pub unsafe fn with(
        vcq: &Arc<Vcq>,
        ptr: *mut u8,
        len: usize,
        flags: c_ulong,
    ) -> Result<RegisteredMem, c_int> {
        let mut stadd = 0;
        // SAFETY: the caller's memory; room for the address.
        let code = unsafe { (vcq.lib.reg_mem)(vcq.hdl, ptr.cast(), len, flags, &mut stadd) };
        if code != utofu::SUCCESS {
            return Err(code);
        }
        let vcq = Arc::downgrade(vcq);
        Ok(RegisteredMem { vcq, stadd })
    }

    /// The queue that knows it, and where it begins for that; `None` if the queue is gone.
    pub fn there(&self) -> Option<RemoteAddr> {
        let vcq = self.vcq.upgrade()?.id;
        let stadd = self.stadd;
        Some(RemoteAddr { vcq, stadd })
    }
}

impl Drop for RegisteredMem {
    fn drop(&mut self) {
        if let Some(vcq) = self.vcq.upgrade() {
            // SAFETY: registered by `new`.
            unsafe { (vcq.lib.dereg_mem)(vcq.hdl, self.stadd, 0) };
        }
    }
}

/// Zeroed memory that peers can write to and our adapter can read from. Shared, so that a program that forks does not
/// get other pages than those that the adapter knows.
pub struct VcqRegion {
    /// `None` only while it is dropped: before the memory.
    registered: Option<RegisteredMem>,
    _vcq: Arc<Vcq>,
    /// Children have other memory there: a message of the parent's is none of theirs. Goes before the memory.
    in_children: Option<PrivateInChild>,
    ptr: NonNull<u8>,
    len: usize,
    pub stadd: Stadd,
}

// SAFETY: memory whose users order their accesses themselves.
unsafe impl Send for VcqRegion {}
// SAFETY: as above.
unsafe impl Sync for VcqRegion {}

impl VcqRegion {
    /// `len` bytes, rounded up to pages.
    ///
    /// # Errors
    /// What the system or the library says.
    pub fn new(vcq: &Arc<Vcq>, len: usize) -> io::Result<VcqRegion> {
        let len = len.next_multiple_of(PAGE);
        let (access, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
        );
        // SAFETY: a fresh mapping.
        let ptr = unsafe { libc::mmap(std::ptr::null_mut(), len, access, flags, -1, 0) };
        if ptr == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let mut region = VcqRegion {
            registered: None,
            _vcq: vcq.clone(),
            in_children: None,
            ptr: NonNull::new(ptr.cast()).ok_or(io::ErrorKind::OutOfMemory)?,
            len,
            stadd: 0,
        };
        // SAFETY: our memory, which is unmapped after that.
        let registered = unsafe { RegisteredMem::new(vcq, ptr.cast(), len) }?;
        region.stadd = registered.stadd;
        region.registered = Some(registered);
        // SAFETY: whole pages, mapped until the value is dropped in `drop`.
        region.in_children = Some(unsafe { PrivateInChild::new(region.ptr, len) });
        Ok(region)
    }

    /// Where it begins. Peers write to it at any time: what is read may change.
    pub fn ptr(&self) -> *mut u8 {
        self.ptr.as_ptr()
    }

    pub fn len(&self) -> usize {
        self.len
    }
}

impl Drop for VcqRegion {
    fn drop(&mut self) {
        self.registered = None;
        self.in_children = None;
        // SAFETY: mapped by `new`, and nobody reaches it any more.
        unsafe { libc::munmap(self.ptr.as_ptr().cast(), self.len) };
    }
}
