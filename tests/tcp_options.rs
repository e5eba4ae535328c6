//! Options of TCP have their effect: eager limits, copies, the bytes read by one progress call, selected devices.

mod support;

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::ptr;
use support::scene::{Scene, alone, new_context, until_arrived};
use support::server::Server;
use ucp::abi::{context, endpoint, request, tag, worker};
use ucp::ctypes::*;
use ucp::engine::endpoint::Endpoint;
use ucp::proto::{lane_info, proto_info};
use ucp::wire::stats::StatProtocol;

const K: usize = 1 << 10;

fn scene(options: &[(&CStr, &CStr)]) -> Scene {
    // Unexpected messages are left behind on purpose.
    let always = [(c"TLS", c"tcp"), (c"LOG_LEVEL", c"error")];
    let scene = Scene::new(&[&always, options].concat());
    scene.decent_goes_on(1);
    scene
}

/// Messages of a protocol that the decent peer has sent.
fn count(scene: &Scene, protocol: StatProtocol) -> u64 {
    scene.victim_seen().stats().of(protocol).messages()
}

/// Whether a message is eager, and in one record: neither a rendezvous nor fragments.
fn is_whole(scene: &Scene, len: usize) -> bool {
    let peers = scene.worker().all_peers();
    let records = peers[0].stats().received.messages();
    let (eager, rndv) = (
        count(scene, StatProtocol::Eager),
        count(scene, StatProtocol::RndvMessages),
    );
    scene.decent_goes_on(len);
    let eager = count(scene, StatProtocol::Eager) - eager;
    assert_eq!(eager + count(scene, StatProtocol::RndvMessages) - rndv, 1);
    eager == 1 && peers[0].stats().received.messages() == records + 1
}

#[test]
fn segments_bound_eager_messages() {
    let _alone = alone();
    let longest = |options: &[(&CStr, &CStr)], len| {
        let scene = scene(options);
        assert!(is_whole(&scene, len), "{options:?}: {len} bytes");
        assert!(
            !is_whole(&scene, len + 1),
            "{options:?}: {len} bytes and one"
        );
    };
    longest(&[], 64 * K);
    longest(&[(c"TCP_RX_SEG_SIZE", c"32k")], 32 * K);
    // A message longer than the threshold is not eager, whatever a segment holds.
    longest(&[(c"TCP_RX_SEG_SIZE", c"256k")], 64 * K);
    let all = (c"RNDV_THRESH", c"inf");
    longest(&[all, (c"TCP_RX_SEG_SIZE", c"256k")], 256 * K);
    longest(&[all, (c"TCP_RX_SEG_SIZE", c"inf")], 1024 * K);
    // Never less than through a ring.
    longest(&[all, (c"TCP_RX_SEG_SIZE", c"1")], 24 * K);
    // Copied messages use the other path; a receiver with a short buffer makes room.
    let copied = (c"ZCOPY_THRESH", c"inf");
    longest(&[all, copied], 24 * K);
    let (long, short) = ((c"TCP_TX_SEG_SIZE", c"900k"), (c"TCP_RX_SEG_SIZE", c"1k"));
    longest(&[all, copied, long, short], 900 * K);
}

/// How many of 60 messages of 1000 bytes, all in the receiver's socket, its first progress call handles.
fn in_one_call(max_poll: &CStr) -> u64 {
    let scene = scene(&[(c"TCP_MAX_POLL", max_poll), (c"TCP_RX_SEG_SIZE", c"20k")]);
    let peers = scene.worker().all_peers();
    let decent = &peers[0];
    let before = decent.stats().received.messages();
    let data = [7_u8; 1000];
    // SAFETY: zeroed parameters with a mask that names what is set, live handles, messages that are sent at once.
    unsafe {
        let mut param: ucp_request_param_t = std::mem::zeroed();
        param.op_attr_mask = UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL as u32;
        for _ in 0..60 {
            let sent =
                tag::ucp_tag_send_nbx(scene.to_victim, data.as_ptr().cast(), 1000, 1, &param);
            assert!(sent.is_null(), "a socket that takes less than 60 KB");
        }
        until_arrived();
        // A call that also reads the clock reads the socket a second time.
        scene.worker().rx.lock().calls = 1000;
        worker::ucp_worker_progress(scene.victim);
    }
    let first = decent.stats().received.messages() - before;
    scene.until("the rest", || {
        decent.stats().received.messages() - before == 60
    });
    first
}

