//! The contract of a lane, for a socket.

use super::sender::TcpSender;
use crate::tl::contract::{LaneError, LaneOps, RecordHdr, Teardown, ZcopyResult};
use crate::tl::lane::sends_records;

fn result(sent: bool) -> ZcopyResult {
    if sent {
        ZcopyResult::Sent
    } else {
        ZcopyResult::NoRoom
    }
}

impl LaneOps for TcpSender {
    sends_records!(LaneError::Refused, Ok);

    /// A part costs a share of a system call.
    const MAX_PART: usize = 16 << 10;

    fn am_zcopy(&mut self, hdr: RecordHdr, parts: [&[u8]; 3]) -> ZcopyResult {
        result(self.send_parts(hdr.kind, hdr.aux, hdr.imm, parts))
    }

    unsafe fn am_zcopy_kept(
        &mut self,
        hdr: RecordHdr,
        head: &[u8],
        payload: *const [u8],
    ) -> ZcopyResult {
        // SAFETY: the caller's promise is the one that the callee requires.
        result(unsafe { self.send_in_place(hdr.kind, hdr.aux, hdr.imm, head, payload) })
    }

    fn is_midway(&self) -> bool {
        self.is_midway()
    }

    fn continue_record(&mut self) {
        self.flush();
    }

    fn settle(&mut self) {
        self.settle();
    }

    /// The peer handles now what was sent. A system call for several messages costs little more than for one.
    fn is_collecting(&self) -> bool {
        self.has_written()
    }

    fn batch(&mut self, on: bool) {
        if on { self.cork() } else { self.uncork() }
    }

    fn has_room_event(&self) -> bool {
        self.is_watched()
    }

    fn is_drained(&self) -> bool {
        self.is_drained()
    }

    /// The socket is closed with the sender, or when the receiver has read its end.
    fn teardown(&mut self, _is_dead: bool) -> Teardown {
        self.shut();
        Teardown::Drop
    }
}
