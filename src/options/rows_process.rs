//! Rows of the options that concern the process as a whole: log, diagnostics, memory hooks.
#![forbid(unsafe_code)]

use super::choice::{HeapMode, HookMode, LogLevel};
use super::kind::OptionKind::*;
use super::section::{OptionBlock, Section, Strictness, row};

const LEVELS: super::kind::OptionKind = Choice(LogLevel::NAMES);

/// Read when it is needed, and can be changed by `ucp_config_modify`.
pub static PROCESS: Section = Section {
    title: "Process",
    prefix: "",
    blocks: &[OptionBlock {
        aliases: &[],
        rows: &[
            row(
                "LOG_LEVEL",
                LEVELS,
                "WARN",
                "Messages of this level and of more serious ones are printed.",
            ),
            row(
                "LOG_FILE_FILTER",
                Text,
                "*",
                "Only messages from source files that match this pattern are printed.",
            ),
            row("LOG_BUFFER", Size, "1K", "Longest message."),
            row(
                "LOG_DATA_SIZE",
                Ulong,
                "0",
                "Bytes of payload to print per packet at level DATA.",
            ),
            row(
                "LOG_PRINT_ENABLE",
                Bool,
                "n",
                "Print output meant for developers of the library.",
            ),
            row(
                "HANDLE_ERRORS",
                Choices(&["bt", "freeze", "debug", "none"]),
                "none",
                "What a fatal signal does: print a stack, wait, start a debugger.",
            ),
            row(
                "ERROR_MAIL_TO",
                Text,
                "",
                "Address to which fatal errors are mailed.",
            ),
            row("ERROR_MAIL_FOOTER", Text, "", "Last lines of that mail."),
            row(
                "GDB_COMMAND",
                Text,
                "gdb -quiet",
                "Debugger to start on a fatal error.",
            ),
            row(
                "DEBUG_SIGNO",
                Signal,
                "HUP",
                "Signal that enters debug mode; 0 for none.",
            ),
            row(
                "LOG_LEVEL_TRIGGER",
                LEVELS,
                "FATAL",
                "A message of this level is handled as an error.",
            ),
            row(
                "WARN_UNUSED_ENV_VARS",
                Bool,
                "y",
                "Warn of UCX_ variables that no option knows.",
            ),
            row(
                "MEMTYPE_CACHE",
                Ternary,
                "try",
                "Remember which pages are the host's, until they are unmapped. n: ask the driver in each operation.",
            ),
            row(
                "ASYNC_MAX_EVENTS",
                Retired,
                "",
                "No effect; retired in UCX.",
            ),
            row(
                "ASYNC_SIGNO",
                Signal,
                "ALRM",
                "Signal for asynchronous progress.",
            ),
            row(
                "MEMTRACK_LIMIT",
                Size,
                "inf",
                "Most memory the library may take.",
            ),
            row(
                "RCACHE_CHECK_PFN",
                Uint,
                "0",
                "Pages to verify when a cached registration is used.",
            ),
            row(
                "MODULE_DIR",
                Text,
                "",
                "Directory of loadable modules; rucp has none.",
            ),
            row(
                "MODULE_LOG_LEVEL",
                LEVELS,
                "DEBUG",
                "Level of messages about modules.",
            ),
            row("MODULES", Names, "all", "Modules to load; rucp has none."),
            row(
                "PLUGIN_PATH",
                Paths,
                "",
                "Directories of plugins; rucp has none.",
            ),
            row(
                "TOPO_PRIO",
                Texts,
                "sysfs,default",
                "Sources of the machine's topology, best first.",
            ),
            row(
                "DISTANCE_LAT",
                Keyed(&["phb", "node", "sys"], &Time),
                "phb:0.30us,node:0.30us,sys:0.50us",
                "Latency between devices, by how far apart they are.",
            ),
            row(
                "DISTANCE_BW",
                Keyed(&["phb", "node", "sys"], &Bandwidth),
                "phb:auto,node:auto,sys:auto",
                "Bandwidth between devices, by how far apart they are.",
            ),
        ],
    }],
    defaults: &[],
    strictness: Strictness::Report,
};

