//! Which addresses of this process lead to other memory from now on: a ring of events that caches of registrations
//! read.
//!
//! Somebody has to watch `munmap` and its like. In this order, and not before the first cache is made:
//!
//! - a genuine libucm that is in the process, for then its hooks are where ours would be, or will be;
//! - hooks of our own at the entries of libc's functions;
//! - the program itself, if it has said that it will (`ucm_set_external_event`, `ucm_vm_munmap`): Open MPI's
//!   memory/patcher. What it tells is taken in any case. It ends with `MPI_Finalize`; that it does is noticed by the
//!   next registration only.
//!
//! Where nobody can (`UCX_MEM_EVENTS=n`, other C libraries, sanitizers and valgrind, whose allocators unmap by
//! themselves) the process is blind, and nothing must be kept registered.
//!
//! What nobody sees: system calls that a program makes without libc; libraries that are closed (see [`may_be_closed`]);
//! what happens to a file behind a mapping (`ftruncate`, `fallocate`). With a genuine libucm: `shmat` with `SHM_REMAP`.

mod entries;
mod hook;
mod libucm;
mod loaded;
mod page;
mod ring;

use super::fork::{Lock, Mutex};
use crate::ctypes::UCM_EVENT_VM_UNMAPPED;
use crate::options::{HookMode, Options};
use crate::sys::log;
use crate::sys::sync::OnceLock;
use entries::Entries;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

pub use loaded::may_be_closed;
pub use ring::{Event, Extent, Ring};

#[cfg(not(loom))]
static RING: Ring = Ring::new();
#[cfg(loom)]
static RING: std::sync::LazyLock<Ring> = std::sync::LazyLock::new(Ring::new);

/// The events of this process.
#[inline(always)]
fn ring() -> &'static Ring {
    &RING
}

/// Somebody who watches, or nobody.
#[derive(Clone)]
pub struct Watch {
    events: &'static Ring,
    blind: Option<String>,
    check: fn() -> bool,
}

impl Watch {
    /// One whose events come from elsewhere, for as long as the process runs.
    pub fn of(events: &'static Ring) -> Self {
        Watch {
            events,
            blind: None,
            check: || true,
        }
    }

    /// Nobody has to: what is registered leads to whatever is mapped there.
    pub fn needless() -> Self {
        #[cfg(not(loom))]
        static QUIET: Ring = Ring::new();
        #[cfg(loom)]
        static QUIET: std::sync::LazyLock<Ring> = std::sync::LazyLock::new(Ring::new);
        Watch::of(&QUIET)
    }

    /// Nobody does, for this reason.
    pub fn nobody(why: &str) -> Self {
        Watch {
            events: ring(),
            blind: Some(why.to_owned()),
            check: || false,
        }
    }

    /// The events, which say nothing where nobody watches.
    #[inline(always)]
    pub fn events(&self) -> &'static Ring {
        self.events
    }

    /// Why nobody watches.
    pub fn blind(&self) -> Option<&str> {
        self.blind.as_deref()
    }

    /// Whether events still come: somebody else may have put himself in our place since. If that can be put right it
    /// is, and all that was missed is told as `Everything`. To be asked now and then, at each new registration.
    pub fn still(&self) -> bool {
        (self.check)()
    }
}

/// What is to be checked of him who tells.
enum Told {
    /// That it goes on: Open MPI stops when it is finalised.
    ByProgram(Entries),
    ByEntries(Entries),
    NoLonger,
}

static WATCH: OnceLock<Watch> = OnceLock::new();
static ENTRIES: Mutex<Told> = Mutex::new(Told::NoLonger);

/// What a fork waits for.
pub fn lock_to_watch() -> &'static Lock {
    ENTRIES.lock_to_watch()
}

/// The program reports what it unmaps.
static EXTERNAL: AtomicBool = AtomicBool::new(false);

/// The watch on this process's memory, which begins with the first call, and the options of that.
pub fn watch(options: &Options) -> &'static Watch {
    WATCH.get_or_init(|| {
        let source = begin(options);
        match &source {
            Ok(source) => log::debug!("memory that goes is told by {source}"),
            Err(why) => log::debug!("memory that goes is told by nobody: {why}"),
        }
        match source {
            Ok(_) => Watch {
                check: check_entries,
                ..Watch::of(ring())
            },
            Err(why) => Watch::nobody(&why),
        }
    })
}

