//! A peer that writes garbage into its ring: its own connection fails, other peers are not affected.

mod support;

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr;
use support::random::Random;
use support::raw_peer::RawPeer;
use support::scene::{Scene, endpoint_to};
use ucp::abi::{endpoint, memory, rkey, tag};
use ucp::ctypes::*;
use ucp::proto::release;
use ucp::wire::header::{AmImm, DataHdr, FragmentHdr, Kind, RtrHdr, RtsHdr};

/// Kinds of messages, 1 to this.
const KINDS: u64 = Kind::ALL.len() as u64;

unsafe extern "C" fn on_am(
    _arg: *mut c_void,
    _header: *const c_void,
    _header_length: usize,
    _data: *mut c_void,
    _length: usize,
    _param: *const ucp_am_recv_param_t,
) -> MaybeUninit<ucs_status_t> {
    MaybeUninit::new(UCS_OK)
}

/// A victim with a handler of active messages.
fn scene() -> Scene {
    let scene = Scene::new(&[]);
    // SAFETY: a zeroed parameter structure with a mask that names what is set, a live worker.
    unsafe {
        let mut handler: ucp_am_handler_param_t = std::mem::zeroed();
        handler.field_mask =
            UCP_AM_HANDLER_PARAM_FIELD_ID as u64 | UCP_AM_HANDLER_PARAM_FIELD_CB as u64;
        handler.id = 1;
        handler.cb = Some(on_am);
        assert_eq!(
            ucp::abi::am::ucp_worker_set_am_recv_handler(scene.victim, &handler),
            UCS_OK
        );
    }
    scene
}

/// Messages of the decent peer arrive, a small one and a large one.
fn decent_peer_works(scene: &Scene) {
    scene.decent_goes_on(8);
    scene.decent_goes_on(100_000);
}

#[test]
fn random_messages_of_every_kind_affect_no_other_peer() {
    let scene = scene();
    let mut raw_peer = RawPeer::new();
    let mut random = Random(0x1234_5678_9ABC_DEF1);
    let mut outbox = raw_peer.outbox(&scene.address, 1);
    // Registered memory, so that remote accesses fail for several reasons.
    let mut region = vec![0u64; 512];
    // SAFETY: a live context, memory that outlives the mapping.
    let memh = unsafe {
        let mut params: ucp_mem_map_params_t = std::mem::zeroed();
        params.field_mask =
            UCP_MEM_MAP_PARAM_FIELD_ADDRESS as u64 | UCP_MEM_MAP_PARAM_FIELD_LENGTH as u64;
        (params.address, params.length) = (region.as_mut_ptr().cast(), 4096);
        let mut memh = ptr::null_mut();
        assert_eq!(
            memory::ucp_mem_map(scene.context, &params, &mut memh),
            UCS_OK
        );
        memh
    };
    for round in 0..21_600u64 {
        let len = (random.next() % 200) as usize;
        let mut bytes: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
        if len >= 8 && random.next() % 2 == 0 {
            bytes[..8].copy_from_slice(&random.id().to_le_bytes());
        }
        let imm = if random.next() % 8 == 0 {
            region.as_ptr() as u64 + random.next() % 5000
        } else {
            random.id()
        };
        // Nearly always a kind that exists: an unknown one ends the ring.
        let kind = if random.next() % 50 == 0 {
            random.next() as u8
        } else {
            (1 + random.next() % KINDS) as u8
        };
        let aux = random.next() as u8;
        // SAFETY: the record has room for `len` bytes.
        let fill = |dst: *mut u8| unsafe { dst.copy_from_nonoverlapping(bytes.as_ptr(), len) };
        match outbox.send(kind, aux, imm, len, fill) {
            Ok(true) => {}
            // The victim does not read from a peer whose connection has failed.
            Ok(false) | Err(_) => outbox = raw_peer.outbox(&scene.address, round + 2),
        }
        if round % 16 == 0 {
            scene.settle();
            raw_peer.receive(|_, _| {});
        }
        if round % 24 == 0 {
            outbox = raw_peer.outbox(&scene.address, round + 2);
        }
        if round % 2400 == 0 {
            decent_peer_works(&scene);
        }
    }
    decent_peer_works(&scene);
    // SAFETY: mapped above.
    let unmapped = unsafe { memory::ucp_mem_unmap(scene.context, memh) };
    assert_eq!(unmapped, UCS_OK);
}

