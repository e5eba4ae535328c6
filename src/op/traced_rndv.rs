//! Sends by rendezvous that the timeline records, from the RTS to their completion.

use super::param::{self, Param};
use crate::ctypes::*;
use crate::engine::completion::complete_traced;
use crate::engine::request::Request;
use crate::engine::traced_requests::OpName;
use crate::engine::worker::Worker;
use crate::proto::proto_info;
use crate::proto::rndv::traced::{self, RTS_FLOW};
use crate::proto::tx::{self, PostResult};
use crate::sys::trace::{self, ArgValue, EventPhase};

const SEND: OpName = OpName {
    category: "rndv",
    name: "rndv send",
};

/// [`param::start`] for a send by rendezvous. `tag`: of the message, or the id of the active message.
///
/// # Safety
/// The requirements of [`param::start`]; the request's message is an RTS, and the call need not complete it.
#[cold]
#[inline(never)]
pub unsafe fn start(worker: &Worker, req: *mut Request, p: &Param, tag: u64) -> ucs_status_ptr_t {
    let began = trace::now();
    // SAFETY: the caller's request. All fields are set before it is posted.
    unsafe {
        let r = &mut *req;
        (r.notify, r.user_data) = (p.notify_send(), p.user_data());
        let (len, peer) = (r.data.len(), r.peer());
        let id = worker.traced.add(req, (SEND, began), complete_traced);
        let posted = match p.has(UCP_OP_ATTR_FLAG_NO_IMM_CMPL) {
            false => tx::post_deferrable(req),
            true => tx::post(req),
        };
        if let PostResult::Failed(status) = posted {
            worker.traced.take(req, Some(status));
            return param::drop_request(req, status);
        }
        let args = [
            ("worker", ArgValue::Hex(worker.uid)),
            ("peer", ArgValue::Hex(peer.uid)),
            ("bytes", len.into()),
            ("tag", ArgValue::Hex(tag)),
            ("lanes", proto_info::lanes(peer).messages.to_string().into()),
        ];
        let mut rts = 0;
        worker.traced.confirm(req, id, &args, |r| rts = r.id);
        trace::slice("rndv", "RTS", began, &args);
        // 0: another thread has completed the send.
        if rts != 0 {
            trace::flow(
                EventPhase::FlowOut,
                RTS_FLOW,
                traced::flow(worker.uid, rts),
                began,
            );
        }
        Request::handle(req)
    }
}
