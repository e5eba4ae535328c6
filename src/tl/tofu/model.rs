//! A model of uTofu for loom: posts are executed when a test says so, by a thread of the test that acts as the TNI.
//!
//! As in the library, a post orders earlier stores before it only if the TNI reads the caller's memory. The TNI sees
//! all stores before a post, executes posts one after the other, and writes each notice after the post's effect: strong
//! order. A panic in here ends the process after its message: C functions do not unwind.

use super::TofuTuning;
use super::iface::TofuIface;
use super::tni::Tni;
use super::utofu::{
    self, MrqNotice, OpFlags, RegFlags, Stadd, TniCaps, TniId, Utofu, VcqFlags, VcqHdl, VcqId,
};
use super::vcq_registry::VcqRegistry;
use crate::sys::sync::dma_mem::{self, is_word, word_at};
use crate::sys::sync::{AtomicU32, Ordering};
use loom::thread::JoinHandle;
use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_ulong, c_void};
use std::sync::Arc;

/// Bytes of the longest frame of the model's workers.
pub const PACKET: u32 = 64;

pub fn library() -> Utofu {
    Utofu {
        get_onesided_tnis,
        query_onesided_caps,
        create_vcq,
        free_vcq,
        query_vcq_id,
        query_vcq_info,
        set_vcq_id_path,
        reg_mem,
        dereg_mem,
        put,
        get,
        put_piggyback,
        put_piggyback8,
        armw4,
        armw8,
        cswap4,
        cswap8,
        poll_tcq,
        poll_mrq,
    }
}

/// Runs a test in every order with at most this many preemptions.
pub fn explore(preemptions: usize, test: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(move || {
        dma_mem::fresh();
        test();
    });
}

/// A value that threads of a test pass to each other.
pub struct Passed<T>(T);

// SAFETY: whether concurrent accesses to it are ordered is what the tests check.
unsafe impl<T> Send for Passed<T> {}

impl<R, T: FnOnce() -> R> Passed<T> {
    fn run(self) -> Passed<R> {
        Passed(self.0())
    }
}

/// Spawns a thread whose closure and result need not be `Send`.
pub fn spawn<R: 'static>(work: impl FnOnce() -> R + 'static) -> JoinHandle<Passed<R>> {
    let work = Passed(work);
    loom::thread::spawn(move || work.run())
}

/// A worker's share of the interconnect, with this many VCQs.
pub fn iface(queues: usize, mt: bool) -> TofuIface {
    let tuning = TofuTuning {
        ring_size: 0,
        ring_memory: 0,
        packet: PACKET,
        window: 4,
        notices: 0,
        queues,
        first: 0,
        most_alone: 0,
        zcopy: 0,
        rma_rails: 1,
        rndv_rails: 1,
    };
    let caps = TniCaps {
        max_putget_size: 1 << 20,
        ..TniCaps::default()
    };
    let tni = |id| Tni {
        id,
        name: String::new(),
        caps,
    };
    let tnis: Vec<_> = (0..queues as u16).map(tni).collect();
    TofuIface::new(&tnis, &Arc::new(VcqRegistry::default()), tuning, mt).expect("the model has all")
}

/// The kind of a posted operation.
#[derive(Clone)]
enum What {
    Put(Stadd, usize),
    Bytes(Vec<u8>),
    Get(Stadd, usize),
    Add(u64),
}

#[derive(Clone)]
struct Post {
    what: What,
    vcq: VcqId,
    at: Stadd,
    edata: u64,
    flags: OpFlags,
    cbdata: usize,
}

/// A list with one writer and one reader at a time, ordered only by the word with its length.
struct List<T> {
    all: RefCell<Vec<T>>,
    count: AtomicU32,
    taken: Cell<u32>,
}

impl<T: Clone> List<T> {
    fn new() -> List<T> {
        List {
            all: RefCell::default(),
            count: AtomicU32::new(0),
            taken: Cell::new(0),
        }
    }

    fn push(&self, one: T, order: Ordering) {
        self.all.borrow_mut().push(one);
        let count = self.all.borrow().len() as u32;
        self.count.store(count, order);
    }

    fn take(&self, order: Ordering) -> Option<T> {
        let next = self.taken.get();
        if self.count.load(order) <= next {
            return None;
        }
        self.taken.set(next + 1);
        Some(self.all.borrow()[next as usize].clone())
    }
}

/// The TNI of one VCQ.
pub struct Adapter {
    posts: List<Post>,
    notices: List<MrqNotice>,
    ends: List<usize>,
    prompt: Cell<bool>,
}

impl Adapter {
    /// The TNI of the VCQ with this id.
    pub fn of<'a>(vcq: VcqId) -> &'a Adapter {
        // SAFETY: `create_vcq` made it; tests do not use it after the VCQ is freed.
        unsafe { &*(vcq as *const Adapter) }
    }

    /// Number of posts.
    pub fn posted(&self) -> usize {
        self.posts.all.borrow().len()
    }

    /// From now on the posting thread executes its posts at once, after all that it has done before. For tests of an
    /// acquire: the language cannot express that only a later store is ordered.
    pub fn be_prompt(&self) {
        self.prompt.set(true);
    }

