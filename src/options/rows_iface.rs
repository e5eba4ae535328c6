//! Rows of the options that all transports share, and of their pools of buffers.
#![forbid(unsafe_code)]

use super::choice::{ALLOC_METHODS, LogLevel};
use super::kind::OptionKind::*;
use super::section::{Row, row};

/// What every transport has.
pub const IFACE: &[Row] = &[
    row(
        "ALLOC",
        Ranking(ALLOC_METHODS),
        "huge,thp,md,mmap,heap",
        "Ways to allocate buffers, best first.",
    ),
    row(
        "FAILURE",
        Choice(LogLevel::NAMES),
        "DIAG",
        "Level of messages about failed operations.",
    ),
    row("MAX_NUM_EPS", Count, "inf", "Most endpoints."),
    row("MAX_SHORT", Retired, "", "No effect; retired in UCX."),
    row("MAX_BCOPY", Retired, "", "No effect; retired in UCX."),
];

/// Growing pools of send buffers.
pub const TX_POOL: &[Row] = &[
    TX_MAX_BUFS,
    row("TX_BUFS_GROW", Uint, "8", "Send buffers added at a time."),
    TX_MAX_CHUNK_SIZE,
    TX_GROW_FACTOR,
];
pub const TX_MAX_BUFS: Row = row(
    "TX_MAX_BUFS",
    Int,
    "-1",
    "Most send buffers; -1 for no limit.",
);
pub const TX_MAX_CHUNK_SIZE: Row = row(
    "TX_MAX_CHUNK_SIZE",
    Size,
    "128M",
    "Most memory added at a time for sending.",
);
pub const TX_GROW_FACTOR: Row = row(
    "TX_GROW_FACTOR",
    Float,
    "1.000",
    "Growth of each addition of send buffers.",
);

/// Growing pools of receive buffers.
pub const RX_POOL: &[Row] = &[
    RX_MAX_BUFS,
    row(
        "RX_BUFS_GROW",
        Uint,
        "8",
        "Receive buffers added at a time.",
    ),
    RX_MAX_CHUNK_SIZE,
    RX_GROW_FACTOR,
];
pub const RX_MAX_BUFS: Row = row(
    "RX_MAX_BUFS",
    Int,
    "-1",
    "Most receive buffers; -1 for no limit.",
);
pub const RX_MAX_CHUNK_SIZE: Row = row(
    "RX_MAX_CHUNK_SIZE",
    Size,
    "128M",
    "Most memory added at a time for receiving.",
);
pub const RX_GROW_FACTOR: Row = row(
    "RX_GROW_FACTOR",
    Float,
    "1.000",
    "Growth of each addition of receive buffers.",
);
