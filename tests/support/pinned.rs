//! Memory that is pinned without an RDMA device: pages in a pipe (`vmsplice`) are the process's own, not copies, and
//! stay the same when it maps other memory at their address. A word written at the address is read from the pipe, or
//! not.

use std::io::{self, Error};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use ucp::sys::mem_monitor::page_size;
use ucp::sys::regcache::Registrar;
use ucp::sys::va_range::VaRange;

/// Most pinned pages of a region: the capacity of a pipe.
const PROBES: usize = 16;
/// Offset of the pinned word in a page: away from an allocator's metadata.
const WORD: usize = 2048;

/// Pins the pages of each registration.
pub struct PinningRegistrar;

/// The pinned words of a region.
pub struct Pinned {
    extent: VaRange,
    /// Addresses of the words, in the order in which they are in the pipe.
    words: Vec<usize>,
    pipe: Pipe,
    /// Destination of copies of the references.
    copy: Mutex<Pipe>,
}

struct Pipe {
    out: OwnedFd,
    into: OwnedFd,
}

impl Pipe {
    fn new() -> io::Result<Self> {
        let mut ends = [0; 2];
        // SAFETY: room for two descriptors.
        check(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } as isize)?;
        // SAFETY: fresh descriptors.
        let [out, into] = ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) });
        Ok(Pipe { out, into })
    }
}

fn check(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| Error::last_os_error())
}

/// The word as an atomic: other threads may have data in the same page, but not here.
fn word(at: usize) -> &'static AtomicU64 {
    // SAFETY: mapped while it is registered, and used no longer.
    unsafe { &*(at as *const AtomicU64) }
}

impl Registrar for PinningRegistrar {
    type Region = Pinned;

    fn register(&self, addr: usize, len: usize) -> io::Result<Pinned> {
        let pages = len / page_size();
        let count = pages.min(PROBES);
        let pages = (0..count).map(|i| addr + i * pages / count * page_size());
        let words: Vec<usize> = pages.map(|page| page + WORD).collect();
        let pipe = Pipe::new()?;
        for at in &words {
            // As a device that may write: before that the page of zeros is shared by all. The word may be the
            // allocator's, and adding zero is no write for a compiler.
            let there = word(*at).load(Ordering::SeqCst);
            let _ = word(*at).compare_exchange(there, there, Ordering::SeqCst, Ordering::SeqCst);
            let piece = libc::iovec {
                iov_base: *at as *mut _,
                iov_len: size_of::<u64>(),
            };
            // SAFETY: a word of mapped memory.
            check(unsafe { libc::vmsplice(pipe.into.as_raw_fd(), &piece, 1, 0) })?;
        }
        let extent = VaRange::new(addr, len);
        let copy = Mutex::new(Pipe::new()?);
        Ok(Pinned {
            extent,
            words,
            pipe,
            copy,
        })
    }
}

impl Pinned {
    /// Whether the pages of this buffer are those that were pinned, as far as they are the buffer's alone.
    pub fn is_current(&self, buffer: VaRange) -> bool {
        static NONCE: AtomicU64 = AtomicU64::new(1);
        assert!(self.extent.contains(buffer));
        let copy = self.copy.lock().unwrap();
        let mine = |at: &usize| buffer.contains(VaRange::new(at - WORD, page_size()));
        let nonce = NONCE.fetch_add(1, Ordering::SeqCst);
        for at in self.words.iter().filter(|at| mine(at)) {
            word(*at).store(nonce, Ordering::SeqCst);
        }
        let pinned = self.read(&copy).expect("the pipe has all of it");
        let mut words = self.words.iter().zip(pinned);
        words.all(|(at, pinned)| !mine(at) || pinned == nonce)
    }

    /// Contents of the pinned pages.
    fn read(&self, copy: &Pipe) -> io::Result<Vec<u64>> {
        let mut words = vec![0u64; self.words.len()];
        let len = size_of_val(&words[..]);
        // SAFETY: two pipes, and a buffer of this length.
        unsafe {
            let copied = libc::tee(self.pipe.out.as_raw_fd(), copy.into.as_raw_fd(), len, 0);
            assert_eq!(check(copied)?, len);
            let read = libc::read(copy.out.as_raw_fd(), words.as_mut_ptr().cast(), len);
            assert_eq!(check(read)?, len);
        }
        Ok(words)
    }
}
