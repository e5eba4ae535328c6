//! The entries of libc's memory functions, and how they come to lead to ours.
//!
//! `free` calls libc's own `munmap`, which no symbol of anybody's can stand for: the function itself has to begin with
//! a jump. Others do the same (Open MPI's memory/patcher, libucm), before us or after us. What was there before us is a
//! jump that ours goes on to, so that those others are told as before. What comes after us is noticed by `check`.

use super::dl_objects::{self, LoadedObject};
use super::hooks::{self, OrigFn};
use super::trampoline::{TrampolinePage, write_code};
use crate::sys::arch::code::{self, BLOCK, Block};
use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::Ordering;

/// A function whose entry matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Function {
    Munmap,
    Mmap,
    Mremap,
    Madvise,
    Shmat,
    Shmdt,
    Brk,
    /// Libc's own calls `brk`: only another's is hooked.
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

    /// What runs in its place, and where that goes on.
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

    /// Calls it with `page`, a page of memory that nobody else uses; it may be unmapped then. False for those where
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
        // SAFETY: the functions are of these types; the page is nobody's.
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
                    // There is no segment with this number.
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

/// Puts a segment of System V memory in the place of a page. It goes when it is detached.
///
/// # Safety
/// The page is mapped, and nobody's.
unsafe fn attach(page: *mut c_void, len: usize) -> bool {
    /// linux/shm.h
    const SHM_REMAP: c_int = 0o40000;
    // SAFETY: the caller's promise; a segment that nobody else knows.
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

/// An entry and what is known of it.
struct PatchedEntry {
    function: Function,
    at: usize,
    /// What was there when it was last known to tell us.
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

    /// Who hears of a call; `None` where no call can be tried.
    fn heard_by(&self) -> Option<u8> {
        let len = super::page_size();
        // SAFETY: a fresh mapping; the system call itself, as the function may be the one to be tried.
        let page = unsafe {
            let (prot, flags) = (libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            libc::syscall(libc::SYS_mmap, 0, len, prot, flags, -1, 0)
        };
        if page == -1 {
            return None;
        }
        let (address, mut tried) = (page as usize, false);
        // SAFETY: the entry of this function, a page of ours.
        let call = || tried = unsafe { self.function.call(self.at, page as *mut c_void, len) };
        let heard = hooks::reports_to(address, call);
        let unmapped = matches!(self.function, Function::Munmap | Function::Shmdt);
        if !(tried && unmapped) {
            // SAFETY: ours, and still mapped.
            unsafe { libc::syscall(libc::SYS_munmap, page, len) };
        }
        tried.then_some(heard)
    }

    /// Makes it lead to our code, and that go on to where it led before.
    fn take(&mut self, near: &TrampolinePage) -> Result<(), String> {
        // SAFETY: the entry of a function.
        let next = unsafe { code::jump_target(self.at) };
        let (hook, chain) = self.function.hook();
        if self.function == Function::Sbrk && next.is_none() && self.known == block(self.at) {
            return Ok(());
        }
        if let Some(path) = next.and_then(dl_objects::library_of) {
            // It must not go while we lead there.
            LoadedObject::keep(&path);
        }
        chain.set(next.unwrap_or(0));
        let thunk = near.thunk(hook).ok_or("no room near libc")?;
        let old = block(self.at);
        let new = code::with_jump(old, self.at, thunk);
        // SAFETY: the function goes on to be entered at its first byte only (see `code`), and ours does the same.
        unsafe { write_code(self.at, old, new) }
            .map_err(|e| format!("{:?}: {e}", self.function))?;
        self.known = new;
        Ok(())
    }
}

/// The code at an address, as it is now.
fn block(at: usize) -> Block {
    // SAFETY: the entry of a function, which is at least so long with what fills up its line.
    unsafe { (at as *const Block).read_volatile() }
}

/// The entries that are watched, or ours.
pub struct PatchedEntries {
    entries: Vec<PatchedEntry>,
    /// Where our thunks are; `None` while somebody else tells us.
    near: Option<TrampolinePage>,
}

impl PatchedEntries {
    /// As they are: somebody else has made them tell us.
    ///
    /// # Errors
    /// What is missing.
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

    /// What is there now is what somebody else has just put there.
    pub fn look_again(&mut self) -> &mut Self {
        self.entries.iter_mut().for_each(|e| e.known = block(e.at));
        self
    }

    /// Makes all of them lead to us.
    ///
    /// # Errors
    /// Why it does not work. What was changed stays, and does no harm.
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

    /// Whether calls come by our code.
    ///
    /// # Errors
    /// Which do not.
    pub fn reported_count(&self) -> Result<(), String> {
        let silent = |entry: &&PatchedEntry| self.is_reported(entry) == Some(false);
        match self.entries.iter().find(silent) {
            Some(entry) => Err(format!("{:?} does not come by", entry.function)),
            None => Ok(()),
        }
    }

    /// Whether it is we who hear of its calls. Of `shmat` only our own hooks tell; that one replaces memory is a
    /// rarity.
    fn is_reported(&self, entry: &PatchedEntry) -> Option<bool> {
        let asked = entry.function != Function::Shmat || self.near.is_some();
        let heard = asked.then(|| entry.heard_by()).flatten();
        heard.map(|by| by & hooks::BY_US != 0)
    }

    /// Whether the program reports what is unmapped.
    pub fn reported(&self) -> bool {
        let munmap = self.entries.iter().find(|e| e.function == Function::Munmap);
        munmap
            .and_then(PatchedEntry::heard_by)
            .is_some_and(|by| by & hooks::BY_PROGRAM != 0)
    }

    /// Looks whether somebody has changed an entry, and puts it right: one that still leads to us, at last, stays
    /// as it is; one that does not becomes ours again, and goes on to his. True if there was something.
    ///
    /// # Errors
    /// What cannot be put right.
    pub fn check(&mut self) -> Result<bool, String> {
        let changed: Vec<&PatchedEntry> = self.entries.iter().filter(|e| e.changed()).collect();
        if changed.is_empty() {
            return Ok(false);
        }
        let verdicts: Vec<bool> = (changed.iter().filter_map(|e| self.is_reported(e))).collect();
        let reached = verdicts.iter().filter(|reached| **reached).count();
        if verdicts.is_empty() || (reached > 0 && reached < verdicts.len()) {
            // Ours must not go on to one that comes back to ours.
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
            // He who told us does no longer: all are ours from now on.
            return self.take();
        };
        for entry in self.entries.iter_mut().filter(|entry| entry.changed()) {
            entry.take(near)?;
        }
        super::trampoline::synchronise_cores();
        self.reported_count()
    }
}

/// The code that the entries lead to stays.
///
/// # Errors
/// Why it cannot be kept.
pub fn keep_this_library() -> Result<(), String> {
    let here = keep_this_library as *const () as usize;
    if dl_objects::is_program(here) {
        return Ok(());
    }
    let path = dl_objects::library_of(here).ok_or("the loader does not know this library")?;
    let kept = LoadedObject::keep(&path).map(|_| ());
    kept.ok_or_else(|| "this library cannot be kept loaded".into())
}
