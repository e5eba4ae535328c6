//! The target worker's program: receives, sends, remote accesses and other calls during the attack.

use crate::support::scene::Scene;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::Ordering;
use ucp::abi::{am, amo, endpoint, memory, request, rkey, rma, stream, tag};
use ucp::ctypes::*;
use ucp::tl::address::WorkerAddress;
use ucp::tl::rkey::{RkeyMemory, UnpackedRkey};

/// The id of active messages that the program has a handler for.
pub const AM_ID: u16 = 1;

/// Bytes of the memory exposed to peers, and of the unexposed memory in front of it and behind it.
const REGION: usize = 4096;
const GUARD: usize = 1024;
const GUARD_BYTE: u8 = 0x77;

/// A request and its memory.
struct InFlight {
    /// The argument of [`Program::act`], for debug output.
    what: u8,
    request: ucs_status_ptr_t,
    /// Only `ucp_request_cancel` ends it while its peer lives.
    receive: bool,
    buffer: Vec<u8>,
    /// The pieces of an `ucp_dt_iov_t`.
    _pieces: Vec<ucp_dt_iov_t>,
    length: Box<usize>,
}

pub struct Program<'a> {
    scene: &'a Scene,
    /// The attacker's address.
    peer: Vec<u8>,
    ep: ucp_ep_h,
    key: ucp_rkey_h,
    in_flight: Vec<InFlight>,
    /// Descriptors that the handler has kept. Pinned: the handler has a pointer to it.
    kept: Box<Vec<*mut c_void>>,
    memory: Vec<u8>,
    memh: ucp_mem_h,
}

/// Keeps every second message that may be kept.
unsafe extern "C" fn on_am(
    arg: *mut c_void,
    header: *const c_void,
    header_length: usize,
    data: *mut c_void,
    length: usize,
    param: *const ucp_am_recv_param_t,
) -> MaybeUninit<ucs_status_t> {
    // SAFETY: the library calls handlers with valid data; `arg` is the program's list.
    unsafe {
        let attr = (*param).recv_attr;
        let rndv = attr & UCP_AM_RECV_ATTR_FLAG_RNDV as u64 != 0;
        read_all(header.cast(), header_length);
        if !rndv {
            read_all(data.cast_const().cast(), length);
        }
        let keepable = rndv || attr & UCP_AM_RECV_ATTR_FLAG_DATA as u64 != 0;
        if keepable && length % 2 == 0 {
            (*arg.cast::<Vec<*mut c_void>>()).push(data);
            return MaybeUninit::new(UCS_INPROGRESS);
        }
        MaybeUninit::new(UCS_OK)
    }
}

/// Reads all bytes: the address sanitizer reports invalid ones.
unsafe fn read_all(at: *const u8, len: usize) {
    if len > 0 {
        // SAFETY: the caller passes valid bytes.
        let bytes = unsafe { std::slice::from_raw_parts(at, len) };
        std::hint::black_box(bytes.iter().fold(0u8, |sum, b| sum.wrapping_add(*b)));
    }
}

