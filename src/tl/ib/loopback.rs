//! A connection to oneself: a device executes atomic operations on memory of its own process, so that they are atomic
//! to those that peers have it execute.

use super::bindings::*;
use super::buffers::{Buffer, BufferPool};
use super::port::Port;
use super::queues::{IbvCq, IbvQp, QpInit};
use super::rc::{self, AmoDesc, RemoteMem};
use crate::sys::sync::give_way;
use std::io::{self, ErrorKind};
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Looks for the end before others are let run: a device takes a microsecond or two.
const LOOKS: u32 = 1000;
/// A device that has not told of an end by now never will: errors come sooner.
const LONGEST: Duration = Duration::from_secs(10);

/// One operation at a time. Of no use any more after an error.
pub struct LoopbackQp {
    /// Number of its port at the device.
    port: u8,
    /// In front of the buffers, which it must not outlive.
    qp: IbvQp,
    cq: Arc<IbvCq>,
    /// Where the device writes what was there.
    old: Buffer,
    _buffers: BufferPool,
}

impl LoopbackQp {
    /// A queue pair on this port, connected to itself.
    ///
    /// # Errors
    /// What the device says: there are no more, or a port does not reach itself.
    pub fn new(port: &Port) -> io::Result<LoopbackQp> {
        let cq = IbvCq::new(&port.hca, 1, None)?;
        let parts = QpInit {
            kind: IBV_QPT_RC,
            send_cq: &cq,
            recv_cq: &cq,
            srq: None,
            sends: 1,
            receives: 1,
            inline: 0,
            pieces: 1,
        };
        let qp = IbvQp::new(&port.hca, &parts)?;
        let mut buffers = BufferPool::new(&port.hca, size_of::<u64>(), 1);
        let old = buffers.get().ok_or(ErrorKind::OutOfMemory)?;
        rc::begin(&qp, port)?;
        rc::connect(&qp, port, &port.locator(0), (qp.number, 0), 0)?;
        Ok(LoopbackQp {
            port: port.number,
            qp,
            cq,
            old,
            _buffers: buffers,
        })
    }

    /// Whether it is on this one of the device's ports.
    pub fn is_on(&self, port: &Port) -> bool {
        self.port == port.number
    }

    /// Has it done, and returns what was there. Waits for the device, a microsecond or two.
    ///
    /// # Errors
    /// The device refuses, or is gone.
    pub fn execute(&mut self, step: AmoDesc, at: RemoteMem) -> io::Result<u64> {
        let mut sge = ibv_sge {
            addr: self.old.ptr as u64,
            length: size_of::<u64>() as u32,
            lkey: self.old.lkey,
        };
        let mut wr = ibv_send_wr {
            sg_list: &mut sge,
            num_sge: 1,
            opcode: step.opcode(),
            send_flags: IBV_SEND_SIGNALED,
            ..Default::default()
        };
        step.fill(&mut wr, at);
        if !self.qp.post_send(&mut wr) {
            return Err(ErrorKind::BrokenPipe.into());
        }
        self.wait()?;
        // SAFETY: a buffer of 8 bytes, aligned to a cache line, that the device has written.
        Ok(unsafe { self.old.ptr.cast::<u64>().read_volatile() })
    }

    fn wait(&self) -> io::Result<()> {
        let mut wc = [MaybeUninit::uninit()];
        let mut began = None;
        loop {
            for _ in 0..LOOKS {
                if self.cq.poll(&mut wc) == 1 {
                    // SAFETY: the queue has written one.
                    return match unsafe { wc[0].assume_init_ref() }.status {
                        IBV_WC_SUCCESS => Ok(()),
                        status => Err(io::Error::other(self.cq.status_text(status))),
                    };
                }
                std::hint::spin_loop();
            }
            if began.get_or_insert_with(Instant::now).elapsed() > LONGEST {
                return Err(ErrorKind::TimedOut.into());
            }
            give_way(0);
        }
    }
}
