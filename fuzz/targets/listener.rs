//! Connections to a listener: raw bytes, and the same bytes as a client's question with an address behind it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::ffi::c_void;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ptr;
use ucp::abi::{endpoint, listener};
use ucp::ctypes::*;
use ucp::engine::listener::{Entry, Listener};
use ucp::wire::address::WorkerAddress;
use ucp::wire::session::{Hello, MAGIC, Reply};
use ucp_fuzz::support::scene::{Scene, new_context};

/// What the server's handler does, and what it has seen.
#[derive(Default)]
struct Server {
    worker: ucp_worker_h,
    accepts: bool,
    listener: ucp_listener_h,
    asked: u32,
    accepted: Vec<ucp_ep_h>,
}

unsafe extern "C" fn on_client(request: ucp_conn_request_h, arg: *mut c_void) {
    // SAFETY: the library's promises; `arg` is the server.
    unsafe {
        let server = &mut *arg.cast::<Server>();
        server.asked += 1;
        if !server.accepts {
            assert_eq!(
                listener::ucp_listener_reject(server.listener, request),
                UCS_OK
            );
            return;
        }
        let mut params: ucp_ep_params_t = std::mem::zeroed();
        params.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST as u64;
        params.conn_request = request;
        let mut ep = ptr::null_mut();
        if endpoint::ucp_ep_create(server.worker, &params, &mut ep) == UCS_OK {
            server.accepted.push(ep);
        }
    }
}

unsafe fn listen(server: &mut Server) -> SocketAddr {
    // SAFETY: zeroed structures with masks that name what is set; the server outlives the listener.
    unsafe {
        let mut at: libc::sockaddr_in = std::mem::zeroed();
        at.sin_family = libc::AF_INET as u16;
        at.sin_addr.s_addr = u32::from_ne_bytes([127, 0, 0, 1]);
        let mut params: ucp_listener_params_t = std::mem::zeroed();
        params.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR as u64
            | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER as u64;
        params.sockaddr.addr = (&raw const at).cast();
        params.sockaddr.addrlen = size_of_val(&at) as u32;
        params.conn_handler.cb = Some(on_client);
        params.conn_handler.arg = (&raw mut *server).cast();
        let made = listener::ucp_listener_create(server.worker, &params, &mut server.listener);
        assert_eq!(made, UCS_OK);
        (*server.listener.cast::<Listener>()).address
    }
}

/// Guests that the victim keeps.
fn guests(scene: &Scene) -> usize {
    let exchange = scene.worker().exchange.lock();
    exchange.as_ref().map_or(0, |x| {
        let guests = x.entries.values().filter(|e| matches!(e, Entry::Guest(_)));
        assert_eq!(guests.clone().count(), x.guests.len());
        x.guests.len()
    })
}

thread_local! {
    /// The fuzzer has one thread.
    static CONTEXT: ucp_context_h = new_context(&[(c"TLS", c"tcp,self,sm"), (c"NET_DEVICES", c"lo")]);
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&how, bytes)) = bytes.split_first() else {
        return;
    };
    let scene = Scene::within(CONTEXT.with(|c| *c));
    let mut server = Server {
        worker: scene.victim,
        accepts: how & 1 != 0,
        ..Server::default()
    };
    // SAFETY: the server stays where it is.
    let port = unsafe { listen(&mut server) };
    // Raw bytes, an address that is no address, an address that is one: of the decent worker.
    let words = bytes.first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
    let mut decent = WorkerAddress {
        uid: words | 1,
        ..scene.address.clone()
    };
    decent.shm = None;
    let address = match how >> 1 & 3 {
        0 => None,
        1 => Some(bytes.to_vec()),
        _ => Some(decent.encode()),
    };
    let said = match &address {
        None => bytes.to_vec(),
        Some(address) => {
            let hello = Hello {
                magic: MAGIC,
                number: words as u32 >> 10,
                address_len: address.len() as u16,
                err_mode: how >> 3 & 3,
                has_id: how >> 5 & 1,
                client_id: words,
            };
            [&hello.encode()[..], address].concat()
        }
    };
    let right = Hello::decode(&said).is_some_and(|hello| {
        let end = Hello::SIZE + usize::from(hello.address_len);
        said.get(Hello::SIZE..end)
            .is_some_and(|a| WorkerAddress::decode(a).is_ok())
    });
    let mut client = TcpStream::connect(port).expect("somebody listens");
    let cut = usize::from(how >> 6) * said.len() / 4;
    client
        .write_all(&said[..cut])
        .expect("room in a socket's buffer");
    scene.settle();
    let _ = client.write_all(&said[cut..]);
    let _ = client.shutdown(std::net::Shutdown::Write);
    client.set_nonblocking(true).expect("always possible");
    // Everybody is answered or sent away.
    let mut answer = Vec::new();
    let mut part = [0; 4096];
    scene.until("an answer or the end", || match client.read(&mut part) {
        Ok(0) => true,
        Ok(n) => {
            answer.extend_from_slice(&part[..n]);
            Reply::decode(&answer).is_some()
        }
        Err(e) => e.kind() != std::io::ErrorKind::WouldBlock,
    });
    scene.until("no guests", || guests(&scene) == 0);
    assert!(
        right || server.asked == 0,
        "a stranger was shown to the program"
    );
    assert!(server.asked <= 1 && server.accepted.len() as u32 <= server.asked);
    // SAFETY: live handles, used no more.
    unsafe {
        for &ep in &server.accepted {
            let mut param: ucp_request_param_t = std::mem::zeroed();
            param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS as u32;
            param.flags = UCP_EP_CLOSE_FLAG_FORCE as u32;
            let request = endpoint::ucp_ep_close_nbx(ep, &param);
            if !request.is_null() && !UCS_PTR_IS_ERR(request) {
                ucp::abi::request::ucp_request_free(request);
            }
        }
        listener::ucp_listener_destroy(server.listener);
    }
    scene.settle();
});
