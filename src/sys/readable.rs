//! Whether the processor can read an address of this process.

use super::cma::{self, IoSpan};
use super::sync::OnceLock;
use std::io;
use std::process;
use std::ptr;

/// How the kernel is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Probe {
    /// `rt_sigprocmask` with an operation that does not exist: the kernel reads the set before it refuses the
    /// operation. It costs hardly more than an empty system call.
    SignalSet,
    /// A copy of one byte by `process_vm_readv`, where the kernel does not read the set first.
    Copy,
}

/// Bytes that [`Probe::SignalSet`] reads, from a multiple of this on.
const SET_BYTES: usize = 8;

/// Whether the processor can read the byte at an address. False also where the kernel forbids to ask.
pub fn is_readable(addr: u64) -> bool {
    static PROBE: OnceLock<Probe> = OnceLock::new();
    match *PROBE.get_or_init(select) {
        Probe::SignalSet => reads_set(addr),
        Probe::Copy => copies(addr),
    }
}

/// The first way of asking that finds a readable word readable, and a page without access not.
fn select() -> Probe {
    let word = 0u64;
    let (len, none) = (4096, libc::PROT_NONE);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping at an address that the kernel selects, which only this function uses, and unmaps.
    let is_exact = unsafe {
        let page = libc::mmap(ptr::null_mut(), len, none, flags, -1, 0);
        let is_exact = page != libc::MAP_FAILED && !reads_set(page as u64);
        libc::munmap(page, len);
        is_exact
    };
    match is_exact && reads_set(&raw const word as u64) {
        true => Probe::SignalSet,
        false => Probe::Copy,
    }
}

fn reads_set(addr: u64) -> bool {
    // Without a set the kernel has nothing to read.
    let set = addr & !(SET_BYTES as u64 - 1);
    if set == 0 {
        return false;
    }
    const NO_OPERATION: libc::c_int = -1;
    let no_old_set = ptr::null_mut::<u64>();
    // SAFETY: the kernel checks the address, and changes no mask by an operation that does not exist.
    let refused = unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            NO_OPERATION,
            set,
            no_old_set,
            SET_BYTES,
        )
    };
    refused != 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL)
}

fn copies(addr: u64) -> bool {
    let mut byte = 0u8;
    let local = IoSpan {
        addr: &raw mut byte as u64,
        len: 1,
    };
    // SAFETY: the local byte is writable.
    unsafe { cma::read(process::id(), &[local], &[IoSpan { addr, len: 1 }]) }.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_exact(probe: fn(u64) -> bool) {
        let byte = 7u8;
        assert!(probe(&raw const byte as u64));
        let (len, none) = (4096, libc::PROT_NONE);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping, which nothing else uses, and which is unmapped here.
        unsafe {
            let page = libc::mmap(ptr::null_mut(), len, none, flags, -1, 0);
            assert_ne!(page, libc::MAP_FAILED);
            assert!(!probe(page as u64), "mapped without access");
            assert_eq!(libc::mprotect(page, len, libc::PROT_READ), 0);
            assert!(probe(page as u64 + 4095));
            assert_eq!(libc::munmap(page, len), 0);
        }
        assert!(!probe(0) && !probe(7), "not mapped");
    }

    #[test]
    fn readable_is_what_is_mapped_with_access() {
        is_exact(is_readable);
        is_exact(copies);
    }

    /// An emulated kernel may refuse the operation first.
    #[test]
    fn a_signal_set_is_used_if_it_is_exact() {
        if select() == Probe::SignalSet {
            is_exact(reads_set);
        }
    }

    #[test]
    fn to_ask_changes_no_signal_mask() {
        let mask = || {
            let mut now = [0u64; 16];
            let none = ptr::null::<libc::sigset_t>();
            // SAFETY: room for the longest set of signals; nothing is set.
            let read =
                unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, none, now.as_mut_ptr().cast()) };
            assert_eq!(read, 0);
            now
        };
        let (before, all) = (mask(), [u64::MAX; 2]);
        assert!(is_readable(all.as_ptr() as u64));
        assert_eq!(mask(), before);
    }
}
