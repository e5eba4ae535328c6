//! Descriptors for other processes of this host: a thread answers requests at an abstract Unix socket (`SCM_RIGHTS`),
//! also while the program makes no call. Only processes of the same user are answered, in the same network namespace,
//! that know its secret. The name of the socket, which every process of the host can list, does not contain that.

use super::descriptor::OwnedDescriptor;
use super::fork::Origin;
use super::thread::without_signals;
use super::{host, log};
use rustix::event::{Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType,
    accept_with, bind, connect, listen, recv, recvmsg, send, sendmsg, shutdown, socket_with,
    sockopt,
};
use std::io::{self, Error, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// Bytes of a request.
pub const REQUEST: usize = 17;
/// Bytes of the secret and the request.
const MESSAGE: usize = size_of::<u64>() + REQUEST;
/// Bytes of the thread's stack, on which the driver runs.
const STACK: usize = 1 << 20;
/// Connections that wait until the thread accepts them.
const BACKLOG: i32 = 128;
/// Longest time that a peer waits for the service, which may be stopped by a debugger: for its connection, and for the
/// answer.
const MAX_WAIT: Duration = Duration::from_secs(1);
/// Longest time that the service waits for a request, which peers send at once.
const MAX_REQUEST_WAIT: Duration = Duration::from_millis(100);
/// Longest time until the service notices that its end was called for, where nothing could wake it.
const MAX_IDLE: Duration = Duration::from_secs(30);
/// Time until the next attempt while this process has no descriptor for a connection.
const RETRY: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 10_000_000,
};
/// First byte of an answer: with a descriptor, or without one.
const FOUND: u8 = 1;
const NOT_FOUND: u8 = 0;

/// The service of this process. It ends on drop.
pub struct DescriptorService {
    /// Its address, and the secret that requests contain.
    name: u64,
    listener: Arc<OwnedDescriptor<OwnedFd>>,
    is_ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    origin: Origin,
}

/// The address of the service of this name: its upper half. The lower one is the secret.
fn address(name: u64) -> io::Result<SocketAddrUnix> {
    let name = format!("rucp-descriptors-{:08x}", name >> 32);
    Ok(SocketAddrUnix::new_abstract_name(name.as_bytes())?)
}

/// What is sent for a request to the service of this name.
fn message(name: u64, request: &[u8; REQUEST]) -> [u8; MESSAGE] {
    let mut message = [0; MESSAGE];
    let (secret, rest) = message.split_at_mut(size_of::<u64>());
    secret.copy_from_slice(&name.to_ne_bytes());
    rest.copy_from_slice(request);
    message
}

/// A socket that waits at most so long in each call.
fn socket(longest: Duration) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    limit_waits(&socket, longest)?;
    Ok(socket)
}

fn limit_waits(socket: &OwnedFd, longest: Duration) -> io::Result<()> {
    for which in [sockopt::Timeout::Recv, sockopt::Timeout::Send] {
        sockopt::set_socket_timeout(socket, which, Some(longest))?;
    }
    Ok(())
}

/// Whether the process at the other end is this user's. Its number is 0 where it is in another PID namespace, which
/// rustix does not expect.
fn is_same_user(socket: &OwnedFd) -> bool {
    let mut peer = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: room for the structure, and its length.
    let found = unsafe {
        let (level, name) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
        let place = (&raw mut peer).cast();
        libc::getsockopt(socket.as_raw_fd(), level, name, place, &raw mut len)
    };
    found == 0 && len as usize == size_of::<libc::ucred>() && peer.uid == host::user()
}

impl DescriptorService {
    /// Starts the thread. `answer` returns the descriptor for a request, which is closed here once it is sent.
    ///
    /// # Errors
    /// Those of the system calls.
    pub fn start(
        answer: impl Fn(&[u8; REQUEST]) -> Option<OwnedFd> + Send + 'static,
    ) -> io::Result<DescriptorService> {
        let (name, socket) = (host::random_u64(), socket(MAX_IDLE)?);
        bind(&socket, &address(name)?)?;
        listen(&socket, BACKLOG)?;
        let listener = Arc::new(OwnedDescriptor::new(socket));
        let is_ending = Arc::new(AtomicBool::new(false));
        let (theirs, ending) = (Arc::clone(&listener), Arc::clone(&is_ending));
        let serve = move || serve_all(&theirs, &ending, name, answer);
        let builder = Builder::new().name("rucp-fds".into()).stack_size(STACK);
        Ok(DescriptorService {
            name,
            listener,
            is_ending,
            thread: Some(without_signals(|| builder.spawn(serve))?),
            origin: Origin::here(),
        })
    }

    /// By what peers reach it: only those that it is for may know it.
    pub fn name(&self) -> u64 {
        self.name
    }
}

impl Drop for DescriptorService {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else {
            return;
        };
        if self.origin.is_inherited() {
            // The thread is the parent's.
            return std::mem::forget(thread);
        }
        // Release: pairs with the Acquire load of the thread, which a connection or the shutdown wakes.
        self.is_ending.store(true, Ordering::Release);
        if self.listener.is_intact() {
            let _ = shutdown(&**self.listener, Shutdown::Both);
        } else if let (Ok(socket), Ok(address)) = (socket(MAX_WAIT), address(self.name)) {
            // The program has closed the descriptor, under which the thread may wait still.
            let _ = connect(&socket, &address);
        }
        let _ = thread.join();
    }
}

