//! A virtual control queue (VCQ), and memory that is registered for it.

use super::amo::{AmoVerb, AmoWidth, TofuAmo};
use super::route::{self, RouteEnd};
use super::utofu::{
    self, MrqNotice, OpFlags, RegFlags, Stadd, TniId, Utofu, VcqFlags, VcqHdl, VcqId, code_name,
};
use super::vcq_alloc;
use super::vcq_ops::{self, VcqOps};
use crate::sys::log;
use crate::sys::mapping::Mapping;
use crate::sys::sync::OnceLock;
use rustix::mm::MapFlags;
use std::ffi::{c_int, c_void};
use std::io;
use std::sync::{Arc, Weak};

/// Memory that rucp allocates and registers is whole pages of the machines with this interconnect, bytes.
const PAGE: usize = 64 << 10;

/// Remote address of an operation: a peer's VCQ, and a steering address for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteAddr {
    pub vcq: VcqId,
    pub stadd: Stadd,
}

/// Parameters of a post: uTofu's flags, the edata byte of its notices, and the cbdata word of its TCQ entry.
#[derive(Clone, Copy, Debug, Default)]
pub struct PostFlags {
    pub flags: OpFlags,
    pub edata: u8,
    pub cbdata: usize,
}

/// Keeps unused registrations for a VCQ.
pub trait RegReclaimer: Send + Sync {
    /// Deregisters up to `most` unused registrations. False: there are none. The caller may hold any lock but that of
    /// the cache, under which no function of other modules is called.
    fn give_up(&self, most: usize) -> bool;
}

/// Freed when its owner and the last [`VcqRegion`] are gone. Used by one thread at a time: callers lock.
pub struct Vcq {
    lib: &'static Utofu,
    hdl: VcqHdl,
    pub id: VcqId,
    pub tni: TniId,
    pub room: CqSharing,
    reclaimer: OnceLock<Weak<dyn RegReclaimer>>,
}

/// Whether a VCQ has a control queue of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CqSharing {
    /// No other VCQ is on it.
    Alone,
    /// Other VCQs may be on it, of this process and, if the library allows it, of others.
    Shared,
}

impl CqSharing {
    /// VCQs on one control queue post to the same queue: the library has to serialize their threads there.
    fn flags(self) -> VcqFlags {
        match self {
            CqSharing::Alone => VcqFlags::EXCLUSIVE,
            CqSharing::Shared => VcqFlags::THREAD_SAFE,
        }
    }
}

/// A result code of the library as an error.
fn failure(what: &str, code: c_int) -> io::Error {
    io::Error::other(format!("{what}: {} ({code})", code_name(code)))
}

impl Vcq {
    /// Creates a VCQ on this TNI. An exclusive one was reserved by the caller; on an error the reservation is returned.
    ///
    /// # Errors
    /// The library's error: no VCQ is left, for example.
    pub fn new(lib: &'static Utofu, tni: TniId, room: CqSharing) -> io::Result<Vcq> {
        let (mut hdl, mut id) = (0, 0);
        // SAFETY: the handle is written to a local variable.
        let code = unsafe { (lib.create_vcq)(tni, room.flags(), &mut hdl) };
        if code != utofu::SUCCESS {
            vcq_alloc::give_back(room);
            return Err(failure("utofu_create_vcq", code));
        }
        // SAFETY: the VCQ was just created; its id is written to a local variable.
        let code = unsafe { (lib.query_vcq_id)(hdl, &mut id) };
        let vcq = Vcq {
            lib,
            hdl,
            id,
            tni,
            room,
            reclaimer: OnceLock::new(),
        };
        match code {
            utofu::SUCCESS => Ok(vcq),
            code => Err(failure("utofu_query_vcq_id", code)),
        }
    }

    /// The id of a peer's VCQ with the path of this connection set; the plain id, for the default path, if the library
    /// rejects the path.
    pub fn route(&self, peer: VcqId) -> VcqId {
        let mut routed = peer;
        let (Some(from), Some(to)) = (self.end(self.id), self.end(peer)) else {
            return peer;
        };
        let mut path = route::between(from, to);
        // SAFETY: the id is a local variable, and the path has the three coordinates that the function reads.
        let code = unsafe { (self.lib.set_vcq_id_path)(&mut routed, path.as_mut_ptr()) };
        if code != utofu::SUCCESS {
            log::debug!("the default path, not {path:?}: {}", code_name(code));
            return peer;
        }
        routed
    }

    /// Coordinates and TNI of a VCQ.
    fn end(&self, id: VcqId) -> Option<RouteEnd> {
        let (mut coords, mut tni, mut cq, mut extra) = ([0; 6], 0, 0, 0);
        // SAFETY: six coordinates and three numbers are written to local variables.
        let code = unsafe {
            (self.lib.query_vcq_info)(id, coords.as_mut_ptr(), &mut tni, &mut cq, &mut extra)
        };
        (code == utofu::SUCCESS).then_some(RouteEnd { coords, tni })
    }

