//! Attributes of a queue pair, and its connection to that of a peer.

use crate::tl::ib::bindings::*;
use crate::tl::ib::port::Port;
use crate::tl::ib::queues::IbvQp;
use crate::wire::ib_port::PortLocator;
use std::io;
use std::time::Duration;

/// Packet sequence numbers have 24 bits.
pub const PSN_MASK: u32 = 0xFF_FFFF;

/// Connects a queue pair to that of a peer: moves it from INIT to RTS.
///
/// # Errors
/// Errors of the device: it has no route to the peer, or an attribute is invalid.
pub fn connect(
    qp: &IbvQp,
    port: &Port,
    to: &PortLocator,
    (qpn, psn): (u32, u32),
    own_psn: u32,
) -> io::Result<()> {
    let rc = &port.tuning.rc;
    let limits = &port.hca.limits;
    let mut attr = ibv_qp_attr {
        qp_state: IBV_QPS_RTR,
        path_mtu: port.mtu_to(to),
        dest_qp_num: qpn & PSN_MASK,
        rq_psn: psn & PSN_MASK,
        max_dest_rd_atomic: limits.max_qp_rd_atom.clamp(0, 16) as u8,
        min_rnr_timer: rnr_code(rc.rnr_timeout),
        ah_attr: port.path(to),
        ..Default::default()
    };
    let mask = IBV_QP_STATE
        | IBV_QP_AV
        | IBV_QP_PATH_MTU
        | IBV_QP_DEST_QPN
        | IBV_QP_RQ_PSN
        | IBV_QP_MAX_DEST_RD_ATOMIC
        | IBV_QP_MIN_RNR_TIMER;
    qp.modify(&mut attr, mask)?;
    let mut attr = ibv_qp_attr {
        qp_state: IBV_QPS_RTS,
        sq_psn: own_psn & PSN_MASK,
        timeout: timeout_code(rc.timeout),
        retry_cnt: rc.retries.min(MAX_RETRIES),
        rnr_retry: rc.rnr_retries.min(7),
        max_rd_atomic: limits.max_qp_init_rd_atom.clamp(0, 16) as u8,
        ..Default::default()
    };
    let mask = IBV_QP_STATE
        | IBV_QP_SQ_PSN
        | IBV_QP_TIMEOUT
        | IBV_QP_RETRY_CNT
        | IBV_QP_RNR_RETRY
        | IBV_QP_MAX_QP_RD_ATOMIC;
    qp.modify(&mut attr, mask)
}

/// Moves a queue pair from RESET to INIT, in which receives can be posted.
///
/// # Errors
/// Errors of the device.
pub fn begin(qp: &IbvQp, port: &Port) -> io::Result<()> {
    let mut attr = ibv_qp_attr {
        qp_state: IBV_QPS_INIT,
        pkey_index: port.pkey_index,
        port_num: port.number,
        qp_access_flags: IBV_ACCESS_LOCAL_WRITE
            | IBV_ACCESS_REMOTE_WRITE
            | IBV_ACCESS_REMOTE_READ
            | IBV_ACCESS_REMOTE_ATOMIC,
        ..Default::default()
    };
    let mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    qp.modify(&mut attr, mask)
}

/// The smallest code whose time, 4.096 us times a power of two, is not shorter than `time` (`ibv_modify_qp(3)`); code 0
/// means no timeout.
pub fn timeout_code(time: Duration) -> u8 {
    let fits = |code: &u8| Duration::from_nanos(4096u64 << code) >= time;
    (1..31).find(fits).unwrap_or(31)
}

/// Maximum of the retry count. The field has three bits, but rdma_rxe retries without end at 7, and a peer's death
/// would never be detected.
const MAX_RETRIES: u8 = 6;

/// Times of the codes 1 to 31, in hundredths of a millisecond (`ibv_modify_qp(3)`, min_rnr_timer).
const RNR: [u32; 31] = [
    1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048,
    3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

/// The smallest code whose time is not shorter than `time`.
fn rnr_code(time: Duration) -> u8 {
    let hundredths = time.as_micros().div_ceil(10);
    let fits = |&t: &u32| u128::from(t) >= hundredths;
    RNR.iter().position(fits).map_or(31, |i| i as u8 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_codes() {
        assert_eq!(timeout_code(Duration::from_secs(1)), 18, "1.07 s");
        assert_eq!(timeout_code(Duration::ZERO), 1);
        assert_eq!(timeout_code(Duration::MAX), 31);
        assert_eq!(rnr_code(Duration::from_millis(1)), 14, "0.96 is too short");
        assert_eq!(rnr_code(Duration::ZERO), 1);
        assert_eq!(rnr_code(Duration::from_secs(9)), 31);
    }
}