impl<'a> Program<'a> {
    /// `peer`: address of the worker it communicates with.
    pub fn new(scene: &'a Scene, peer: &WorkerAddress) -> Program<'a> {
        let mut memory = vec![GUARD_BYTE; GUARD + REGION + GUARD];
        let mut kept = Box::new(Vec::new());
        let mut memh = ptr::null_mut();
        // SAFETY: zeroed structures with masks that name what is set; memory and list outlive their users.
        unsafe {
            let mut params: ucp_mem_map_params_t = std::mem::zeroed();
            params.field_mask =
                UCP_MEM_MAP_PARAM_FIELD_ADDRESS as u64 | UCP_MEM_MAP_PARAM_FIELD_LENGTH as u64;
            (params.address, params.length) = (memory[GUARD..].as_mut_ptr().cast(), REGION);
            assert_eq!(
                memory::ucp_mem_map(scene.context, &params, &mut memh),
                UCS_OK
            );
            let mut handler: ucp_am_handler_param_t = std::mem::zeroed();
            handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID as u64
                | UCP_AM_HANDLER_PARAM_FIELD_CB as u64
                | UCP_AM_HANDLER_PARAM_FIELD_ARG as u64;
            handler.id = AM_ID.into();
            handler.cb = Some(on_am);
            handler.arg = (&raw mut *kept).cast();
            assert_eq!(
                am::ucp_worker_set_am_recv_handler(scene.victim, &handler),
                UCS_OK
            );
        }
        Program {
            scene,
            peer: peer.encode(),
            ep: ptr::null_mut(),
            key: ptr::null_mut(),
            in_flight: Vec::new(),
            kept,
            memory,
            memh,
        }
    }

    /// Address and length of the memory exposed to peers.
    pub fn region(&self) -> (u64, u64) {
        (self.memory[GUARD..].as_ptr() as u64, REGION as u64)
    }

    /// The endpoint to the attacker, made if there is none. Null if it cannot be made.
    fn endpoint(&mut self) -> ucp_ep_h {
        if self.ep.is_null() {
            let plain = UnpackedRkey {
                memory: RkeyMemory::Plain,
                ib: None,
                tofu: None,
                ofi: None,
            };
            let plain = plain.encode();
            // SAFETY: a zeroed structure with a mask that names what is set; an address and a key of the right form.
            unsafe {
                let mut params: ucp_ep_params_t = std::mem::zeroed();
                params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS as u64
                    | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE as u64;
                params.address = self.peer.as_ptr().cast();
                params.err_mode =
                    MaybeUninit::new(ucp_err_handling_mode_t::UCP_ERR_HANDLING_MODE_PEER);
                if endpoint::ucp_ep_create(self.scene.victim, &params, &mut self.ep) != UCS_OK {
                    self.ep = ptr::null_mut();
                    return self.ep;
                }
                let unpacked =
                    rkey::ucp_ep_rkey_unpack(self.ep, plain.as_ptr().cast(), &mut self.key);
                assert_eq!(unpacked, UCS_OK);
            }
        }
        self.ep
    }

    /// Makes one of a program's calls.
    pub fn act(&mut self, what: u8, len: u16) {
        let n = usize::from(len) % 40_000;
        let before = self.in_flight.len();
        // SAFETY: live handles; buffers and pieces are kept until the request has ended.
        unsafe {
            let plain: ucp_request_param_t = std::mem::zeroed();
            let worker = self.scene.victim;
            match what % 16 {
                0 => self.start(n, true, |_, buffer, _| {
                    tag::ucp_tag_recv_nbx(worker, buffer, n, 0, 0, &plain)
                }),
                1 => self.receive_pieces(n),
                2 => {
                    let mut info: ucp_tag_recv_info_t = std::mem::zeroed();
                    let m = tag::ucp_tag_probe_nb(worker, 0, 0, 1, &mut info);
                    if !m.is_null() {
                        self.start(n, true, |_, buffer, _| {
                            tag::ucp_tag_msg_recv_nbx(worker, buffer, n, m, &plain)
                        });
                    }
                }
                3 => self.to_peer(n, |ep, _, buffer, _| {
                    tag::ucp_tag_send_nbx(ep, buffer, n, 5, &plain)
                }),
                4 => self.to_peer(n, |ep, _, buffer, _| {
                    tag::ucp_tag_send_sync_nbx(ep, buffer, n, 5, &plain)
                }),
                5 => self.to_peer(8 * n, |ep, _, buffer, _| {
                    tag::ucp_tag_send_nbx(ep, buffer, 8 * n, 5, &plain)
                }),
                6 => self.to_peer(4 * n, |ep, _, buffer, _| {
                    let header = n.min(64);
                    am::ucp_am_send_nbx(ep, AM_ID.into(), buffer, header, buffer, 4 * n, &plain)
                }),
                7 => self.to_peer(n, |ep, key, buffer, _| {
                    rma::ucp_put_nbx(ep, buffer, n, 1 << 40, key, &plain)
                }),
                8 => self.to_peer(n, |ep, key, buffer, _| {
                    rma::ucp_get_nbx(ep, buffer, n, 1 << 40, key, &plain)
                }),
                9 => self.atomic(len),
                10 => self.to_peer(n, |ep, _, buffer, length| {
                    stream::ucp_stream_recv_nbx(ep, buffer, n, length, &plain)
                }),
                11 => self.to_peer(n, |ep, _, buffer, _| {
                    stream::ucp_stream_send_nbx(ep, buffer, n, &plain)
                }),
                12 => self.take_kept(n),
                13 => self.to_peer(0, |ep, _, _, _| endpoint::ucp_ep_flush_nbx(ep, &plain)),
                14 => {
                    if let Some(under) = self.in_flight.first() {
                        request::ucp_request_cancel(worker, under.request);
                    }
                }
                _ => self.close(len % 2 == 0),
            }
        }
        if let Some(under) = self.in_flight.get_mut(before) {
            under.what = what % 16;
        }
        self.free_completed();
    }

    /// Starts an operation on a buffer of exactly `n` bytes.
    fn start(
        &mut self,
        n: usize,
        receive: bool,
        begin: impl FnOnce(&mut Program, *mut c_void, *mut usize) -> ucs_status_ptr_t,
    ) {
        let (mut buffer, mut length) = (vec![0x33; n], Box::new(0));
        let request = begin(self, buffer.as_mut_ptr().cast(), &mut *length);
        if !request.is_null() && !UCS_PTR_IS_ERR(request) {
            self.in_flight.push(InFlight {
                what: 0,
                request,
                receive,
                buffer,
                _pieces: Vec::new(),
                length,
            });
        }
    }

    fn to_peer(
        &mut self,
        n: usize,
        begin: impl FnOnce(ucp_ep_h, ucp_rkey_h, *mut c_void, *mut usize) -> ucs_status_ptr_t,
    ) {
        let ep = self.endpoint();
        if !ep.is_null() {
            self.start(n, false, |p, buffer, length| {
                begin(ep, p.key, buffer, length)
            });
        }
    }

    unsafe fn receive_pieces(&mut self, n: usize) {
        let mut buffer = vec![0x33u8; n];
        let third = n / 3;
        let at = buffer.as_mut_ptr();
        let piece = |from: usize, length: usize| ucp_dt_iov_t {
            // SAFETY: inside of the buffer.
            buffer: unsafe { at.add(from) }.cast(),
            length,
        };
        let pieces = vec![
            piece(0, third),
            piece(third, 0),
            piece(third, third),
            piece(2 * third, n - 2 * third),
        ];
        // SAFETY: a zeroed structure with a mask that names what is set; pieces and buffer are kept.
        let request = unsafe {
            let mut param: ucp_request_param_t = std::mem::zeroed();
            param.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE as u32;
            param.datatype = UCP_DATATYPE_IOV as u64;
            let list = pieces.as_ptr().cast_mut().cast();
            tag::ucp_tag_recv_nbx(self.scene.victim, list, pieces.len(), 0, 0, &param)
        };
        if !request.is_null() && !UCS_PTR_IS_ERR(request) {
            self.in_flight.push(InFlight {
                what: 0,
                request,
                receive: true,
                buffer,
                _pieces: pieces,
                length: Box::new(0),
            });
        }
    }

    /// A fetching one; the operand lies behind the reply.
    unsafe fn atomic(&mut self, len: u16) {
        let op = [
            ucp_atomic_op_t::UCP_ATOMIC_OP_ADD,
            ucp_atomic_op_t::UCP_ATOMIC_OP_SWAP,
            ucp_atomic_op_t::UCP_ATOMIC_OP_CSWAP,
        ][usize::from(len) % 3];
        self.to_peer(16, |ep, key, buffer, _| {
            // SAFETY: a zeroed structure with a mask that names what is set; 16 bytes that are kept.
            unsafe {
                let mut param: ucp_request_param_t = std::mem::zeroed();
                param.op_attr_mask =
                    UCP_OP_ATTR_FIELD_DATATYPE as u32 | UCP_OP_ATTR_FIELD_REPLY_BUFFER as u32;
                param.datatype = 8 << 3;
                param.reply_buffer = buffer;
                let operand = buffer.byte_add(8);
                let op = MaybeUninit::new(op);
                amo::ucp_atomic_op_nbx(ep, op, operand, 1, 1 << 40, key, &param)
            }
        });
    }

    /// Receives or releases data that the handler has kept.
    unsafe fn take_kept(&mut self, n: usize) {
        let Some(desc) = self.kept.pop() else { return };
        let worker = self.scene.victim;
        // SAFETY: a descriptor that was kept and not taken; the buffer is kept.
        unsafe {
            if n % 4 == 0 {
                return am::ucp_am_data_release(worker, desc);
            }
            let plain: ucp_request_param_t = std::mem::zeroed();
            self.start(n, false, |_, buffer, _| {
                am::ucp_am_recv_data_nbx(worker, desc, buffer, n, &plain)
            });
        }
    }

    fn close(&mut self, force: bool) {
        if self.ep.is_null() {
            return;
        }
        // SAFETY: a live key and endpoint, used no more.
        let request = unsafe {
            rkey::ucp_rkey_destroy(self.key);
            let mut param: ucp_request_param_t = std::mem::zeroed();
            if force {
                param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS as u32;
                param.flags = UCP_EP_CLOSE_FLAG_FORCE as u32;
            }
            endpoint::ucp_ep_close_nbx(self.ep, &param)
        };
        self.ep = ptr::null_mut();
        self.start(0, false, |_, _, _| request);
    }

    /// Frees completed requests.
    fn free_completed(&mut self) {
        self.in_flight.retain(|under| {
            // SAFETY: a request that was not freed.
            unsafe {
                if request::ucp_request_check_status(under.request) == UCS_INPROGRESS {
                    return true;
                }
                request::ucp_request_free(under.request);
            }
            assert!(*under.length <= under.buffer.len());
            false
        });
    }

    /// After the attack: the attacker's connection is failed, so that every operation on it ends; requests that wait
    /// for any peer are canceled. None may be left then.
    pub fn end(mut self) {
        // SAFETY: live handles, used no more.
        unsafe {
            for under in self.in_flight.iter().filter(|under| under.receive) {
                request::ucp_request_cancel(self.scene.victim, under.request);
            }
            self.close(true);
            for desc in self.kept.drain(..) {
                am::ucp_am_data_release(self.scene.victim, desc);
            }
            for _ in 0..64 {
                self.scene.settle();
            }
            self.free_completed();
            let left: Vec<u8> = self.in_flight.iter().map(|under| under.what).collect();
            assert!(left.is_empty(), "requests that never end, of acts {left:?}");
            assert_eq!(memory::ucp_mem_unmap(self.scene.context, self.memh), UCS_OK);
        }
        let requests = self.scene.worker().stats.worker().requests();
        assert_eq!(
            requests.load(Ordering::Relaxed),
            0,
            "requests that are not freed"
        );
        let behind = &self.memory[GUARD + REGION..];
        let guards = self.memory[..GUARD].iter().chain(behind);
        assert!(
            guards.copied().all(|b| b == GUARD_BYTE),
            "memory that is not registered was written"
        );
    }
}