    /// Executes the next post. False: there is none.
    pub fn work(&self) -> bool {
        // Acquire: pairs with `post`: the TNI begins when it sees the post.
        let post = self.posts.take(Ordering::Acquire);
        post.inspect(|post| self.carry_out(post)).is_some()
    }

    /// Waits for the next post and executes it.
    pub fn work_next(&self) {
        while !self.work() {
            loom::thread::yield_now();
        }
    }

    /// A peer's put of these bytes, with a notice.
    pub fn receive(&self, at: Stadd, bytes: &[u8]) {
        write(at, bytes);
        self.post_notice(utofu::RMT_PUT, 0, 0, at);
    }

    fn post_notice(&self, notice_type: u8, edata: u64, rmt_value: u64, rmt_stadd: Stadd) {
        let mut notice = MrqNotice::NONE;
        (notice.notice_type, notice.edata) = (notice_type, edata);
        (notice.rmt_value, notice.rmt_stadd) = (rmt_value, rmt_stadd);
        // Release: pairs with the fence in `vcq_ops::has_notice`; the data were written before.
        self.notices.push(notice, Ordering::Release);
    }

    fn post(&self, post: Post) -> c_int {
        if self.prompt.get() {
            self.carry_out(&post);
            return utofu::SUCCESS;
        }
        let order = match post.what {
            // Release: the data that the TNI reads were written before.
            What::Put(..) => Ordering::Release,
            _ => Ordering::Relaxed,
        };
        self.posts.push(post, order);
        utofu::SUCCESS
    }

    fn carry_out(&self, post: &Post) {
        let (mut ours, mut value) = (utofu::LCL_PUT, 0);
        match &post.what {
            What::Put(from, len) => write(post.at, &read(*from, *len)),
            What::Bytes(bytes) => write(post.at, bytes),
            What::Get(into, len) => {
                ours = utofu::LCL_GET;
                write(*into, &read(post.at, *len));
            }
            What::Add(what) => {
                ours = utofu::LCL_ARMW;
                // SAFETY: a word of registered memory. Release: ordered after earlier operations, as all writes of a
                // TNI.
                value = unsafe { word_at(post.at as *mut u8) }.fetch_add(*what, Ordering::Release);
            }
        }
        if post.flags.contains(OpFlags::REMOTE_MRQ_NOTICE) {
            Adapter::of(post.vcq).post_notice(utofu::RMT_PUT, post.edata, 0, post.at);
        }
        if post.flags.contains(OpFlags::LOCAL_MRQ_NOTICE) {
            self.post_notice(ours, post.edata, value, post.at);
        }
        if post.flags.contains(OpFlags::TCQ_NOTICE) {
            // Release: ordered after the TNI's reads.
            self.ends.push(post.cbdata, Ordering::Release);
        }
    }
}

fn read(at: Stadd, len: usize) -> Vec<u8> {
    let from = at as *const u8;
    dma_mem::reads(from, len);
    // SAFETY: registered memory of the test, readable for `len` bytes.
    unsafe { std::slice::from_raw_parts(from, len) }.to_vec()
}

fn write(at: Stadd, bytes: &[u8]) {
    let to = at as *mut u8;
    if !is_word(to) {
        dma_mem::writes(to, bytes.len());
        // SAFETY: registered memory of the test, writable for `bytes.len()` bytes.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        return;
    }
    // A single word is ordered after all earlier writes; of several words only the notice is.
    let order = match bytes.len() {
        8 => Ordering::Release,
        _ => Ordering::Relaxed,
    };
    for (i, word) in bytes.chunks_exact(8).enumerate() {
        let value = word.try_into().map(u64::from_ne_bytes).expect("8 bytes");
        // SAFETY: words of registered memory of the test.
        unsafe { word_at(to.add(8 * i)) }.store(value, order);
    }
}

unsafe extern "C" fn get_onesided_tnis(_: *mut *mut TniId, _: *mut usize) -> c_int {
    utofu::NOT_FOUND
}

unsafe extern "C" fn query_onesided_caps(_: TniId, _: *mut *mut TniCaps) -> c_int {
    utofu::NOT_FOUND
}

unsafe extern "C" fn create_vcq(_: TniId, _: VcqFlags, hdl: *mut VcqHdl) -> c_int {
    let adapter = Box::new(Adapter {
        posts: List::new(),
        notices: List::new(),
        ends: List::new(),
        prompt: Cell::new(false),
    });
    // SAFETY: the caller's variable.
    unsafe { hdl.write(Box::into_raw(adapter) as VcqHdl) };
    utofu::SUCCESS
}

unsafe extern "C" fn free_vcq(hdl: VcqHdl) -> c_int {
    // SAFETY: `create_vcq` made it, and it is freed once.
    drop(unsafe { Box::from_raw(hdl as *mut Adapter) });
    utofu::SUCCESS
}

unsafe extern "C" fn query_vcq_id(hdl: VcqHdl, id: *mut VcqId) -> c_int {
    // SAFETY: the caller's variable.
    unsafe { id.write(hdl as VcqId) };
    utofu::SUCCESS
}

