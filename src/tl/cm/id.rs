//! An identifier of librdmacm: one end of a connection, or what listens, with a channel of its own for events.

use super::library::Rdmacm;
use crate::sys::log;
use crate::tl::ib::bindings::*;
use crate::tl::ib::port::Port;
use crate::tl::ib::verbs::{check, made};
use socket2::{SockAddr, SockAddrStorage};
use std::ffi::{CStr, c_int, c_void};
use std::io::{self, ErrorKind};
use std::mem::size_of;
use std::net::SocketAddr;
use std::sync::Arc;

/// Where events come from.
struct EventChannel {
    cm: &'static Rdmacm,
    raw: *mut rdma_event_channel,
}

impl EventChannel {
    fn new(cm: &'static Rdmacm) -> io::Result<EventChannel> {
        // SAFETY: takes nothing.
        let raw = made(unsafe { (cm.create_event_channel)() })?;
        let channel = EventChannel { cm, raw };
        // SAFETY: its own descriptor.
        let set = unsafe {
            let flags = libc::fcntl(channel.fd(), libc::F_GETFL);
            libc::fcntl(channel.fd(), libc::F_SETFL, flags | libc::O_NONBLOCK)
        };
        match set {
            0 => Ok(channel),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn fd(&self) -> i32 {
        // SAFETY: open as long as this lives.
        unsafe { (*self.raw).fd }
    }
}

impl Drop for EventChannel {
    fn drop(&mut self) {
        // SAFETY: its identifiers are gone, and all events acknowledged.
        unsafe { (self.cm.destroy_event_channel)(self.raw) };
    }
}

/// Destroyed with its owner, which ends the connection and tells the other end so.
pub struct CmId {
    raw: *mut rdma_cm_id,
    channel: EventChannel,
}

// SAFETY: librdmacm is thread-safe; the pointers are not changed.
unsafe impl Send for CmId {}

/// Something that has happened.
pub struct CmEvent {
    pub kind: rdma_cm_event_type,
    /// Why, where it is a failure: a negative error number, or the reason of a rejection.
    pub status: i32,
    /// What the other end had to say: at least what it sent, and zeros behind that.
    pub said: Vec<u8>,
    /// Who asks for a connection.
    pub guest: Option<CmId>,
}

impl CmId {
    /// One that leads nowhere.
    ///
    /// # Errors
    /// `ENODEV`, `ENOENT` where the kernel has no connection manager, `EMFILE` and the like.
    pub fn new(cm: &'static Rdmacm) -> io::Result<CmId> {
        let channel = EventChannel::new(cm)?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the channel lives longer than what is made on it; `raw` is writable.
        check(unsafe { (cm.create_id)(channel.raw, &mut raw, std::ptr::null_mut(), RDMA_PS_TCP) })?;
        Ok(CmId { raw, channel })
    }

    /// Readable when something has happened.
    pub fn fd(&self) -> i32 {
        self.channel.fd()
    }

    fn cm(&self) -> &'static Rdmacm {
        self.channel.cm
    }

    /// What has happened, if something has.
    pub fn next(&self) -> Option<CmEvent> {
        let cm = self.cm();
        let mut event = std::ptr::null_mut();
        // SAFETY: its own channel, which does not block; an event is valid until it is acknowledged, once.
        let (told, guest) = unsafe {
            if (cm.get_event)(self.channel.raw, &mut event) != 0 {
                return None;
            }
            let told = CmEvent {
                kind: (*event).event,
                status: (*event).status,
                said: private_data(&(*event).param.conn),
                guest: None,
            };
            let guest = (told.kind == RDMA_CM_EVENT_CONNECT_REQUEST).then_some((*event).id);
            (cm.ack_event)(event);
            (told, guest)
        };
        Some(CmEvent {
            guest: guest.and_then(|raw| self.take_over(raw)),
            ..told
        })
    }

    /// Gives somebody who asks a channel of his own.
    fn take_over(&self, raw: *mut rdma_cm_id) -> Option<CmId> {
        let cm = self.cm();
        let moved = EventChannel::new(cm).and_then(|channel| {
            // SAFETY: an identifier that an event has given to us.
            check(unsafe { (cm.migrate_id)(raw, channel.raw) })?;
            Ok(channel)
        });
        match moved {
            Ok(channel) => Some(CmId { raw, channel }),
            Err(e) => {
                log::debug!("cannot watch a client: {e}");
                // SAFETY: as above; nobody else knows it. That rejects the client.
                unsafe { (cm.destroy_id)(raw) };
                None
            }
        }
    }

    /// Listens there, with so many connections waiting.
    ///
    /// # Errors
    /// `ENODEV`, `EADDRNOTAVAIL`: no device has the address; `EADDRINUSE`.
    pub fn listen(&self, at: SocketAddr, backlog: i32, reuse: bool) -> io::Result<()> {
        if reuse {
            self.set(RDMA_OPTION_ID_REUSEADDR, 1i32)?;
        }
        // SAFETY: its own identifier; an address of its family's length.
        check(unsafe { (self.cm().bind_addr)(self.raw, address(at).as_ptr().cast_mut().cast()) })?;
        // SAFETY: as above.
        check(unsafe { (self.cm().listen)(self.raw, backlog) })
    }

    fn set<T>(&self, option: u32, mut value: T) -> io::Result<()> {
        let (level, option) = (RDMA_OPTION_ID as c_int, option as c_int);
        let value = (&raw mut value).cast::<c_void>();
        // SAFETY: its own identifier; a readable value.
        check(unsafe { (self.cm().set_option)(self.raw, level, option, value, size_of::<T>()) })
    }

    /// Begins to find out by which device an address is reached, from an address if one is given.
    ///
    /// # Errors
    /// `ENODEV`: by none.
    pub fn resolve_address(
        &self,
        to: SocketAddr,
        from: Option<SocketAddr>,
        timeout_ms: i32,
    ) -> io::Result<()> {
        let (from, to) = (from.map(address), address(to));
        let from = (from.as_ref()).map_or(std::ptr::null_mut(), |a| a.as_ptr().cast_mut().cast());
        let to = to.as_ptr().cast_mut().cast();
        // SAFETY: its own identifier; addresses of their families' lengths, or null.
        check(unsafe { (self.cm().resolve_addr)(self.raw, from, to, timeout_ms) })
    }

    /// Begins to find out how to get there.
    ///
    /// # Errors
    /// What the system says.
    pub fn resolve_route(&self, timeout_ms: i32) -> io::Result<()> {
        // SAFETY: its own identifier.
        check(unsafe { (self.cm().resolve_route)(self.raw, timeout_ms) })
    }

    /// What a queue pair needs to know to get into a state.
    ///
    /// # Errors
    /// The connection is not there, or not any more.
    pub fn attributes(&self, state: ibv_qp_state) -> io::Result<(ibv_qp_attr, u32)> {
        let mut attr = ibv_qp_attr {
            qp_state: state,
            ..Default::default()
        };
        let mut mask = 0;
        // SAFETY: its own identifier; writable structures.
        check(unsafe { (self.cm().init_qp_attr)(self.raw, &mut attr, &mut mask) })?;
        Ok((attr, mask as u32))
    }

    /// Asks for a connection with a queue pair, and says so much.
    ///
    /// # Errors
    /// What the system says.
    pub fn connect(&self, port: &Port, qpn: u32, said: &[u8]) -> io::Result<()> {
        // SAFETY: its own identifier; what is said is copied.
        check(unsafe { (self.cm().connect)(self.raw, &mut parameters(port, qpn, said)) })
    }

    /// Accepts one that asks.
    ///
    /// # Errors
    /// It has gone.
    pub fn accept(&self, port: &Port, qpn: u32, said: &[u8]) -> io::Result<()> {
        // SAFETY: as above.
        check(unsafe { (self.cm().accept)(self.raw, &mut parameters(port, qpn, said)) })
    }

    /// The queue pair of who has connected is ready.
    ///
    /// # Errors
    /// The other end has gone.
    pub fn establish(&self) -> io::Result<()> {
        // SAFETY: its own identifier.
        check(unsafe { (self.cm().establish)(self.raw) })
    }

    /// Tells one that asks why it is not let in.
    pub fn reject(&self, said: &[u8]) {
        // SAFETY: its own identifier; what is said is copied. Who has gone does not hear it.
        unsafe { (self.cm().reject)(self.raw, said.as_ptr().cast(), said.len() as u8) };
    }

    /// The address of this end.
    pub fn local(&self) -> Option<SocketAddr> {
        // SAFETY: its own structure; the union is storage for every family.
        unsafe { socket_address(&(*self.raw).route.addr.__bindgen_anon_1.src_storage) }
    }

    /// The address of the other end.
    pub fn remote(&self) -> Option<SocketAddr> {
        // SAFETY: as above.
        unsafe { socket_address(&(*self.raw).route.addr.__bindgen_anon_2.dst_storage) }
    }

    /// Which of these ports it is bound to.
    pub fn port<'a>(&self, ports: &'a [Arc<Port>]) -> Option<&'a Arc<Port>> {
        // SAFETY: its own structure. The library has opened the device itself, and keeps it.
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
        // SAFETY: all its events are acknowledged; nobody else knows it.
        unsafe { (self.cm().destroy_id)(self.raw) };
    }
}

