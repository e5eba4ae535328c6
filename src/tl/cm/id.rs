//! An identifier of librdmacm (`rdma_cm_id`): one end of a connection, or a listener, with an event channel of its own.

use super::library::Rdmacm;
use crate::sys::{descriptor, log};
use crate::tl::ib::bindings::*;
use crate::tl::ib::port::Port;
use crate::tl::ib::verbs::{check, made};
use socket2::{SockAddr, SockAddrStorage};
use std::ffi::{CStr, c_int, c_void};
use std::io::{self, ErrorKind};
use std::mem::size_of;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// An event channel of librdmacm. Its descriptor does not block.
struct EventChannel {
    cm: &'static Rdmacm,
    raw: *mut rdma_event_channel,
}

impl EventChannel {
    fn new(cm: &'static Rdmacm) -> io::Result<EventChannel> {
        // SAFETY: the function takes no argument.
        let raw = made(unsafe { (cm.create_event_channel)() })?;
        let channel = EventChannel { cm, raw };
        descriptor::set_nonblocking(channel.as_fd())?;
        Ok(channel)
    }
}

impl AsFd for EventChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: `raw` is a valid channel, and its descriptor open, until `self` is dropped.
        unsafe { BorrowedFd::borrow_raw((*self.raw).fd) }
    }
}

impl Drop for EventChannel {
    fn drop(&mut self) {
        // SAFETY: the identifiers of the channel are destroyed, and all its events are acknowledged.
        unsafe { (self.cm.destroy_event_channel)(self.raw) };
    }
}

/// An `rdma_cm_id`. Dropping it destroys the identifier, which disconnects and notifies the remote end.
pub struct CmId {
    raw: *mut rdma_cm_id,
    channel: EventChannel,
}

// SAFETY: librdmacm is thread-safe; the pointers do not change.
unsafe impl Send for CmId {}

/// A connection manager event.
pub struct CmEvent {
    pub kind: rdma_cm_event_type,
    /// Of a failure: a negative error number, or the reason of a rejection.
    pub status: i32,
    /// Private data of the remote end, padded with zeros by the connection manager.
    pub private_data: Vec<u8>,
    /// Of a connection request: the identifier of the new connection.
    pub conn_id: Option<CmId>,
}

impl CmId {
    /// Creates an identifier that is neither bound nor connected.
    ///
    /// # Errors
    /// `ENODEV`, `ENOENT` where the kernel has no connection manager, `EMFILE` and the like.
    pub fn new(cm: &'static Rdmacm) -> io::Result<CmId> {
        let channel = EventChannel::new(cm)?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the channel is destroyed after the identifier made on it; `raw` is writable.
        check(unsafe { (cm.create_id)(channel.raw, &mut raw, std::ptr::null_mut(), RDMA_PS_TCP) })?;
        Ok(CmId { raw, channel })
    }

    /// The descriptor of the event channel: readable when an event waits.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }

