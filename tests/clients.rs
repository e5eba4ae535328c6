//! Clients whose server has not accepted yet: no peer but the server can complete their endpoints.

mod support;

use std::io::{Read, Write};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::ptr;
use support::raw_peer::RawPeer;
use support::scene::Scene;
use ucp::abi::{endpoint, tag};
use ucp::ctypes::*;
use ucp::sys::host;
use ucp::tl::address::WorkerAddress;
use ucp::tl::shm::outbox::Outbox;
use ucp::wire::cm_msg::{Hello, MAGIC, NUMBER_BITS, Reply};
use ucp::wire::header::{EpImm, Kind};

/// The endpoint of the client number `n`, in the server's numbering.
const CLIENT: u32 = 0b10 << NUMBER_BITS;
const TAG: u64 = 0xC11E;
/// Another sender to the client's worker.
const OTHER: u64 = 5;

/// A client that has sent a connection request to a server, which is this test and can delay its reply.
struct Pending<'a> {
    scene: &'a Scene,
    ep: ucp_ep_h,
    connection: TcpStream,
    hello: Hello,
}

impl<'a> Pending<'a> {
    /// The client's endpoint belongs to the victim.
    fn new(scene: &'a Scene) -> Pending<'a> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut ep = ptr::null_mut();
        // SAFETY: zeroed structures with masks that name what is set; a live worker.
        unsafe {
            let mut at: libc::sockaddr_in = std::mem::zeroed();
            at.sin_family = libc::AF_INET as u16;
            at.sin_port = port.to_be();
            at.sin_addr.s_addr = u32::from_ne_bytes([127, 0, 0, 1]);
            let mut params: ucp_ep_params_t = std::mem::zeroed();
            params.field_mask = UCP_EP_PARAM_FIELD_FLAGS as u64
                | UCP_EP_PARAM_FIELD_SOCK_ADDR as u64
                | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE as u64;
            params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER as u32;
            params.sockaddr.addr = (&raw const at).cast();
            params.sockaddr.addrlen = size_of_val(&at) as u32;
            params.err_mode = MaybeUninit::new(ucp_err_handling_mode_t::UCP_ERR_HANDLING_MODE_PEER);
            assert_eq!(
                endpoint::ucp_ep_create(scene.victim, &params, &mut ep),
                UCS_OK
            );
        }
        let (mut connection, _) = listener.accept().unwrap();
        connection.set_nonblocking(true).unwrap();
        let (mut said, mut part) = (Vec::new(), [0; 1024]);
        let mut hello = None;
        scene.until("a question", || {
            let n = connection.read(&mut part).unwrap_or(0);
            said.extend_from_slice(&part[..n]);
            hello = Hello::decode(&said);
            hello.is_some_and(|h| said.len() == Hello::SIZE + usize::from(h.address_len))
        });
        Pending {
            scene,
            ep,
            connection,
            hello: hello.unwrap(),
        }
    }

    fn answer(&mut self, address: &WorkerAddress) {
        let address = address.encode();
        let reply = Reply {
            magic: MAGIC,
            address_len: address.len() as u16,
            status: 0,
            err_mode: 1,
        };
        let all = [&reply.encode()[..], &address].concat();
        self.connection.write_all(&all).unwrap();
    }

    /// The client sends a word; returns the request if it is pending.
    fn send(&self, word: &u64) -> ucs_status_ptr_t {
        // SAFETY: a zeroed structure; a live endpoint; the word outlives the request.
        let sent = unsafe {
            let param: ucp_request_param_t = std::mem::zeroed();
            tag::ucp_tag_send_nbx(self.ep, ptr::from_ref(word).cast(), 8, TAG, &param)
        };
        assert!(!UCS_PTR_IS_ERR(sent));
        sent
    }

    fn finish(&self, req: ucs_status_ptr_t) {
        assert_eq!(self.scene.end("the end of a request", req), UCS_OK);
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        // SAFETY: a zeroed structure with a mask that names what is set; a live endpoint, used no more.
        unsafe {
            let mut param: ucp_request_param_t = std::mem::zeroed();
            param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS as u32;
            param.flags = UCP_EP_CLOSE_FLAG_FORCE as u32;
            assert!(endpoint::ucp_ep_close_nbx(self.ep, &param).is_null());
        }
    }
}

