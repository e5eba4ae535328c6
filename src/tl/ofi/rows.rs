//! Rows and values of the options of the transport over libfabric, which UCX has not.
#![forbid(unsafe_code)]

use crate::options::fields::option_fields;
use crate::options::kind::OptionKind::*;
use crate::options::number;
use crate::options::rows_iface::IFACE;
use crate::options::section::{OptionBlock, Section, Strictness, row};

option_fields! {
    /// The options of the transport over libfabric that the library reads.
    OfiOptions {
        provider: String = "OFI_PROVIDER",
        rx_queue_len: u32 = "OFI_RX_QUEUE_LEN",
        tx_window: u32 = "OFI_TX_WINDOW",
        timeout: number::Interval = "OFI_TIMEOUT",
        zcopy_thresh: number::Size = "OFI_ZCOPY_THRESH",
    }
}

/// libfabric.
pub static OFI: Section = Section {
    title: "libfabric transport (beyond UCX)",
    prefix: "OFI_",
    blocks: &[
        OptionBlock {
            aliases: &[],
            rows: &[
                row(
                    "PROVIDER",
                    Text,
                    "auto",
                    "Providers of libfabric that may be used, between commas; of a name with a utility provider, such \
                     as verbs;ofi_rxm, the first part is enough. auto: those that FI_PROVIDER names, or all but tcp, \
                     net, udp, shm and sockets. A worker has an interface of the first device that shares memory, and \
                     one of the first of the others.",
                ),
                row(
                    "RX_QUEUE_LEN",
                    Uint,
                    "64",
                    "Receive buffers of a worker, 32K each. At least 8, at most 4096.",
                ),
                row(
                    "TX_WINDOW",
                    Uint,
                    "32",
                    "Copied messages to one peer that the provider has not reported as sent. At least 1.",
                ),
                row(
                    "TIMEOUT",
                    Interval,
                    "300000000.00us",
                    "Time within which a peer has to answer a request to connect.",
                ),
                row(
                    "ZCOPY_THRESH",
                    Size,
                    "16K",
                    "From this size on puts and gets access user memory in place; it is registered where the provider \
                     wants that.",
                ),
            ],
        },
        OptionBlock {
            rows: IFACE,
            aliases: &[""],
        },
    ],
    defaults: &[],
    strictness: Strictness::Worker(Some("ofi")),
};