fn parameters(port: &Port, qpn: u32, said: &[u8]) -> rdma_conn_param {
    let tuning = &port.tuning.rc;
    rdma_conn_param {
        private_data: said.as_ptr().cast(),
        private_data_len: said.len() as u8,
        // Three bits each.
        retry_count: tuning.retries.min(7),
        rnr_retry_count: tuning.rnr_retries.min(7),
        qp_num: qpn,
        ..Default::default()
    }
}

/// # Safety
/// Of an event that was not acknowledged.
unsafe fn private_data(said: &rdma_conn_param) -> Vec<u8> {
    if said.private_data.is_null() {
        return Vec::new();
    }
    // SAFETY: as many bytes as said, the event's.
    unsafe {
        let bytes = said.private_data.cast::<u8>();
        std::slice::from_raw_parts(bytes, said.private_data_len.into()).to_vec()
    }
}

fn address(of: SocketAddr) -> SockAddr {
    SockAddr::from(of)
}

fn socket_address(raw: &sockaddr_storage) -> Option<SocketAddr> {
    const _: () = assert!(size_of::<sockaddr_storage>() == size_of::<SockAddrStorage>());
    // SAFETY: of the same size; any bytes are one.
    let known = unsafe {
        let storage = (&raw const *raw).cast::<SockAddrStorage>().read();
        SockAddr::new(storage, size_of::<SockAddrStorage>() as libc::socklen_t)
    };
    known.as_socket()
}

/// Why an attempt to connect has failed, as sockets say it.
pub fn failure(event: &CmEvent) -> io::Error {
    match event.kind {
        // Nobody listens there, or somebody who does not like us.
        RDMA_CM_EVENT_REJECTED => ErrorKind::ConnectionRefused.into(),
        RDMA_CM_EVENT_DISCONNECTED => ErrorKind::ConnectionReset.into(),
        _ if event.status < 0 => io::Error::from_raw_os_error(-event.status),
        _ => ErrorKind::HostUnreachable.into(),
    }
}
