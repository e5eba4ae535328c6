//! Forked children: objects inherited from a parent's contexts and workers remain the parent's.
//!
//! A child inherits copies of the parent's objects, and with them shared memory and open files that it must not touch:
//! a message that it sent would be in the middle of the parent's stream. So after `fork` the child
//! - has private empty memory in place of what the parent's transports share with other processes ([`PrivateInChild`]),
//! - has inert descriptors in place of the parent's sockets, pipes, files and locks ([`InertInChild`]): a peer that
//!   waits for the end of the parent's connection does not wait for the child's end, too,
//! - has inherited objects disabled ([`DisabledInChild`]), and finds out of each that it is inherited ([`Origin`]).
//!
//! The child's own contexts are independent of that. Process-wide data that they use is behind a [`Mutex`] of this
//! module: `fork` acquires it, so that the child finds it free and consistent.
//!
//! The handlers of `fork` are registered when the library is loaded: they run in the child before those that the
//! program registers. Handlers of libraries that were loaded before this one run earlier, and in the child of `_Fork`
//! or of a bare `clone` none do: the [`generation`] module detects such a child all the same, and the
//! first function that asks whether an object is inherited, makes one, or waits for a lock does what the handler does.
//! Progress and sends with the parent's endpoints do not check for it: a program must not call them there before.
//!
//! `vfork`, `posix_spawn`, `system` and `popen` run no handlers: their children do nothing but `exec`.

use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::num::NonZeroUsize;
use std::ops::{Deref, DerefMut};
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

mod generation;
mod wiped;

pub use generation::Origin;
pub use wiped::Wiped;

/// Disables an inherited object in a child. It is called between `fork` and its return, with the address and the size
/// that were registered: it takes no lock and allocates nothing.
pub type Disable = unsafe fn(NonNull<()>, usize);

/// What an open descriptor names: device, inode and type of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIdentity {
    device: libc::dev_t,
    inode: libc::ino_t,
    kind: libc::mode_t,
}

impl FileIdentity {
    /// `None`: it is not open.
    pub fn of(fd: RawFd) -> Option<Self> {
        let mut stat = MaybeUninit::<libc::stat>::uninit();
        // SAFETY: room for the structure, which is read only where the system has written it.
        unsafe {
            (libc::fstat(fd, stat.as_mut_ptr()) == 0).then(|| {
                let stat = stat.assume_init();
                Self {
                    device: stat.st_dev,
                    inode: stat.st_ino,
                    kind: stat.st_mode & libc::S_IFMT,
                }
            })
        }
    }

    /// Whether no other file has the same one. Epoll sets, timers and events have no type, and one inode.
    fn is_unique(self) -> bool {
        self.kind != 0
    }
}

/// Objects that a child has to replace or disable.
struct Registry {
    /// Shared mappings, by their first address: bytes.
    memory: BTreeMap<usize, usize>,
    descriptors: BTreeMap<RawFd, FileIdentity>,
    /// By address: size, and the function that disables the object.
    objects: BTreeMap<usize, (usize, Disable)>,
}

impl Registry {
    const fn new() -> Self {
        Self {
            memory: BTreeMap::new(),
            descriptors: BTreeMap::new(),
            objects: BTreeMap::new(),
        }
    }
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry::new());

/// A shared mapping of which children get private empty memory.
pub struct PrivateInChild(usize);

impl PrivateInChild {
    /// # Safety
    /// `len` bytes at `start`, whole pages, stay mapped, readable and writable, until the value is dropped.
    pub unsafe fn new(start: NonNull<u8>, len: usize) -> Self {
        let at = start.as_ptr() as usize;
        REGISTRY.lock().memory.insert(at, len);
        Self(at)
    }
}

impl Drop for PrivateInChild {
    fn drop(&mut self) {
        REGISTRY.lock().memory.remove(&self.0);
    }
}

/// A descriptor that is replaced in children, as long as it names the same file.
pub struct InertInChild(RawFd, FileIdentity);

impl InertInChild {
    /// `None` for epoll sets, timers and events, which a child keeps: the program may have put another one in their
    /// place, which looks alike.
    pub fn new(fd: RawFd, identity: FileIdentity) -> Option<Self> {
        identity.is_unique().then(|| {
            REGISTRY.lock().descriptors.insert(fd, identity);
            Self(fd, identity)
        })
    }
}

