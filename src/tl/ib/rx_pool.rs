//! Buffers for receives. Their work requests are prepared: to post some again is to link them.

use super::bindings::*;
use super::buffers::BufferPool;
use super::port::Port;
use std::ptr;

/// Receives that are allocated together.
const BATCH_ALLOC: usize = 64;

/// Mask of the generation of a receive in its work request id; the other bits are the address of its [`RxDesc`]. The
/// generation counts how often all receives were posted anew.
const GENERATION: u64 = 7;

/// A receive. Its address does not change and is in its work request id: completions name receives by it.
struct RxDesc {
    wr: ibv_recv_wr,
    sge: ibv_sge,
}

/// The receives of one purpose, of one size.
pub struct RxPool {
    buffers: BufferPool,
    made: Vec<Box<[RxDesc]>>,
    count: usize,
    /// Bytes of each buffer.
    len: u32,
    /// The first of the receives to post again, which are linked.
    spent: *mut ibv_recv_wr,
    spent_count: usize,
    /// How many receives are posted together.
    batch: usize,
    /// The generation: how often all receives were to be posted anew, modulo 8.
    generation: u64,
}

// SAFETY: the pointers lead to memory that the pool owns.
unsafe impl Send for RxPool {}

impl RxPool {
    /// Creates an empty pool, of `len` bytes per buffer. `batch`: how many handled receives are posted together.
    pub fn new(port: &Port, len: usize, batch: usize) -> RxPool {
        RxPool {
            buffers: BufferPool::new(&port.hca, len, BATCH_ALLOC),
            made: Vec::new(),
            count: 0,
            len: len as u32,
            spent: ptr::null_mut(),
            spent_count: 0,
            batch,
            generation: 0,
        }
    }

    /// Starts a new generation after a reset of the queue pair: no receive is posted any more, and all are to be posted
    /// again. [`current_generation`](Self::current_generation) drops completions of earlier generations.
    pub fn renew(&mut self) {
        self.generation = (self.generation + 1) & GENERATION;
        self.spent = ptr::null_mut();
        for receive in self.made.iter_mut().flat_map(|some| some.iter_mut()) {
            let place: *mut RxDesc = receive;
            receive.wr.wr_id = place as u64 | self.generation;
            receive.wr.next = self.spent;
            self.spent = &raw mut receive.wr;
        }
        self.spent_count = self.count;
    }

    /// Checks a completion of a pool that may have been renewed: the completion without the generation bits, as the
    /// other functions take it, if it is of this generation.
    pub fn current_generation(&self, wc: &ibv_wc) -> Option<ibv_wc> {
        let wr_id = wc.wr_id & !GENERATION;
        (wc.wr_id & GENERATION == self.generation).then_some(ibv_wc { wr_id, ..*wc })
    }

    /// Number of receives.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Number of receives that wait to be posted.
    pub fn spent(&self) -> usize {
        self.spent_count
    }

    /// Adds receives to post until there are `to`.
    pub fn grow(&mut self, to: usize) {
        while self.count < to {
            let wanted = (to - self.count).min(BATCH_ALLOC);
            let buffers = (0..wanted).map_while(|_| self.buffers.get());
            let fresh: Box<[RxDesc]> = buffers
                .map(|buffer| RxDesc {
                    wr: ibv_recv_wr::default(),
                    sge: ibv_sge {
                        addr: buffer.ptr as u64,
                        length: self.len,
                        lkey: buffer.lkey,
                    },
                })
                .collect();
            let got = fresh.len();
            self.made.push(fresh);
            let Some(fresh) = self.made.last_mut() else {
                return;
            };
            for receive in fresh.iter_mut() {
                let place: *mut RxDesc = receive;
                receive.wr = ibv_recv_wr {
                    wr_id: place as u64 | self.generation,
                    next: self.spent,
                    sg_list: &raw mut receive.sge,
                    num_sge: 1,
                };
                self.spent = &raw mut receive.wr;
            }
            self.count += got;
            self.spent_count += got;
            if got < wanted {
                return;
            }
        }
    }

