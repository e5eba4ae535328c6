//! Memory that is unmapped and mapped again at the same address, and a cache of registrations of it.
use super::pinned::PinningRegistrar;
use std::ffi::{CStr, c_void};
use std::process::Command;
use std::sync::Arc;
use ucp::options::Options;
use ucp::sys::mem_monitor::{self, page_size};
use ucp::sys::regcache::{CachePolicy, RegCache};
use ucp::sys::va_range::VaRange;

/// Runs one of the ignored tests below in a process of its own, with these variables. Returns its output.
pub fn alone(test: &str, variables: &[(&str, &str)]) -> String {
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

pub fn cache() -> Arc<RegCache<PinningRegistrar>> {
    let options = Options::read(None).expect("the environment is in order");
    // Each region has four descriptors.
    let policy = CachePolicy {
        max_regions: 100,
        ..CachePolicy::of_all(&options)
    };
    RegCache::new(
        PinningRegistrar,
        policy,
        mem_monitor::watch(&options).clone(),
    )
    .expect("a cache")
}

/// A cache that keeps entries, as it does in every process here unless options say otherwise.
pub fn keeping_cache() -> Arc<RegCache<PinningRegistrar>> {
    let cache = cache();
    assert!(cache.keeps());
    cache
}

pub fn map_at(at: usize, len: usize, flags: i32, fd: i32) -> usize {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a fresh mapping, or one over memory of the test.
    let mapped = unsafe { libc::mmap(at as *mut c_void, len, prot, flags, fd, 0) };
    let error = std::io::Error::last_os_error();
    assert_ne!(mapped, libc::MAP_FAILED, "{at:x}, {flags:x}, {fd}: {error}");
    mapped as usize
}

pub const ANONYMOUS: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;

pub fn map(len: usize) -> usize {
    map_at(0, len, ANONYMOUS, -1)
}

pub fn unmap(at: usize, len: usize) {
    // SAFETY: memory of the test, which it does not use any more.
    assert_eq!(unsafe { libc::munmap(at as *mut c_void, len) }, 0);
}

/// Maps other pages to `len` bytes at `at`, by one of these ways. Where that leaves a hole for a moment another
/// thread may map it: then the new memory is elsewhere, at the returned address.
pub fn renew(method: &str, at: usize, len: usize) -> usize {
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

/// Sizes of allocations, from a page to one that the allocator maps separately.
const SIZES: [usize; 6] = [5_000, 20_000, 70_000, 200_000, 600_000, 1 << 20];

/// Threads that allocate, use, and free. Each buffer belongs to one thread.
pub fn allocate_and_free(rounds: usize) {
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

/// The end of the heap is where it was, and the memory is not. (Only this thread allocates, and finds room further
/// down.)
pub fn one_thread_whose_heap_shrinks() {
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

/// The first bytes of a function of libc.
pub fn entry(name: &CStr) -> [u8; 16] {
    // SAFETY: functions are longer.
    unsafe { (address(name) as *const [u8; 16]).read_volatile() }
}

pub fn address(name: &CStr) -> usize {
    // SAFETY: a library that is loaded, and a terminated name.
    unsafe {
        let libc = libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY);
        libc::dlsym(libc, name.as_ptr()) as usize
    }
}
