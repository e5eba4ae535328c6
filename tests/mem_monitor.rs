//! Memory that is unmapped and mapped again at the same address, in every way, while threads look registrations
//! up: the returned registration has the current pages, never the former ones.
//!
//! Tests that change the process for good (hooks, allocators, patches of other libraries) run in a process of their
//! own.

// Portable code has no hooks.
#![cfg(not(feature = "portable"))]

#[path = "support/pinned.rs"]
mod pinned;

use pinned::PinningRegistrar;
use std::ffi::{CStr, c_void};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use ucp::options::Options;
use ucp::sys::mem_monitor::{self, VaRange, page_size};
use ucp::sys::regcache::{CachePolicy, RegCache};

/// Runs one of the ignored tests below in a process of its own, with these variables. Returns its output.
fn alone(test: &str, variables: &[(&str, &str)]) -> String {
    let exe = std::env::current_exe().expect("a running program has a path");
    let output = Command::new(exe)
        .args([test, "--exact", "--ignored", "--nocapture"])
        .envs(variables.iter().copied())
        .output()
        .expect("the test can run itself");
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{test}: {text}");
    assert!(text.contains("1 passed"), "{test}: {text}");
    text
}

fn cache() -> Arc<RegCache<PinningRegistrar>> {
    let options = Options::read(None).expect("the environment is in order");
    // Each region has four descriptors.
    let policy = CachePolicy {
        max_regions: 100,
        ..CachePolicy::read(&options, "IB_")
    };
    RegCache::new(
        PinningRegistrar,
        policy,
        mem_monitor::watch(&options).clone(),
    )
    .expect("a cache")
}

/// A cache that keeps entries, as it does in every process here unless options say otherwise.
fn keeping_cache() -> Arc<RegCache<PinningRegistrar>> {
    let cache = cache();
    assert!(cache.keeps());
    cache
}

fn map_at(at: usize, len: usize, flags: i32, fd: i32) -> usize {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a fresh mapping, or one over memory of the test.
    let mapped = unsafe { libc::mmap(at as *mut c_void, len, prot, flags, fd, 0) };
    let error = std::io::Error::last_os_error();
    assert_ne!(mapped, libc::MAP_FAILED, "{at:x}, {flags:x}, {fd}: {error}");
    mapped as usize
}

const ANONYMOUS: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;

fn map(len: usize) -> usize {
    map_at(0, len, ANONYMOUS, -1)
}

fn unmap(at: usize, len: usize) {
    // SAFETY: memory of the test, which it does not use any more.
    assert_eq!(unsafe { libc::munmap(at as *mut c_void, len) }, 0);
}

/// The ways to unmap an address and map other memory there.
const METHODS: [&str; 8] = [
    "munmap", "mmap", "mremap", "onto", "dontneed", "remove", "shmat", "part",
];

/// Maps other pages to `len` bytes at `at`, by one of these ways. Where that leaves a hole for a moment another
/// thread may map it: then the new memory is elsewhere, at the returned address.
fn renew(method: &str, at: usize, len: usize) -> usize {
    let fixed = ANONYMOUS | libc::MAP_FIXED;
    let address = at as *mut c_void;
    // SAFETY: in all cases memory of the test, which no thread uses meanwhile.
    unsafe {
        match method {
            "munmap" => {
                unmap(at, len);
                return map_at(at, len, ANONYMOUS, -1);
            }
            "part" => {
                let middle = (at + len / 2) & !(page_size() - 1);
                map_at(middle, page_size(), fixed, -1);
            }
            "mmap" => {
                map_at(at, len, fixed, -1);
            }
            "mremap" => {
                let place = map(2 * len) as *mut c_void;
                let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
                // Unmapped, and other memory in its place.
                let mut moved = libc::mremap(address, len, 2 * len, flags, place);
                if moved == libc::MAP_FAILED {
                    // A range of several mappings cannot be moved at once.
                    map_at(at, len, fixed, -1);
                    moved = libc::mremap(address, len, 2 * len, flags, place);
                }
                assert_eq!(moved, place);
                unmap(place as usize, 2 * len);
                return map_at(at, len, ANONYMOUS, -1);
            }
            "onto" => {
                let other = map(len) as *mut c_void;
                other.cast::<u8>().write_bytes(1, len);
                let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
                let moved = libc::mremap(other, len, len, flags, address);
                assert_eq!(moved, address);
            }
            "dontneed" => {
                let emptied = libc::madvise(address, len, libc::MADV_DONTNEED);
                assert_eq!(emptied, 0);
            }
            "remove" => {
                // Only a mapping of a file can lose it; of a file of its own, as other mappings do not see a
                // truncation.
                let fd = memfd(len);
                map_at(at, len, libc::MAP_SHARED | libc::MAP_FIXED, fd);
                libc::close(fd);
                let removed = libc::madvise(address, len, libc::MADV_REMOVE);
                assert_eq!(removed, 0);
            }
            "shmat" => {
                let id = libc::shmget(libc::IPC_PRIVATE, len, 0o600);
                assert!(id >= 0);
                let attached = libc::shmat(id, address, SHM_REMAP);
                libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut());
                assert_eq!(attached, address);
            }
            // A mapping attached by "shmat".
            "shmdt" => {
                assert_eq!(libc::shmdt(address), 0);
                return map_at(at, len, ANONYMOUS, -1);
            }
            _ => unreachable!("{method}"),
        }
    }
    at
}

