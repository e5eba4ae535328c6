//! Active messages: sends, and delivery to handlers.

mod fragments;

use super::buffer::read_for_record;
use super::param::{self, Param, status_ptr};
use crate::ctypes::*;
use crate::engine::am::{AmDesc, AmFunction, AmHandler, AmPayload};
use crate::engine::completion;
use crate::engine::datatype::Data;
use crate::engine::endpoint::Endpoint;
use crate::engine::peer::Peer;
use crate::engine::pointers::{EndpointId, PeerRef};
use crate::engine::request::{Callback, Request, TxPayload};
use crate::engine::request_alloc;
use crate::engine::rndv_rts::RtsInfo;
use crate::engine::worker::{MAX_AM_HEADER, Worker};
use crate::proto::rndv;
use crate::proto::select::message::{self as select, Eager, Hint, Protocol};
use crate::proto::{cm, endpoints, tx};
use crate::sys::log;
use crate::wire::header::{AmImm, Kind};
use std::ffi::c_void;
use std::ptr::NonNull;

pub use fragments::on_fragment;

const FEATURE: u64 = UCP_FEATURE_AM as u64;

/// Bit of `AmImm::flags`: the handler gets a reply endpoint.
const REPLY: u8 = 1;

/// An active message to send.
pub struct AmMessage {
    pub id: u32,
    pub header: *const c_void,
    pub header_len: usize,
    pub buffer: *const c_void,
    pub count: usize,
}

/// Sends an active message, by any protocol.
///
/// # Safety
/// The parameters are those of `ucp_am_send_nbx`.
#[inline(never)]
pub unsafe fn send(ep: *const Endpoint, m: &AmMessage, p: &Param) -> ucs_status_ptr_t {
    // SAFETY: the caller's endpoint, header and buffer are valid.
    unsafe {
        let flags = p.flags();
        let prepared = param::open_endpoint(ep).and_then(|(worker, peer)| {
            p.check(worker, FEATURE, "ucp_am_send_nbx")?;
            check(m, flags)?;
            Ok((
                worker,
                peer,
                p.source_unread(worker, "ucp_am_send_nbx", m.buffer, m.count)?,
            ))
        });
        let (worker, peer, data) = match prepared {
            Ok(ok) => ok,
            Err(status) => return param::refuse(&*ep, status),
        };
        let protocol = select::to_peer(worker, peer, &data, m.header_len, wish(flags));
        if p.has(UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL) && !protocol.is_one_record() {
            data.drop_unused();
            return status_ptr(UCS_ERR_NO_RESOURCE);
        }
        if let Err(status) = read_for_record(&protocol, data) {
            return status_ptr(status);
        }
        let req = request_alloc::take(worker, p.external());
        let r = &mut *req;
        (r.data, r.peer, r.ep) = (data, Some(PeerRef::new(peer)), EndpointId::of(ep));
        r.msg.set_tail(m.header.cast(), m.header_len as u32);
        let reply = if flags & UCP_AM_SEND_FLAG_REPLY as u32 != 0 {
            (*ep).set_requested_reply();
            REPLY
        } else {
            0
        };
        let imm = AmImm {
            id: m.id as u16,
            header_len: m.header_len as u16,
            flags: reply,
            sn: (*ep).remote_sn(),
        }
        .to_u64();
        match protocol {
            Protocol::Eager(Eager::Short | Eager::Bcopy | Eager::Zcopy) => {
                tx::set_message(r, Kind::AmEager, 0, imm, &[]);
            }
            Protocol::Eager(Eager::Fragments) => {
                r.payload = TxPayload::Fragments;
                tx::set_message(r, Kind::AmFragment, 0, imm, &[]);
            }
            Protocol::Rendezvous => rndv::prepare(worker, req, Kind::AmRts, imm),
        }
        if flags & UCP_AM_SEND_FLAG_COPY_HEADER as u32 != 0 {
            r.copy_tail();
        }
        param::start(req, p)
    }
}

fn wish(flags: u32) -> Hint {
    if flags & UCP_AM_SEND_FLAG_RNDV as u32 != 0 {
        Hint::Rendezvous
    } else if flags & UCP_AM_SEND_FLAG_EAGER as u32 != 0 {
        Hint::Eager
    } else {
        Hint::None
    }
}

