//! Which VCQs workers get: one with an exclusive control queue as long as there are any, then one on a shared control
//! queue.
//!
//! The number of free control queues cannot be queried, and other processes of the node take some, too. So after an
//! exclusive VCQ was created, the creation of one more is tried. If that fails, the control queue was the last one of
//! its TNI: it is freed and taken as a shared one, which later workers can share.

use super::tni::Tni;
use super::utofu::Utofu;
use super::vcq::{CqSharing, Vcq};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Exclusive VCQs of this process.
static ALONE: AtomicUsize = AtomicUsize::new(0);

/// Reserves an exclusive VCQ. False: the process has `most`.
fn reserve(most: usize) -> bool {
    let more = |n: usize| (n < most).then_some(n + 1);
    // Relaxed: a counter that orders nothing.
    (ALONE.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)).is_ok()
}

/// A VCQ was freed, or its creation failed.
pub fn give_back(room: CqSharing) {
    if room == CqSharing::Alone {
        // Relaxed: a counter that orders nothing.
        ALONE.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Creates a VCQ on the first of the TNIs `order` (indices into `tnis`) that has one: an exclusive one if any of these
/// TNIs has one and the process has fewer than `most_alone`, else a shared one. Returns it and its TNI's index.
///
/// # Errors
/// The library's error of the last attempt.
pub fn take(
    lib: &'static Utofu,
    tnis: &[Tni],
    order: &[usize],
    most_alone: usize,
) -> io::Result<(Vcq, usize)> {
    let mut error = io::Error::from(io::ErrorKind::NotFound);
    for &tni in order {
        if reserve(most_alone)
            && let Ok(vcq) = own_cq(lib, &tnis[tni])
        {
            return Ok((vcq, tni));
        }
    }
    for &tni in order {
        match Vcq::new(lib, tnis[tni].id, CqSharing::Shared) {
            Ok(vcq) => return Ok((vcq, tni)),
            Err(e) => error = e,
        }
    }
    Err(error)
}

/// Shared VCQs that a rail leaves free on its TNI: half of those of one control queue.
const SPARE: usize = 4;

/// Creates a VCQ for a rail, such that other workers still get a first VCQ: an exclusive one, as long as the process
/// may have more of these; an error if no TNI has one left. If the process may have no more, a shared one on a TNI that
/// has enough left.
///
/// # Errors
/// `NotFound`, or the library's error of the last attempt.
pub fn take_rail(
    lib: &'static Utofu,
    tnis: &[Tni],
    order: &[usize],
    most_alone: usize,
) -> io::Result<(Vcq, usize)> {
    let mut error = io::Error::from(io::ErrorKind::NotFound);
    for &tni in order {
        let taken = if reserve(most_alone) {
            own_cq(lib, &tnis[tni])
        } else {
            shared_cq(lib, &tnis[tni])
        };
        match taken {
            Ok(vcq) => return Ok((vcq, tni)),
            Err(e) => error = e,
        }
    }
    Err(error)
}

/// A shared VCQ of a TNI that has [`SPARE`] more.
fn shared_cq(lib: &'static Utofu, tni: &Tni) -> io::Result<Vcq> {
    let vcq = Vcq::new(lib, tni.id, CqSharing::Shared)?;
    let spare = (0..SPARE).map(|_| Vcq::new(lib, tni.id, CqSharing::Shared));
    // Freed at once, for other workers.
    spare.collect::<io::Result<Vec<Vcq>>>()?;
    Ok(vcq)
}

/// An exclusive VCQ, which was reserved, unless its control queue is the last one of the TNI.
fn own_cq(lib: &'static Utofu, tni: &Tni) -> io::Result<Vcq> {
    let vcq = Vcq::new(lib, tni.id, CqSharing::Alone)?;
    // Freed at once, for other workers.
    Vcq::new(lib, tni.id, CqSharing::Shared)?;
    Ok(vcq)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_that_are_alone() {
        assert!(!reserve(0));
        assert!(reserve(2) && reserve(2) && !reserve(2));
        give_back(CqSharing::Shared);
        assert!(!reserve(2));
        give_back(CqSharing::Alone);
        assert!(reserve(2));
        give_back(CqSharing::Alone);
        give_back(CqSharing::Alone);
    }
}