#[test]
fn damaged_keys_are_refused() {
    let scene = scene();
    let mut key = ptr::null_mut();
    for first in 0..=255u8 {
        for second in [0u8, 0x55, 0xFF] {
            let mut blob = [second; 16];
            blob[0] = first;
            // SAFETY: 16 readable bytes, more than any key has.
            let status = unsafe {
                rkey::ucp_ep_rkey_unpack(scene.to_victim, blob.as_ptr().cast(), &mut key)
            };
            if status == UCS_OK {
                // SAFETY: unpacked just now.
                unsafe { rkey::ucp_rkey_destroy(key) };
            } else {
                assert_eq!(status, UCS_ERR_INVALID_ADDR);
            }
        }
    }
}

#[test]
fn an_announcement_of_a_ring_that_is_read_changes_nothing() {
    let scene = scene();
    decent_peer_works(&scene);
    let raw_peer = RawPeer::new();
    let outbox = raw_peer.outbox(&scene.address, 7);
    outbox.announce_again();
    scene.settle();
    decent_peer_works(&scene);
}

/// A failed peer that still lives stays failed: an operation on a later endpoint to it ends with an error. The
/// rings between the two are closed, so that no reply could arrive.
#[test]
fn a_failed_peer_stays_failed() {
    const UID: u64 = 7;
    let scene = scene();
    let mut raw_peer = RawPeer::new();
    let mut outbox = raw_peer.outbox(&scene.address, UID);
    assert_eq!(outbox.send(0xFF, 0, 0, 0, |_| ()), Ok(true));
    scene.settle();
    let worker = scene.worker();
    {
        let mut rx = worker.rx.lock();
        release::progress(worker);
        release::sweep(worker, &mut rx);
    }
    let shm = scene.address.shm.expect("a worker in shared memory");
    let address = raw_peer.address(UID, shm.host).encode();
    // SAFETY: zeroed structures with masks that name what is set; live handles.
    unsafe {
        let ep = endpoint_to(scene.victim, &address);
        let mut param: ucp_request_param_t = std::mem::zeroed();
        let synchronous = tag::ucp_tag_send_sync_nbx(ep, ptr::null(), 0, 1, &param);
        assert_eq!(
            scene.end("a message to it", synchronous),
            UCS_ERR_CONNECTION_RESET
        );
        param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS as u32;
        param.flags = UCP_EP_CLOSE_FLAG_FORCE as u32;
        let close = endpoint::ucp_ep_close_nbx(ep, &param);
        assert_eq!(scene.end("the close", close), UCS_OK);
    }
    raw_peer.receive(|_, _| ());
    decent_peer_works(&scene);
}

/// The attacker sends an RTS, gets an RTR, and replies with one that requests the victim's receive buffer.
#[test]
fn a_sender_cannot_request_the_receivers_memory() {
    const TAG: u64 = 0x7A6;
    const ANNOUNCED: u64 = 1;
    let scene = scene();
    let mut raw_peer = RawPeer::new();
    let mut outbox = raw_peer.outbox(&scene.address, 1);
    let mut send = |kind: Kind, imm: u64, record: &[u8]| {
        // SAFETY: the record has room for as many bytes.
        let fill =
            |dst: *mut u8| unsafe { dst.copy_from_nonoverlapping(record.as_ptr(), record.len()) };
        assert_eq!(
            outbox.send(kind as u8, 0, imm, record.len(), fill),
            Ok(true)
        );
    };
    let mut secret = vec![0x77u8; 4096];
    // SAFETY: zeroed parameters, a live worker, memory that outlives the request.
    let receive = unsafe {
        let param = std::mem::zeroed();
        let (ptr, len) = (secret.as_mut_ptr().cast(), secret.len());
        tag::ucp_tag_recv_nbx(scene.victim, ptr, len, TAG, u64::MAX, &param)
    };
    let rts = RtsHdr {
        req: ANNOUNCED,
        len: 8,
        addr: 0,
        pieces: 0,
        waiting: 1,
    };
    send(Kind::TagRts, TAG, &rts.encode());
    let mut requested = None;
    scene.until("an RTR", || {
        raw_peer.receive(|m, record| {
            let rtr =
                RtrHdr::decode(record).filter(|_| m.kind == Kind::Rtr as u8 && m.imm == ANNOUNCED);
            requested = requested.or(rtr.map(|rtr| rtr.recv));
        });
        requested.is_some()
    });
    let recv = requested.unwrap();
    let want = RtrHdr {
        recv: ANNOUNCED,
        generation: 0,
        number: 0,
    };
    send(Kind::Rtr, recv, &want.encode());
    scene.settle();
    raw_peer.receive(|m, _| assert_ne!(m.kind, Kind::Data as u8, "the victim's memory"));
    let head = DataHdr { offset: 0 };
    let data: Vec<u8> = head.encode().into_iter().chain([1; 8]).collect();
    send(Kind::Data, recv, &data);
    assert_eq!(scene.end("the message", receive), UCS_OK);
    assert_eq!((&secret[..8], secret[8]), (&[1; 8][..], 0x77));
    decent_peer_works(&scene);
}

