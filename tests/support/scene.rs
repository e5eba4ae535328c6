//! Two workers of one context: a victim that is attacked, and a decent peer of it that must not be affected.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use ucp::abi::{address, config, context, endpoint, request, tag, wakeup, worker};
use ucp::ctypes::*;
use ucp::engine::endpoint::Endpoint;
use ucp::engine::peer::Peer;
use ucp::engine::worker::Worker;
use ucp::tl::address::WorkerAddress;

pub struct Scene {
    pub context: ucp_context_h,
    /// Destroyed with the scene.
    owned: bool,
    pub victim: ucp_worker_h,
    pub decent: ucp_worker_h,
    pub to_victim: ucp_ep_h,
    /// The victim's worker address.
    pub address: WorkerAddress,
}

/// The tags of the decent peer; no other message has them.
const DECENT_TAG: u64 = 0xDECE_0000_0000_0000;

/// An endpoint of a worker to the worker with this packed address, with
/// `UCP_ERR_HANDLING_MODE_PEER`.
pub fn endpoint_to(from: ucp_worker_h, address: &[u8]) -> ucp_ep_h {
    let mut ep = ptr::null_mut();
    // SAFETY: a zeroed parameter structure with a mask that names what is set; a live worker.
    unsafe {
        let mut params: ucp_ep_params_t = std::mem::zeroed();
        params.field_mask =
            UCP_EP_PARAM_FIELD_REMOTE_ADDRESS as u64 | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE as u64;
        params.address = address.as_ptr().cast();
        params.err_mode = MaybeUninit::new(ucp_err_handling_mode_t::UCP_ERR_HANDLING_MODE_PEER);
        assert_eq!(endpoint::ucp_ep_create(from, &params, &mut ep), UCS_OK);
    }
    ep
}

impl Scene {
    /// In a context of its own, see [`new_context`].
    pub fn new(options: &[(&CStr, &CStr)]) -> Scene {
        let mut scene = Scene::within(new_context(options));
        scene.owned = true;
        scene
    }

    /// Like `new`, with workers that can sleep.
    pub fn sleepers(options: &[(&CStr, &CStr)]) -> Scene {
        let mut scene = Scene::within(context_with(options, UCP_FEATURE_WAKEUP as u64));
        scene.owned = true;
        scene
    }

    /// Like `new`, with workers that threads may share.
    pub fn shared(options: &[(&CStr, &CStr)]) -> Scene {
        let mut scene = Scene::with_mode(new_context(options), UCS_THREAD_MODE_MULTI);
        scene.owned = true;
        scene
    }

    /// In a context that outlives the scene.
    pub fn within(context: ucp_context_h) -> Scene {
        Scene::with_mode(context, UCS_THREAD_MODE_SINGLE)
    }

    fn with_mode(context: ucp_context_h, mode: ucs_thread_mode_t) -> Scene {
        // SAFETY: zeroed parameter structures with masks that name what is set; live handles.
        unsafe {
            let mut worker_params: ucp_worker_params_t = std::mem::zeroed();
            worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE as u64;
            worker_params.thread_mode = MaybeUninit::new(mode);
            let (mut victim, mut decent) = (ptr::null_mut(), ptr::null_mut());
            for w in [&mut victim, &mut decent] {
                assert_eq!(
                    worker::ucp_worker_create(context, &worker_params, w),
                    UCS_OK
                );
            }
            let (mut blob, mut len) = (ptr::null_mut(), 0);
            assert_eq!(
                address::ucp_worker_get_address(victim, &mut blob, &mut len),
                UCS_OK
            );
            let decoded = address::decode(blob).unwrap();
            let mut params: ucp_ep_params_t = std::mem::zeroed();
            params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS as u64;
            params.address = blob;
            let mut to_victim = ptr::null_mut();
            assert_eq!(
                endpoint::ucp_ep_create(decent, &params, &mut to_victim),
                UCS_OK
            );
            address::ucp_worker_release_address(victim, blob);
            Scene {
                context,
                owned: false,
                victim,
                decent,
                to_victim,
                address: decoded,
            }
        }
    }

    /// The library's view of the victim.
    pub fn worker(&self) -> &Worker {
        // SAFETY: a live worker of this library.
        unsafe { &*self.victim.cast::<Worker>() }
    }

    /// The decent peer's endpoint to the victim.
    pub fn victim_seen(&self) -> &Peer {
        // SAFETY: an endpoint of this library, which lives as long as the scene.
        unsafe { &*self.to_victim.cast::<Endpoint>() }.peer()
    }

    /// Calls progress once for both; the number of things that happened.
    pub fn progress(&self) -> u32 {
        // SAFETY: live workers.
        unsafe {
            worker::ucp_worker_progress(self.victim) + worker::ucp_worker_progress(self.decent)
        }
    }

    /// Calls progress until it returns 0, a bounded number of times.
    pub fn settle(&self) {
        (0..10_000).any(|_| self.progress() == 0);
    }

