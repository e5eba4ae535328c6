//! Rows and values of the options of TCP.
#![forbid(unsafe_code)]

use crate::options::fields::option_fields;
use crate::options::kind::OptionKind::*;
use crate::options::rows_iface::{IFACE, RX_POOL, TX_POOL};
use crate::options::rule::{Rule, above_0, rule};
use crate::options::section::{OptionBlock, Row, Section, Strictness, row};
use crate::options::value::{PortRange, Value};
use crate::options::{choice, number};

option_fields! {
    /// The options of TCP that the library reads.
    TcpOptions {
        tx_seg_size: number::Size = "TCP_TX_SEG_SIZE",
        rx_seg_size: number::Size = "TCP_RX_SEG_SIZE",
        max_poll: u32 = "TCP_MAX_POLL",
        ep_bind_src_addr: choice::Ternary = "TCP_EP_BIND_SRC_ADDR",
        af_prio: Vec<String> = "TCP_AF_PRIO",
        bridge_enable: bool = "TCP_BRIDGE_ENABLE",
        prefer_default: bool = "TCP_PREFER_DEFAULT",
        nodelay: bool = "TCP_NODELAY",
        sndbuf: number::Size = "TCP_SNDBUF",
        rcvbuf: number::Size = "TCP_RCVBUF",
        syn_cnt: number::Count = "TCP_SYN_CNT",
        user_timeout: number::Interval = "TCP_USER_TIMEOUT",
        keepidle: number::Interval = "TCP_KEEPIDLE",
        keepcnt: number::Count = "TCP_KEEPCNT",
        keepintvl: number::Interval = "TCP_KEEPINTVL",
        port_range: PortRange = "TCP_PORT_RANGE",
        max_conn_retries: u32 = "TCP_MAX_CONN_RETRIES",
    }
}

/// Conditions on the values.
pub const RULES: &[Rule] = &[
    above_0("TCP_TX_SEG_SIZE"),
    above_0("TCP_RX_SEG_SIZE"),
    rule(
        "TCP_MAX_CONN_RETRIES",
        is_number_of_retries,
        "it must be at most 255",
    ),
    rule(
        "TCP_PORT_RANGE",
        begins_before_its_end,
        "the first port must not be above the last (0: the system chooses)",
    ),
];

fn is_number_of_retries(text: &str) -> bool {
    number::uint(text).is_some_and(|retries| retries <= 255)
}

fn begins_before_its_end(text: &str) -> bool {
    PortRange::from_text(text).is_some_and(|range| range.first <= range.last)
}

/// What every socket has.
pub const SOCKET: &[Row] = &[
    row("SNDBUF", Size, "auto", "Send buffer of a socket."),
    row("RCVBUF", Size, "auto", "Receive buffer of a socket."),
    row(
        "SYN_CNT",
        Count,
        "auto",
        "Repetitions of the first segment of a connection.",
    ),
    row(
        "USER_TIMEOUT",
        Interval,
        "auto",
        "A connection whose data is unacknowledged for so long is broken.",
    ),
];

/// TCP sockets.
pub static TCP: Section = Section {
    title: "TCP transport",
    prefix: "TCP_",
    blocks: &[
        OptionBlock {
            aliases: &[],
            rows: &[
                row(
                    "AF_PRIO",
                    Texts,
                    "inet,inet6",
                    "Address families, best first.",
                ),
                row("BRIDGE_ENABLE", Bool, "n", "Use bridge devices."),
                row(
                    "TX_SEG_SIZE",
                    Size,
                    "8K",
                    "Most bytes of an eager message that is copied before it is sent; at least 24K, at most 1M.",
                ),
                row(
                    "RX_SEG_SIZE",
                    Size,
                    "64K",
                    "Size of a receive buffer, and most bytes of an eager message that is sent from where it lies; \
                     at least 24K, at most 1M.",
                ),
                row("MAX_IOV", Ulong, "6", "Most pieces of one send."),
                row(
                    "SENDV_THRESH",
                    Size,
                    "2K",
                    "From this size on payload is sent in place, not copied behind its header.",
                ),
                row(
                    "PREFER_DEFAULT",
                    Bool,
                    "y",
                    "Prefer the device of the default route.",
                ),
                row("PUT_ENABLE", Bool, "y", "Offer put."),
                row("CONN_NB", Bool, "n", "Connect without waiting."),
                row(
                    "MAX_POLL",
                    Uint,
                    "16",
                    "Most reads of a ready socket per poll, one at least; inf: no limit but that of 128 messages for \
                     all sockets together.",
                ),
                row(
                    "MAX_CONN_RETRIES",
                    Uint,
                    "25",
                    "How often a dropped connection attempt is repeated.",
                ),
                row("NODELAY", Bool, "y", "Send small segments at once."),
            ],
        },
        OptionBlock {
            rows: SOCKET,
            aliases: &[],
        },
        OptionBlock {
            aliases: &[],
            rows: &[
                row(
                    "PORT_RANGE",
                    Range,
                    "0",
                    "Ports to listen on; 0 lets the system choose.",
                ),
                row(
                    "MAX_BW",
                    Bandwidth,
                    "2200.00MBps",
                    "Upper bound of a device's bandwidth.",
                ),
                row(
                    "KEEPIDLE",
                    Interval,
                    "10000000.00us",
                    "Idle time before the first keepalive probe.",
                ),
                row(
                    "KEEPCNT",
                    Count,
                    "auto",
                    "Lost probes that break a connection.",
                ),
                row(
                    "KEEPINTVL",
                    Interval,
                    "2000000.00us",
                    "Time between probes.",
                ),
                row(
                    "EP_BIND_SRC_ADDR",
                    Ternary,
                    "try",
                    "Bind connecting sockets to their device.",
                ),
            ],
        },
        OptionBlock {
            rows: IFACE,
            aliases: &[""],
        },
        OptionBlock {
            rows: TX_POOL,
            aliases: &[],
        },
        OptionBlock {
            rows: RX_POOL,
            aliases: &[],
        },
    ],
    defaults: &[("MAX_NUM_EPS", "256")],
    strictness: Strictness::Worker(Some("tcp")),
};