#[test]
fn max_poll_bounds_reads() {
    let _alone = alone();
    // A frame has 1016 bytes, the buffer 20 KiB.
    assert_eq!(in_one_call(c"1"), 20);
    assert_eq!(
        in_one_call(c"0"),
        20,
        "as 1: a worker that reads nothing is of no use"
    );
    assert_eq!(in_one_call(c"2"), 40);
    assert_eq!(in_one_call(c"inf"), 60);
}

/// The value received for a byte that the user changes while the message is being sent, behind the part the kernel has
/// taken.
fn sees_change(zcopy_thresh: &CStr) -> bool {
    const LEN: usize = 4 << 20;
    const WHERE: usize = 700 * K;
    let scene = scene(&[
        (c"ZCOPY_THRESH", zcopy_thresh),
        (c"TCP_TX_SEG_SIZE", c"1m"),
        (c"TCP_SNDBUF", c"4k"),
        (c"TCP_RCVBUF", c"4k"),
    ]);
    let (mut from, mut to) = (vec![1_u8; LEN], vec![0_u8; LEN]);
    // SAFETY: zeroed parameters, live handles, buffers that outlive the requests and are used through pointers.
    unsafe {
        let param: ucp_request_param_t = std::mem::zeroed();
        let (from, to) = (from.as_mut_ptr(), to.as_mut_ptr());
        let r = tag::ucp_tag_recv_nbx(scene.victim, to.cast(), LEN, 1, u64::MAX, &param);
        let s = tag::ucp_tag_send_nbx(scene.to_victim, from.cast(), LEN, 1, &param);
        let in_flight = || {
            let tx = scene.victim_seen().tx.lock();
            let first = tx.pending.front().copied().unwrap_or(ptr::null_mut());
            first.as_ref().is_some_and(|r| r.offset > 900 * K as u64)
        };
        scene.until("the message is in flight", in_flight);
        from.add(WHERE).write_volatile(2);
        for req in [r, s] {
            assert_eq!(scene.end("the message", req), UCS_OK);
        }
        assert_eq!((to.read(), to.add(LEN - 1).read()), (1, 1));
        to.add(WHERE).read() == 2
    }
}

/// Protocols of tagged messages according to `UCX_PROTO_INFO`: first bytes and words.
fn described(options: &[(&CStr, &CStr)]) -> Vec<(usize, &'static str)> {
    let scene = scene(options);
    let peer = scene.victim_seen();
    let tables = proto_info::tables(peer.worker(), peer);
    let tagged = tables.iter().find(|t| t.operation.starts_with("tagged"));
    let ranges = tagged.expect("a table of tagged messages").ranges.iter();
    ranges.map(|r| (r.first, r.what)).collect()
}

#[test]
fn tables_show_segments_and_copies() {
    let _alone = alone();
    let (short, copied) = ((0, "eager short"), "eager copy-in copy-out");
    let options = [(c"TCP_RX_SEG_SIZE", c"32k"), (c"ZCOPY_THRESH", c"4k")];
    assert_eq!(
        described(&options),
        [
            short,
            (113, copied),
            (4 * K, "eager zero-copy"),
            (32 * K + 1, "rendezvous zero-copy in parts"),
        ]
    );
    let options = [(c"TCP_TX_SEG_SIZE", c"32k"), (c"ZCOPY_THRESH", c"inf")];
    let fragmented = "rendezvous fragmented copy-in copy-out";
    let expected = [short, (113, copied), (32 * K + 1, fragmented)];
    assert_eq!(described(&options), expected);
}

