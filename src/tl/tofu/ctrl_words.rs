//! Control words of senders, which receivers write: the grant of a ring, credits, and that the reader closes.

use super::vcq::{Vcq, VcqRegion};

use crate::sys::sync::{AtomicU64, Ordering, dma_mem};
use crate::wire::tofu_msg::{CTRL_BYTES, GRANT_AT, Grant, LEFT, LEFT_AT};
use std::io;
use std::sync::Arc;

/// Bytes of control words that are registered together (a chunk).
const CHUNK: usize = 64 << 10;

/// The control words of one sender, 64 bytes.
#[derive(Clone)]
pub struct CtrlWord {
    region: Arc<VcqRegion>,
    offset: usize,
}

impl CtrlWord {
    /// Steering address of the control words.
    pub fn stadd(&self) -> u64 {
        self.region.stadd + self.offset as u64
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        // SAFETY: within the region, aligned, and all threads of this process access it as an atomic.
        unsafe { dma_mem::word_at(self.region.ptr().add(self.offset + at)) }
    }

    /// The last credit: frames and bytes that the reader has consumed.
    #[inline]
    pub fn credit(&self) -> u64 {
        // Acquire: pairs with the TNI's write, which comes after the reader's last access to what the credit frees
        // (`vcq_ops::read_before_post` in `RxRing::send_credit`).
        self.word(0).load(Ordering::Acquire)
    }

    /// The grant, after the notice of it has arrived.
    pub fn grant(&self) -> Option<Grant> {
        let mut bytes = [0; Grant::SIZE];
        for (i, eight) in bytes.chunks_exact_mut(size_of::<u64>()).enumerate() {
            // Relaxed: the TNI wrote it before the notice; the fence in `vcq_ops::has_notice` came after that.
            let word = self.word(GRANT_AT + 8 * i).load(Ordering::Relaxed);
            eight.copy_from_slice(&word.to_ne_bytes());
        }
        Grant::decode(&bytes)
    }

    /// Whether the reader of the ring that was granted with this proof has closed.
    pub fn has_left(&self, proof: u32) -> bool {
        // Relaxed: the TNI wrote it before the notice; the fence in `vcq_ops::has_notice` came after that.
        self.word(LEFT_AT).load(Ordering::Relaxed) == LEFT | u64::from(proof)
    }

    /// Retires the control words: no other sender gets them, as the peer may still write there. The last ones of a
    /// chunk deregister it: returns its steering address.
    pub fn retire(self) -> Option<u64> {
        let begins = self.region.stadd;
        Arc::into_inner(self.region).map(|_| begins)
    }

    fn clear(&self) {
        for at in (0..CTRL_BYTES).step_by(size_of::<u64>()) {
            // Relaxed: no peer has the address of these control words yet.
            self.word(at).store(0, Ordering::Relaxed);
        }
    }
}

/// Allocator of a worker's control words.
#[derive(Default)]
pub struct CtrlWords {
    free: Vec<CtrlWord>,
}

impl CtrlWords {
    /// Allocates zeroed control words; also returns the chunk, if a new one was registered for them.
    ///
    /// # Errors
    /// The system's or the library's error.
    pub fn take(&mut self, vcq: &Arc<Vcq>) -> io::Result<(CtrlWord, Option<Arc<VcqRegion>>)> {
        let mut made = None;
        if self.free.is_empty() {
            let region = Arc::new(VcqRegion::new(vcq, CHUNK)?);
            let offsets = (0..region.len() / CTRL_BYTES).rev().map(|i| i * CTRL_BYTES);
            self.free.extend(offsets.map(|offset| CtrlWord {
                region: region.clone(),
                offset,
            }));
            made = Some(region);
        }
        let ctrl_word = self.free.pop().ok_or(io::ErrorKind::OutOfMemory)?;
        ctrl_word.clear();
        Ok((ctrl_word, made))
    }
}