/// linux/shm.h: replaces the mapping at that address.
const SHM_REMAP: i32 = 0o40000;

fn memfd(len: usize) -> i32 {
    // SAFETY: a constant name; the descriptor is fresh.
    unsafe {
        let fd = libc::memfd_create(c"rucp-test".as_ptr(), libc::MFD_CLOEXEC);
        assert!(fd >= 0 && libc::ftruncate(fd, len as i64) == 0);
        fd
    }
}

#[test]
fn each_way_is_noticed() {
    alone("child_that_tries_each_way", &[]);
}

#[test]
#[ignore = "runs in a process of its own"]
fn child_that_tries_each_way() {
    let cache = keeping_cache();
    let len = 6 * page_size();
    let at = map(len);
    let buffer = VaRange::new(at, len);
    let mut worker = cache.lookaside();
    let mut get = || worker.get(at, len).expect("it can be pinned");
    for method in METHODS.iter().flat_map(|method| match *method {
        "shmat" => vec!["shmat", "shmdt", "shmat", "shmdt"],
        method => vec![method, method],
    }) {
        let held = get();
        assert!(held.region().is_current(buffer), "{method}");
        assert!(std::ptr::eq(held.region(), get().region()), "kept");
        assert_eq!(renew(method, at, len), at, "no other thread maps memory");
        let after = get();
        assert!(!held.region().is_current(buffer), "{method} did nothing");
        assert!(after.region().is_current(buffer), "{method}");
        assert_eq!(cache.held().regions, 2);
        drop(held);
        assert_eq!(cache.held().regions, 1);
    }
    for method in METHODS.iter().filter(|method| **method != "shmat") {
        drop(get());
        assert_eq!(renew(method, at, len), at);
        assert!(
            get().region().is_current(buffer),
            "{method}, with no handle"
        );
        assert_eq!(cache.held().regions, 1);
    }
    unmap(at, len);
    cache.tidy();
    assert_eq!(cache.held().regions, 0, "nothing stays pinned");
}

#[test]
fn under_traffic_nothing_is_stale() {
    const BUFFERS: usize = 8;
    let cache = keeping_cache();
    let len = 5 * page_size();
    let buffers: Vec<Mutex<usize>> = (0..BUFFERS).map(|_| Mutex::new(map(len))).collect();
    std::thread::scope(|scope| {
        for thread in 1..4usize {
            let (cache, buffers) = (&cache, &buffers);
            scope.spawn(move || {
                let (mut worker, mut random) = (cache.lookaside(), thread);
                for _ in 0..3000 {
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1);
                    let pick = random >> 33;
                    let mut owned = buffers[pick % BUFFERS].lock().unwrap();
                    let (at, part) = (*owned, pick / BUFFERS % 4 * page_size());
                    let handle = worker.get(at + part, len - part).unwrap();
                    assert!(
                        handle
                            .region()
                            .is_current(VaRange::new(at + part, len - part))
                    );
                    drop(handle);
                    let method = METHODS[pick / 32 % METHODS.len()];
                    *owned = renew(method, at, len);
                    if method == "shmat" {
                        let handle = worker.get(at, len).unwrap();
                        assert!(handle.region().is_current(VaRange::new(at, len)));
                        drop(handle);
                        *owned = renew("shmdt", at, len);
                    }
                }
            });
        }
    });
    buffers
        .iter()
        .for_each(|at| unmap(*at.lock().unwrap(), len));
}

/// Sizes of allocations, from a page to one that the allocator maps separately.
const SIZES: [usize; 6] = [5_000, 20_000, 70_000, 200_000, 600_000, 1 << 20];