fn check(m: &AmMessage, flags: u32) -> Result<(), ucs_status_t> {
    let both = UCP_AM_SEND_FLAG_EAGER as u32 | UCP_AM_SEND_FLAG_RNDV as u32;
    let wrong = if m.id > u32::from(u16::MAX) {
        "an id above 65535"
    } else if m.header_len > MAX_AM_HEADER {
        "a header longer than max_am_header"
    } else if m.header_len > 0 && m.header.is_null() {
        "a null header"
    } else if flags & both == both {
        "both EAGER and RNDV"
    } else {
        return Ok(());
    };
    log::error!("ucp_am_send_nbx: {wrong}");
    Err(UCS_ERR_INVALID_PARAM)
}

/// Logs that a message without a handler is dropped.
#[cold]
fn note_dropped(id: u16) {
    log::once!(
        Warn, each id,
        "active message with id {id} dropped: no handler (ucp_worker_set_am_recv_handler)"
    );
}

fn handler(worker: &Worker, id: u16) -> AmHandler {
    let handler = worker
        .am
        .lock()
        .get(usize::from(id))
        .copied()
        .unwrap_or(AmHandler::NONE);
    if let AmFunction::None = handler.function {
        note_dropped(id);
    }
    handler
}

/// Handles a complete message: `data_len` bytes at `data`, followed by the user's header.
///
/// # Safety
/// The data and the header are readable during the call.
pub unsafe fn on_eager(worker: &Worker, peer: &Peer, imm: AmImm, data: *const u8, data_len: usize) {
    let handler = handler(worker, imm.id);
    // SAFETY: the header follows the data.
    let header = unsafe { data.add(data_len) };
    let kept = handler.persistent;
    if !kept && data as usize % worker.params.am_alignment == 0 {
        // SAFETY: the caller's bytes are readable.
        unsafe {
            call(
                worker,
                peer,
                handler,
                imm,
                header,
                data.cast_mut(),
                data_len,
                0,
            )
        };
        return;
    }
    let Some(desc) = worker.am_descs.get(AmPayload::Here, data_len, data_len) else {
        return log::once!(
            Error,
            "no memory for an active message of {data_len} bytes: dropped"
        );
    };
    // SAFETY: the descriptor has room for the payload.
    unsafe {
        std::ptr::copy_nonoverlapping(data, AmDesc::data(desc), data_len);
        offer(
            worker,
            peer,
            handler,
            imm,
            header,
            desc,
            if kept {
                UCP_AM_RECV_ATTR_FLAG_DATA as u64
            } else {
                0
            },
        );
    }
}

/// Handles the RTS of an active message.
///
/// # Safety
/// The user's header is readable at `header`, the STADDs of the RTS at `beside`.
pub unsafe fn on_rts(
    worker: &Worker,
    peer: &Peer,
    imm: AmImm,
    (source, beside): (RtsInfo, *const u8),
    header: *const u8,
) {
    // The endpoint must exist until the data are fetched.
    if cm::is_closed(peer, imm.sn) {
        return rndv::acknowledge(peer, source.req, UCS_ERR_CANCELED);
    }
    let handler = handler(worker, imm.id);
    if let AmFunction::None = handler.function {
        return rndv::acknowledge(peer, source.req, UCS_ERR_INVALID_PARAM);
    }
    if let AmFunction::Old(_) = handler.function {
        // SAFETY: the caller's bytes are readable.
        return unsafe { fetch_whole(worker, peer, imm, (source, beside), header) };
    }
    // SAFETY: the descriptor gets a counted reference, unless there is no descriptor.
    let from = unsafe { PeerRef::new(peer) };
    let (payload, room) = (AmPayload::Remote(from, source), source.beside());
    let Some(desc) = worker.am_descs.get(payload, source.len, room) else {
        return rndv::acknowledge(peer, source.req, UCS_ERR_NO_MEMORY);
    };
    peer.hold();
    peer.held_rts.lock().hold(source.req);
    // SAFETY: a new descriptor with room for these bytes, which the caller has made readable.
    unsafe {
        std::ptr::copy_nonoverlapping(beside, AmDesc::data(desc), room);
        offer(
            worker,
            peer,
            handler,
            imm,
            header,
            desc,
            UCP_AM_RECV_ATTR_FLAG_RNDV as u64,
        )
    };
}