    fn cm(&self) -> &'static Rdmacm {
        self.channel.cm
    }

    /// Takes the next event; None if there is none.
    pub fn next(&self) -> Option<CmEvent> {
        let cm = self.cm();
        let mut event = std::ptr::null_mut();
        // SAFETY: the channel is valid and does not block; the event is valid until it is acknowledged, which happens
        // once.
        let (event_info, conn_id) = unsafe {
            if (cm.get_event)(self.channel.raw, &mut event) != 0 {
                return None;
            }
            let event_info = CmEvent {
                kind: (*event).event,
                status: (*event).status,
                private_data: private_data(&(*event).param.conn),
                conn_id: None,
            };
            let conn_id = (event_info.kind == RDMA_CM_EVENT_CONNECT_REQUEST).then_some((*event).id);
            (cm.ack_event)(event);
            (event_info, conn_id)
        };
        Some(CmEvent {
            conn_id: conn_id.and_then(|raw| self.take_over(raw)),
            ..event_info
        })
    }

    /// Moves the identifier of a connection request to an event channel of its own.
    fn take_over(&self, raw: *mut rdma_cm_id) -> Option<CmId> {
        let cm = self.cm();
        let moved = EventChannel::new(cm).and_then(|channel| {
            // SAFETY: `raw` comes from a connection request event and is owned by this function; the channel is valid.
            check(unsafe { (cm.migrate_id)(raw, channel.raw) })?;
            Ok(channel)
        });
        match moved {
            Ok(channel) => Some(CmId { raw, channel }),
            Err(e) => {
                log::debug!("cannot watch a client: {e}");
                // SAFETY: `raw` is owned by this function and not used afterwards. Destroying it rejects the client.
                unsafe { (cm.destroy_id)(raw) };
                None
            }
        }
    }

    /// Binds to `at` and listens; `backlog` is the maximum number of requests that wait.
    ///
    /// # Errors
    /// `ENODEV`, `EADDRNOTAVAIL`: no device has the address; `EADDRINUSE`.
    pub fn listen(&self, at: SocketAddr, backlog: i32, reuse: bool) -> io::Result<()> {
        if reuse {
            self.set(RDMA_OPTION_ID_REUSEADDR, 1i32)?;
        }
        // SAFETY: the identifier is valid; the address has the length of its family.
        check(unsafe { (self.cm().bind_addr)(self.raw, address(at).as_ptr().cast_mut().cast()) })?;
        // SAFETY: the identifier is valid.
        check(unsafe { (self.cm().listen)(self.raw, backlog) })
    }

    fn set<T>(&self, option: u32, mut value: T) -> io::Result<()> {
        let (level, option) = (RDMA_OPTION_ID as c_int, option as c_int);
        let value = (&raw mut value).cast::<c_void>();
        // SAFETY: the identifier is valid; `value` points to `size_of::<T>()` readable bytes.
        check(unsafe { (self.cm().set_option)(self.raw, level, option, value, size_of::<T>()) })
    }

    /// Starts to resolve which device reaches `to`, from the source address `from` if one is given.
    ///
    /// # Errors
    /// `ENODEV`: no device does.
    pub fn resolve_address(
        &self,
        to: SocketAddr,
        from: Option<SocketAddr>,
        timeout_ms: i32,
    ) -> io::Result<()> {
        let (from, to) = (from.map(address), address(to));
        let from = (from.as_ref()).map_or(std::ptr::null_mut(), |a| a.as_ptr().cast_mut().cast());
        let to = to.as_ptr().cast_mut().cast();
        // SAFETY: the identifier is valid; the addresses have the lengths of their families, or are null.
        check(unsafe { (self.cm().resolve_addr)(self.raw, from, to, timeout_ms) })
    }

    /// Starts to resolve the route to the resolved address.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn resolve_route(&self, timeout_ms: i32) -> io::Result<()> {
        // SAFETY: the identifier is valid.
        check(unsafe { (self.cm().resolve_route)(self.raw, timeout_ms) })
    }

    /// The attributes, and their mask, with which a queue pair enters a state.
    ///
    /// # Errors
    /// The connection does not exist, or does not exist any more.
    pub fn attributes(&self, state: ibv_qp_state) -> io::Result<(ibv_qp_attr, u32)> {
        let mut attr = ibv_qp_attr {
            qp_state: state,
            ..Default::default()
        };
        let mut mask = 0;
        // SAFETY: the identifier is valid; both structures are writable.
        check(unsafe { (self.cm().init_qp_attr)(self.raw, &mut attr, &mut mask) })?;
        Ok((attr, mask as u32))
    }

    /// Sends a connection request with the number of a queue pair and private data.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn connect(&self, port: &Port, qpn: u32, private_data: &[u8]) -> io::Result<()> {
        // SAFETY: the identifier is valid; librdmacm copies the private data during the call.
        check(unsafe { (self.cm().connect)(self.raw, &mut parameters(port, qpn, private_data)) })
    }

    /// Accepts a connection request, with the number of a queue pair and private data.
    ///
    /// # Errors
    /// The client has closed the connection.
    pub fn accept(&self, port: &Port, qpn: u32, private_data: &[u8]) -> io::Result<()> {
        // SAFETY: the identifier is valid; librdmacm copies the private data during the call.
        check(unsafe { (self.cm().accept)(self.raw, &mut parameters(port, qpn, private_data)) })
    }

    /// Completes the connection at the client, after its queue pair is ready to send (RTS).
    ///
    /// # Errors
    /// The remote end has closed the connection.
    pub fn establish(&self) -> io::Result<()> {
        // SAFETY: the identifier is valid.
        check(unsafe { (self.cm().establish)(self.raw) })
    }

    /// Rejects a connection request; the private data has the reason.
    pub fn reject(&self, private_data: &[u8]) {
        // SAFETY: the identifier is valid; librdmacm copies the private data during the call. An error means that the
        // client has closed the connection, which needs no reply.
        unsafe {
            (self.cm().reject)(
                self.raw,
                private_data.as_ptr().cast(),
                private_data.len() as u8,
            )
        };
    }

    /// The address of this end.
    pub fn local(&self) -> Option<SocketAddr> {
        // SAFETY: the identifier is valid; the union is storage for an address of any family.
        unsafe { socket_address(&(*self.raw).route.addr.__bindgen_anon_1.src_storage) }
    }

    /// The address of the other end.
    pub fn remote(&self) -> Option<SocketAddr> {
        // SAFETY: the identifier is valid; the union is storage for an address of any family.
        unsafe { socket_address(&(*self.raw).route.addr.__bindgen_anon_2.dst_storage) }
    }

    /// The one of `ports` that the identifier is bound to.
    pub fn port<'a>(&self, ports: &'a [Arc<Port>]) -> Option<&'a Arc<Port>> {
        // SAFETY: the identifier is valid. librdmacm has opened the device itself and does not close it.
        unsafe {
            let verbs = (*self.raw).verbs.as_ref()?;
            ports.iter().find(|p| {
                let name = CStr::from_ptr((p.hca.verbs.get_device_name)(verbs.device));
                p.number == (*self.raw).port_num && name.to_bytes() == p.hca.name.as_bytes()
            })
        }
    }
}