/// Fragments of tagged messages that no valid sender writes end the sender's ring, and no receive gets them.
#[test]
fn forged_fragments_of_tagged_messages_affect_no_other_peer() {
    const TAG: u64 = 0x7A6;
    let scene = scene();
    let mut raw_peer = RawPeer::new();
    // Messages: tag, offset, total, bytes of data. The last of each series is invalid.
    let series: [&[(u64, u64, u64, usize)]; 9] = [
        &[(TAG, 8, 16, 8)],
        &[(TAG, 0, 0, 0)],
        &[(TAG, 0, 16, 0)],
        &[(TAG, 0, 16, 17)],
        &[(TAG, 0, 16, 8), (TAG, 4, 16, 8)],
        &[(TAG, 0, 16, 8), (TAG, 8, 32, 8)],
        &[(TAG, 0, 16, 8), (TAG + 1, 8, 16, 8)],
        &[(TAG, 0, 16, 8), (TAG, 8, 16, 9)],
        // There is no memory for it: it is dropped, but its fragments have to be in order.
        &[(TAG, 0, u64::MAX, 8), (TAG, 16, u64::MAX, 8)],
    ];
    for (number, messages) in (1..).zip(series) {
        let mut outbox = raw_peer.outbox(&scene.address, number);
        for &(tag, offset, total, len) in messages {
            let mut record = FragmentHdr { offset, total }.encode().to_vec();
            record.resize(FragmentHdr::SIZE + len, 0x5A);
            // SAFETY: the record has room for as many bytes.
            let fill = |dst: *mut u8| unsafe {
                dst.copy_from_nonoverlapping(record.as_ptr(), record.len())
            };
            let kind = Kind::TagFragment as u8;
            assert_eq!(
                outbox.send(kind, 0, tag, record.len(), fill),
                Ok(true),
                "series {number}"
            );
            scene.settle();
        }
        // A failed ring is not read any more.
        assert_eq!(outbox.send(Kind::SyncAck as u8, 0, 0, 0, |_| ()), Ok(true));
        scene.settle();
        assert!(!outbox.drained(), "series {number} was taken for a message");
        raw_peer.receive(|_, _| {});
    }
    // SAFETY: a live worker; no information is requested.
    let kept = unsafe { tag::ucp_tag_probe_nb(scene.victim, TAG, !1, 0, ptr::null_mut()) };
    assert!(kept.is_null(), "part of a message is one");
    decent_peer_works(&scene);
}

/// Fragments of active messages that no valid sender writes end the sender's ring, and no handler sees them.
#[test]
fn forged_fragments_of_active_messages_affect_no_other_peer() {
    let scene = scene();
    let mut raw_peer = RawPeer::new();
    let imm = |header_len| AmImm {
        id: 1,
        header_len,
        flags: 0,
        sn: 0,
    };
    // Messages: offset, total, length of the user's header, bytes of data. The last of each series is invalid.
    let series: [&[(u64, u64, u16, usize)]; 8] = [
        &[(8, 16, 0, 8)],
        &[(0, 0, 0, 0)],
        &[(0, 16, 0, 17)],
        &[(0, 16, 4, 16)],
        &[(0, 16, 0, 8), (4, 16, 0, 8)],
        &[(0, 16, 0, 8), (8, 32, 0, 8)],
        &[(0, 16, 0, 8), (0, 16, 0, 8), (8, 16, 1, 8)],
        &[(0, u64::MAX, u16::MAX, 8), (8, u64::MAX, 0, 8)],
    ];
    for (number, messages) in (1..).zip(series) {
        let mut outbox = raw_peer.outbox(&scene.address, number);
        for &(offset, total, header_len, len) in messages {
            let mut record = FragmentHdr { offset, total }.encode().to_vec();
            record.resize(FragmentHdr::SIZE + len, 0x5A);
            // SAFETY: the record has room for as many bytes.
            let fill = |dst: *mut u8| unsafe {
                dst.copy_from_nonoverlapping(record.as_ptr(), record.len())
            };
            let kind = Kind::AmFragment as u8;
            assert_eq!(
                outbox.send(kind, 0, imm(header_len).to_u64(), record.len(), fill),
                Ok(true)
            );
            scene.settle();
        }
        // A failed ring is not read any more.
        assert_eq!(outbox.send(Kind::SyncAck as u8, 0, 0, 0, |_| ()), Ok(true));
        scene.settle();
        assert!(!outbox.drained(), "series {number} was taken for a message");
        raw_peer.receive(|_, _| {});
    }
    decent_peer_works(&scene);
}