/// Calls the handler with a descriptor, and keeps or releases the descriptor depending on the returned status.
unsafe fn offer(
    worker: &Worker,
    peer: &Peer,
    handler: AmHandler,
    imm: AmImm,
    header: *const u8,
    desc: NonNull<AmDesc>,
    attr: u64,
) {
    // SAFETY: the descriptor is valid until `leave_handler`: neither release nor receive frees it before.
    unsafe {
        let (data, len) = (AmDesc::data(desc), desc.as_ref().len);
        let status = call(worker, peer, handler, imm, header, data, len, attr);
        let kept = status == UCS_INPROGRESS && attr != 0;
        if let Some(AmPayload::Remote(peer, offer)) = worker.am_descs.leave_handler(desc, kept) {
            let peer = peer.get();
            rndv::acknowledge(peer, offer.req, status);
            peer.held_rts.lock().release(offer.req, false);
            peer.release();
        }
    }
}

/// Calls a handler; `attr` describes the data in `recv_attr`.
unsafe fn call(
    worker: &Worker,
    peer: &Peer,
    handler: AmHandler,
    imm: AmImm,
    header: *const u8,
    data: *mut u8,
    len: usize,
    attr: u64,
) -> ucs_status_t {
    let reply = if imm.flags & REPLY != 0 {
        peer.set_has_reply_endpoint();
        let ep = endpoints::reply_endpoint(worker, peer, imm.sn);
        ep.get().set_user_held();
        ep.as_ptr().cast()
    } else {
        std::ptr::null_mut()
    };
    // SAFETY: the user's function gets what UCP documents.
    let status = unsafe {
        match handler.function {
            AmFunction::None => return UCS_OK,
            AmFunction::New(f) => {
                let reply_bit = if imm.flags & REPLY != 0 {
                    UCP_AM_RECV_ATTR_FIELD_REPLY_EP as u64
                } else {
                    0
                };
                let param = ucp_am_recv_param_t {
                    recv_attr: attr | reply_bit,
                    reply_ep: reply,
                };
                status_raw(f(
                    handler.arg,
                    header.cast(),
                    imm.header_len.into(),
                    data.cast(),
                    len,
                    &param,
                ))
            }
            AmFunction::Old(_) if imm.header_len != 0 => {
                log::once!(
                    Warn, each imm.id,
                    "active message with a header dropped: the handler of id {} takes none",
                    imm.id
                );
                return UCS_OK;
            }
            AmFunction::Old(f) => {
                let flags = if attr != 0 {
                    UCP_CB_PARAM_FLAG_DATA as u32
                } else {
                    0
                };
                status_raw(f(handler.arg, data.cast(), len, reply, flags))
            }
        }
    };
    ucs_status_t::from_raw(status)
}

/// State of the fetch of a whole message before its handler runs.
struct AmFetch {
    desc: NonNull<AmDesc>,
    peer: PeerRef,
    imm: AmImm,
    header: Box<[u8]>,
}

unsafe fn fetch_whole(
    worker: &Worker,
    peer: &Peer,
    imm: AmImm,
    (source, beside): (RtsInfo, *const u8),
    header: *const u8,
) {
    let Some(desc) = worker.am_descs.get(AmPayload::Here, source.len, source.len) else {
        return rndv::acknowledge(peer, source.req, UCS_ERR_NO_MEMORY);
    };
    // SAFETY: the caller's bytes are readable; the request is new. The peer is that of the request, which completes in
    // progress.
    unsafe {
        let header = std::slice::from_raw_parts(header, imm.header_len.into()).into();
        let req = request_alloc::take(worker, std::ptr::null_mut());
        let r = &mut *req;
        r.data = Data::Contig {
            ptr: AmDesc::data(desc),
            len: source.len,
        };
        r.notify = Callback::Internal(fetched);
        r.user_data = Box::into_raw(Box::new(AmFetch {
            desc,
            peer: PeerRef::new(peer),
            imm,
            header,
        }))
        .cast();
        if let Some(status) = rndv::receive(worker, req, peer, source, beside) {
            completion::complete(req, status);
        }
    }
}

