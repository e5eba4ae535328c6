//! Patches the entries of libc's memory functions to lead to the hooks.
//!
//! `free` calls libc's own `munmap`, which no symbol can interpose: the function itself has to begin with a jump. Other
//! code does the same (Open MPI's memory/patcher, libucm), before us or after us. If an entry has a jump already, our
//! hook continues to its target, so that the other code is still called. A later change is noticed by `check`.

use super::hooks::{self, OrigFn};
use super::trampoline::{TrampolinePage, write_code};
use crate::sys::arch::code::{self, BLOCK, Block};
use crate::sys::dl_objects::{self, LoadedObject};
use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::Ordering;

/// A function that is patched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Function {
    Munmap,
    Mmap,
    Mremap,
    Madvise,
    Shmat,
    Shmdt,
    Brk,
    /// Libc's own calls `brk`: only a replacement of it is patched.
    Sbrk,
}

const FUNCTIONS: [Function; 8] = [
    Function::Munmap,
    Function::Mmap,
    Function::Mremap,
    Function::Madvise,
    Function::Shmat,
    Function::Shmdt,
    Function::Brk,
    Function::Sbrk,
];

impl Function {
    fn name(self) -> &'static CStr {
        match self {
            Function::Munmap => c"munmap",
            Function::Mmap => c"mmap",
            Function::Mremap => c"mremap",
            Function::Madvise => c"madvise",
            Function::Shmat => c"shmat",
            Function::Shmdt => c"shmdt",
            Function::Brk => c"brk",
            Function::Sbrk => c"sbrk",
        }
    }

    /// The hook, and the variable with its continuation.
    fn hook(self) -> (usize, &'static OrigFn) {
        match self {
            Function::Munmap => (hooks::munmap as *const () as usize, &hooks::MUNMAP),
            Function::Mmap => (hooks::mmap as *const () as usize, &hooks::MMAP),
            Function::Mremap => (hooks::mremap as *const () as usize, &hooks::MREMAP),
            Function::Madvise => (hooks::madvise as *const () as usize, &hooks::MADVISE),
            Function::Shmat => (hooks::shmat as *const () as usize, &hooks::SHMAT),
            Function::Shmdt => (hooks::shmdt as *const () as usize, &hooks::SHMDT),
            Function::Brk => (hooks::brk as *const () as usize, &hooks::BRK),
            Function::Sbrk => (hooks::sbrk as *const () as usize, &hooks::SBRK),
        }
    }

    /// Calls the function with `page`, an unused page of memory, which may be unmapped then. False for functions where
    /// every call could disturb the allocator, and where the call cannot be made.
    ///
    /// # Safety
    /// `entry` is its entry.
    unsafe fn call(self, entry: usize, page: *mut c_void, len: usize) -> bool {
        type Unmap = unsafe extern "C" fn(*mut c_void, usize) -> c_int;
        type Map =
            unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, c_int, i64) -> *mut c_void;
        type Remap = unsafe extern "C" fn(*mut c_void, usize, usize, c_int, ...) -> *mut c_void;
        type Advise = unsafe extern "C" fn(*mut c_void, usize, c_int) -> c_int;
        type Attach = unsafe extern "C" fn(c_int, *const c_void, c_int) -> *mut c_void;
        type Detach = unsafe extern "C" fn(*const c_void) -> c_int;
        let over = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        // SAFETY: the functions are of these types; the page is unused.
        unsafe {
            use std::mem::transmute as function;
            match self {
                Function::Munmap => {
                    function::<usize, Unmap>(entry)(page, len);
                }
                Function::Mmap => {
                    function::<usize, Map>(entry)(page, len, libc::PROT_NONE, over, -1, 0);
                }
                Function::Mremap => {
                    function::<usize, Remap>(entry)(page, len, len, 0);
                }
                Function::Madvise => {
                    function::<usize, Advise>(entry)(page, len, libc::MADV_DONTNEED);
                }
                Function::Shmat => {
                    // No segment has this number.
                    function::<usize, Attach>(entry)(-1, page, 0);
                }
                Function::Shmdt => {
                    if !attach(page, len) {
                        return false;
                    }
                    function::<usize, Detach>(entry)(page);
                }
                Function::Brk | Function::Sbrk => return false,
            }
        }
        true
    }
}