impl Drop for InertInChild {
    /// Before the descriptor is closed: another thread may get its number at once.
    fn drop(&mut self) {
        let descriptors = &mut REGISTRY.lock().descriptors;
        // If the program has closed it, the number may be that of another one that is registered.
        if descriptors.get(&self.0) == Some(&self.1) {
            descriptors.remove(&self.0);
        }
    }
}

/// An object that is disabled in children.
pub struct DisabledInChild(NonZeroUsize);

impl DisabledInChild {
    /// # Safety
    /// `disable` may be called with `object` and `size` until the value is dropped, in a child, whatever other threads
    /// of the parent were doing.
    pub unsafe fn new(object: NonNull<()>, size: usize, disable: Disable) -> Self {
        REGISTRY
            .lock()
            .objects
            .insert(object.addr().get(), (size, disable));
        Self(object.addr())
    }
}

impl Drop for DisabledInChild {
    fn drop(&mut self) {
        REGISTRY.lock().objects.remove(&self.0.get());
    }
}

/// The lock of a [`Mutex`]. `fork` acquires it in the parent, and releases it in both processes.
pub struct Lock(AtomicBool);

impl Lock {
    fn take(&self) {
        while !self.try_take() {
            // In a child it is held, as `fork` left it, until the child handler has run.
            generation::settle();
            std::thread::yield_now();
        }
    }

    /// False: another thread holds it.
    fn try_take(&self) -> bool {
        // Acquire: pairs with the Release store in `give_back`.
        !self.0.swap(true, Ordering::Acquire)
    }

    fn give_back(&self) {
        // Release: pairs with the Acquire swaps in `take` and `try_take`.
        self.0.store(false, Ordering::Release);
    }
}

/// A mutex for static data. It has no queue of threads, which a child would inherit without the threads. It is free in
/// a child if it was given to [`watch`]. Its holder may acquire those behind it in the list that `watch` got, those
/// that are in no list, and the registry's, which the other functions of this module acquire.
pub struct Mutex<T> {
    lock: Lock,
    value: UnsafeCell<T>,
}

// SAFETY: one thread at a time reaches the value.
unsafe impl<T: Send> Sync for Mutex<T> {}

impl<T> Mutex<T> {
    pub const fn new(value: T) -> Self {
        Self {
            lock: Lock(AtomicBool::new(false)),
            value: UnsafeCell::new(value),
        }
    }

    /// Blocks until the lock is free.
    pub fn lock(&self) -> Guard<'_, T> {
        self.lock.take();
        Guard(self)
    }

    /// `None`: another thread holds it.
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        // The guard is made only with the lock: dropped without it, it would release another thread's.
        self.lock.try_take().then(|| Guard(self))
    }

    /// The lock for [`watch`].
    pub fn lock_to_watch(&'static self) -> &'static Lock {
        &self.lock
    }
}

/// Access to the value of a [`Mutex`] until dropped.
pub struct Guard<'a, T>(&'a Mutex<T>);

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the guard has the lock.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard has the lock.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        self.0.lock.give_back();
    }
}

/// The locks that `fork` acquires before the registry's; null before [`watch`].
static LOCKS: AtomicPtr<Vec<&'static Lock>> = AtomicPtr::new(std::ptr::null_mut());

/// Whether `fork` has acquired the locks, and has not released them in this process.
static HELD: AtomicBool = AtomicBool::new(false);

/// Registers the handlers of `fork` when the library is loaded.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = prepare;

/// Prepares for forks, once for the process.
extern "C" fn prepare() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        generation::start();
        // SAFETY: the functions exist as long as the handlers: unloading a library removes its handlers.
        unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
    });
}

/// Prepares for forks, once for the process: `locks` are free in children. They are acquired in this order.
pub fn watch(locks: impl FnOnce() -> Vec<&'static Lock>) {
    static ONCE: Once = Once::new();
    // In case the program has dropped this library's initialisers.
    prepare();
    ONCE.call_once(|| {
        let locks = Box::into_raw(Box::new(locks()));
        // Release: pairs with the Acquire load in `locks`.
        LOCKS.store(locks, Ordering::Release);
    });
}