fn send_raw(outbox: &mut Outbox, kind: Kind, aux: u8, imm: u64) {
    assert_eq!(
        outbox.send(kind as u8, aux, imm, 0, |_| {}).ok(),
        Some(true)
    );
}

/// Counts received tagged messages.
fn count_tagged(raw_peer: &mut RawPeer) -> usize {
    let mut count = 0;
    raw_peer.receive(|m, _| count += usize::from(m.kind == Kind::TagEager as u8));
    count
}

#[test]
fn another_worker_cannot_accept_a_pending_client() {
    let scene = Scene::new(&[]);
    let mut pending = Pending::new(&scene);
    let mut raw_peer = RawPeer::new();
    let mut outbox = raw_peer.outbox(&scene.address, OTHER);
    let imm = EpImm {
        sn: CLIENT | pending.hello.number,
        err_mode: 1,
    }
    .to_u64();
    for secret in [0, imm, pending.hello.number.into(), !pending.hello.secret] {
        send_raw(&mut outbox, Kind::Accepted, 0, secret);
    }
    // All messages that name an endpoint by its number.
    for (kind, aux) in [
        (Kind::EpInfo, 0),
        (Kind::StreamData, 0),
        (Kind::EpClosed, UCS_OK as i8 as u8),
        (Kind::EpClosed, UCS_ERR_CONNECTION_RESET as i8 as u8),
    ] {
        send_raw(&mut outbox, kind, aux, imm);
    }
    scene.settle();
    let word = 0x1234_u64;
    let sent = pending.send(&word);
    scene.settle();
    assert!(!sent.is_null(), "the client has no peer yet");
    // The server is the decent worker.
    // SAFETY: a zeroed structure; live workers; the buffer outlives the request.
    let server = unsafe { &*scene.decent.cast::<ucp::engine::worker::Worker>() };
    let mut got = 0_u64;
    // SAFETY: a live worker and endpoint; the buffer outlives the request.
    let received = unsafe {
        let param: ucp_request_param_t = std::mem::zeroed();
        let buffer = (&raw mut got).cast();
        tag::ucp_tag_recv_nbx(scene.decent, buffer, 8, TAG, u64::MAX, &param)
    };
    pending.answer(&server.address(false));
    pending.finish(received);
    pending.finish(sent);
    // SAFETY: the request that wrote it has ended.
    assert_eq!(unsafe { (&raw const got).read_volatile() }, word);
    assert_eq!(count_tagged(&mut raw_peer), 0);
    scene.decent_goes_on(1000);
}

#[test]
fn messages_of_the_server_may_be_faster_than_its_answer() {
    let scene = Scene::new(&[]);
    let mut pending = Pending::new(&scene);
    let mut raw_peer = RawPeer::new();
    let word = 0x1234_u64;
    let sent = pending.send(&word);
    scene.settle();
    assert!(!sent.is_null());
    let mut outbox = raw_peer.outbox(&scene.address, OTHER);
    send_raw(&mut outbox, Kind::Accepted, 0, pending.hello.secret);
    pending.finish(sent);
    assert_eq!(count_tagged(&mut raw_peer), 1);
    pending.answer(&raw_peer.address(OTHER, host::place().host));
    scene.settle();
    let sent = pending.send(&word);
    pending.finish(sent);
    assert_eq!(count_tagged(&mut raw_peer), 1);
    // The secret is valid once.
    send_raw(&mut outbox, Kind::Accepted, 0, pending.hello.secret);
    scene.settle();
    let sent = pending.send(&word);
    pending.finish(sent);
    assert_eq!(count_tagged(&mut raw_peer), 1);
}

#[test]
fn placeholders_go_with_their_endpoints() {
    let scene = Scene::new(&[]);
    let placeholders = || {
        let exchange = scene.worker().cm.lock();
        exchange.as_ref().map_or(0, |x| x.stub_peers().count())
    };
    // SAFETY: a live worker.
    let server = unsafe { &*scene.decent.cast::<ucp::engine::worker::Worker>() };
    let word = 1_u64;
    for answers in [false, true, false, true] {
        let mut pending = Pending::new(&scene);
        let sent = answers.then(|| pending.send(&word));
        if let Some(sent) = sent {
            pending.answer(&server.address(false));
            pending.finish(sent);
        }
        assert_eq!(placeholders(), 1, "a sender may still use it");
        drop(pending);
        assert_eq!(placeholders(), 0);
    }
}
