//! Settings of InfiniBand and RoCE that follow from the options: computed once per context.

use super::roce_reach::{ReachMode, ReachPolicy};
use super::{IbTuning, RcTuning, UdTuning};
use crate::options::{Count, Options};
use crate::wire::ib_packet::MIN_PACKET;
use crate::wire::ib_port::{MAX_PORTS, PortFlags};
use crate::wire::packet_hdr::{HEAD, most_packets};
use std::time::Duration;

/// `UCX_IB_SL=auto`: the service level that every fabric has.
const DEFAULT_SL: u8 = 0;
/// `UCX_ZCOPY_THRESH=auto`, bytes: two buffers; copying them costs more than a lookup in the registration cache.
const IN_PLACE: usize = 16 << 10;
/// Shortest buffer, bytes: the longest header and a little data.
const MIN_SEG: usize = MIN_PACKET as usize;
/// Longest buffer, bytes: a message is received only when all of it has arrived.
const MAX_SEG: usize = 1 << 20;
/// Shortest UD queue: the longest record in the shortest packets, and sends whose completion is not signaled yet.
const MIN_UD_QUEUE: u32 = 192;
/// Shortest `UCX_UD_TIMEOUT`: with 0 a peer would fail before it could answer the first probe.
const MIN_UD_TIMEOUT: Duration = Duration::from_millis(100);
/// Packets are counted modulo 2^16.
const MAX_WINDOW: u32 = 1 << 15;
/// Value for an infinite `UCX_RC_TIMEOUT`, `UCX_UD_TIMEOUT` and the like; `auto` is not supported.
const FOR_EVER: Duration = Duration::from_secs(1 << 20);

/// Settings of a context.
#[derive(Clone, Debug)]
pub struct IbPolicy {
    /// Each peer gets a queue pair: `UCX_TLS` has rc, and no more than `UCX_RC_MAX_NUM_EPS` endpoints are expected, or
    /// it does not have ud.
    pub by_queue: bool,
    /// Messages may go by UD: `UCX_TLS` has ud.
    pub datagrams: bool,
    /// Puts and gets from this length on access the user's memory, others go through buffers, bytes.
    pub in_place: usize,
    /// Most ports among which a long rendezvous is striped.
    pub rndv_rails: usize,
    /// Most ports among which a long put or get is striped.
    pub rma_rails: usize,
    pub tuning: IbTuning,
}

impl IbPolicy {
    /// `None` if `UCX_TLS` has neither rc nor ud. `num_eps`: endpoints that the program expects, if it says so;
    /// `UCX_NUM_EPS` has precedence.
    pub fn new(options: &Options, num_eps: Option<usize>) -> Option<IbPolicy> {
        // Only a list without any part of ud excludes it: rc, rc_v and `all` include it at least for wireup.
        let tcp_wireup = options.tls.allows_aux("ud_verbs");
        let (rc, ud) = (
            options.tls.allows("rc_verbs"),
            options.tls.allows("ud_verbs"),
        );
        if !rc && !ud {
            return None;
        }
        let expected = (options.num_eps.number()).unwrap_or(num_eps.unwrap_or(1));
        let most = options.ib.rc_max_num_eps.number().unwrap_or(usize::MAX);
        Some(IbPolicy {
            by_queue: rc && (!ud || expected <= most),
            datagrams: ud,
            in_place: options.zcopy_thresh.bytes_or(IN_PLACE).max(1),
            rndv_rails: options.max_rndv_rails.number().unwrap_or(MAX_PORTS),
            rma_rails: options.max_rma_rails.number().unwrap_or(MAX_PORTS),
            tuning: tuning(options, ud || tcp_wireup),
        })
    }

    /// Flags of the transports that carry messages, as addresses contain them.
    pub fn qp_transports(&self) -> PortFlags {
        let mut flags = PortFlags::empty();
        flags.set(PortFlags::QUEUES, self.by_queue);
        flags.set(PortFlags::DATAGRAMS, self.datagrams);
        flags
    }
}

