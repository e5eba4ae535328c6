//! Other libraries in this process that patch `munmap`, Open MPI's and UCX's: they get their events, and this library
//! its own.
//!
//! Each test changes the process for good, and runs in a process of its own.

// Portable code has no hooks.
#![cfg(not(feature = "portable"))]

#[path = "support/pinned.rs"]
mod pinned;
#[path = "support/remap.rs"]
mod remap;

use pinned::PinningRegistrar;
use remap::{
    address, allocate_and_free, alone, entry, keeping_cache, map, one_thread_whose_heap_shrinks,
    renew,
};
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};
use ucp::sys::mem_monitor::page_size;
use ucp::sys::regcache::RegCache;
use ucp::sys::va_range::VaRange;

static REPORTS: AtomicBool = AtomicBool::new(false);

/// The replacement of `munmap` by Open MPI's patcher: it makes the system call itself.
unsafe extern "C" fn munmap_of_another(addr: *mut c_void, len: usize) -> i32 {
    REPORTS.store(true, Ordering::SeqCst);
    // SAFETY: as munmap.
    unsafe { libc::syscall(libc::SYS_munmap, addr, len) as i32 }
}

/// Patches like that patcher: `movabs $target, %r11; jmp *%r11`. Returns the previous bytes.
#[cfg(target_arch = "x86_64")]
fn patch_as_another(target: usize) -> [u8; 16] {
    let at = address(c"munmap");
    let old = entry(c"munmap");
    let mut new = old;
    new[..2].copy_from_slice(&[0x49, 0xbb]);
    new[2..10].copy_from_slice(&target.to_le_bytes());
    new[10..13].copy_from_slice(&[0x41, 0xff, 0xe3]);
    restore(at, new);
    old
}

fn restore(at: usize, code: [u8; 16]) {
    let page = at & !(page_size() - 1);
    let all = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
    // SAFETY: only this thread runs that code at the moment.
    unsafe {
        assert_eq!(libc::mprotect(page as *mut c_void, 2 * page_size(), all), 0);
        (at as *mut [u8; 16]).write_volatile(code);
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn patchers_get_along() {
    alone("child_of_two_patchers", &[("FIRST", "another")]);
    alone("child_of_two_patchers", &[("FIRST", "we")]);
}

#[test]
#[cfg(target_arch = "x86_64")]
#[ignore = "runs in a process of its own"]
fn child_of_two_patchers() {
    let another = munmap_of_another as *const () as usize;
    let len = 4 * page_size();
    let at = map(len);
    let buffer = VaRange::new(at, len);
    let check = |cache: &RegCache<PinningRegistrar>| {
        for _ in 0..3 {
            let handle = cache.get(at, len).unwrap();
            assert!(handle.region().is_current(buffer));
            REPORTS.store(false, Ordering::SeqCst);
            renew("munmap", at, len);
            assert!(
                REPORTS.load(Ordering::SeqCst),
                "the other hook gets the event as well"
            );
            assert!(!handle.region().is_current(buffer));
        }
    };
    // A new registration triggers the check.
    let look = |cache: &RegCache<PinningRegistrar>| {
        let other = map(len);
        drop(cache.get(other, len).unwrap());
    };
    if std::env::var("FIRST").as_deref() == Ok("another") {
        let original = patch_as_another(another);
        let cache = keeping_cache();
        check(&cache);
        // The patcher is unloaded, and restores the previous bytes: libc's own.
        drop(cache.get(at, len).unwrap());
        restore(address(c"munmap"), original);
        renew("munmap", at, len);
        look(&cache);
        assert!(cache.get(at, len).unwrap().region().is_current(buffer));
        renew("munmap", at, len);
        assert!(cache.get(at, len).unwrap().region().is_current(buffer));
    } else {
        let cache = keeping_cache();
        drop(cache.get(at, len).unwrap());
        let ours = patch_as_another(another);
        // No event was reported.
        renew("munmap", at, len);
        look(&cache);
        assert!(cache.get(at, len).unwrap().region().is_current(buffer));
        check(&cache);
        // The patcher is unloaded, and restores the previous bytes: those of this library's hook.
        restore(address(c"munmap"), ours);
        check(&cache);
        assert!(cache.keeps());
    }
}

/// Beside the libucm of Debian's UCX, which scripts/setup installs.
#[test]
fn a_genuine_libucm_and_we() {
    let log = ("UCX_LOG_LEVEL", "debug");
    let text = alone("child_beside_libucm", &[("FIRST", "libucm"), log]);
    assert!(text.contains("reported by libucm"), "{text}");
    let text = alone("child_beside_libucm", &[("FIRST", "we"), log]);
    assert!(text.contains("reported by hooks"), "{text}");
    assert!(text.contains("another library changed"), "{text}");
}

static UCM_REPORTED: AtomicBool = AtomicBool::new(false);

extern "C" fn on_libucm_event(_: i32, _: *const c_void, _: *const c_void) {
    UCM_REPORTED.store(true, Ordering::SeqCst);
}

/// Loads libucm, and installs its hooks.
fn start_libucm() {
    type Handler = extern "C" fn(i32, *const c_void, *const c_void);
    type Set = unsafe extern "C" fn(i32, i32, Handler, *const c_void) -> i8;
    const UCM_EVENT_VM_UNMAPPED: i32 = 1 << 17;
    // SAFETY: libraries that are meant to be loaded so; the function is of this type (ucm.h).
    unsafe {
        let flags = libc::RTLD_NOW | libc::RTLD_GLOBAL;
        assert!(!libc::dlopen(c"libucs.so.0".as_ptr(), flags).is_null());
        let libucm = libc::dlopen(c"libucm.so.0".as_ptr(), flags);
        assert!(!libucm.is_null());
        let set = libc::dlsym(libucm, c"ucm_set_event_handler".as_ptr());
        assert!(!set.is_null());
        let set: Set = std::mem::transmute(set);
        let nothing = std::ptr::null();
        assert_eq!(set(UCM_EVENT_VM_UNMAPPED, 5, on_libucm_event, nothing), 0);
    }
}

#[test]
#[ignore = "runs in a process of its own"]
fn child_beside_libucm() {
    let len = 6 * page_size();
    let at = map(len);
    let buffer = VaRange::new(at, len);
    let cache = if std::env::var("FIRST").as_deref() == Ok("libucm") {
        start_libucm();
        keeping_cache()
    } else {
        let cache = keeping_cache();
        drop(cache.get(at, len).unwrap());
        start_libucm();
        // A new registration triggers the check.
        drop(cache.get(map(len), len).unwrap());
        cache
    };
    // Without those that libucm's hooks do not handle: they lose the address of MREMAP_FIXED, and report no SHM_REMAP.
    for method in ["munmap", "mmap", "dontneed", "remove", "part"] {
        let held = cache.get(at, len).unwrap();
        assert!(held.region().is_current(buffer), "{method}");
        UCM_REPORTED.store(false, Ordering::SeqCst);
        assert_eq!(renew(method, at, len), at);
        assert!(
            UCM_REPORTED.load(Ordering::SeqCst),
            "{method}: libucm gets the event"
        );
        assert!(!held.region().is_current(buffer), "{method} did nothing");
        assert!(
            cache.get(at, len).unwrap().region().is_current(buffer),
            "{method}"
        );
    }
    allocate_and_free(300);
    one_thread_whose_heap_shrinks();
}