/// Attaches a new System V segment in place of a page. It is removed when it is detached.
///
/// # Safety
/// The page is mapped and unused.
unsafe fn attach(page: *mut c_void, len: usize) -> bool {
    /// linux/shm.h
    const SHM_REMAP: c_int = 0o40000;
    // SAFETY: the caller's promise; the segment is private.
    unsafe {
        let id = libc::shmget(libc::IPC_PRIVATE, len, 0o600);
        if id < 0 {
            return false;
        }
        let at = libc::shmat(id, page, SHM_REMAP);
        libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut());
        at == page
    }
}

/// The entry of a function, and its last known code.
struct PatchedEntry {
    function: Function,
    at: usize,
    /// Its code when its calls were last known to reach this library.
    known: Block,
}

impl PatchedEntry {
    fn find(libc: &LoadedObject, function: Function) -> Result<Self, String> {
        let at = libc.symbol(function.name());
        if at == 0 || at % BLOCK != 0 {
            return Err(format!("libc has no {:?} that can be hooked", function));
        }
        let known = block(at);
        Ok(PatchedEntry {
            function,
            at,
            known,
        })
    }

    fn changed(&self) -> bool {
        block(self.at) != self.known
    }

    /// Which hooks a call reaches; `None` where no call can be tested.
    fn reported_by(&self) -> Option<u8> {
        let len = super::page_size();
        // SAFETY: a fresh mapping; by the system call itself, as the function may be the tested one.
        let page = unsafe {
            let (prot, flags) = (libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            libc::syscall(libc::SYS_mmap, 0, len, prot, flags, -1, 0)
        };
        if page == -1 {
            return None;
        }
        let (address, mut tried) = (page as usize, false);
        // SAFETY: the entry of this function, and a page that was mapped above.
        let call = || tried = unsafe { self.function.call(self.at, page as *mut c_void, len) };
        let reported = hooks::reports_to(address, call);
        let unmapped = matches!(self.function, Function::Munmap | Function::Shmdt);
        if !(tried && unmapped) {
            // SAFETY: mapped above, and not unmapped by the call.
            unsafe { libc::syscall(libc::SYS_munmap, page, len) };
        }
        tried.then_some(reported)
    }

    /// Patches the entry to lead to the hook, which continues to the entry's previous target.
    fn take(&mut self, near: &TrampolinePage) -> Result<(), String> {
        // SAFETY: the entry of a function.
        let next = unsafe { code::jump_target(self.at) };
        let (hook, chain) = self.function.hook();
        if self.function == Function::Sbrk && next.is_none() && self.known == block(self.at) {
            return Ok(());
        }
        if let Some(path) = next.and_then(dl_objects::library_of) {
            // The library of the target must not be unloaded while the hook continues there.
            LoadedObject::keep(&path);
        }
        chain.set(next.unwrap_or(0));
        let thunk = near.thunk(hook).ok_or("no room near libc")?;
        let old = block(self.at);
        let new = code::with_jump(old, self.at, thunk);
        // SAFETY: the function is still entered at its first byte only (see `code`), and the hook does what it did.
        unsafe { write_code(self.at, old, new) }
            .map_err(|e| format!("{:?}: {e}", self.function))?;
        self.known = new;
        Ok(())
    }
}

/// The code at an address, as it is now.
fn block(at: usize) -> Block {
    // SAFETY: the entry of a function, whose code with its padding is at least so long.
    unsafe { (at as *const Block).read_volatile() }
}

/// The entries of all functions, whether this library has patched them or not.
pub struct PatchedEntries {
    entries: Vec<PatchedEntry>,
    /// The page with our thunks; `None` while other code is the source of events.
    near: Option<TrampolinePage>,
}

impl PatchedEntries {
    /// The entries as they are: other code reports their calls.
    ///
    /// # Errors
    /// The missing part of libc.
    pub fn of_another() -> Result<Self, String> {
        let libc = LoadedObject::keep(c"libc.so.6").ok_or("no dynamic glibc in this process")?;
        let curbrk = libc.symbol(c"__curbrk");
        if curbrk == 0 {
            return Err("libc hides where the heap ends".into());
        }
        // Relaxed: no entry leads to us yet.
        hooks::CURRENT_BREAK.store(curbrk, Ordering::Relaxed);
        let entries = FUNCTIONS.map(|function| PatchedEntry::find(&libc, function));
        Ok(PatchedEntries {
            entries: entries.into_iter().collect::<Result<_, _>>()?,
            near: None,
        })
    }