impl Drop for CmId {
    fn drop(&mut self) {
        // SAFETY: all events of the identifier are acknowledged, and no other reference to it exists.
        unsafe { (self.cm().destroy_id)(self.raw) };
    }
}

fn parameters(port: &Port, qpn: u32, private_data: &[u8]) -> rdma_conn_param {
    let tuning = &port.tuning.rc;
    rdma_conn_param {
        private_data: private_data.as_ptr().cast(),
        private_data_len: private_data.len() as u8,
        // The fields of the wire format have three bits each.
        retry_count: tuning.retries.min(7),
        rnr_retry_count: tuning.rnr_retries.min(7),
        qp_num: qpn,
        ..Default::default()
    }
}

/// # Safety
/// The parameters are those of an event that is not acknowledged.
unsafe fn private_data(private_data: &rdma_conn_param) -> Vec<u8> {
    if private_data.private_data.is_null() {
        return Vec::new();
    }
    // SAFETY: by the caller, the event is valid, and its private data has `private_data_len` bytes.
    unsafe {
        let bytes = private_data.private_data.cast::<u8>();
        std::slice::from_raw_parts(bytes, private_data.private_data_len.into()).to_vec()
    }
}

fn address(of: SocketAddr) -> SockAddr {
    SockAddr::from(of)
}

fn socket_address(raw: &sockaddr_storage) -> Option<SocketAddr> {
    const _: () = assert!(size_of::<sockaddr_storage>() == size_of::<SockAddrStorage>());
    // SAFETY: both types have the same size, and any bytes are a valid `SockAddrStorage`.
    let known = unsafe {
        let storage = (&raw const *raw).cast::<SockAddrStorage>().read();
        SockAddr::new(storage, size_of::<SockAddrStorage>() as libc::socklen_t)
    };
    known.as_socket()
}

/// The error of a failed attempt to connect, as a socket would return it.
pub fn failure(event: &CmEvent) -> io::Error {
    match event.kind {
        // No listener has the address, or the listener rejected without private data.
        RDMA_CM_EVENT_REJECTED => ErrorKind::ConnectionRefused.into(),
        RDMA_CM_EVENT_DISCONNECTED => ErrorKind::ConnectionReset.into(),
        _ if event.status < 0 => io::Error::from_raw_os_error(-event.status),
        _ => ErrorKind::HostUnreachable.into(),
    }
}