#[test]
fn zcopy_threshold_says_what_is_copied() {
    let _alone = alone();
    assert!(sees_change(c"auto"), "sent from where it lies");
    assert!(!sees_change(c"inf"), "copied before");
}

/// The lanes of a client and of its server, connected over the loopback device, as transport/device.
fn lanes_at_loopback(options: &[(&CStr, &CStr)]) -> [Vec<String>; 2] {
    let made = new_context(options);
    // Four workers; the server's and the client's do not know each other.
    let (here, there) = (Scene::within(made), Scene::within(made));
    let server = Server::new(&here, true);
    let mut client = ptr::null_mut();
    // SAFETY: zeroed structures with masks that name what is set; live handles.
    unsafe {
        let mut at: libc::sockaddr_in = std::mem::zeroed();
        at.sin_family = libc::AF_INET as u16;
        at.sin_addr.s_addr = u32::from_ne_bytes([127, 0, 0, 1]);
        at.sin_port = server.port.port().to_be();
        let mut params: ucp_ep_params_t = std::mem::zeroed();
        params.field_mask = UCP_EP_PARAM_FIELD_FLAGS as u64
            | UCP_EP_PARAM_FIELD_SOCK_ADDR as u64
            | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE as u64;
        // The same as the server's.
        params.err_mode = MaybeUninit::new(ucp_err_handling_mode_t::UCP_ERR_HANDLING_MODE_PEER);
        params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER as u32;
        params.sockaddr.addr = (&raw const at).cast();
        params.sockaddr.addrlen = size_of_val(&at) as u32;
        let status = endpoint::ucp_ep_create(there.decent, &params, &mut client);
        assert_eq!(status, UCS_OK);
    }
    // SAFETY: endpoints of this library, alive until their workers are destroyed.
    let peer = |ep: ucp_ep_h| unsafe { &*ep.cast::<Endpoint>() }.peer();
    here.until("a client that is accepted", || {
        there.progress();
        !server.accepted().is_empty() && !peer(client).is_stub()
    });
    for (ep, receiver) in [(client, here.victim), (server.accepted()[0], there.decent)] {
        let (sent, mut got) = ([5_u8; 100], [0_u8; 100]);
        // SAFETY: zeroed parameters, live handles, buffers that outlive the requests.
        unsafe {
            let param: ucp_request_param_t = std::mem::zeroed();
            let r =
                tag::ucp_tag_recv_nbx(receiver, got.as_mut_ptr().cast(), 100, 9, u64::MAX, &param);
            let s = tag::ucp_tag_send_nbx(ep, sent.as_ptr().cast(), 100, 9, &param);
            for req in [r, s].into_iter().filter(|req| !req.is_null()) {
                here.until("a message", || {
                    there.progress();
                    request::ucp_request_check_status(req) != UCS_INPROGRESS
                });
                assert_eq!(request::ucp_request_check_status(req), UCS_OK);
                request::ucp_request_free(req);
            }
        }
        assert_eq!(sent, got);
    }
    let names = |ep| {
        let lanes = lane_info::of(peer(ep));
        lanes.map(|lane| lane.name.to_string()).collect()
    };
    let lanes = [names(client), names(server.accepted()[0])];
    drop(server);
    drop((here, there));
    // SAFETY: its workers are destroyed.
    unsafe { context::ucp_cleanup(made) };
    lanes
}

#[test]
fn clients_use_the_selected_device() {
    let _alone = alone();
    for lanes in lanes_at_loopback(&[]) {
        assert_eq!(lanes[0], "posix/memory");
    }
    let one = (c"CM_USE_ALL_DEVICES", c"n");
    assert_eq!(lanes_at_loopback(&[one]), [["tcp/lo"], ["tcp/lo"]]);
    // Messages cannot use that device: another one is used.
    for lanes in lanes_at_loopback(&[one, (c"TLS", c"sm")]) {
        assert_eq!(lanes[0], "posix/memory");
    }
}
