//! Buffers that wait for what arrives. Their work requests are prepared: to post some again is to link them.

use super::bindings::*;
use super::buffers::BufferPool;
use super::port::Port;
use std::ptr;

/// Receives that are made together.
const TOGETHER: usize = 64;

/// How often a pile was posted anew is told by so many bits of the numbers of its work requests, below those of a
/// place.
const LIFE: u64 = 7;

/// One of them. It stays in its place, and work requests name it by that: what a device says has arrived is one of
/// these.
struct RxDesc {
    wr: ibv_recv_wr,
    sge: ibv_sge,
}

/// The receives of one purpose, of one size.
pub struct RxPool {
    buffers: BufferPool,
    made: Vec<Box<[RxDesc]>>,
    count: usize,
    /// Bytes of each.
    len: u32,
    /// To be posted again: the first, the others are linked to it.
    spent: *mut ibv_recv_wr,
    spent_count: usize,
    /// So many are posted together.
    batch: usize,
    /// How often all of it was to be posted anew, modulo 8.
    life: u64,
}

// SAFETY: what the pointers lead to is its own.
unsafe impl Send for RxPool {}

impl RxPool {
    /// None yet, of `len` bytes each. `batch`: so many of those that have been looked at are posted together.
    pub fn new(port: &Port, len: usize, batch: usize) -> RxPool {
        RxPool {
            buffers: BufferPool::new(&port.hca, len, TOGETHER),
            made: Vec::new(),
            count: 0,
            len: len as u32,
            spent: ptr::null_mut(),
            spent_count: 0,
            batch,
            life: 0,
        }
    }

    /// Nothing is posted any more: all of it is to be again. What the device says of before then is no more
    /// [`of_this_life`](Self::of_this_life).
    pub fn renew(&mut self) {
        self.life = (self.life + 1) & LIFE;
        self.spent = ptr::null_mut();
        for receive in self.made.iter_mut().flat_map(|some| some.iter_mut()) {
            let place: *mut RxDesc = receive;
            receive.wr.wr_id = place as u64 | self.life;
            receive.wr.next = self.spent;
            self.spent = &raw mut receive.wr;
        }
        self.spent_count = self.count;
    }

    /// What the device says of a receive of a pile that may have been posted anew: as the other functions take it, if
    /// it was posted since.
    pub fn of_this_life(&self, wc: &ibv_wc) -> Option<ibv_wc> {
        let wr_id = wc.wr_id & !LIFE;
        (wc.wr_id & LIFE == self.life).then_some(ibv_wc { wr_id, ..*wc })
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// How many wait to be posted.
    pub fn spent(&self) -> usize {
        self.spent_count
    }

    /// Makes more, to be posted, until there are so many.
    pub fn grow(&mut self, to: usize) {
        while self.count < to {
            let wanted = (to - self.count).min(TOGETHER);
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
                    wr_id: place as u64 | self.life,
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

    /// The bytes behind the first `skip` that a receive of this pile got; they are there until it is posted again.
    ///
    /// # Safety
    /// The device has said so of a receive of this pile.
    #[inline(always)]
    pub unsafe fn bytes<'a>(&self, wc: &ibv_wc, skip: usize) -> &'a [u8] {
        // SAFETY: the caller's promise: the number is the place of a receive. Those stay as long as the pile, and its
        // buffer is the program's again.
        let all: &'a [u8] = unsafe {
            let receive = &*(wc.wr_id as *const RxDesc);
            let len = wc.byte_len.min(self.len) as usize;
            std::slice::from_raw_parts(receive.sge.addr as *const u8, len)
        };
        all.get(skip..).unwrap_or_default()
    }

    /// As [`bytes`](Self::bytes), all of them.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    pub unsafe fn all_bytes<'a>(wc: &ibv_wc) -> &'a [u8] {
        // SAFETY: as there; the device wrote no more than there is room for.
        unsafe {
            let receive = &*(wc.wr_id as *const RxDesc);
            std::slice::from_raw_parts(receive.sge.addr as *const u8, wc.byte_len as usize)
        }
    }

    /// A receive has been looked at.
    ///
    /// # Safety
    /// As [`bytes`](Self::bytes), once.
    #[inline(always)]
    pub unsafe fn done(&mut self, wc: &ibv_wc) {
        // SAFETY: as there; the device is done with it.
        unsafe {
            let wr = &raw mut (*(wc.wr_id as *mut RxDesc)).wr;
            (*wr).next = self.spent;
            self.spent = wr;
        }
        self.spent_count += 1;
    }

    /// Whether enough have been looked at to be posted again.
    #[inline(always)]
    pub fn is_due(&self) -> bool {
        self.spent_count >= self.batch
    }

    /// Posts what waits for that; what is not taken waits on.
    pub fn post(&mut self, post: impl FnOnce(*mut ibv_recv_wr, &mut *mut ibv_recv_wr) -> i32) {
        if self.spent.is_null() {
            return;
        }
        let mut bad = ptr::null_mut();
        let taken = post(self.spent, &mut bad) == 0;
        self.spent = if taken { ptr::null_mut() } else { bad };
        self.spent_count = self.count_spent();
    }

    /// Posts at most so many of those that wait, the last ones first; what is not taken waits on.
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
            // SAFETY: receives of this pile that wait, `spent_count` of them: no device has them.
            last = unsafe { (*last).next };
        }
        // SAFETY: as above.
        let others = unsafe { std::mem::replace(&mut (*last).next, ptr::null_mut()) };
        if post(self.spent, &mut bad) == 0 {
            (self.spent, self.spent_count) = (others, self.spent_count - most);
            return;
        }
        // SAFETY: the device has not taken the last one, if it has not taken all.
        unsafe { (*last).next = others };
        self.spent = bad;
        self.spent_count = self.count_spent();
    }

    fn count_spent(&self) -> usize {
        let mut wr = self.spent;
        let mut count = 0;
        while !wr.is_null() {
            count += 1;
            // SAFETY: a link of our own making.
            wr = unsafe { (*wr).next };
        }
        count
    }
}
