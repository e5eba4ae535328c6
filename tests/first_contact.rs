//! What the first contact with a peer costs over shared memory, in system calls.

mod support;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use support::raw_peer::RawPeer;
use support::scene::Scene;
use ucp::abi::{endpoint, tag};
use ucp::ctypes::*;

const PEERS: u64 = 20;

/// System calls of a phase: how many of each number.
type Calls = BTreeMap<libc::c_long, u64>;

/// The call by which a child marks the end of a phase; it makes no other one of this number.
const MARK: libc::c_long = libc::SYS_getppid;

fn end_phase() {
    // SAFETY: no memory involved.
    unsafe { libc::syscall(MARK) };
}

/// The system calls of `play` in a child process, phase by phase; the last phase is not ended. `None`: this system does
/// not allow to trace a child.
fn calls_of(play: impl FnOnce()) -> Option<Vec<Calls>> {
    // SAFETY: the child has one thread, and calls what a forked child may; it ends without returning.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            let is_traced = libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) == 0;
            libc::raise(if is_traced {
                libc::SIGSTOP
            } else {
                libc::SIGKILL
            });
            let has_failed = catch_unwind(AssertUnwindSafe(play)).is_err();
            libc::_exit(has_failed.into());
        }
        assert!(child > 0);
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        if !libc::WIFSTOPPED(status) {
            return None;
        }
        let options = libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_EXITKILL;
        assert_eq!(libc::ptrace(libc::PTRACE_SETOPTIONS, child, 0, options), 0);
        let mut phases = vec![Calls::new()];
        loop {
            assert_eq!(libc::ptrace(libc::PTRACE_SYSCALL, child, 0, 0), 0);
            assert_eq!(libc::waitpid(child, &mut status, 0), child);
            if !libc::WIFSTOPPED(status) {
                assert_eq!(status, 0, "the child has failed");
                return Some(phases);
            }
            match call_of(child) {
                Some(MARK) => phases.push(Calls::new()),
                Some(number) => *phases.last_mut()?.entry(number).or_default() += 1,
                None => {}
            }
        }
    }
}

/// The number of the system call that a traced child is about to make; `None` behind a call, or without one.
///
/// # Safety
/// `child` is a stopped child that this process traces.
unsafe fn call_of(child: libc::pid_t) -> Option<libc::c_long> {
    // SAFETY: an all-zero structure is a valid value, and has room for what the kernel writes.
    unsafe {
        let mut info: libc::ptrace_syscall_info = std::mem::zeroed();
        let got = libc::ptrace(
            libc::PTRACE_GET_SYSCALL_INFO,
            child,
            size_of_val(&info),
            &raw mut info,
        );
        assert!(got > 0, "Linux before 5.3");
        (info.op == libc::PTRACE_SYSCALL_INFO_ENTRY).then_some(info.u.entry.nr as libc::c_long)
    }
}

/// Endpoints to many peers, then a message to each of them.
fn contact_peers() {
    let scene = Scene::new(&[(c"TLS", c"shm")]);
    let host = scene.address.shm.expect("a worker in shared memory").host;
    let peers: Vec<_> = (0..PEERS).map(|_| RawPeer::new()).collect();
    let addresses = peers.iter().zip(1..);
    let addresses: Vec<_> = addresses
        .map(|(peer, uid)| peer.address(uid, host).encode())
        .collect();
    end_phase();
    // SAFETY: zeroed structures with masks that name what is set; live handles.
    let endpoints: Vec<_> = addresses
        .iter()
        .map(|address| unsafe {
            let mut params: ucp_ep_params_t = std::mem::zeroed();
            params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS as u64;
            params.address = address.as_ptr().cast();
            let mut ep = ptr::null_mut();
            let created = endpoint::ucp_ep_create(scene.victim, &params, &mut ep);
            assert_eq!(created, UCS_OK);
            ep
        })
        .collect();
    end_phase();
    for ep in endpoints {
        let word = 7_u64;
        // SAFETY: a zeroed structure; live handles; the message is sent at once.
        let sent = unsafe {
            let param: ucp_request_param_t = std::mem::zeroed();
            tag::ucp_tag_send_nbx(ep, (&raw const word).cast(), 8, 1, &param)
        };
        assert!(sent.is_null());
    }
    end_phase();
    drop(scene);
}

/// An endpoint looks its peer's inbox up once, and maps it; the first message takes a ring without the kernel. Neither
/// asks for the process or its user, and none but a few looks a living peer up in /proc.
#[test]
fn an_endpoint_looks_its_peer_up_once() {
    let Some(phases) = calls_of(contact_peers) else {
        return eprintln!("skipped: this system does not allow to trace a child");
    };
    let [_, endpoints, messages, _] = &phases[..] else {
        panic!("{phases:?}");
    };
    for (phase, each) in [(endpoints, PEERS), (messages, 0)] {
        let of = |number| phase.get(&number).copied().unwrap_or(0);
        assert_eq!(of(libc::SYS_shmctl), each, "{phase:?}");
        assert_eq!(of(libc::SYS_shmat), each, "{phase:?}");
        for other in [libc::SYS_geteuid, libc::SYS_getpid, libc::SYS_openat] {
            assert_eq!(of(other), 0, "call {other}: {phase:?}");
        }
        // A look at one peer or another is due by time, of which a traced process takes more.
        assert!(of(libc::SYS_statx) < PEERS / 4, "{phase:?}");
    }
}