unsafe extern "C" fn query_vcq_info(
    _: VcqId,
    _: *mut u8,
    _: *mut TniId,
    _: *mut u16,
    _: *mut u16,
) -> c_int {
    utofu::NOT_FOUND
}

unsafe extern "C" fn set_vcq_id_path(_: *mut VcqId, _: *mut u8) -> c_int {
    utofu::NOT_FOUND
}

unsafe extern "C" fn reg_mem(
    _: VcqHdl,
    ptr: *mut c_void,
    _: usize,
    _: RegFlags,
    stadd: *mut Stadd,
) -> c_int {
    // SAFETY: the caller's variable.
    unsafe { stadd.write(ptr as Stadd) };
    utofu::SUCCESS
}

unsafe extern "C" fn dereg_mem(_: VcqHdl, _: Stadd, _: c_ulong) -> c_int {
    utofu::SUCCESS
}

fn posted(
    hdl: VcqHdl,
    (vcq, at): (VcqId, Stadd),
    what: What,
    edata: u64,
    flags: OpFlags,
    cbdata: *mut c_void,
) -> c_int {
    Adapter::of(hdl as VcqId).post(Post {
        what,
        vcq,
        at,
        edata,
        flags,
        cbdata: cbdata as usize,
    })
}

unsafe extern "C" fn put(
    hdl: VcqHdl,
    vcq: VcqId,
    from: Stadd,
    at: Stadd,
    len: usize,
    edata: u64,
    flags: OpFlags,
    cbdata: *mut c_void,
) -> c_int {
    posted(hdl, (vcq, at), What::Put(from, len), edata, flags, cbdata)
}

unsafe extern "C" fn get(
    hdl: VcqHdl,
    vcq: VcqId,
    into: Stadd,
    at: Stadd,
    len: usize,
    edata: u64,
    flags: OpFlags,
    cbdata: *mut c_void,
) -> c_int {
    posted(hdl, (vcq, at), What::Get(into, len), edata, flags, cbdata)
}

unsafe extern "C" fn put_piggyback(
    hdl: VcqHdl,
    vcq: VcqId,
    from: *mut c_void,
    at: Stadd,
    len: usize,
    edata: u64,
    flags: OpFlags,
    cbdata: *mut c_void,
) -> c_int {
    // SAFETY: the caller's bytes, readable for `len`.
    let bytes = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), len) }.to_vec();
    posted(hdl, (vcq, at), What::Bytes(bytes), edata, flags, cbdata)
}

unsafe extern "C" fn put_piggyback8(
    hdl: VcqHdl,
    vcq: VcqId,
    word: u64,
    at: Stadd,
    len: usize,
    edata: u64,
    flags: OpFlags,
    cbdata: *mut c_void,
) -> c_int {
    let bytes = word.to_ne_bytes()[..len].to_vec();
    posted(hdl, (vcq, at), What::Bytes(bytes), edata, flags, cbdata)
}

unsafe extern "C" fn armw4(
    _: VcqHdl,
    _: VcqId,
    _: c_int,
    _: u32,
    _: Stadd,
    _: u64,
    _: OpFlags,
    _: *mut c_void,
) -> c_int {
    utofu::NOT_FOUND
}

unsafe extern "C" fn armw8(
    hdl: VcqHdl,
    vcq: VcqId,
    verb: c_int,
    value: u64,
    at: Stadd,
    edata: u64,
    flags: OpFlags,
    cbdata: *mut c_void,
) -> c_int {
    assert_eq!(verb, utofu::ARMW_ADD, "no test has another");
    posted(hdl, (vcq, at), What::Add(value), edata, flags, cbdata)
}

unsafe extern "C" fn cswap4(
    _: VcqHdl,
    _: VcqId,
    _: u32,
    _: u32,
    _: Stadd,
    _: u64,
    _: OpFlags,
    _: *mut c_void,
) -> c_int {
    utofu::NOT_FOUND
}

unsafe extern "C" fn cswap8(
    _: VcqHdl,
    _: VcqId,
    _: u64,
    _: u64,
    _: Stadd,
    _: u64,
    _: OpFlags,
    _: *mut c_void,
) -> c_int {
    utofu::NOT_FOUND
}

unsafe extern "C" fn poll_tcq(hdl: VcqHdl, _: c_ulong, cbdata: *mut *mut c_void) -> c_int {
    // Relaxed: the library promises no order.
    let Some(word) = Adapter::of(hdl as VcqId).ends.take(Ordering::Relaxed) else {
        return utofu::NOT_FOUND;
    };
    // SAFETY: the caller's variable.
    unsafe { cbdata.write(word as *mut c_void) };
    utofu::SUCCESS
}

unsafe extern "C" fn poll_mrq(hdl: VcqHdl, _: c_ulong, place: *mut MrqNotice) -> c_int {
    // Relaxed: the library promises no order.
    let Some(notice) = Adapter::of(hdl as VcqId).notices.take(Ordering::Relaxed) else {
        return utofu::NOT_FOUND;
    };
    // SAFETY: the caller's variable.
    unsafe { place.write(notice) };
    utofu::SUCCESS
}