    /// Records the current code of the entries: other code has just written it.
    pub fn look_again(&mut self) -> &mut Self {
        self.entries.iter_mut().for_each(|e| e.known = block(e.at));
        self
    }

    /// Patches all of them.
    ///
    /// # Errors
    /// The reason of a failure. Patched entries stay patched, which is harmless.
    pub fn take(&mut self) -> Result<(), String> {
        let near = match &mut self.near {
            Some(near) => near,
            none => {
                let hooks = FUNCTIONS.map(|function| function.hook().0);
                let near = TrampolinePage::to(self.entries[0].at, hooks.to_vec());
                none.insert(near.ok_or("no room near libc")?)
            }
        };
        for entry in &mut self.entries {
            entry.take(near)?;
        }
        super::trampoline::synchronise_cores();
        self.reported_count()
    }

    /// Whether calls of all functions reach this library.
    ///
    /// # Errors
    /// A function whose calls do not.
    pub fn reported_count(&self) -> Result<(), String> {
        let silent = |entry: &&PatchedEntry| self.is_reported(entry) == Some(false);
        match self.entries.iter().find(silent) {
            Some(entry) => Err(format!("{:?} is not reported", entry.function)),
            None => Ok(()),
        }
    }

    /// Whether calls of the function reach this library. For `shmat` only our own hooks report; that it replaces memory
    /// is rare.
    fn is_reported(&self, entry: &PatchedEntry) -> Option<bool> {
        let asked = entry.function != Function::Shmat || self.near.is_some();
        let reported = asked.then(|| entry.reported_by()).flatten();
        reported.map(|by| by & hooks::BY_US != 0)
    }

    /// Whether the program reports unmapped memory.
    pub fn reported(&self) -> bool {
        let munmap = self.entries.iter().find(|e| e.function == Function::Munmap);
        munmap
            .and_then(PatchedEntry::reported_by)
            .is_some_and(|by| by & hooks::BY_PROGRAM != 0)
    }

    /// Repairs entries that other code has changed: if calls still reach this library, they stay as they are; if not,
    /// they are patched again, and continue to the other code. True if there was a change.
    ///
    /// # Errors
    /// A change that cannot be repaired.
    pub fn check(&mut self) -> Result<bool, String> {
        let changed: Vec<&PatchedEntry> = self.entries.iter().filter(|e| e.changed()).collect();
        if changed.is_empty() {
            return Ok(false);
        }
        let verdicts: Vec<bool> = (changed.iter().filter_map(|e| self.is_reported(e))).collect();
        let reached = verdicts.iter().filter(|reached| **reached).count();
        if verdicts.is_empty() || (reached > 0 && reached < verdicts.len()) {
            // Our hook must not continue to code that calls our hook.
            let names = changed.iter().map(|entry| entry.function);
            return Err(format!("changed: {:?}", names.collect::<Vec<_>>()));
        }
        if reached > 0 {
            self.look_again();
            return Ok(true);
        }
        self.take_changed().map(|()| true)
    }

    fn take_changed(&mut self) -> Result<(), String> {
        let Some(near) = &self.near else {
            // The other code does not report any more: this library patches all entries.
            return self.take();
        };
        for entry in self.entries.iter_mut().filter(|entry| entry.changed()) {
            entry.take(near)?;
        }
        super::trampoline::synchronise_cores();
        self.reported_count()
    }
}

/// Prevents that this library is unloaded, as patched entries lead to its code.
///
/// # Errors
/// The reason of a failure.
pub fn keep_this_library() -> Result<(), String> {
    let here = keep_this_library as *const () as usize;
    if dl_objects::is_program(here) {
        return Ok(());
    }
    let path = dl_objects::library_of(here).ok_or("the loader does not know this library")?;
    let kept = LoadedObject::keep(&path).map(|_| ());
    kept.ok_or_else(|| "this library cannot be kept loaded".into())
}