unsafe fn fetched(req: *mut Request, status: ucs_status_t) {
    // SAFETY: `fetch_whole` made the request, which is complete; workers outlive requests.
    unsafe {
        let fetch = Box::from_raw((*req).user_data.cast::<AmFetch>());
        let worker = (*req).worker.get();
        request_alloc::recycle(req);
        if status != UCS_OK {
            log::diag!(
                "active message from {:#x} lost: {status:?}",
                fetch.peer.get().uid
            );
            worker.am_descs.leave_handler(fetch.desc, false);
            return;
        }
        let h = handler(worker, fetch.imm.id);
        let attr = if h.persistent {
            UCP_AM_RECV_ATTR_FLAG_DATA as u64
        } else {
            0
        };
        offer(
            worker,
            fetch.peer.get(),
            h,
            fetch.imm,
            fetch.header.as_ptr(),
            fetch.desc,
            attr,
        );
    }
}

/// `ucp_am_recv_data_nbx`: receives the data of a descriptor into a buffer.
///
/// # Safety
/// The parameters are those of `ucp_am_recv_data_nbx`.
pub unsafe fn recv_data(
    worker: &Worker,
    data_desc: *mut c_void,
    buffer: *mut c_void,
    count: usize,
    p: &Param,
) -> ucs_status_ptr_t {
    // SAFETY: the caller's descriptor and buffer are valid.
    unsafe {
        let desc = AmDesc::of(data_desc);
        let target = match p.target(worker, "ucp_am_recv_data_nbx", buffer, count) {
            Ok(data) if worker.am_descs.take(desc) => data,
            Ok(data) => {
                data.drop_unused();
                log::error!(
                    "ucp_am_recv_data_nbx: the data of this descriptor was already received"
                );
                return status_ptr(UCS_ERR_INVALID_PARAM);
            }
            Err(status) => return status_ptr(status),
        };
        let (payload, len) = (desc.as_ref().payload, desc.as_ref().len);
        let req = request_alloc::take(worker, p.external());
        let r = &mut *req;
        (r.data, r.notify, r.user_data) = (target, p.notify_am_recv(), p.user_data());
        let ended = match payload {
            // An empty buffer drops the data.
            AmPayload::Remote(peer, offer) if r.data.len() == 0 => {
                let peer = peer.get();
                rndv::acknowledge(peer, offer.req, UCS_OK);
                peer.held_rts.lock().release(offer.req, false);
                peer.release();
                Some(UCS_OK)
            }
            AmPayload::Remote(peer, offer) => {
                // The call never completes inside, like UCX: MPICH 5 would mistake a pointer of its own for a request.
                let peer = peer.get();
                rndv::receive_later(worker, req, peer, offer, AmDesc::data(desc));
                peer.held_rts.lock().release(offer.req, true);
                peer.release();
                None
            }
            AmPayload::Here => Some(super::tag::fill(r, AmDesc::data(desc), len)),
        };
        worker.am_descs.done(desc);
        let Some(status) = ended else {
            return Request::handle(req);
        };
        if status == UCS_OK {
            p.store_length((*req).info.length);
        }
        param::finish(req, p, status)
    }
}

/// `ucp_am_data_release`: frees a descriptor. Data that were not fetched are dropped.
///
/// # Safety
/// The parameters are those of `ucp_am_data_release`.
pub unsafe fn release_data(worker: &Worker, data: *mut c_void) {
    // SAFETY: the caller's descriptor is valid.
    unsafe {
        let desc = AmDesc::of(data);
        if !worker.am_descs.take(desc) {
            return log::error!(
                "ucp_am_data_release: the data of this descriptor was already released"
            );
        }
        if let AmPayload::Remote(peer, offer) = desc.as_ref().payload {
            let peer = peer.get();
            rndv::acknowledge(peer, offer.req, UCS_OK);
            peer.held_rts.lock().release(offer.req, false);
            peer.release();
        }
        worker.am_descs.done(desc);
    }
}
