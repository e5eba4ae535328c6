//! Memory hooks (libfabric: memory monitor): a ring of events, which say that addresses of this process may lead to
//! other memory from now on. Registration caches read it.
//!
//! `munmap` and the like are reported by one of these, in this order, beginning with the first cache:
//!
//! - a genuine libucm in the process, as its hooks are, or will be, at the entries that ours would take;
//! - hooks of our own at the entries of libc's functions;
//! - the program itself, if it has announced that (`ucm_set_external_event`, `ucm_vm_munmap`): Open MPI's
//!   memory/patcher. Its reports are accepted in any case. They end with `MPI_Finalize`, which only the next
//!   registration notices.
//!
//! Where none is available (`UCX_MEM_EVENTS=n`, other C libraries, sanitizers and valgrind, whose allocators unmap by
//! themselves) no registration may be kept.
//!
//! Not reported: system calls that a program makes without libc; libraries that are closed (see
//! [`dl_objects::may_be_closed`]); changes of a file behind a mapping (`ftruncate`, `fallocate`). With a genuine
//! libucm: `shmat` with `SHM_REMAP`.

mod events;
mod hooks;
mod libucm;
mod patch;
mod trampoline;

use super::fork::{Lock, Mutex};
use crate::ctypes::UCM_EVENT_VM_UNMAPPED;
use crate::options::{HookMode, Options};
use crate::sys::sync::OnceLock;
use crate::sys::va_range::VaRange;
use crate::sys::{dl_objects, log, shared_heap};
use patch::PatchedEntries;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

pub use events::{EventRing, UnmapEvent};

#[cfg(not(loom))]
static RING: EventRing = EventRing::new();
#[cfg(loom)]
static RING: std::sync::LazyLock<EventRing> = std::sync::LazyLock::new(EventRing::new);

/// The event ring of this process.
#[inline(always)]
fn ring() -> &'static EventRing {
    &RING
}

/// A source of events, or the reason why there is none.
#[derive(Clone)]
pub struct Monitor {
    events: &'static EventRing,
    blind: Option<String>,
    check: fn() -> bool,
}

impl Monitor {
    /// A monitor of this ring, whose source is valid as long as the process runs.
    pub fn of(events: &'static EventRing) -> Self {
        Monitor {
            events,
            blind: None,
            check: || true,
        }
    }

    /// A monitor without events, for registrations that lead to whatever is mapped at their addresses.
    pub fn needless() -> Self {
        #[cfg(not(loom))]
        static QUIET: EventRing = EventRing::new();
        #[cfg(loom)]
        static QUIET: std::sync::LazyLock<EventRing> = std::sync::LazyLock::new(EventRing::new);
        Monitor::of(&QUIET)
    }

    /// A monitor without a source of events, for this reason.
    pub fn no_readers(why: &str) -> Self {
        Monitor {
            events: ring(),
            blind: Some(why.to_owned()),
            check: || false,
        }
    }

    /// The ring; without a source of events it stays empty.
    #[inline(always)]
    pub fn events(&self) -> &'static EventRing {
        self.events
    }

    /// The reason why there is no source of events.
    pub fn blind(&self) -> Option<&str> {
        self.blind.as_deref()
    }

    /// Whether the source still reports: other code may have replaced the hooks. They are repaired if possible, with an
    /// `Everything` for the events that were missed. To be called at each new registration.
    pub fn still(&self) -> bool {
        (self.check)()
    }
}

/// Source of the events, with what [`Monitor::still`] checks.
enum ReportSource {
    /// Reports of the program, which may end: Open MPI stops them when it is finalised.
    ByProgram(PatchedEntries),
    ByEntries(PatchedEntries),
    NoLonger,
}

static WATCH: OnceLock<Monitor> = OnceLock::new();
static ENTRIES: Mutex<ReportSource> = Mutex::new(ReportSource::NoLonger);

/// Lock of the patched entries, which a fork acquires.
pub fn lock_to_watch() -> &'static Lock {
    ENTRIES.lock_to_watch()
}

/// The program has announced reports of unmapped memory.
static EXTERNAL: AtomicBool = AtomicBool::new(false);

/// The monitor of this process, made by the first call with the options of that.
pub fn watch(options: &Options) -> &'static Monitor {
    WATCH.get_or_init(|| {
        let source = begin(options);
        match &source {
            Ok(source) => log::debug!("unmapped memory is reported by {source}"),
            Err(why) => log::debug!("unmapped memory is not reported: {why}"),
        }
        match source {
            Ok(_) => Monitor {
                check: check_entries,
                ..Monitor::of(ring())
            },
            Err(why) => Monitor::no_readers(&why),
        }
    })
}

