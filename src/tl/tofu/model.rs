//! A model of uTofu for loom: what was posted is done when a test says so, by a thread of the test's that is the
//! adapter then.
//!
//! A post keeps what was written before it only where memory is lent, as the library promises. An adapter sees all that
//! was in front of a post, does one after the other, and tells of each behind it: that is strong order. What panics in
//! here ends the process, after it has said why: functions of C's do not unwind.

use super::TofuTuning;
use super::iface::TofuIface;
use super::tni::Tni;
use super::utofu::{self, MrqNotice, Stadd, TniCaps, TniId, Utofu, VcqHdl, VcqId};
use super::vcq_registry::VcqRegistry;
use crate::sys::sync::dma_mem::{self, is_word, word_at};
use crate::sys::sync::{AtomicU32, Ordering};
use loom::thread::JoinHandle;
use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_ulong, c_void};
use std::sync::Arc;

/// Longest frame of the workers here, bytes.
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

/// Runs a test in every order with up to so many preemptions.
pub fn explore(preemptions: usize, test: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(move || {
        dma_mem::fresh();
        test();
    });
}

/// What threads give each other.
pub struct Passed<T>(T);

// SAFETY: what they do with it at the same time is what the tests are about.
unsafe impl<T> Send for Passed<T> {}

impl<R, T: FnOnce() -> R> Passed<T> {
    fn run(self) -> Passed<R> {
        Passed(self.0())
    }
}

/// A thread that may have what belongs to others.
pub fn spawn<R: 'static>(work: impl FnOnce() -> R + 'static) -> JoinHandle<Passed<R>> {
    let work = Passed(work);
    loom::thread::spawn(move || work.run())
}

/// A worker's share of the interconnect, with as many queues.
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

/// What is posted.
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
    flags: c_ulong,
    cbdata: usize,
}

/// A list that one thread makes longer at a time and one takes from: the words are all that orders the two.
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

/// That of one queue.
pub struct Adapter {
    posts: List<Post>,
    notices: List<MrqNotice>,
    ends: List<usize>,
    prompt: Cell<bool>,
}

impl Adapter {
    /// That of the queue with this name.
    pub fn of<'a>(vcq: VcqId) -> &'a Adapter {
        // SAFETY: made by `create_vcq`; tests do not look for it when the queue is gone.
        unsafe { &*(vcq as *const Adapter) }
    }

    /// How much was posted.
    pub fn posted(&self) -> usize {
        self.posts.all.borrow().len()
    }

    /// From now on who posts does what he posts, behind all that he has done before. For what acquires order: the
    /// language has no word for a later store alone.
    pub fn be_prompt(&self) {
        self.prompt.set(true);
    }

    /// Does the next thing that was posted. False: there is none.
    pub fn work(&self) -> bool {
        // Acquire: an adapter begins when it sees the post.
        let post = self.posts.take(Ordering::Acquire);
        post.inspect(|post| self.carry_out(post)).is_some()
    }

    /// The same, when there is something.
    pub fn work_next(&self) {
        while !self.work() {
            loom::thread::yield_now();
        }
    }

    /// A peer writes this here, and a notice tells of it.
    pub fn receive(&self, at: Stadd, bytes: &[u8]) {
        write(at, bytes);
        self.tell(utofu::RMT_PUT, 0, 0, at);
    }

    fn tell(&self, notice_type: u8, edata: u64, rmt_value: u64, rmt_stadd: Stadd) {
        let mut notice = MrqNotice::default();
        (notice.notice_type, notice.edata) = (notice_type, edata);
        (notice.rmt_value, notice.rmt_stadd) = (rmt_value, rmt_stadd);
        // Release: behind what it tells of.
        self.notices.push(notice, Ordering::Release);
    }

