//! A peer that writes garbage into its ring: its own way is closed, everybody else goes on.

use std::ffi::c_void;
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Command, Stdio};
use std::ptr;
use ucp::abi::{address, context, endpoint, memory, request, rkey, tag, worker};
use ucp::ctypes::*;
use ucp::sys::machine;
use ucp::sys::segment::SegmentId;
use ucp::tl::shm::outbox::Outbox;
use ucp::tl::shm::{Locator, Sender};

/// A generator that gives the same numbers every time (xorshift64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Mostly small numbers: they are the ones that name something.
    fn id(&mut self) -> u64 {
        match self.next() % 4 {
            0 => self.next(),
            1 => ((self.next() % 4) << 32) | (self.next() % 8),
            _ => self.next() % 64,
        }
    }
}

unsafe extern "C" fn on_am(
    _arg: *mut c_void,
    _header: *const c_void,
    _header_length: usize,
    _data: *mut c_void,
    _length: usize,
    _param: *const ucp_am_recv_param_t,
) -> std::mem::MaybeUninit<ucs_status_t> {
    std::mem::MaybeUninit::new(UCS_OK)
}

/// A victim, a decent peer of it, and a process that the hostile one pretends to be.
struct Scene {
    context: ucp_context_h,
    victim: ucp_worker_h,
    decent: ucp_worker_h,
    to_victim: ucp_ep_h,
    victim_at: Locator,
    posing: Child,
    posing_at: Locator,
}

fn features() -> u64 {
    [
        UCP_FEATURE_TAG,
        UCP_FEATURE_RMA,
        UCP_FEATURE_AMO64,
        UCP_FEATURE_AM,
    ]
    .iter()
    .fold(0, |bits, &f| bits | f as u64)
}

impl Scene {
    fn new() -> Scene {
        // SAFETY: zeroed parameter structures with masks that name what is set.
        unsafe {
            let mut params: ucp_params_t = std::mem::zeroed();
            params.field_mask = UCP_PARAM_FIELD_FEATURES as u64;
            params.features = features();
            let mut ctx = ptr::null_mut();
            assert_eq!(
                context::ucp_init_version(1, 22, &params, ptr::null(), &mut ctx),
                UCS_OK
            );
            let worker_params: ucp_worker_params_t = std::mem::zeroed();
            let (mut victim, mut decent) = (ptr::null_mut(), ptr::null_mut());
            assert_eq!(
                worker::ucp_worker_create(ctx, &worker_params, &mut victim),
                UCS_OK
            );
            assert_eq!(
                worker::ucp_worker_create(ctx, &worker_params, &mut decent),
                UCS_OK
            );
            let mut handler: ucp_am_handler_param_t = std::mem::zeroed();
            handler.field_mask =
                UCP_AM_HANDLER_PARAM_FIELD_ID as u64 | UCP_AM_HANDLER_PARAM_FIELD_CB as u64;
            handler.id = 1;
            handler.cb = Some(on_am);
            assert_eq!(
                ucp::abi::am::ucp_worker_set_am_recv_handler(victim, &handler),
                UCS_OK
            );
            let (mut blob, mut len) = (ptr::null_mut(), 0);
            assert_eq!(
                address::ucp_worker_get_address(victim, &mut blob, &mut len),
                UCS_OK
            );
            let shm = address::decode(blob).unwrap().shm.unwrap();
            let mut ep_params: ucp_ep_params_t = std::mem::zeroed();
            ep_params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS as u64;
            ep_params.address = blob;
            let mut to_victim = ptr::null_mut();
            assert_eq!(
                endpoint::ucp_ep_create(decent, &ep_params, &mut to_victim),
                UCS_OK
            );
            address::ucp_worker_release_address(victim, blob);
            let posing = Command::new("cat")
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            let here = machine::place();
            let file = std::fs::metadata(format!("/proc/{}/fd/0", posing.id())).unwrap();
            let id = SegmentId {
                pid: posing.id(),
                fd: 0,
                ino: file.ino() as u32,
            };
            Scene {
                context: ctx,
                victim,
                decent,
                to_victim,
                victim_at: Locator {
                    pid_ns: shm.pid_ns,
                    ipc_ns: shm.ipc_ns,
                    id: SegmentId {
                        pid: shm.pid,
                        fd: shm.fd,
                        ino: shm.ino,
                    },
                    key: shm.key,
                },
                posing,
                posing_at: Locator {
                    pid_ns: here.pid_ns,
                    ipc_ns: here.ipc_ns,
                    id,
                    key: 0,
                },
            }
        }
    }