fn locks() -> &'static [&'static Lock] {
    // Acquire: pairs with the Release store in `watch`.
    let locks = LOCKS.load(Ordering::Acquire);
    // SAFETY: null, or leaked by `watch`.
    unsafe { locks.as_ref() }.map_or(&[], |locks| locks)
}

/// Number of locks that the running fork has acquired: another thread's `watch` may add some meanwhile.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

extern "C" fn before() {
    let locks = locks();
    locks.iter().for_each(|lock| lock.take());
    REGISTRY.lock.take();
    // Relaxed, here and in the other handlers: written under the registry's lock, and in a child there is one thread.
    TAKEN.store(locks.len(), Ordering::Relaxed);
    HELD.store(true, Ordering::Relaxed);
}

extern "C" fn in_parent() {
    let taken = TAKEN.load(Ordering::Relaxed);
    HELD.store(false, Ordering::Relaxed);
    REGISTRY.lock.give_back();
    locks()[..taken].iter().for_each(|lock| lock.give_back());
}

extern "C" fn in_child() {
    // Nothing to do if a function of the library has settled this process before.
    if HELD.load(Ordering::Relaxed) {
        generation::begin();
    }
}

/// Disables the inherited objects. There is one thread.
fn disable_inherited() {
    let by_fork = HELD.load(Ordering::Relaxed);
    // Without handlers: discards a registry that a thread of the parent was changing.
    if !by_fork && !REGISTRY.lock.try_take() {
        // SAFETY: there is one thread, and it is not inside: it would have to wait for itself.
        unsafe { REGISTRY.value.get().write(Registry::new()) };
    }
    // SAFETY: this function holds the lock, which `before` or the lines above have acquired.
    let registry = unsafe { &mut *REGISTRY.value.get() };
    for (&start, &len) in &registry.memory {
        // SAFETY: the promise of `PrivateInChild::new`.
        unsafe { replace_memory(start, len) };
    }
    replace_descriptors(&registry.descriptors);
    for (&object, &(size, disable)) in &registry.objects {
        let object = NonNull::new(object as *mut ());
        // SAFETY: the promise of `DisabledInChild::new`.
        object.into_iter().for_each(|o| unsafe { disable(o, size) });
    }
    // The registrations stay: a child of the child inherits them, too.
    if by_fork {
        in_parent()
    } else {
        REGISTRY.lock.give_back()
    }
}

/// Maps private memory, zero, in place of what is mapped.
///
/// # Safety
/// `len` bytes at `start`, whole pages, are mapped for this library, readable and writable.
unsafe fn replace_memory(start: usize, len: usize) {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    // Not libc's function, which may be hooked.
    // SAFETY: the caller's promise. Users of such memory accept any content of it, as other processes write it.
    unsafe { libc::syscall(libc::SYS_mmap, start, len, prot, flags, -1, 0) };
}

/// Replaces each by an inert descriptor: an eventfd that no process writes.
fn replace_descriptors(descriptors: &BTreeMap<RawFd, FileIdentity>) {
    if descriptors.is_empty() {
        return;
    }
    // SAFETY: no memory involved.
    let inert = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
    for (&fd, &identity) in descriptors {
        if FileIdentity::of(fd) != Some(identity) {
            continue;
        }
        // SAFETY: the descriptor is this library's: it names what it named when it was registered.
        unsafe {
            match inert {
                0.. => libc::dup3(inert, fd, libc::O_CLOEXEC),
                _ => libc::close(fd),
            };
        }
    }
    if inert >= 0 {
        // SAFETY: opened above; this function is its only owner.
        unsafe { libc::close(inert) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_try_lock_leaves_the_lock_with_its_holder() {
        let mutex = Mutex::new(0);
        let held = mutex.lock();
        assert!(mutex.try_lock().is_none());
        assert!(mutex.try_lock().is_none());
        drop(held);
        assert!(mutex.try_lock().is_some());
        assert!(
            mutex.try_lock().is_some(),
            "a dropped guard releases the lock"
        );
    }
}
