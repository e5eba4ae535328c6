//! A listener of the victim, and a program that accepts or rejects its clients.

use super::scene::Scene;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::ptr;
use ucp::abi::{endpoint, listener, request};
use ucp::ctypes::*;
use ucp::engine::cm::{CmEntry, Listener};

pub struct Server<'a> {
    scene: &'a Scene,
    pub port: SocketAddr,
    /// Boxed: the handler has a pointer to it.
    clients: Box<Clients>,
}

/// Clients that the handler has seen.
struct Clients {
    worker: ucp_worker_h,
    listener: ucp_listener_h,
    accepts: bool,
    requests: usize,
    accepted: Vec<ucp_ep_h>,
}

unsafe extern "C" fn on_client(request: ucp_conn_request_h, arg: *mut c_void) {
    // SAFETY: the library calls handlers with valid arguments; `arg` is the server's box. A zeroed structure with a
    // mask that names what is set.
    unsafe {
        let clients = &mut *arg.cast::<Clients>();
        clients.requests += 1;
        if !clients.accepts {
            let rejected = listener::ucp_listener_reject(clients.listener, request);
            assert_eq!(rejected, UCS_OK);
            return;
        }
        let mut params: ucp_ep_params_t = std::mem::zeroed();
        params.field_mask =
            UCP_EP_PARAM_FIELD_CONN_REQUEST as u64 | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE as u64;
        params.conn_request = request;
        params.err_mode = MaybeUninit::new(ucp_err_handling_mode_t::UCP_ERR_HANDLING_MODE_PEER);
        let mut ep = ptr::null_mut();
        if endpoint::ucp_ep_create(clients.worker, &params, &mut ep) == UCS_OK {
            clients.accepted.push(ep);
        }
    }
}

impl<'a> Server<'a> {
    /// Listens on the loopback device.
    pub fn new(scene: &'a Scene, accepts: bool) -> Server<'a> {
        let mut clients = Box::new(Clients {
            worker: scene.victim,
            listener: ptr::null_mut(),
            accepts,
            requests: 0,
            accepted: Vec::new(),
        });
        // SAFETY: zeroed structures with masks that name what is set; the box outlives the listener.
        let port = unsafe {
            let mut at: libc::sockaddr_in = std::mem::zeroed();
            at.sin_family = libc::AF_INET as u16;
            at.sin_addr.s_addr = u32::from_ne_bytes([127, 0, 0, 1]);
            let mut params: ucp_listener_params_t = std::mem::zeroed();
            params.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR as u64
                | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER as u64;
            params.sockaddr.addr = (&raw const at).cast();
            params.sockaddr.addrlen = size_of_val(&at) as u32;
            params.conn_handler.cb = Some(on_client);
            params.conn_handler.arg = (&raw mut *clients).cast();
            let made = listener::ucp_listener_create(scene.victim, &params, &mut clients.listener);
            assert_eq!(made, UCS_OK);
            (*clients.listener.cast::<Listener>()).address
        };
        Server {
            scene,
            port,
            clients,
        }
    }

    /// Clients for which the handler was called.
    pub fn requests(&self) -> usize {
        self.clients.requests
    }

    /// The endpoints of accepted clients.
    pub fn accepted(&self) -> &[ucp_ep_h] {
        &self.clients.accepted
    }

    /// Clients that have connected and not sent their hello.
    pub fn half_open(&self) -> usize {
        let exchange = self.scene.worker().cm.lock();
        let Some(x) = exchange.as_ref() else { return 0 };
        let half_open = x
            .entries
            .values()
            .filter(|e| matches!(e, CmEntry::HalfOpen(_)));
        assert_eq!(half_open.count(), x.half_open.len());
        x.half_open.len()
    }
}

impl Drop for Server<'_> {
    fn drop(&mut self) {
        assert!(self.clients.accepted.len() <= self.clients.requests);
        // SAFETY: live handles, used no more; a zeroed structure with a mask that names what is set.
        unsafe {
            let mut param: ucp_request_param_t = std::mem::zeroed();
            param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS as u32;
            param.flags = UCP_EP_CLOSE_FLAG_FORCE as u32;
            for &ep in &self.clients.accepted {
                let closing = endpoint::ucp_ep_close_nbx(ep, &param);
                if !closing.is_null() && !UCS_PTR_IS_ERR(closing) {
                    request::ucp_request_free(closing);
                }
            }
            listener::ucp_listener_destroy(self.clients.listener);
        }
        self.scene.settle();
    }
}