/// Read once per process.
pub static PROCESS_START: Section = Section {
    title: "Process, fixed once it runs",
    prefix: "",
    blocks: &[OptionBlock {
        aliases: &[],
        rows: &[
            row(
                "LOG_FILE",
                Text,
                "",
                "Where messages go: a path, stdout or stderr; %h %p %c %t %u %e stand for host, pid, cpu, time, user, \
                 program.",
            ),
            row(
                "LOG_FILE_SIZE",
                Size,
                "inf",
                "A log file that would grow beyond this is put aside.",
            ),
            row(
                "LOG_FILE_ROTATE",
                Uint,
                "0",
                "How many log files put aside are kept.",
            ),
            row(
                "TRACE_FILE",
                Text,
                "",
                "Where a timeline of protocol events goes, for ui.perfetto.dev: a path with the placeholders of \
                 LOG_FILE; empty for none.",
            ),
            row(
                "TRACE_MAX_SIZE",
                Size,
                "256M",
                "A trace file does not grow beyond this: later events are counted in it, not recorded.",
            ),
            row(
                "HEAP",
                Choice(HeapMode::NAMES),
                "private",
                "Where large allocations of the process lie. shared: where peers of the host map them, so that one \
                 copy moves a message; librucp_heap.so must be preloaded (rucp run --shared-heap).",
            ),
            row(
                "ERROR_SIGNALS",
                ListOf(&Signal),
                "ILL,SEGV,BUS,FPE",
                "Signals that count as fatal.",
            ),
            row(
                "VFS_ENABLE",
                Bool,
                "y",
                "Offer the state of the library as a file system.",
            ),
            row(
                "VFS_SOCK_PATH",
                Text,
                "/run/user/%i/ucx/vfs.sock",
                "Socket of that file system's daemon.",
            ),
            row(
                "VFS_THREAD_AFFINITY",
                Bool,
                "n",
                "Pin that file system's thread like its creator.",
            ),
            row(
                "MEMTRACK_DEST",
                Text,
                "",
                "Where a report of memory use goes.",
            ),
            row(
                "PROFILE_MODE",
                Choices(&["accum", "log"]),
                "",
                "What profiling records: sums, or every event.",
            ),
            row(
                "PROFILE_FILE",
                Text,
                "ucx_%h_%p.prof",
                "File for profiling data.",
            ),
            row(
                "PROFILE_LOG_SIZE",
                Size,
                "4M",
                "Most profiling events kept, in bytes.",
            ),
            row(
                "RCACHE_STAT_MIN",
                Size,
                "4K",
                "Smallest size class in registration statistics.",
            ),
            row(
                "RCACHE_STAT_MAX",
                Size,
                "1M",
                "Largest size class in registration statistics.",
            ),
            row(
                "BUILTIN_MEMCPY_MIN",
                Size,
                "auto",
                "Copies from this size on use the processor's string copy.",
            ),
            row(
                "BUILTIN_MEMCPY_MAX",
                Size,
                "auto",
                "Copies up to this size use the processor's string copy.",
            ),
            row(
                "NT_BUFFER_TRANSFER_MIN",
                Size,
                "auto",
                "Copies from this size on bypass the caches.",
            ),
            row(
                "STATS_DEST",
                Text,
                "",
                "Where statistics go; only debug builds of UCX have them.",
            ),
            row(
                "STATS_TRIGGER",
                Text,
                "exit",
                "When statistics are written.",
            ),
            row("STATS_FILTER", Texts, "*", "Which statistics are written."),
            row("STATS_FORMAT", Text, "full", "How statistics are written."),
        ],
    }],
    defaults: &[],
    strictness: Strictness::Report,
};

/// How the library is notified of unmapped memory.
pub static HOOKS: Section = Section {
    title: "Memory hooks",
    prefix: "MEM_",
    blocks: &[OptionBlock {
        aliases: &[],
        rows: &[
            row(
                "LOG_LEVEL",
                Choice(&["FATAL", "ERROR", "WARN", "DIAG", "INFO", "DEBUG", "TRACE"]),
                "WARN",
                "Level of messages about memory hooks.",
            ),
            row(
                "ALLOC_ALIGN",
                Size,
                "16",
                "Least alignment of allocated memory.",
            ),
            row("EVENTS", Bool, "y", "Notice when memory is unmapped."),
            row(
                "MMAP_HOOK_MODE",
                Choice(HookMode::NAMES),
                "bistro",
                "How mmap and its like are watched.",
            ),
            row(
                "MALLOC_HOOKS",
                Bool,
                "y",
                "Use the hooks of the C library's allocator.",
            ),
            row(
                "MALLOC_RELOC",
                Bool,
                "y",
                "Redirect allocation functions by relocation.",
            ),
            row(
                "CUDA_HOOK_MODE",
                Choices(HookMode::NAMES),
                "bistro",
                "How allocations on CUDA devices are watched.",
            ),
            row("CUDA_RELOC", Retired, "", "No effect; retired in UCX."),
            row(
                "DYNAMIC_MMAP_THRESH",
                Bool,
                "y",
                "Let the allocator raise its threshold for mmap.",
            ),
            row(
                "DLOPEN_PROCESS_RPATH",
                Bool,
                "y",
                "Honour the caller's run path when libraries are opened.",
            ),
            row(
                "MODULE_UNLOAD_PREVENT_MODE",
                Choice(&["lazy", "now", "none"]),
                "lazy",
                "How unloading of the hooks is prevented.",
            ),
            row(
                "BISTRO_FORCE_FAR_JUMP",
                Bool,
                "n",
                "Always patch with the long jump.",
            ),
            row(
                "BISTRO_GRACE_DURATION",
                Time,
                "50000.00us",
                "Wait after patching code.",
            ),
        ],
    }],
    defaults: &[],
    strictness: Strictness::Report,
};