fn reach(options: &Options) -> ReachPolicy {
    let mode = match &*options.ib.rc_roce_reachability_mode {
        _ if options.ib.rc_roce_local_subnet => ReachMode::LocalSubnet,
        "local_subnet" => ReachMode::LocalSubnet,
        "all" => ReachMode::All,
        _ => ReachMode::Route,
    };
    let prefix = options.ib.rc_roce_subnet_prefix_len.number();
    ReachPolicy {
        mode,
        prefix: prefix.map(|bits| bits.min(128) as u32),
    }
}

/// `datagrams`: there are UD queue pairs, if only for wireup.
fn tuning(options: &Options, datagrams: bool) -> IbTuning {
    let byte = |count: Count| count.number().map(|n| n.min(u8::MAX.into()) as u8);
    let seg_size = options.ib.rc_seg_size.bytes_or(8256);
    let seg_size = seg_size.clamp(MIN_SEG, MAX_SEG);
    // A record waits until there is room for all of it, and up to half of what was sent may not be acknowledged yet.
    let least = 2 * most_packets(seg_size - HEAD) as u32;
    let window = if options.ib.rc_fc_enable {
        options.ib.rc_fc_wnd_size.clamp(least, MAX_WINDOW)
    } else {
        MAX_WINDOW
    };
    let pkey = options.ib.rc_pkey.trim_start_matches("0x");
    IbTuning {
        gid_index: options
            .ib
            .gid_index
            .number()
            .map(|n| n.min(u32::MAX as usize) as u32),
        pkey: u16::from_str_radix(pkey, 16).ok(),
        global: options.ib.rc_is_global,
        path_mtu: options.ib.rc_path_mtu.parse().ok(),
        service_level: byte(options.ib.rc_sl).unwrap_or(DEFAULT_SL).min(15),
        traffic_class: byte(options.ib.rc_traffic_class),
        hop_limit: options.ib.rc_hop_limit.min(255) as u8,
        reach: reach(options),
        rc: RcTuning {
            seg_size,
            tx_queue_len: options.ib.rc_tx_queue_len.max(least),
            rx_queue_len: options.ib.rc_rx_queue_len.max(16),
            window,
            zcopy_seg: options.rma_zcopy_max_seg_size.bytes(),
            timeout: options.ib.rc_timeout.duration().unwrap_or(FOR_EVER),
            retries: options.ib.rc_retry_count.min(7) as u8,
            rnr_timeout: options.ib.rc_rnr_timeout.duration().unwrap_or(FOR_EVER),
            rnr_retries: options.ib.rc_rnr_retry_count.min(7) as u8,
        },
        ud: UdTuning {
            used: datagrams,
            tx_queue_len: options.ib.ud_tx_queue_len.max(MIN_UD_QUEUE),
            rx_queue_first: options.ib.ud_rx_queue_len_init.max(16),
            rx_queue_len: options.ib.ud_rx_queue_len.max(MIN_UD_QUEUE),
            window: options.ib.ud_max_window.clamp(2, MAX_WINDOW),
            timeout: (options.ib.ud_timeout.duration().unwrap_or(FOR_EVER)).max(MIN_UD_TIMEOUT),
            tick: options.ib.ud_timer_tick.duration().unwrap_or(FOR_EVER),
            backoff: options.ib.ud_timer_backoff.clamp(1.0, 100.0),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(settings: &[(&str, &str)]) -> Option<IbPolicy> {
        let mut options = Options::default();
        for (name, value) in settings {
            options.set(name, value).expect("a valid setting");
        }
        IbPolicy::new(&options, None)
    }

    #[test]
    fn rc_or_ud_by_ucx_tls() {
        let qp_transports =
            |settings: &[(&str, &str)]| policy(settings).map(|p| (p.by_queue, p.datagrams));
        assert_eq!(qp_transports(&[("TLS", "self,tcp")]), None);
        assert_eq!(qp_transports(&[]), Some((true, true)));
        assert_eq!(
            qp_transports(&[("TLS", "rc")]),
            Some((true, false)),
            "ud for connecting only"
        );
        assert_eq!(qp_transports(&[("TLS", "ud")]), Some((false, true)));
        assert_eq!(qp_transports(&[("NUM_EPS", "257")]), Some((false, true)));
        assert_eq!(
            qp_transports(&[("NUM_EPS", "257"), ("TLS", "rc")]),
            Some((true, false))
        );
        assert_eq!(
            qp_transports(&[("NUM_EPS", "9"), ("RC_MAX_NUM_EPS", "8")]),
            Some((false, true))
        );
    }

    #[test]
    fn ud_is_excluded_explicitly_only() {
        let datagrams = |tls: &str| policy(&[("TLS", tls)]).map(|p| p.tuning.ud.used);
        for with in [
            "all",
            "rc",
            "rc_v,tcp",
            "ib",
            "ud",
            "^tcp",
            "rc_verbs,ud:aux",
            "^ud:aux",
        ] {
            assert_eq!(datagrams(with), Some(true), "{with}");
        }
        for without in [
            "rc_verbs",
            "rc_verbs,tcp,self",
            "\\rc_verbs",
            "^ud",
            "^ud_verbs,tcp",
        ] {
            assert_eq!(datagrams(without), Some(false), "{without}");
        }
        assert_eq!(datagrams("^ib"), None);
    }

    #[test]
    fn the_program_says_how_many_endpoints() {
        let by_queue = |settings: &[(&str, &str)], num_eps| {
            let mut options = Options::default();
            for (name, value) in settings {
                options.set(name, value).expect("a valid setting");
            }
            IbPolicy::new(&options, Some(num_eps)).map(|ib| ib.by_queue)
        };
        assert_eq!(by_queue(&[], 256), Some(true));
        assert_eq!(by_queue(&[], 257), Some(false));
        assert_eq!(by_queue(&[("NUM_EPS", "8")], 257), Some(true));
        assert_eq!(by_queue(&[("TLS", "rc")], 257), Some(true));
    }

    #[test]
    fn senseless_settings_leave_room_for_a_record() {
        let t = policy(&[
            ("RC_FC_WND_SIZE", "0"),
            ("RC_TX_QUEUE_LEN", "0"),
            ("IB_SEG_SIZE", "0"),
            ("UD_TX_QUEUE_LEN", "0"),
            ("UD_TIMEOUT", "0"),
        ]);
        let t = t.unwrap().tuning;
        let packets = most_packets(t.rc.seg_size - HEAD) as u32;
        assert!(t.rc.window >= packets && t.rc.tx_queue_len >= packets);
        assert!(t.ud.tx_queue_len as usize >= most_packets(256 - 16 - HEAD));
        assert_eq!(t.ud.timeout, MIN_UD_TIMEOUT);
    }

    #[test]
    fn settings_of_queues() {
        let t = policy(&[]).unwrap().tuning;
        assert_eq!(
            (t.rc.seg_size, t.rc.tx_queue_len, t.rc.rx_queue_len),
            (8256, 256, 4095)
        );
        assert_eq!((t.rc.window, t.ud.window), (512, 1025));
        assert_eq!((t.gid_index, t.pkey, t.path_mtu), (None, None, None));
        assert_eq!(t.ud.tick, Duration::from_millis(10));
        let t = policy(&[
            ("IB_GID_INDEX", "3"),
            ("IB_SL", "2"),
            ("IB_TRAFFIC_CLASS", "7"),
            ("IB_PKEY", "0x8001"),
            ("IB_PATH_MTU", "2048"),
            ("RC_FC_ENABLE", "n"),
            ("RC_TIMEOUT", "1ms"),
        ]);
        let t = t.unwrap().tuning;
        assert_eq!(
            (t.gid_index, t.pkey, t.path_mtu),
            (Some(3), Some(0x8001), Some(2048))
        );
        assert_eq!((t.service_level, t.traffic_class), (2, Some(7)));
        assert_eq!(
            (t.rc.window, t.rc.timeout),
            (MAX_WINDOW, Duration::from_millis(1))
        );
    }
}