    /// The bytes behind the first `skip` that a receive of this pool got, valid until it is posted again.
    ///
    /// # Safety
    /// `wc` is a completion of a receive of this pool in this generation.
    #[inline(always)]
    pub unsafe fn bytes<'a>(&self, wc: &ibv_wc, skip: usize) -> &'a [u8] {
        // SAFETY: by the caller, `wr_id` is the address of a receive, which exists as long as the pool, and the device
        // does not write its buffer any more.
        let all: &'a [u8] = unsafe {
            let receive = &*(wc.wr_id as *const RxDesc);
            let len = wc.byte_len.min(self.len) as usize;
            std::slice::from_raw_parts(receive.sge.addr as *const u8, len)
        };
        all.get(skip..).unwrap_or_default()
    }

    /// All bytes that a receive got, valid until it is posted again.
    ///
    /// # Safety
    /// `wc` is a completion of a receive of a pool that exists, in its present generation.
    #[inline(always)]
    pub unsafe fn all_bytes<'a>(wc: &ibv_wc) -> &'a [u8] {
        // SAFETY: by the caller, `wr_id` is the address of a receive; the device wrote `byte_len` bytes, at most the
        // length of the buffer.
        unsafe {
            let receive = &*(wc.wr_id as *const RxDesc);
            std::slice::from_raw_parts(receive.sge.addr as *const u8, wc.byte_len as usize)
        }
    }

    /// Marks a receive as handled: it waits to be posted again.
    ///
    /// # Safety
    /// `wc` is a completion of a receive of this pool in this generation; called once for each completion.
    #[inline(always)]
    pub unsafe fn done(&mut self, wc: &ibv_wc) {
        // SAFETY: by the caller, `wr_id` is the address of a receive, which the device has completed.
        unsafe {
            let wr = &raw mut (*(wc.wr_id as *mut RxDesc)).wr;
            (*wr).next = self.spent;
            self.spent = wr;
        }
        self.spent_count += 1;
    }

    /// Whether a batch of receives was handled and waits to be posted again.
    #[inline(always)]
    pub fn is_due(&self) -> bool {
        self.spent_count >= self.batch
    }

    /// Posts the receives that wait; those that the device does not take wait on.
    pub fn post(&mut self, post: impl FnOnce(*mut ibv_recv_wr, &mut *mut ibv_recv_wr) -> i32) {
        if self.spent.is_null() {
            return;
        }
        let mut bad = ptr::null_mut();
        let taken = post(self.spent, &mut bad) == 0;
        self.spent = if taken { ptr::null_mut() } else { bad };
        self.spent_count = self.count_spent();
    }

    /// Posts at most `most` of the receives that wait, the last ones first; those that the device does not take wait
    /// on.
    pub fn post_some(
        &mut self,
        most: usize,
        post: impl FnOnce(*mut ibv_recv_wr, &mut *mut ibv_recv_wr) -> i32,
    ) {
        let most = most.min(self.spent_count);
        if most == 0 {
            return;
        }
        let (mut last, mut bad) = (self.spent, ptr::null_mut());
        for _ in 1..most {
            // SAFETY: the list has `spent_count` receives of this pool, none of which is posted.
            last = unsafe { (*last).next };
        }
        // SAFETY: `last` is in the list of receives that are not posted.
        let others = unsafe { std::mem::replace(&mut (*last).next, ptr::null_mut()) };
        if post(self.spent, &mut bad) == 0 {
            (self.spent, self.spent_count) = (others, self.spent_count - most);
            return;
        }
        // SAFETY: if the device has not taken all of the list, it has not taken the last one.
        unsafe { (*last).next = others };
        self.spent = bad;
        self.spent_count = self.count_spent();
    }

    fn count_spent(&self) -> usize {
        let mut wr = self.spent;
        let mut count = 0;
        while !wr.is_null() {
            count += 1;
            // SAFETY: the list has receives of this pool only.
            wr = unsafe { (*wr).next };
        }
        count
    }
}