    /// Sets the cache that makes room for registrations; only the first call has an effect.
    pub fn set_reclaimer(&self, reclaimer: Weak<dyn RegReclaimer>) {
        self.reclaimer.get_or_init(|| reclaimer);
    }

    /// Deregisters up to `most` unused registrations. False: there are none.
    fn make_room(&self, most: usize) -> bool {
        let reclaimer = self.reclaimer.get().and_then(Weak::upgrade);
        reclaimer.is_some_and(|reclaimer| reclaimer.give_up(most))
    }

    /// The calls of the hot path.
    pub fn vcq_ops(&self) -> VcqOps {
        VcqOps::new(self.lib, self.hdl)
    }

    /// Puts `len` bytes of registered memory. Returns success, busy or an error.
    pub fn put(&self, from: Stadd, to: RemoteAddr, len: usize, post_flags: PostFlags) -> c_int {
        // SAFETY: the TNI checks steering addresses; the memory's owner keeps it until the put has completed.
        unsafe {
            (self.lib.put)(
                self.hdl,
                to.vcq,
                from,
                to.stadd,
                len,
                post_flags.edata.into(),
                post_flags.flags,
                post_flags.cbdata as *mut c_void,
            )
        }
    }

    /// Puts at most 32 bytes, which the descriptor carries. Returns success, busy or an error.
    pub fn put_bytes(&self, bytes: &[u8], to: RemoteAddr, post_flags: PostFlags) -> c_int {
        // SAFETY: `bytes` is readable, and copied before the function returns.
        unsafe {
            (self.lib.put_piggyback)(
                self.hdl,
                to.vcq,
                bytes.as_ptr() as *mut c_void,
                to.stadd,
                bytes.len(),
                post_flags.edata.into(),
                post_flags.flags,
                post_flags.cbdata as *mut c_void,
            )
        }
    }

    /// Puts 8 bytes, which the descriptor carries. Returns success, busy or an error.
    pub fn put_word(&self, word: u64, to: RemoteAddr, post_flags: PostFlags) -> c_int {
        // SAFETY: no pointer is passed; `cbdata` is a number.
        unsafe {
            (self.lib.put_piggyback8)(
                self.hdl,
                to.vcq,
                word,
                to.stadd,
                size_of::<u64>(),
                post_flags.edata.into(),
                post_flags.flags,
                post_flags.cbdata as *mut c_void,
            )
        }
    }

    /// Gets `len` bytes into registered memory. Returns success, busy or an error.
    pub fn get(&self, into: Stadd, from: RemoteAddr, len: usize, post_flags: PostFlags) -> c_int {
        // SAFETY: the TNI checks steering addresses; the memory's owner keeps it until the get has completed.
        unsafe {
            (self.lib.get)(
                self.hdl,
                from.vcq,
                into,
                from.stadd,
                len,
                post_flags.edata.into(),
                post_flags.flags,
                post_flags.cbdata as *mut c_void,
            )
        }
    }