    fn hostile(&self, uid: u64) -> Outbox {
        Outbox::open(
            self.victim_at,
            &Sender {
                uid,
                inbox: self.posing_at,
            },
        )
        .unwrap()
    }

    fn progress(&self) {
        // SAFETY: live workers.
        unsafe {
            while worker::ucp_worker_progress(self.victim)
                + worker::ucp_worker_progress(self.decent)
                > 0
            {}
        }
    }

    /// The decent peer's messages arrive, small and large.
    fn decent_peer_works(&self) {
        for len in [8usize, 100_000] {
            let (out, mut back) = (vec![0x5A_u8; len], vec![0_u8; len]);
            // SAFETY: zeroed parameters, live handles, buffers that outlive the requests.
            unsafe {
                let param: ucp_request_param_t = std::mem::zeroed();
                let tag = 0xDECE_0000_0000 + len as u64;
                let recv = tag::ucp_tag_recv_nbx(
                    self.victim,
                    back.as_mut_ptr().cast(),
                    len,
                    tag,
                    u64::MAX,
                    &param,
                );
                let send =
                    tag::ucp_tag_send_nbx(self.to_victim, out.as_ptr().cast(), len, tag, &param);
                for req in [recv, send] {
                    assert!(!UCS_PTR_IS_ERR(req));
                    if req.is_null() {
                        continue;
                    }
                    let done = (0..1_000_000).any(|_| {
                        worker::ucp_worker_progress(self.victim);
                        worker::ucp_worker_progress(self.decent);
                        request::ucp_request_check_status(req) != UCS_INPROGRESS
                    });
                    assert!(done && request::ucp_request_check_status(req) == UCS_OK);
                    request::ucp_request_free(req);
                }
            }
            assert_eq!(out, back);
        }
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        // SAFETY: live handles, used no more.
        unsafe {
            worker::ucp_worker_destroy(self.decent);
            worker::ucp_worker_destroy(self.victim);
            context::ucp_cleanup(self.context);
        }
        drop(self.posing.stdin.take());
        self.posing.wait().unwrap();
    }
}

#[test]
fn random_messages_of_every_kind_hurt_nobody_else() {
    let scene = Scene::new();
    let mut random = Random(0x1234_5678_9ABC_DEF1);
    let mut outbox = scene.hostile(1);
    // Registered memory, so that remote accesses are not all refused for the same reason.
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
        // Nearly all of a kind that exists: one that does not ends the ring.
        let kind = if random.next() % 50 == 0 {
            random.next() as u8
        } else {
            (1 + random.next() % 18) as u8
        };
        let aux = random.next() as u8;
        // SAFETY: the record has room for `len` bytes.
        let fill = |dst: *mut u8| unsafe { dst.copy_from_nonoverlapping(bytes.as_ptr(), len) };
        match outbox.send(kind, aux, imm, len, fill) {
            Ok(true) => {}
            // The victim reads nothing of a sender any more that it distrusts.
            Ok(false) | Err(_) => outbox = scene.hostile(round + 2),
        }
        if round % 16 == 0 {
            scene.progress();
        }
        if round % 24 == 0 {
            outbox = scene.hostile(round + 2);
        }
        if round % 2400 == 0 {
            scene.decent_peer_works();
        }
    }
    scene.decent_peer_works();
    // SAFETY: mapped above.
    let unmapped = unsafe { memory::ucp_mem_unmap(scene.context, memh) };
    assert_eq!(unmapped, UCS_OK);
}

#[test]
fn damaged_keys_are_refused() {
    let scene = Scene::new();
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
    let scene = Scene::new();
    scene.decent_peer_works();
    let outbox = scene.hostile(7);
    outbox.announce_again();
    scene.progress();
    scene.decent_peer_works();
}
