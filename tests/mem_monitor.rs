//! Memory that is unmapped and mapped again at the same address, in every way, while threads look registrations
//! up: the returned registration has the current pages, never the former ones.
//!
//! Tests that change the process for good (hooks, allocators, patches of other libraries) run in a process of their
//! own.

// Portable code has no hooks.
#![cfg(not(feature = "portable"))]

#[path = "support/pinned.rs"]
mod pinned;
#[path = "support/remap.rs"]
mod remap;

use remap::{
    ANONYMOUS, allocate_and_free, alone, cache, entry, keeping_cache, map,
    one_thread_whose_heap_shrinks, renew, unmap,
};
use rustix::mm::MapFlags;
use std::ffi::c_void;
use std::sync::Mutex;
use ucp::sys::mapping::Mapping;
use ucp::sys::mem_monitor::page_size;
use ucp::sys::va_range::VaRange;

/// The ways to unmap an address and map other memory there.
const METHODS: [&str; 8] = [
    "munmap", "mmap", "mremap", "onto", "dontneed", "remove", "shmat", "part",
];

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
fn the_library_s_own_mappings_are_noticed() {
    alone("child_that_drops_a_mapping", &[]);
}

#[test]
#[ignore = "runs in a process of its own"]
fn child_that_drops_a_mapping() {
    let cache = keeping_cache();
    let len = 6 * page_size();
    // SAFETY: at an address that the kernel chooses.
    let mapping = unsafe { Mapping::anonymous(len, MapFlags::PRIVATE, None) }.unwrap();
    let mut worker = cache.lookaside();
    drop(
        worker
            .get(mapping.ptr() as usize, len)
            .expect("it can be pinned"),
    );
    cache.tidy();
    assert_eq!(cache.held().regions, 1, "the memory exists");
    drop(mapping);
    cache.tidy();
    assert_eq!(cache.held().regions, 0, "the memory is unmapped");
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