    /// Posts an atomic operation on 4 or 8 bytes, naturally aligned; its notice has the fetched value. Returns success,
    /// busy or an error.
    pub fn change(&self, step: TofuAmo, to: RemoteAddr, post_flags: PostFlags) -> c_int {
        let (lib, hdl) = (self.lib, self.hdl);
        let (edata, cbdata) = (
            u64::from(post_flags.edata),
            post_flags.cbdata as *mut c_void,
        );
        let (value, compare) = (step.value, step.compare);
        // 4-byte operations use the lower halves of the operands.
        let (value4, compare4) = (value as u32, compare as u32);
        let (flags, vcq, at) = (post_flags.flags, to.vcq, to.stadd);
        // SAFETY: no pointer is passed; the TNI checks steering addresses.
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

    /// Polls the TCQ: result code, and cbdata of the entry.
    pub fn poll_tcq(&self) -> (c_int, usize) {
        let mut cbdata = std::ptr::null_mut();
        // SAFETY: the word is written to a local variable.
        let code = unsafe { (self.lib.poll_tcq)(self.hdl, 0, &mut cbdata) };
        vcq_ops::has_notice();
        (code, cbdata as usize)
    }

    /// Polls the MRQ: result code, and the notice.
    #[inline]
    pub fn poll_mrq(&self) -> (c_int, MrqNotice) {
        let mut notice = MrqNotice::NONE;
        // SAFETY: the notice is written to a local variable.
        let code = unsafe { (self.lib.poll_mrq)(self.hdl, 0, &mut notice) };
        vcq_ops::has_notice();
        (code, notice)
    }
}

impl Drop for Vcq {
    fn drop(&mut self) {
        // SAFETY: created by `new` and freed once; all regions are gone, and other registrations end with the VCQ.
        unsafe { (self.lib.free_vcq)(self.hdl) };
        vcq_alloc::give_back(self.room);
    }
}

/// A registration: memory that the VCQ's TNI, and peers that have the address, read and write.
pub struct RegisteredMem {
    /// Weak: a registration of user memory does not keep the VCQ of a destroyed worker, with which the registration
    /// ended.
    vcq: Weak<Vcq>,
    pub stadd: Stadd,
}

impl RegisteredMem {
    /// Registers memory. If there is no room, deregisters unused memory, twice as much in each attempt.
    ///
    /// # Errors
    /// The library's error.
    ///
    /// # Safety
    /// `len` bytes at `ptr` are mapped, and may be read and written by TNIs, until the value is dropped.
    pub unsafe fn new(vcq: &Arc<Vcq>, ptr: *mut u8, len: usize) -> io::Result<RegisteredMem> {
        let mut most = 1;
        loop {
            // SAFETY: the caller's memory, mapped until the value is dropped.
            let code = match unsafe { RegisteredMem::with(vcq, ptr, len, RegFlags::empty()) } {
                Ok(registered) => return Ok(registered),
                Err(code) => code,
            };
            if !utofu::is_shortage(code) || !vcq.make_room(most) {
                return Err(failure(&format!("utofu_reg_mem of {len} bytes"), code));
            }
            most *= 2;
        }
    }

    /// Registers memory with these flags, without deregistering other memory.
    ///
    /// # Errors
    /// The library's code.
    ///
    /// # Safety
    /// `len` bytes at `ptr` are mapped, and may be read and, without [`RegFlags::READ_ONLY`], written by TNIs, until
    /// the value is dropped.
    pub unsafe fn with(
        vcq: &Arc<Vcq>,
        ptr: *mut u8,
        len: usize,
        flags: RegFlags,
    ) -> Result<RegisteredMem, c_int> {
        let mut stadd = 0;
        // SAFETY: the caller's memory; the address is written to a local variable.
        let code = unsafe { (vcq.lib.reg_mem)(vcq.hdl, ptr.cast(), len, flags, &mut stadd) };
        if code != utofu::SUCCESS {
            return Err(code);
        }
        let vcq = Arc::downgrade(vcq);
        Ok(RegisteredMem { vcq, stadd })
    }

    /// The VCQ, and the steering address of the memory's first byte; `None` if the VCQ is freed.
    pub fn there(&self) -> Option<RemoteAddr> {
        let vcq = self.vcq.upgrade()?.id;
        let stadd = self.stadd;
        Some(RemoteAddr { vcq, stadd })
    }
}

impl Drop for RegisteredMem {
    fn drop(&mut self) {
        if let Some(vcq) = self.vcq.upgrade() {
            // SAFETY: registered by `with` for this VCQ, and deregistered once.
            unsafe { (vcq.lib.dereg_mem)(vcq.hdl, self.stadd, 0) };
        }
    }
}

/// Zeroed, registered memory that peers write and the TNI reads. A shared mapping: after a fork the parent keeps the
/// pages that are registered.
pub struct VcqRegion {
    /// In front of the memory: deregistered before that is unmapped.
    _registered: RegisteredMem,
    /// Forked children get other pages: they do not see the parent's messages.
    map: Mapping,
    _vcq: Arc<Vcq>,
    pub stadd: Stadd,
}

impl VcqRegion {
    /// Maps and registers `len` bytes, rounded up to pages.
    ///
    /// # Errors
    /// The system's or the library's error.
    pub fn new(vcq: &Arc<Vcq>, len: usize) -> io::Result<VcqRegion> {
        let len = len.next_multiple_of(PAGE);
        // SAFETY: at an address that the kernel chooses.
        let map = unsafe { Mapping::anonymous(len, MapFlags::SHARED, None) }?;
        // SAFETY: the mapping has `len` bytes, and is unmapped after the registration is dropped.
        let registered = unsafe { RegisteredMem::new(vcq, map.ptr(), len) }?;
        Ok(VcqRegion {
            stadd: registered.stadd,
            _registered: registered,
            map: map.without_children(),
            _vcq: vcq.clone(),
        })
    }

    /// Where it begins. Peers write to it at any time: values read may change.
    pub fn ptr(&self) -> *mut u8 {
        self.map.ptr()
    }

    /// Bytes of the region from [`ptr`](Self::ptr) on: the length that was requested, rounded up to pages.
    pub fn len(&self) -> usize {
        self.map.len()
    }
}