/// Selects the source of events, and starts it.
fn begin(options: &Options) -> Result<&'static str, String> {
    if !options.mem_events {
        return Err("UCX_MEM_EVENTS=n".into());
    }
    if let Some(allocator) = allocator_of_its_own() {
        return Err(format!("{allocator} unmaps memory without libc"));
    }
    patch::keep_this_library()?;
    let (name, source) = by_entries(options).or_else(by_program)?;
    *ENTRIES.lock() = source;
    watch_forks();
    Ok(name)
}

/// The name of a tool whose allocator calls the kernel and not libc, if there is one.
fn allocator_of_its_own() -> Option<&'static str> {
    let sanitizers = [
        c"__asan_init",
        c"__tsan_init",
        c"__msan_init",
        c"__hwasan_init",
    ];
    if sanitizers
        .iter()
        .any(|name| dl_objects::global_symbol(name) != 0)
    {
        return Some("a sanitizer");
    }
    (!dl_objects::named("vgpreload_").is_empty()).then_some("valgrind")
}

fn by_entries(options: &Options) -> Result<(&'static str, ReportSource), String> {
    let mut entries = PatchedEntries::of_another()?;
    let mut source = "libucm";
    // A genuine libucm would patch the functions of librucp_heap.so, which have to run.
    let by_libucm = !shared_heap::is_loaded() && libucm::subscribe();
    if !(by_libucm && entries.look_again().reported_count().is_ok()) {
        if options.mem_mmap_hook_mode != HookMode::Bistro {
            return Err("UCX_MEM_MMAP_HOOK_MODE leaves libc's code as it is".into());
        }
        entries.take()?;
        source = "hooks";
    }
    Ok((source, ReportSource::ByEntries(entries)))
}

/// Reports of the program, as the last choice; `why` the others are not available.
fn by_program(why: String) -> Result<(&'static str, ReportSource), String> {
    // Relaxed: a flag that publishes no other data.
    if !EXTERNAL.load(Ordering::Relaxed) {
        return Err(why);
    }
    let entries = PatchedEntries::of_another()?;
    if entries.reported() {
        Ok(("the program", ReportSource::ByProgram(entries)))
    } else {
        Err(why)
    }
}

fn check_entries() -> bool {
    let mut source = ENTRIES.lock();
    let checked = match &mut *source {
        ReportSource::ByProgram(entries) => {
            if entries.reported() {
                Ok(false)
            } else {
                Err("the program reports nothing".to_owned())
            }
        }
        ReportSource::ByEntries(entries) => entries.check(),
        ReportSource::NoLonger => return false,
    };
    match &checked {
        Ok(false) => return true,
        Ok(true) => log::debug!("another library changed the memory functions of libc"),
        Err(why) => {
            log::warn!(
                "unmapped memory is not reported any more: {why}. No registration is cached."
            );
            *source = ReportSource::NoLonger;
        }
    }
    ring().note(UnmapEvent::Everything);
    checked.is_ok()
}

/// Reports forks: parent and child share pages until one writes, and either may get the registered page.
fn watch_forks() {
    extern "C" fn forked() {
        ring().note(UnmapEvent::Forked);
    }
    // SAFETY: the function is here as long as the process.
    unsafe { libc::pthread_atfork(Some(forked), Some(forked), None) };
}

/// The program announces that it will call [`gone`] for these events (a set of `ucm_event_type_t`).
pub fn expect_reports(events: c_int) {
    if events & UCM_EVENT_VM_UNMAPPED as c_int != 0 {
        // Relaxed: a flag that publishes no other data.
        EXTERNAL.store(true, Ordering::Relaxed);
    }
}

/// The program reports that these addresses are about to be unmapped. Neither allocates nor waits for a lock.
pub fn gone(addr: usize, len: usize) {
    hooks::note_if_probed(addr, hooks::BY_PROGRAM);
    if len > 0 && WATCH.get().is_some_and(|watch| watch.blind.is_none()) {
        ring().note(UnmapEvent::Gone(VaRange::new(addr, len)));
    }
}

/// Bytes of a page.
pub fn page_size() -> usize {
    rustix::param::page_size()
}
