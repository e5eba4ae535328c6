//! Addresses of UD queue pairs.

use crate::tl::ib::bindings::*;
use crate::tl::ib::hca::Hca;
use crate::tl::ib::port::Port;
use crate::tl::ib::queues::IbvQp;
use crate::tl::ib::verbs::made;
use crate::wire::ib_port::PortLocator;
use std::io;
use std::sync::Arc;

/// The Q_Key of all workers of this library; it excludes other programs' datagrams.
const QKEY: u32 = 0x7275_6370;

/// An address handle: the path of datagrams to a port.
pub struct AddressHandle {
    hca: Arc<Hca>,
    raw: *mut ibv_ah,
}

// SAFETY: libibverbs is thread-safe, and the pointer does not change.
unsafe impl Send for AddressHandle {}

impl AddressHandle {
    /// # Errors
    /// The device has no path to the port.
    pub fn new(port: &Port, to: &PortLocator) -> io::Result<AddressHandle> {
        let mut path = port.path(to);
        // SAFETY: the device is open, and `path` is valid.
        let raw = made(unsafe { (port.hca.verbs.create_ah)(port.hca.pd(), &mut path) })?;
        Ok(AddressHandle {
            hca: port.hca.clone(),
            raw,
        })
    }

    /// Sets the destination of a send: this path, and the queue pair `qpn`.
    pub fn direct(&self, wr: &mut ibv_send_wr, qpn: u32) {
        wr.wr.ud.ah = self.raw;
        wr.wr.ud.remote_qpn = qpn;
        wr.wr.ud.remote_qkey = QKEY;
    }
}

/// Moves a UD queue pair from RESET to RTS.
///
/// # Errors
/// Errors of the device.
pub fn begin(port: &Port, qp: &IbvQp) -> io::Result<()> {
    let mut attr = ibv_qp_attr {
        qp_state: IBV_QPS_INIT,
        pkey_index: port.pkey_index,
        port_num: port.number,
        qkey: QKEY,
        ..Default::default()
    };
    let mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
    qp.modify(&mut attr, mask)?;
    attr.qp_state = IBV_QPS_RTR;
    qp.modify(&mut attr, IBV_QP_STATE)?;
    (attr.qp_state, attr.sq_psn) = (IBV_QPS_RTS, 0);
    qp.modify(&mut attr, IBV_QP_STATE | IBV_QP_SQ_PSN)
}

impl Drop for AddressHandle {
    fn drop(&mut self) {
        // SAFETY: posted datagrams have a copy of the handle, or the device keeps it until they were sent.
        unsafe { (self.hca.verbs.destroy_ah)(self.raw) };
    }
}