    /// The victim sleeps until something wakes it, which has to happen within `limit`; progress is called no more than
    /// `ucp_worker_arm` asks for.
    pub fn sleep(&self, limit: Duration) {
        let mut armed = libc::pollfd {
            fd: -1,
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: a live worker that can sleep; a structure of the caller.
        unsafe {
            assert_eq!(
                wakeup::ucp_worker_get_efd(self.victim, &mut armed.fd),
                UCS_OK
            );
            while wakeup::ucp_worker_arm(self.victim) == UCS_ERR_BUSY {
                worker::ucp_worker_progress(self.victim);
            }
            assert_eq!(
                libc::poll(&mut armed, 1, limit.as_millis() as i32),
                1,
                "nothing woke it"
            );
            worker::ucp_worker_progress(self.victim);
        }
    }

    pub fn until(&self, what: &str, mut done: impl FnMut() -> bool) {
        let began = Instant::now();
        while !done() {
            assert!(began.elapsed() < Duration::from_secs(60), "in vain: {what}");
            self.progress();
        }
    }

    /// The status of a call's result: waits for a request, and frees it.
    pub fn end(&self, what: &str, result: ucs_status_ptr_t) -> ucs_status_t {
        if !UCS_PTR_IS_PTR(result) {
            return UCS_PTR_STATUS(result);
        }
        // SAFETY: a live request, freed once, after its end.
        unsafe {
            self.until(what, || {
                request::ucp_request_check_status(result) != UCS_INPROGRESS
            });
            let status = request::ucp_request_check_status(result);
            request::ucp_request_free(result);
            status
        }
    }

    /// The decent peer's message of `len` bytes arrives.
    pub fn decent_goes_on(&self, len: usize) {
        let (sent, mut got) = (vec![0x5A_u8; len], vec![0_u8; len]);
        let tag = DECENT_TAG + len as u64;
        // SAFETY: zeroed parameters, live handles, buffers that outlive the requests.
        unsafe {
            let param: ucp_request_param_t = std::mem::zeroed();
            let r = tag::ucp_tag_recv_nbx(
                self.victim,
                got.as_mut_ptr().cast(),
                len,
                tag,
                u64::MAX,
                &param,
            );
            let s = tag::ucp_tag_send_nbx(self.to_victim, sent.as_ptr().cast(), len, tag, &param);
            for req in [r, s] {
                assert_eq!(self.end("a decent message", req), UCS_OK);
            }
        }
        assert!(got == sent);
    }
}

/// A context with all features but those that need descriptors. `options`: names and values, as for
/// `ucp_config_modify`.
pub fn new_context(options: &[(&CStr, &CStr)]) -> ucp_context_h {
    context_with(options, 0)
}

/// Like [`new_context`], with `more` features.
pub fn context_with(options: &[(&CStr, &CStr)], more: u64) -> ucp_context_h {
    // SAFETY: zeroed parameter structures with masks that name what is set.
    unsafe {
        let mut config = ptr::null_mut();
        assert_eq!(
            config::ucp_config_read(ptr::null(), ptr::null(), &mut config),
            UCS_OK
        );
        for (name, value) in options {
            assert_eq!(
                config::ucp_config_modify(config, name.as_ptr(), value.as_ptr()),
                UCS_OK
            );
        }
        let mut params: ucp_params_t = std::mem::zeroed();
        params.field_mask = UCP_PARAM_FIELD_FEATURES as u64;
        params.features = [
            UCP_FEATURE_TAG,
            UCP_FEATURE_RMA,
            UCP_FEATURE_AMO64,
            UCP_FEATURE_AM,
            UCP_FEATURE_STREAM,
        ]
        .iter()
        .fold(more, |bits, &f| bits | f as u64);
        let mut made = ptr::null_mut();
        assert_eq!(
            context::ucp_init_version(1, 22, &params, config, &mut made),
            UCS_OK
        );
        config::ucp_config_release(config);
        made
    }
}

/// For tests that check all sockets of the process: one at a time.
pub fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until the kernel has delivered everything that was sent to the sockets.
pub fn until_arrived() {
    let sockets = || {
        let names = std::fs::read_dir("/proc/self/fd").unwrap();
        names.filter_map(|e| e.unwrap().file_name().to_str()?.parse::<RawFd>().ok())
    };
    let unconfirmed = |fd: RawFd| {
        let mut bytes = 0_i32;
        // SAFETY: four writable bytes; other descriptors than sockets return an error.
        let ret = unsafe { libc::ioctl(fd, libc::TIOCOUTQ, &raw mut bytes) };
        if ret == 0 { bytes } else { 0 }
    };
    let began = Instant::now();
    while sockets().any(|fd| unconfirmed(fd) > 0) {
        assert!(began.elapsed().as_secs() < 60, "sent, and never confirmed");
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        // SAFETY: created in `new`, used no more.
        unsafe {
            worker::ucp_worker_destroy(self.decent);
            worker::ucp_worker_destroy(self.victim);
            if self.owned {
                context::ucp_cleanup(self.context);
            }
        }
    }
}
