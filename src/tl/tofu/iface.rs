//! What a worker has of the interconnect: a virtual control queue, and a hall where strangers ask for rings.

use super::Tuning;
use super::queue::Queue;
use super::roster::Roster;
use super::tni::Tni;
use super::utofu::Utofu;
use super::vcq::{Region, Vcq};
use crate::sys::lock::MtLock;
use crate::wire::packet::{HEAD, most_packets};
use crate::wire::tofu::HALL;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A worker's share. Dropped when the worker and its last sender are gone. Fields in the order of their ends.
pub struct Iface {
    pub queue: MtLock<Queue>,
    pub hall: Region,
    pub vcq: Arc<Vcq>,
    roster: Arc<Roster>,
    /// Its number there.
    pub number: u16,
    pub tuning: Tuning,
    /// Which of the network interfaces it is on.
    pub tni: usize,
}

impl Iface {
    /// On the network interface whose turn it is, or the next that has a queue left.
    ///
    /// # Errors
    /// What the library says of the last.
    pub fn new(tnis: &[Tni], roster: &Arc<Roster>, tuning: Tuning, mt: bool) -> io::Result<Iface> {
        /// Workers that were made in this process: they are spread over the interfaces.
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let lib = Utofu::get().ok_or(io::ErrorKind::NotFound)?;
        // Relaxed: only a number.
        let first = MADE.fetch_add(1, Ordering::Relaxed);
        let mut error = io::Error::from(io::ErrorKind::NotFound);
        for turn in 0..tnis.len() {
            let tni = (first + turn) % tnis.len();
            match Vcq::new(lib, tnis[tni].id) {
                Ok(vcq) => return Self::on(vcq, tni, roster, tuning, mt),
                Err(e) => error = e,
            }
        }
        Err(error)
    }

    fn on(
        vcq: Arc<Vcq>,
        tni: usize,
        roster: &Arc<Roster>,
        tuning: Tuning,
        mt: bool,
    ) -> io::Result<Iface> {
        let queue = Queue::new(vcq.clone(), tuning.packet as usize)?;
        Ok(Iface {
            queue: MtLock::new(mt, queue),
            hall: Region::new(&vcq, HALL)?,
            number: roster.enter(&vcq),
            roster: roster.clone(),
            vcq,
            tuning,
            tni,
        })
    }

    /// The word of the hall, as adapters have left it.
    pub fn turn(&self) -> u64 {
        // SAFETY: the hall begins with it, aligned, and everybody here takes it for an atomic.
        let word = unsafe { &*self.hall.ptr().cast::<AtomicU64>() };
        // Relaxed: a number.
        word.load(Ordering::Relaxed)
    }

    /// Frames of the longest record.
    pub fn most_frames(&self) -> u32 {
        most_packets(self.tuning.packet as usize - HEAD) as u32
    }
}

impl Drop for Iface {
    fn drop(&mut self) {
        self.roster.leave(self.number);
    }
}
