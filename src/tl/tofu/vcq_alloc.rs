//! Which queues workers get: one alone on a control queue as long as there are such, then one beside others.
//!
//! How many control queues there are nobody tells, and other processes of the node take some, too. So who has got one
//! alone sees whether one more could be made there. If not, it is the last of its interface: it goes back, and is taken
//! as one that whoever comes later can share.

use super::tni::Tni;
use super::utofu::Utofu;
use super::vcq::{CqSharing, Vcq};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Queues of this process that are alone.
static ALONE: AtomicUsize = AtomicUsize::new(0);

/// One more that is alone; false: no more than `most` may be.
fn reserve(most: usize) -> bool {
    let more = |n: usize| (n < most).then_some(n + 1);
    // Relaxed: only a number.
    (ALONE.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)).is_ok()
}

/// A queue is no more, or could not be made.
pub fn give_back(room: CqSharing) {
    if room == CqSharing::Alone {
        // Relaxed: only a number.
        ALONE.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A queue on the first of these interfaces, by their places in `tnis`, that has one; alone if any of them has such and
/// the process has fewer than `most_alone`. Its interface.
///
/// # Errors
/// What the library says of the last.
pub fn take(
    lib: &'static Utofu,
    tnis: &[Tni],
    turns: &[usize],
    most_alone: usize,
) -> io::Result<(Vcq, usize)> {
    let mut error = io::Error::from(io::ErrorKind::NotFound);
    for &turn in turns {
        if reserve(most_alone)
            && let Ok(vcq) = own_cq(lib, &tnis[turn])
        {
            return Ok((vcq, turn));
        }
    }
    for &turn in turns {
        match Vcq::new(lib, tnis[turn].id, CqSharing::Shared) {
            Ok(vcq) => return Ok((vcq, turn)),
            Err(e) => error = e,
        }
    }
    Err(error)
}

/// Shared queues of an interface that a rail leaves for others: half of those of a control queue.
const SPARE: usize = 4;

/// As [`take`], for a rail: no worker goes without a first queue for it. So it is alone, as long as the process may
/// have such; if the interfaces have none left there is none, and if the process may have no more of them it is a
/// shared one where some are left.
///
/// # Errors
/// `NotFound`, or what the library says of the last.
pub fn take_rail(
    lib: &'static Utofu,
    tnis: &[Tni],
    turns: &[usize],
    most_alone: usize,
) -> io::Result<(Vcq, usize)> {
    let mut error = io::Error::from(io::ErrorKind::NotFound);
    for &turn in turns {
        let taken = match reserve(most_alone) {
            true => own_cq(lib, &tnis[turn]),
            false => shared_cq(lib, &tnis[turn]),
        };
        match taken {
            Ok(vcq) => return Ok((vcq, turn)),
            Err(e) => error = e,
        }
    }
    Err(error)
}

/// A shared queue of an interface that has [`SPARE`] more.
fn shared_cq(lib: &'static Utofu, tni: &Tni) -> io::Result<Vcq> {
    let vcq = Vcq::new(lib, tni.id, CqSharing::Shared)?;
    let spare = (0..SPARE).map(|_| Vcq::new(lib, tni.id, CqSharing::Shared));
    // They go at once: others can have them.
    spare.collect::<io::Result<Vec<Vcq>>>()?;
    Ok(vcq)
}

/// A queue alone, which was reserved, and is not the last.
fn own_cq(lib: &'static Utofu, tni: &Tni) -> io::Result<Vcq> {
    let vcq = Vcq::new(lib, tni.id, CqSharing::Alone)?;
    // Goes at once: others can have it.
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