/// The thread: until the service ends, or its socket is lost. It looks for both at least each [`MAX_IDLE`].
fn serve_all(
    listener: &OwnedDescriptor<OwnedFd>,
    is_ending: &AtomicBool,
    name: u64,
    answer: impl Fn(&[u8; REQUEST]) -> Option<OwnedFd>,
) {
    // Acquire: pairs with the Release store in `drop`.
    while listener.is_intact() && !is_ending.load(Ordering::Acquire) {
        match accept_with(&**listener, SocketFlags::CLOEXEC) {
            Ok(socket) => {
                // A peer that does not wait for its answer has none to get.
                let _ = serve(&socket, name, &answer);
            }
            Err(Errno::INTR | Errno::AGAIN | Errno::CONNABORTED) => {}
            Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS) => {
                let _ = poll(&mut [], Some(&RETRY));
            }
            Err(_) => return,
        }
    }
}

/// Answers one request.
fn serve(
    socket: &OwnedFd,
    name: u64,
    answer: impl Fn(&[u8; REQUEST]) -> Option<OwnedFd>,
) -> io::Result<()> {
    limit_waits(socket, MAX_REQUEST_WAIT)?;
    if !is_same_user(socket) {
        return Ok(());
    }
    let mut found = [0; MESSAGE];
    let received = retry_on_intr(|| recv(socket, &mut found, RecvFlags::TRUNC))?.1;
    let request = found.last_chunk().filter(|_| received == MESSAGE);
    let Some(request) = request.filter(|&request| message(name, request) == found) else {
        return Ok(());
    };
    match answer(request) {
        None => drop(send(socket, &[NOT_FOUND], SendFlags::NOSIGNAL)?),
        Some(found) => send_descriptor(socket, found.as_fd())?,
    }
    Ok(())
}

fn send_descriptor(socket: &OwnedFd, descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    let rights = [descriptor];
    if !beside.push(SendAncillaryMessage::ScmRights(&rights)) {
        return Err(Error::from(ErrorKind::OutOfMemory));
    }
    let byte = [IoSlice::new(&[FOUND])];
    sendmsg(socket, &byte, &mut beside, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// The descriptor that the service of another process has for a request. Waits for its thread.
///
/// # Errors
/// `NotFound`: the service has none; `ConnectionRefused`: there is no such service, or not in this network namespace;
/// `TimedOut`: the process is stopped; `PermissionDenied`: it is another user's; `OutOfMemory`: this process has no
/// descriptor for it now.
pub fn request(name: u64, request: &[u8; REQUEST]) -> io::Result<OwnedFd> {
    let (socket, address) = (socket(MAX_WAIT)?, address(name)?);
    let waited = |e: Errno| match e {
        Errno::AGAIN => Error::from(ErrorKind::TimedOut),
        e => e.into(),
    };
    retry_on_intr(|| connect(&socket, &address)).map_err(waited)?;
    if !is_same_user(&socket) {
        return Err(Error::from(ErrorKind::PermissionDenied));
    }
    let message = message(name, request);
    retry_on_intr(|| send(&socket, &message, SendFlags::NOSIGNAL)).map_err(waited)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [NOT_FOUND];
    let mut into = [IoSliceMut::new(&mut byte)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received =
        retry_on_intr(|| recvmsg(&socket, &mut into, &mut beside, flags)).map_err(waited)?;
    let mut descriptors = beside.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut rights) => rights.next(),
        _ => None,
    });
    let descriptor = descriptors.next();
    match (received.bytes, byte, descriptor) {
        (1, [FOUND], Some(descriptor)) => Ok(descriptor),
        (1, [FOUND], None) => {
            log::diag!("a descriptor of another process was lost: this process has too many open");
            Err(Error::from(ErrorKind::OutOfMemory))
        }
        (1, ..) => Err(Error::from(ErrorKind::NotFound)),
        _ => Err(Error::from(ErrorKind::ConnectionRefused)),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use rustix::pipe::pipe;
    use std::fs::File;
    use std::io::{Read, Write};

    const WANTED: [u8; REQUEST] = [7; REQUEST];

    /// A service that sends the reading end of a pipe with a byte for one request, and the pipe.
    fn service() -> DescriptorService {
        DescriptorService::start(|wanted| {
            let (read, write) = pipe().ok()?;
            File::from(write).write_all(&wanted[..1]).ok()?;
            (*wanted == WANTED).then_some(read)
        })
        .unwrap()
    }

    #[test]
    fn a_descriptor_is_the_one_that_was_asked_for() {
        let service = service();
        for _ in 0..3 {
            let mut bytes = Vec::new();
            let found = request(service.name(), &WANTED).unwrap();
            // The writing end is closed: nothing else of it is left.
            File::from(found).read_to_end(&mut bytes).unwrap();
            assert_eq!(bytes, [7]);
        }
        let missing = request(service.name(), &[8; REQUEST]).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
    }

    #[test]
    fn a_service_that_has_ended_refuses() {
        let service = service();
        let name = service.name();
        drop(service);
        let refused = request(name, &WANTED).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    }

    #[test]
    fn a_request_of_another_length_is_not_answered() {
        let service = service();
        let socket = socket(MAX_WAIT).unwrap();
        connect(&socket, &address(service.name()).unwrap()).unwrap();
        let mut longer = message(service.name(), &WANTED).to_vec();
        longer.push(7);
        send(&socket, &longer, SendFlags::NOSIGNAL).unwrap();
        assert_eq!(recv(&socket, &mut [0], RecvFlags::empty()).unwrap().1, 0);
    }

    #[test]
    fn a_request_without_the_secret_is_not_answered() {
        let service = service();
        let listed = service.name() ^ 1;
        let refused = request(listed, &WANTED).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        assert!(request(service.name(), &WANTED).is_ok());
    }
}