/// Threads that allocate, use, and free. Each buffer belongs to one thread.
fn allocate_and_free(rounds: usize) {
    let cache = keeping_cache();
    std::thread::scope(|scope| {
        for thread in 1..4usize {
            let cache = &cache;
            scope.spawn(move || {
                let (mut worker, mut random) = (cache.lookaside(), thread);
                let mut kept: Vec<Vec<u8>> = Vec::new();
                for _ in 0..rounds {
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1);
                    let pick = random >> 33;
                    let buffer: Vec<u8> = Vec::with_capacity(SIZES[pick % SIZES.len()]);
                    let extent = VaRange::new(buffer.as_ptr() as usize, buffer.capacity());
                    let handle = worker.get(extent.start, extent.len()).unwrap();
                    assert!(handle.region().is_current(extent));
                    drop(handle);
                    // Some stay for a while, so that freed ones have neighbours.
                    kept.push(buffer);
                    if kept.len() > 8 || pick / 8 % 3 == 0 {
                        kept.swap_remove(pick / 64 % kept.len());
                    }
                    if pick / 1024 % 50 == 0 {
                        kept.clear();
                        // SAFETY: no arguments of consequence.
                        unsafe { libc::malloc_trim(0) };
                    }
                }
            });
        }
    });
}

#[test]
fn free_is_noticed() {
    // By default, with several arenas; and with one heap that shrinks whenever it can: `brk`.
    alone(
        "child_that_frees",
        &[("GLIBC_TUNABLES", "glibc.malloc.mmap_threshold=131072")],
    );
    let one_heap = "glibc.malloc.arena_max=1:glibc.malloc.trim_threshold=0:\
                    glibc.malloc.top_pad=0:glibc.malloc.mmap_threshold=33554432";
    alone("child_whose_heap_shrinks", &[("GLIBC_TUNABLES", one_heap)]);
}

#[test]
#[ignore = "runs in a process of its own"]
fn child_that_frees() {
    allocate_and_free(2000);
}

#[test]
#[ignore = "runs in a process of its own"]
fn child_whose_heap_shrinks() {
    let mut shrank = false;
    // SAFETY: 0 moves nothing.
    let end = || unsafe { libc::sbrk(0) } as usize;
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| allocate_and_free(2000));
        let mut last = end();
        while !worker.is_finished() {
            let now = end();
            shrank |= now < last;
            last = now;
            std::thread::yield_now();
        }
    });
    assert!(shrank, "the heap never shrank: nothing was tested");
    one_thread_whose_heap_shrinks();
}

/// The end of the heap is where it was, and the memory is not. (Only this thread allocates, and finds room further
/// down.)
fn one_thread_whose_heap_shrinks() {
    let cache = keeping_cache();
    let mut worker = cache.lookaside();
    let room: Vec<u8> = Vec::with_capacity(4 << 20);
    let above = Box::new([1u8; 4096]);
    drop(room);
    let len = 64 * page_size();
    for _ in 0..100 {
        // SAFETY: the heap ends where it did before, and this part is not the allocator's.
        let at = unsafe { libc::sbrk(len as isize) } as usize;
        let at = at.next_multiple_of(page_size());
        let buffer = VaRange::new(at, len - page_size());
        let held = worker.get(at, buffer.len()).unwrap();
        assert!(held.region().is_current(buffer));
        // SAFETY: the heap ends where it did before, and this part is not the allocator's.
        unsafe {
            assert_ne!(libc::sbrk(-(len as isize)) as usize, usize::MAX);
            assert_ne!(libc::sbrk(len as isize) as usize, usize::MAX);
        }
        assert!(!held.region().is_current(buffer), "it is other memory");
        let after = worker.get(at, buffer.len()).unwrap();
        assert!(after.region().is_current(buffer));
        // SAFETY: the heap ends where it did before, and this part is not the allocator's.
        unsafe { libc::sbrk(-(len as isize)) };
    }
    drop(above);
}

#[test]
fn errno_and_results_are_libcs() {
    drop(keeping_cache());
    let errno = || std::io::Error::last_os_error().raw_os_error();
    let page = page_size();
    let at = map(2 * page);
    let address = at as *mut c_void;
    let nowhere = std::ptr::null_mut();
    // SAFETY: calls that fail, or that change only memory of the test.
    unsafe {
        assert_eq!(
            (libc::munmap(address, 0), errno()),
            (-1, Some(libc::EINVAL))
        );
        assert_eq!(
            (libc::munmap((at + 1) as *mut _, page), errno()),
            (-1, Some(libc::EINVAL))
        );
        let bad = libc::mmap(address, page, 0, libc::MAP_FIXED | libc::MAP_PRIVATE, -1, 0);
        assert_eq!((bad, errno()), (libc::MAP_FAILED, Some(libc::EBADF)));
        let bad = libc::mmap(nowhere, page, 0, ANONYMOUS, -1, 1);
        assert_eq!((bad, errno()), (libc::MAP_FAILED, Some(libc::EINVAL)));
        let bad = libc::mremap(address, page, 4 * page, libc::MREMAP_FIXED, nowhere);
        assert_eq!((bad, errno()), (libc::MAP_FAILED, Some(libc::EINVAL)));
        assert_eq!(libc::mremap(address, 2 * page, page, 0), address);
        assert_eq!(
            (libc::madvise(address, page, 12345), errno()),
            (-1, Some(libc::EINVAL))
        );
        assert_eq!((libc::shmdt(address), errno()), (-1, Some(libc::EINVAL)));
        assert_eq!(
            (libc::brk(usize::MAX as *mut _), errno()),
            (-1, Some(libc::ENOMEM))
        );
        assert_ne!(libc::sbrk(0) as usize, usize::MAX);
    }
    unmap(at, page);
}

