//! A queue pair connected to itself: a device executes atomic operations on memory of its own process, so that they are
//! atomic with those that peers post to the device.

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

/// Polls before the thread yields: a device takes a microsecond or two.
const LOOKS: u32 = 1000;
/// A device that has not reported a completion by now never will: errors are reported sooner.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A loopback queue pair. It executes one operation at a time, and none after an error.
pub struct LoopbackQp {
    /// Number of its port on the device.
    port: u8,
    /// Declared before the buffers: it must be dropped first.
    qp: IbvQp,
    cq: Arc<IbvCq>,
    /// Where the device writes the old value.
    old: Buffer,
    _buffers: BufferPool,
}

impl LoopbackQp {
    /// Creates a queue pair on this port, connected to itself.
    ///
    /// # Errors
    /// Errors of the device: no queue pair is left, or the port does not reach itself.
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

    /// Whether the queue pair is on this port of its device.
    pub fn is_on(&self, port: &Port) -> bool {
        self.port == port.number
    }

    /// Executes an operation and returns the old value. Waits for the device, a microsecond or two.
    ///
    /// # Errors
    /// The device refuses the operation, or is gone.
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
        // SAFETY: one entry, of the registered buffer, which only this call accesses: it waits for the completion.
        if !unsafe { self.qp.post_send(&mut wr) } {
            return Err(ErrorKind::BrokenPipe.into());
        }
        self.wait()?;
        // SAFETY: the buffer has 8 bytes, aligned to a cache line, that the device has written.
        Ok(unsafe { self.old.ptr.cast::<u64>().read_volatile() })
    }

    fn wait(&self) -> io::Result<()> {
        let mut wc = [MaybeUninit::uninit()];
        let mut began = None;
        loop {
            for _ in 0..LOOKS {
                if self.cq.poll(&mut wc) == 1 {
                    // SAFETY: `poll` returned 1, so it has written the entry.
                    return match unsafe { wc[0].assume_init_ref() }.status {
                        IBV_WC_SUCCESS => Ok(()),
                        status => Err(io::Error::other(self.cq.status_text(status))),
                    };
                }
                std::hint::spin_loop();
            }
            if began.get_or_insert_with(Instant::now).elapsed() > TIMEOUT {
                return Err(ErrorKind::TimedOut.into());
            }
            give_way(0);
        }
    }
}
