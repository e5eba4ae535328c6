//! Where peers tell a sender what it may write: a ring, and how far its reader is.

use super::vcq::{Vcq, VcqRegion};

use crate::sys::sync::{AtomicU64, Ordering, dma_mem};
use crate::wire::tofu_msg::{CELL, GRANT_AT, Grant, LEFT, LEFT_AT};
use std::io;
use std::sync::Arc;

/// Cells that are registered together, bytes.
const CHUNK: usize = 64 << 10;

/// One sender's.
#[derive(Clone)]
pub struct CtrlWord {
    region: Arc<VcqRegion>,
    offset: usize,
}

impl CtrlWord {
    /// How peers name it.
    pub fn stadd(&self) -> u64 {
        self.region.stadd + self.offset as u64
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        // SAFETY: inside of the region, aligned, and everybody here takes it for an atomic.
        unsafe { dma_mem::word_at(self.region.ptr().add(self.offset + at)) }
    }

    /// How far the reader is.
    #[inline]
    pub fn credit(&self) -> u64 {
        // Acquire: pairs with the adapter's write, which comes after the reader's last look at what it gives back
        // (`line::read_before_post` in `RxRing::tell`).
        self.word(0).load(Ordering::Acquire)
    }

    /// The grant, once a notice has told that it is there.
    pub fn grant(&self) -> Option<Grant> {
        let mut bytes = [0; Grant::SIZE];
        for (i, eight) in bytes.chunks_exact_mut(size_of::<u64>()).enumerate() {
            // Relaxed: the adapter wrote it before the notice, which `line::heard` was behind.
            let word = self.word(GRANT_AT + 8 * i).load(Ordering::Relaxed);
            eight.copy_from_slice(&word.to_ne_bytes());
        }
        Grant::decode(&bytes)
    }

    /// Whether the reader of the ring that was granted with this proof has gone.
    pub fn has_left(&self, proof: u32) -> bool {
        // Relaxed: the adapter wrote it before the notice, which `line::heard` was behind.
        self.word(LEFT_AT).load(Ordering::Relaxed) == LEFT | u64::from(proof)
    }

    /// Ends the use of the cell, which no other sender gets: the peer may still write there. With the last cell of a
    /// chunk the chunk is deregistered: where it began.
    pub fn retire(self) -> Option<u64> {
        let begins = self.region.stadd;
        Arc::into_inner(self.region).map(|_| begins)
    }

    fn clear(&self) {
        for at in (0..CELL).step_by(size_of::<u64>()) {
            // Relaxed: nobody else knows the cell.
            self.word(at).store(0, Ordering::Relaxed);
        }
    }
}

/// All of a worker's.
#[derive(Default)]
pub struct CtrlWords {
    free: Vec<CtrlWord>,
}

impl CtrlWords {
    /// One that nobody uses, empty. The chunk that was made for it, if there was no other.
    ///
    /// # Errors
    /// What the library says.
    pub fn take(&mut self, vcq: &Arc<Vcq>) -> io::Result<(CtrlWord, Option<Arc<VcqRegion>>)> {
        let mut made = None;
        if self.free.is_empty() {
            let region = Arc::new(VcqRegion::new(vcq, CHUNK)?);
            let offsets = (0..region.len() / CELL).rev().map(|i| i * CELL);
            self.free.extend(offsets.map(|offset| CtrlWord {
                region: region.clone(),
                offset,
            }));
            made = Some(region);
        }
        let cell = self.free.pop().ok_or(io::ErrorKind::OutOfMemory)?;
        cell.clear();
        Ok((cell, made))
    }
}