#[test]
fn a_child_goes_on_and_the_parent_forgets() {
    // Not beside other tests: pages pinned this way are not the process's own any more after a fork.
    alone("child_that_forks", &[]);
}

#[test]
#[ignore = "runs in a process of its own"]
fn child_that_forks() {
    let cache = keeping_cache();
    let mut worker = cache.lookaside();
    let len = 4 * page_size();
    let at = map(len);
    let buffer = VaRange::new(at, len);
    drop(worker.get(at, len).unwrap());
    // SAFETY: the child calls only the hooked functions, and none that could wait for another thread.
    let child = unsafe { libc::fork() };
    if child == 0 {
        renew("munmap", at, len);
        renew("mremap", at, len);
        renew("dontneed", at, len);
        // SAFETY: ends the child.
        unsafe { libc::_exit(0) };
    }
    assert!(child > 0);
    let after = worker.get(at, len).unwrap();
    assert!(after.region().is_current(buffer));
    let mut status = -1;
    // SAFETY: a child of this test.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child's end");
    assert!(after.region().is_current(buffer));
    drop(after);
    unmap(at, len);
}

#[test]
fn hooks_can_be_disabled() {
    let silent: [&[(&str, &str)]; 3] = [
        &[("UCX_MEM_EVENTS", "n")],
        &[("UCX_MEM_MMAP_HOOK_MODE", "none")],
        &[("UCX_MEM_MMAP_HOOK_MODE", "reloc")],
    ];
    for variables in silent {
        alone("child_that_keeps_nothing", variables);
    }
}

#[test]
#[ignore = "runs in a process of its own"]
fn child_that_keeps_nothing() {
    let before = entry(c"munmap");
    let cache = cache();
    assert!(!cache.keeps());
    assert_eq!(entry(c"munmap"), before, "the code is as it was");
    let (mut worker, len) = (cache.lookaside(), page_size());
    let at = map(len);
    let handle = worker.get(at, len).unwrap();
    assert!(handle.region().is_current(VaRange::new(at, len)));
    drop(handle);
    assert_eq!(cache.held().regions, 0);
}

/// The first bytes of a function of libc.
fn entry(name: &CStr) -> [u8; 16] {
    // SAFETY: functions are longer.
    unsafe { (address(name) as *const [u8; 16]).read_volatile() }
}

fn address(name: &CStr) -> usize {
    // SAFETY: a library that is loaded, and a terminated name.
    unsafe {
        let libc = libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY);
        libc::dlsym(libc, name.as_ptr()) as usize
    }
}

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

#[test]
fn memory_of_libraries_that_may_be_closed_is_not_kept() {
    let cache = keeping_cache();
    static STAYS: Mutex<[u8; 8192]> = Mutex::new([0; 8192]);
    let stays = STAYS.lock().unwrap();
    drop(cache.get(stays.as_ptr() as usize, 8192).unwrap());
    let kept = cache.held().regions;
    assert_eq!(kept, 1);
    // SAFETY: a library without initialisers of note; its data can be written.
    unsafe {
        let library = libc::dlopen(c"libresolv.so.2".as_ptr(), libc::RTLD_NOW);
        assert!(!library.is_null());
        let data = last_page_of("libresolv.so.2");
        let handle = cache.get(data, 8).unwrap();
        assert_eq!(cache.held().regions, kept + 1);
        drop(handle);
        libc::dlclose(library);
    }
    assert_eq!(cache.held().regions, kept);
}

/// The last writable page that this library has mapped.
fn last_page_of(name: &str) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mut data = maps
        .lines()
        .filter(|line| line.ends_with(name) && line.contains(" rw"));
    let last = data.next_back().unwrap();
    let end = last.split(['-', ' ']).nth(1).unwrap();
    usize::from_str_radix(end, 16).unwrap() - page_size()
}
