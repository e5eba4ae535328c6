//! Rows and values of the options of the transports within a node.
#![forbid(unsafe_code)]

use crate::options::fields::option_fields;
use crate::options::kind::OptionKind::*;
use crate::options::number;
use crate::options::rows_iface::{IFACE, RX_POOL, TX_POOL};
use crate::options::rule::{Rule, above_0, rule};
use crate::options::section::{OptionBlock, Row, Section, Strictness, row};

option_fields! {
    /// The options of shared memory that the library reads.
    ShmOptions {
        posix_use_proc_link: bool = "POSIX_USE_PROC_LINK",
    }
}

/// Conditions on the values.
pub const RULES: &[Rule] = &[
    rule("POSIX_FIFO_SIZE", is_fifo_size, FIFO_SIZE),
    rule("SYSV_FIFO_SIZE", is_fifo_size, FIFO_SIZE),
    rule("POSIX_FIFO_RELEASE_FACTOR", is_proper_part, FIFO_RELEASE),
    rule("SYSV_FIFO_RELEASE_FACTOR", is_proper_part, FIFO_RELEASE),
    rule("POSIX_FIFO_ELEM_SIZE", holds_a_header, FIFO_ELEM),
    rule("SYSV_FIFO_ELEM_SIZE", holds_a_header, FIFO_ELEM),
    rule("POSIX_ALLOC", is_some, ALLOC),
    rule("SYSV_ALLOC", is_some, ALLOC),
    above_0("SELF_SEG_SIZE"),
    above_0("POSIX_RX_BUFS_GROW"),
    above_0("SYSV_RX_BUFS_GROW"),
    above_0("CMA_TX_BUFS_GROW"),
];

const FIFO_SIZE: &str = "it must be a power of 2, and greater than 1";
const FIFO_RELEASE: &str = "it must be at least 0 and less than 1";
const FIFO_ELEM: &str = "it must be more than the 28 bytes of a header, and less than 2 GiB";
const ALLOC: &str = "it must name one way at least";

fn is_some(text: &str) -> bool {
    !text.is_empty()
}

fn is_fifo_size(text: &str) -> bool {
    number::uint(text).is_some_and(|size| size.is_power_of_two() && size > 1)
}

fn is_proper_part(text: &str) -> bool {
    number::float(text).is_some_and(|part| (0.0..1.0).contains(&part))
}

fn holds_a_header(text: &str) -> bool {
    number::uint(text).is_some_and(|size| (29..1 << 31).contains(&size))
}

/// What every transport within a node has.
const SM: &[Row] = &[row("BW", Bandwidth, "15360.00MBps", "Bandwidth of memory.")];

/// Transports that map each other's memory.
const MM: &[Row] = &[
    row(
        "HUGETLB_MODE",
        Ternary,
        "try",
        "Back shared segments with huge pages.",
    ),
    row("FIFO_SIZE", Uint, "256", "Entries of the receive ring."),
    row(
        "SEG_SIZE",
        Size,
        "8256",
        "Size of a buffer for copied messages.",
    ),
    row(
        "FIFO_RELEASE_FACTOR",
        Float,
        "0.500",
        "Share of the ring that is read before its space is given back.",
    ),
    row(
        "FIFO_HUGETLB",
        Ternary,
        "n",
        "Back the ring with huge pages.",
    ),
    row(
        "FIFO_ELEM_SIZE",
        Uint,
        "128",
        "Size of a ring entry, header included.",
    ),
    row(
        "FIFO_MAX_POLL",
        Count,
        "16",
        "Most messages taken per poll.",
    ),
    row(
        "ERROR_HANDLING",
        Bool,
        "n",
        "Offer error handling over shared memory.",
    ),
    row(
        "SEND_OVERHEAD",
        Keyed(&["am_short", "am_bcopy"], &Time),
        "am_short:0.01us,am_bcopy:0.01us",
        "Cost of sending a message.",
    ),
    row(
        "RECV_OVERHEAD",
        Keyed(&["am_short", "am_bcopy"], &Time),
        "am_short:0.01us,am_bcopy:0.01us",
        "Cost of receiving a message.",
    ),
];

const MM_BLOCKS: &[OptionBlock] = &[
    OptionBlock {
        rows: IFACE,
        aliases: &["MM_", "SM_", ""],
    },
    OptionBlock {
        rows: SM,
        aliases: &["MM_", "SM_"],
    },
    OptionBlock {
        rows: MM,
        aliases: &["MM_"],
    },
    OptionBlock {
        rows: RX_POOL,
        aliases: &["MM_"],
    },
];

