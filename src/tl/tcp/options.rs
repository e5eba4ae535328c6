//! Settings of TCP that follow from the options: computed once per context.

use super::socket::SocketTuning;
use crate::options::{Count, Interval, Options, PortRange, Ternary};
use crate::tl::contract::{AmLimits, MAX_SEG};
use std::time::Duration;

/// `UCX_TCP_TX_SEG_SIZE=auto`, bytes.
const DEFAULT_TX_SEG: usize = 8 << 10;
/// `UCX_TCP_RX_SEG_SIZE=auto`, bytes.
const DEFAULT_RX_SEG: usize = 64 << 10;

/// Settings of TCP sockets. `None`: the system's default.
#[derive(Clone, Debug)]
pub struct TcpPolicy {
    /// Longest messages in one record; `max_zcopy` is the longest read from a socket, too.
    pub am_limits: AmLimits,
    pub nodelay: bool,
    pub sndbuf: Option<usize>,
    pub rcvbuf: Option<usize>,
    /// Attempts to send a SYN.
    pub syn_cnt: Option<u32>,
    /// Attempts to connect that the peer accepts and closes.
    pub max_conn_retries: u32,
    /// Reads of a ready socket before the next one's turn, at least one; `u32::MAX` without limit.
    pub max_poll: u32,
    /// Ports to listen on; `None`: the system chooses.
    pub port_range: Option<PortRange>,
    /// A connection is made from the address of the interface that was chosen.
    pub bind_source: bool,
    pub keepalive: TcpKeepalive,
    /// Sent data that is not acknowledged for this long ends the connection.
    pub user_timeout: Option<Duration>,
}

/// Keepalive of TCP connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpKeepalive {
    /// Whether it is on: no time and no count is infinite.
    pub on: bool,
    /// Silence before the first probe.
    pub idle: Option<Duration>,
    /// Interval between two probes.
    pub interval: Option<Duration>,
    /// Unanswered probes that end the connection.
    pub count: Option<u32>,
}

impl TcpPolicy {
    /// Settings for the sockets. `keepalive_ms`: an unreachable peer is to be noticed within this time, milliseconds.
    pub fn tuning(&self, keepalive_ms: u64) -> SocketTuning {
        let idle = self.keepalive.idle.unwrap_or(Duration::from_secs(10));
        SocketTuning {
            nodelay: self.nodelay,
            sndbuf: self.sndbuf.filter(|&n| n < i32::MAX as usize),
            rcvbuf: self.rcvbuf.filter(|&n| n < i32::MAX as usize),
            syn_count: self.syn_cnt,
            user_timeout: self.user_timeout,
            keep_idle: self
                .keepalive
                .on
                .then(|| idle.min(Duration::from_millis(keepalive_ms))),
            keep_interval: self.keepalive.interval,
            keep_count: self.keepalive.count,
            bind_source: self.bind_source,
            ports: self.port_range.unwrap_or(PortRange { first: 0, last: 0 }),
            receive_buffer: self.am_limits.max_zcopy,
        }
    }

    /// The settings of these options.
    pub fn new(options: &Options) -> TcpPolicy {
        let limit = |count: Count| count.number().map(|n| n.min(u32::MAX as usize) as u32);
        TcpPolicy {
            am_limits: AmLimits {
                max_bcopy: options
                    .tcp
                    .tx_seg_size
                    .bytes_or(DEFAULT_TX_SEG)
                    .min(MAX_SEG),
                max_zcopy: options
                    .tcp
                    .rx_seg_size
                    .bytes_or(DEFAULT_RX_SEG)
                    .min(MAX_SEG),
            },
            nodelay: options.tcp.nodelay,
            sndbuf: options.tcp.sndbuf.bytes(),
            rcvbuf: options.tcp.rcvbuf.bytes(),
            // Maximum of the system.
            syn_cnt: limit(options.tcp.syn_cnt).map(|n| n.min(255)),
            max_conn_retries: options.tcp.max_conn_retries,
            max_poll: options.tcp.max_poll.max(1),
            port_range: Some(options.tcp.port_range).filter(|range| range.last != 0),
            bind_source: options.tcp.ep_bind_src_addr != Ternary::No,
            keepalive: TcpKeepalive {
                on: options.tcp.keepidle != Interval::Inf
                    && options.tcp.keepintvl != Interval::Inf
                    && options.tcp.keepcnt != Count::Inf,
                idle: options.tcp.keepidle.duration(),
                interval: options.tcp.keepintvl.duration(),
                count: limit(options.tcp.keepcnt),
            },
            user_timeout: options.tcp.user_timeout.duration(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(settings: &[(&str, &str)]) -> TcpPolicy {
        let mut options = Options::default();
        for (name, value) in settings {
            options.set(name, value).expect("a valid setting");
        }
        TcpPolicy::new(&options)
    }

    #[test]
    fn sockets() {
        let t = policy(&[]);
        assert!(t.nodelay && t.keepalive.on && t.port_range.is_none());
        assert_eq!(
            (t.am_limits.max_bcopy, t.am_limits.max_zcopy, t.max_poll),
            (8 << 10, 64 << 10, 16)
        );
        assert_eq!(t.keepalive.idle, Some(Duration::from_secs(10)));
        assert_eq!((t.sndbuf, t.syn_cnt, t.user_timeout), (None, None, None));
        let t = policy(&[
            ("TCP_KEEPIDLE", "inf"),
            ("TCP_TX_SEG_SIZE", "0"),
            ("TCP_RX_SEG_SIZE", "inf"),
            ("TCP_MAX_POLL", "0"),
            ("TCP_SNDBUF", "1m"),
            ("TCP_SYN_CNT", "999"),
            ("TCP_PORT_RANGE", "2000-2010"),
            ("TCP_USER_TIMEOUT", "5s"),
        ]);
        assert!(!t.keepalive.on);
        assert_eq!((t.sndbuf, t.syn_cnt), (Some(1 << 20), Some(255)));
        assert_eq!(
            (t.am_limits.max_bcopy, t.am_limits.max_zcopy, t.max_poll),
            (0, MAX_SEG, 1)
        );
        assert_eq!(
            t.port_range,
            Some(PortRange {
                first: 2000,
                last: 2010
            })
        );
        assert_eq!(t.user_timeout, Some(Duration::from_secs(5)));
    }
}