    fn post(&self, post: Post) -> c_int {
        if self.prompt.get() {
            self.carry_out(&post);
            return utofu::SUCCESS;
        }
        let order = match post.what {
            // Release: what the adapter is to read was written before.
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
                // SAFETY: a word of a test's. Release: behind what came before, as all that adapters write.
                value = unsafe { word_at(post.at as *mut u8) }.fetch_add(*what, Ordering::Release);
            }
        }
        if post.flags & utofu::REMOTE_MRQ_NOTICE != 0 {
            Adapter::of(post.vcq).tell(utofu::RMT_PUT, post.edata, 0, post.at);
        }
        if post.flags & utofu::LOCAL_MRQ_NOTICE != 0 {
            self.tell(ours, post.edata, value, post.at);
        }
        if post.flags & utofu::TCQ_NOTICE != 0 {
            // Release: behind the reading.
            self.ends.push(post.cbdata, Ordering::Release);
        }
    }
}

fn read(at: Stadd, len: usize) -> Vec<u8> {
    let from = at as *const u8;
    dma_mem::reads(from, len);
    // SAFETY: registered memory of a test's.
    unsafe { std::slice::from_raw_parts(from, len) }.to_vec()
}

fn write(at: Stadd, bytes: &[u8]) {
    let to = at as *mut u8;
    if !is_word(to) {
        dma_mem::writes(to, bytes.len());
        // SAFETY: registered memory of a test's.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        return;
    }
    // A single word is behind all before; of several only the notice tells.
    let order = match bytes.len() {
        8 => Ordering::Release,
        _ => Ordering::Relaxed,
    };
    for (i, word) in bytes.chunks_exact(8).enumerate() {
        let value = word.try_into().map(u64::from_ne_bytes).expect("8 bytes");
        // SAFETY: a word of a test's, and those behind it.
        unsafe { word_at(to.add(8 * i)) }.store(value, order);
    }
}

unsafe extern "C" fn get_onesided_tnis(_: *mut *mut TniId, _: *mut usize) -> c_int {
    utofu::NOT_FOUND
}

unsafe extern "C" fn query_onesided_caps(_: TniId, _: *mut *mut TniCaps) -> c_int {
    utofu::NOT_FOUND
}

unsafe extern "C" fn create_vcq(_: TniId, _: c_ulong, hdl: *mut VcqHdl) -> c_int {
    let adapter = Box::new(Adapter {
        posts: List::new(),
        notices: List::new(),
        ends: List::new(),
        prompt: Cell::new(false),
    });
    // SAFETY: the caller's place.
    unsafe { hdl.write(Box::into_raw(adapter) as VcqHdl) };
    utofu::SUCCESS
}

unsafe extern "C" fn free_vcq(hdl: VcqHdl) -> c_int {
    // SAFETY: made by `create_vcq`.
    drop(unsafe { Box::from_raw(hdl as *mut Adapter) });
    utofu::SUCCESS
}

unsafe extern "C" fn query_vcq_id(hdl: VcqHdl, id: *mut VcqId) -> c_int {
    // SAFETY: the caller's place.
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
    _: c_ulong,
    stadd: *mut Stadd,
) -> c_int {
    // SAFETY: the caller's place.
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
    flags: c_ulong,
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
    flags: c_ulong,
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
    flags: c_ulong,
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
    flags: c_ulong,
    cbdata: *mut c_void,
) -> c_int {
    // SAFETY: the caller's bytes.
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
    flags: c_ulong,
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
    _: c_ulong,
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
    flags: c_ulong,
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
    _: c_ulong,
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
    _: c_ulong,
    _: *mut c_void,
) -> c_int {
    utofu::NOT_FOUND
}

unsafe extern "C" fn poll_tcq(hdl: VcqHdl, _: c_ulong, cbdata: *mut *mut c_void) -> c_int {
    // Relaxed: nothing is promised.
    let Some(word) = Adapter::of(hdl as VcqId).ends.take(Ordering::Relaxed) else {
        return utofu::NOT_FOUND;
    };
    // SAFETY: the caller's place.
    unsafe { cbdata.write(word as *mut c_void) };
    utofu::SUCCESS
}

unsafe extern "C" fn poll_mrq(hdl: VcqHdl, _: c_ulong, place: *mut MrqNotice) -> c_int {
    // Relaxed: nothing is promised.
    let Some(notice) = Adapter::of(hdl as VcqId).notices.take(Ordering::Relaxed) else {
        return utofu::NOT_FOUND;
    };
    // SAFETY: the caller's place.
    unsafe { place.write(notice) };
    utofu::SUCCESS
}