/// Transports that copy from another process in one system call.
const SCOPY: &[Row] = &[
    row("MAX_IOV", Ulong, "16", "Most pieces of one copy."),
    row("SEG_SIZE", Size, "512K", "Piece copied at a time."),
    row("TX_QUOTA", Uint, "1", "Pieces copied per poll."),
];

/// Messages to oneself.
pub static SELF: Section = Section {
    title: "Loopback transport",
    prefix: "SELF_",
    blocks: &[
        OptionBlock {
            aliases: &[],
            rows: &[
                row(
                    "NUM_DEVICES",
                    Int,
                    "1",
                    "How many loopback devices there are.",
                ),
                row(
                    "SEG_SIZE",
                    Size,
                    "8K",
                    "Size of a buffer for copied messages.",
                ),
            ],
        },
        OptionBlock {
            rows: IFACE,
            aliases: &[""],
        },
    ],
    defaults: &[],
    strictness: Strictness::Worker(Some("self")),
};

/// System V shared memory.
pub static SYSV: Section = Section {
    title: "Shared memory, System V",
    prefix: "SYSV_",
    blocks: MM_BLOCKS,
    defaults: &[
        ("ALLOC", "md,mmap,heap"),
        ("RX_BUFS_GROW", "512"),
        ("RX_GROW_FACTOR", "2.000"),
    ],
    strictness: Strictness::Worker(Some("sysv")),
};

/// POSIX shared memory.
pub static POSIX: Section = Section {
    title: "Shared memory, POSIX",
    prefix: "POSIX_",
    blocks: &[
        OptionBlock {
            aliases: &[],
            rows: &[
                row("DIR", Text, "/dev/shm", "Directory of the segments."),
                row(
                    "SHM_MIN_SIZE",
                    Size,
                    "16M",
                    "A smaller file system for segments is not used.",
                ),
                row(
                    "USE_PROC_LINK",
                    Bool,
                    "y",
                    "Reach a peer's segment through /proc; needs one pid namespace.",
                ),
            ],
        },
        OptionBlock {
            rows: IFACE,
            aliases: &["MM_", "SM_", ""],
        },
        OptionBlock {
            rows: SM,
            aliases: &["MM_", "SM_"],
        },
        OptionBlock {
            rows: MM,
            aliases: &["MM_"],
        },
        OptionBlock {
            rows: RX_POOL,
            aliases: &["MM_"],
        },
    ],
    defaults: &[("ALLOC", "md,mmap,heap"), ("RX_BUFS_GROW", "512")],
    strictness: Strictness::Worker(Some("posix")),
};

/// XPMEM, a kernel module that maps another process.
pub static XPMEM: Section = Section {
    title: "Shared memory, XPMEM",
    prefix: "XPMEM_",
    blocks: MM_BLOCKS,
    defaults: &[("ALLOC", "md,mmap,heap"), ("RX_BUFS_GROW", "512")],
    strictness: Strictness::Report,
};

const SCOPY_BLOCKS: &[OptionBlock] = &[
    OptionBlock {
        rows: IFACE,
        aliases: &["SCOPY_", "SM_", ""],
    },
    OptionBlock {
        rows: SM,
        aliases: &["SCOPY_", "SM_"],
    },
    OptionBlock {
        rows: SCOPY,
        aliases: &["SCOPY_"],
    },
    OptionBlock {
        rows: TX_POOL,
        aliases: &["SCOPY_"],
    },
];

/// Cross-memory attach.
pub static CMA: Section = Section {
    title: "Copies by cross-memory attach",
    prefix: "CMA_",
    blocks: &[
        OptionBlock {
            aliases: &[],
            rows: &[row(
                "MEMORY_INVALIDATE",
                Bool,
                "n",
                "Offer invalidation of memory.",
            )],
        },
        OptionBlock {
            rows: IFACE,
            aliases: &["SCOPY_", "SM_", ""],
        },
        OptionBlock {
            rows: SM,
            aliases: &["SCOPY_", "SM_"],
        },
        OptionBlock {
            rows: SCOPY,
            aliases: &["SCOPY_"],
        },
        OptionBlock {
            rows: TX_POOL,
            aliases: &["SCOPY_"],
        },
    ],
    defaults: &[("ALLOC", "huge,thp,mmap,heap"), ("BW", "11145.00MBps")],
    strictness: Strictness::Worker(Some("cma")),
};

/// KNEM, a kernel module that copies between processes.
pub static KNEM: Section = Section {
    title: "Copies by KNEM",
    prefix: "KNEM_",
    blocks: SCOPY_BLOCKS,
    defaults: &[("ALLOC", "huge,thp,mmap,heap"), ("BW", "13862.00MBps")],
    strictness: Strictness::Report,
};