/// Who tells from now on.
fn begin(options: &Options) -> Result<&'static str, String> {
    if options.value("MEM_EVENTS") == Some(false) {
        return Err("UCX_MEM_EVENTS=n".into());
    }
    if let Some(who) = allocator_of_its_own() {
        return Err(format!("{who} unmaps memory by itself"));
    }
    entries::keep_this_library()?;
    let (source, told) = by_entries(options).or_else(by_program)?;
    *ENTRIES.lock() = told;
    watch_forks();
    Ok(source)
}

/// Tools that bring an allocator along which asks the kernel and not libc.
fn allocator_of_its_own() -> Option<&'static str> {
    let sanitizers = [
        c"__asan_init",
        c"__tsan_init",
        c"__msan_init",
        c"__hwasan_init",
    ];
    if sanitizers
        .iter()
        .any(|name| loaded::global_symbol(name) != 0)
    {
        return Some("a sanitizer");
    }
    (!loaded::named("vgpreload_").is_empty()).then_some("valgrind")
}

fn by_entries(options: &Options) -> Result<(&'static str, Told), String> {
    let mut entries = Entries::of_another()?;
    let mut source = "libucm";
    if !(libucm::subscribe() && entries.look_again().told().is_ok()) {
        let mode = options.get("MEM_MMAP_HOOK_MODE");
        if mode.and_then(|word| HookMode::from_name(&word)) != Some(HookMode::Bistro) {
            return Err("UCX_MEM_MMAP_HOOK_MODE leaves libc's code as it is".into());
        }
        entries.take()?;
        source = "hooks";
    }
    Ok((source, Told::ByEntries(entries)))
}

/// The last resort, for the reason `why`.
fn by_program(why: String) -> Result<(&'static str, Told), String> {
    // Relaxed: a flag, and nothing that it stands for.
    if !EXTERNAL.load(Ordering::Relaxed) {
        return Err(why);
    }
    let entries = Entries::of_another()?;
    match entries.reported() {
        true => Ok(("the program", Told::ByProgram(entries))),
        false => Err(why),
    }
}

fn check_entries() -> bool {
    let mut told = ENTRIES.lock();
    let checked = match &mut *told {
        Told::ByProgram(entries) => match entries.reported() {
            true => Ok(false),
            false => Err("the program reports nothing".to_owned()),
        },
        Told::ByEntries(entries) => entries.check(),
        Told::NoLonger => return false,
    };
    match &checked {
        Ok(false) => return true,
        Ok(true) => log::debug!("somebody else changed the memory functions of libc"),
        Err(why) => {
            log::warn!("memory that goes is told no longer: {why}. Nothing is kept registered.");
            *told = Told::NoLonger;
        }
    }
    ring().note(Event::Everything);
    checked.is_ok()
}

/// A forked child shares memory until one of the two writes: who of them keeps the page that is registered?
fn watch_forks() {
    extern "C" fn forked() {
        ring().note(Event::Forked);
    }
    // SAFETY: the function is here as long as the process.
    unsafe { libc::pthread_atfork(Some(forked), Some(forked), None) };
}

/// The program says that it will call [`gone`] for these events (a set of `ucm_event_type_t`).
pub fn expect_reports(events: c_int) {
    if events & UCM_EVENT_VM_UNMAPPED as c_int != 0 {
        // Relaxed: see `begin`.
        EXTERNAL.store(true, Ordering::Relaxed);
    }
}

/// The program reports that these addresses are about to go. It neither allocates nor waits for a lock.
pub fn gone(addr: usize, len: usize) {
    hook::note_if_probed(addr, hook::BY_PROGRAM);
    if len > 0 && WATCH.get().is_some_and(|watch| watch.blind.is_none()) {
        ring().note(Event::Gone(Extent::new(addr, len)));
    }
}

/// Bytes of a page.
pub fn page_size() -> usize {
    // SAFETY: no memory involved. A constant of the process, never an error.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}
