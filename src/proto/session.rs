//! How clients and servers find each other: a connection to a listener, a question, an answer, a farewell.
//!
//! The connection carries no messages: once both sides know each other's workers these take the ways that worker
//! addresses name, shared memory on one host. It stays as long as the endpoints do, so that the end of an endpoint
//! that was never used is noticed, too. Until the answer comes a client's endpoint leads to a placeholder, where
//! requests wait.

use super::{failure, tx, wireup};
use crate::ctypes::*;
use crate::engine::endpoint::{Endpoint, FRESH};
use crate::engine::listener::{
    ConnRequest, Due, Entry, Exchange, Guest, Handler, Listener, Session, State,
};
use crate::engine::peer::Peer;
use crate::engine::worker::Worker;
use crate::sys::lock::MtGuard;
use crate::sys::{clock, log, machine};
use crate::tl::tcp::epoll::Event;
use crate::tl::tcp::socket::{self, Tuning};
use crate::wire::address::{MAX_ADDRESSES, NetAddress, WorkerAddress};
use crate::wire::header::{EpImm, Kind, SN_BITS};
use crate::wire::session::{self as wire, BYE, BYE_BEHIND, Hello, MAGIC, NUMBER_BITS, Reply};
use socket2::Socket;
use std::io::{self, ErrorKind, Read};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A guest who has not said who he is after so many milliseconds is sent away.
const GUEST_MS: u64 = 5000;
/// Connections accepted in one progress call.
const ACCEPTS: usize = 32;
/// Speed of a device of which nothing is known but that it works, Mb/s.
const UNKNOWN_MBPS: u32 = 1;

/// Serial numbers of the endpoints of clients and of servers, beyond those that count endpoints.
const CLIENT: u32 = 0b10 << NUMBER_BITS;
const SERVER: u32 = 0b11 << NUMBER_BITS;
const _: () = assert!(NUMBER_BITS + 2 == SN_BITS);

/// The worker's exchange, made if it is the first time.
fn exchange(worker: &Worker) -> Result<MtGuard<'_, Option<Box<Exchange>>>, ucs_status_t> {
    let mut guard = worker.exchange.lock();
    if guard.is_none() {
        let made = Exchange::new().and_then(|x| {
            if let Some(wake) = &worker.wake {
                wake.add(x.epoll.fd())?;
            }
            Ok(x)
        });
        *guard = Some(Box::new(made.map_err(|e| {
            log::error!("cannot watch connections: {e}");
            UCS_ERR_IO_ERROR
        })?));
    }
    Ok(guard)
}

fn tuning(worker: &Worker) -> Tuning {
    let policy = &worker.ctx.policy;
    policy.connecting.tuning(policy.keepalive_ms)
}

/// Progress is to look at once.
fn hurry(worker: &Worker) {
    // Release: pairs with the Acquire load in `fast::progress`.
    worker.networked.store(true, Ordering::Release);
}

/// Begins to listen.
///
/// # Errors
/// `UCS_ERR_BUSY` if the address is in use, `UCS_ERR_IO_ERROR` for whatever else the system says.
pub fn listen(
    worker: &Worker,
    at: SocketAddr,
    handler: Handler,
) -> Result<Box<Listener>, ucs_status_t> {
    let policy = &worker.ctx.policy.sockaddr;
    let made = socket::listen(at, &tuning(worker), policy.reuse_address).and_then(|socket| {
        if let Some(backlog) = policy.backlog {
            socket.listen(backlog.min(i32::MAX as u32) as i32)?;
        }
        let local = socket.local_addr()?.as_socket();
        Ok((socket, local.ok_or(ErrorKind::InvalidInput)?))
    });
    let (socket, address) = made.map_err(|e| {
        log::error!("cannot listen on {at}: {e}");
        match e.kind() {
            ErrorKind::AddrInUse => UCS_ERR_BUSY,
            _ => UCS_ERR_IO_ERROR,
        }
    })?;
    let mut guard = exchange(worker)?;
    let x = guard.as_deref_mut().ok_or(UCS_ERR_IO_ERROR)?;
    let token = x.token();
    if let Err(e) = x.epoll.add(socket.as_raw_fd(), token, false) {
        log::error!("cannot watch {address}: {e}");
        return Err(UCS_ERR_IO_ERROR);
    }
    x.entries.insert(token, Entry::Listener { socket, handler });
    Ok(Box::new(Listener {
        worker,
        token,
        address,
    }))
}

/// Ends listening. Who has connected and was not shown to the program is rejected.
pub fn unlisten(worker: &Worker, token: u64) {
    let mut guard = worker.exchange.lock();
    let Some(x) = guard.as_deref_mut() else {
        return;
    };
    let Some(Entry::Listener { socket, .. }) = x.entries.remove(&token) else {
        return;
    };
    while let Ok((waiting, _)) = socket.accept() {
        turn_away(&waiting, UCS_ERR_REJECTED);
    }
    x.epoll.remove(socket.as_raw_fd(), false);
    let of_it = |entry: &Entry| matches!(entry, Entry::Guest(g) if g.listener == token);
    let guests: Vec<u64> = (x.entries.iter())
        .filter(|(_, entry)| of_it(entry))
        .map(|(&guest, _)| guest)
        .collect();
    for guest in guests {
        if let Some(guest) = take_guest(x, guest) {
            turn_away(&guest.socket, UCS_ERR_REJECTED);
        }
    }
    x.due.retain(|due| {
        let stays = due.listener != token;
        if !stays {
            turn_away(&due.request.socket, UCS_ERR_REJECTED);
        }
        stays
    });
}

/// Tells a client that it is not accepted. Its socket is closed by the caller.
pub fn turn_away(socket: &Socket, status: ucs_status_t) {
    let reply = Reply {
        magic: MAGIC,
        address_len: 0,
        status: status as i8,
        err_mode: 0,
    };
    if let Err(e) = say(socket, &reply.encode()) {
        log::debug!("a client that is turned away has gone: {e}");
    }
}

/// Sends what is short enough to fit into the buffer of a fresh socket.
fn say(socket: &Socket, bytes: &[u8]) -> io::Result<()> {
    match socket.send_with_flags(bytes, libc::MSG_NOSIGNAL)? {
        n if n == bytes.len() => Ok(()),
        _ => Err(ErrorKind::WriteZero.into()),
    }
}

/// Reads until the buffer holds `size` bytes; false if that takes longer.
fn hear(mut socket: &Socket, buffer: &mut Vec<u8>, size: usize) -> io::Result<bool> {
    while buffer.len() < size {
        let mut bytes = [0; 256];
        let room = bytes.len().min(size - buffer.len());
        match socket.read(&mut bytes[..room]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(n) => buffer.extend(&bytes[..n]),
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(true)
}

/// The address of a worker together with that at which it was met, which is known to work.
fn met_at(worker: &Worker, mut address: WorkerAddress, at: SocketAddr) -> WorkerAddress {
    let ip = at.ip().to_canonical();
    if let Some(tcp) = &mut address.tcp {
        if let Some(&known) = tcp.addresses.iter().find(|known| known.ip == ip) {
            restrict(worker, &mut address, known);
        } else if tcp.addresses.len() < MAX_ADDRESSES {
            tcp.addresses.push(NetAddress::new(ip, UNKNOWN_MBPS));
        }
    }
    address
}

/// What a worker tells the other end of a connection.
fn told(worker: &Worker, socket: &Socket) -> Vec<u8> {
    let mut address = worker.address(false);
    let local = socket.local_addr().ok().and_then(|a| a.as_socket());
    if let Some(ip) = local.map(|a| a.ip().to_canonical())
        && let Some(device) = (worker.ctx.devices().iter()).find(|d| d.addrs.contains(&ip))
    {
        restrict(worker, &mut address, NetAddress::new(ip, device.speed()));
    }
    address.encode()
}

/// Leaves a worker's address only the way by the device that two workers have met through, if
/// `UCX_CM_USE_ALL_DEVICES=n` and messages can go there. Workers that know each other already keep the way they have.
fn restrict(worker: &Worker, address: &mut WorkerAddress, to: NetAddress) {
    if worker.ctx.policy.sockaddr.all_devices || worker.tcp.is_none() {
        return;
    }
    if let Some(tcp) = &mut address.tcp {
        tcp.addresses = vec![to];
        address.shm = None;
    }
}

// --- The client's side ---

/// An endpoint that leads nowhere yet. [`dial`] takes it to a server.
///
/// # Errors
/// When the system is out of descriptors.
pub fn client_endpoint(worker: &Worker) -> Result<*mut Endpoint, ucs_status_t> {
    let mut guard = exchange(worker)?;
    let x = guard.as_deref_mut().ok_or(UCS_ERR_IO_ERROR)?;
    let (token, number) = (x.token(), x.number());
    #[expect(
        clippy::arc_with_non_send_sync,
        reason = "as the worker whose it is: its locks and atomics are what threads share it by"
    )]
    let nobody = Arc::new(Peer::nobody(worker));
    let ep = wireup::numbered_endpoint(worker, &nobody, number | CLIENT, number | SERVER);
    // SAFETY: a new endpoint.
    unsafe { (*ep).session = token };
    let session = Session {
        ep,
        state: State::Dialing,
        socket: None,
        local: None,
        remote: SocketAddr::from(([0; 4], 0)),
        freed: false,
        number,
        secret: machine::random_u64(),
        client_id: None,
        buffer: Vec::new(),
        nobody: Some(nobody),
    };
    x.entries.insert(token, Entry::Session(Box::new(session)));
    x.unsettled += 1;
    Ok(ep)
}

/// Begins to connect a client's endpoint. If it fails, now or later, the endpoint does.
///
/// # Safety
/// The endpoint came from [`client_endpoint`] and is not dialled yet.
pub unsafe fn dial(
    worker: &Worker,
    ep: *mut Endpoint,
    to: SocketAddr,
    from: Option<SocketAddr>,
    client_id: Option<u64>,
) {
    // SAFETY: the caller's endpoint.
    let token = unsafe { (*ep).session };
    let mut guard = worker.exchange.lock();
    let Some(x) = guard.as_deref_mut() else {
        return;
    };
    let made = socket::connect_to(to, from, &tuning(worker)).and_then(|socket| {
        x.epoll.add(socket.as_raw_fd(), token, true)?;
        Ok(socket)
    });
    let Some(session) = x.session(token) else {
        return;
    };
    (session.remote, session.client_id) = (to, client_id);
    match made {
        Ok(socket) => {
            session.local = socket.local_addr().ok().and_then(|a| a.as_socket());
            session.socket = Some(socket);
        }
        Err(e) => {
            log::debug!("cannot connect to {to}: {e}");
            let nobody = end_client(x, token);
            drop(guard);
            lose(nobody, connect_status(&e));
        }
    }
    hurry(worker);
}

/// What a client's endpoint fails with if its connection cannot be made.
fn connect_status(e: &io::Error) -> ucs_status_t {
    match e.kind() {
        ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof => {
            UCS_ERR_NOT_CONNECTED
        }
        _ => UCS_ERR_UNREACHABLE,
    }
}

/// A client's attempt is over. Gives its placeholder.
fn end_client(x: &mut Exchange, token: u64) -> *const Peer {
    let session = match x.entries.get_mut(&token) {
        Some(Entry::Session(session)) => session,
        _ => return std::ptr::null(),
    };
    let dialing = session.state == State::Dialing;
    if let Some(socket) = session.socket.take() {
        x.epoll.remove(socket.as_raw_fd(), dialing);
    }
    session.state = State::Ended;
    x.unsettled -= 1;
    session.nobody.as_deref().map_or(std::ptr::null(), |p| p)
}

fn lose(nobody: *const Peer, status: ucs_status_t) {
    // SAFETY: placeholders live as long as something leads to them.
    if let Some(peer) = unsafe { nobody.as_ref() } {
        tx::lose(peer, status);
    }
}

/// The connection of a client is there, or cannot be.
fn on_connected(worker: &Worker, x: &mut Exchange, token: u64) -> Outcome {
    let Some(session) = x.session(token) else {
        return Outcome::Nothing;
    };
    let Some(socket) = session.socket.as_ref() else {
        return Outcome::Nothing;
    };
    // SAFETY: the endpoint lives as long as the session names it.
    let err_mode = unsafe { session.ep.as_ref() }.map_or(0, |ep| ep.err_mode);
    let fd = socket.as_raw_fd();
    let asked = socket::connected(socket).and_then(|()| {
        let address = told(worker, socket);
        let hello = Hello {
            magic: MAGIC,
            number: session.number,
            address_len: address.len() as u16,
            err_mode,
            has_id: u8::from(session.client_id.is_some()),
            client_id: session.client_id.unwrap_or(0),
            secret: session.secret,
        };
        say(socket, &[&hello.encode()[..], &address].concat())
    });
    match asked {
        Ok(()) => {
            session.local = socket.local_addr().ok().and_then(|a| a.as_socket());
            session.state = State::Asked;
            x.epoll.watch_room(fd, token, false);
            Outcome::Nothing
        }
        Err(e) if e.kind() == ErrorKind::NotConnected => Outcome::Nothing,
        Err(e) => {
            log::debug!("cannot connect to {}: {e}", session.remote);
            Outcome::Lost(end_client(x, token), connect_status(&e))
        }
    }
}

/// The server's answer, or a part of it.
fn on_answer(worker: &Worker, x: &mut Exchange, token: u64) -> Outcome {
    let Some(session) = x.session(token) else {
        return Outcome::Nothing;
    };
    let Some(socket) = session.socket.as_ref() else {
        return Outcome::Nothing;
    };
    match read_reply(socket, &mut session.buffer) {
        Ok(None) => Outcome::Nothing,
        Ok(Some((reply, None))) => {
            let status = ucs_status_t::from_raw(reply.status);
            Outcome::Lost(end_client(x, token), status)
        }
        Ok(Some((_, Some(address)))) => {
            session.buffer = Vec::new();
            session.state = State::Open;
            let address = met_at(worker, address, session.remote);
            x.unsettled -= 1;
            Outcome::Accepted(Box::new(address))
        }
        Err(e) => {
            log::diag!("no answer from {}: {e}", session.remote);
            Outcome::Lost(end_client(x, token), connect_status(&e))
        }
    }
}

fn read_reply(
    socket: &Socket,
    buffer: &mut Vec<u8>,
) -> io::Result<Option<(Reply, Option<WorkerAddress>)>> {
    if !hear(socket, buffer, Reply::SIZE)? {
        return Ok(None);
    }
    let reply = Reply::decode(buffer).ok_or(ErrorKind::InvalidData)?;
    if reply.status != 0 {
        return Ok(Some((reply, None)));
    }
    let size = Reply::SIZE + usize::from(reply.address_len);
    if !hear(socket, buffer, size)? {
        return Ok(None);
    }
    let address = WorkerAddress::decode(&buffer[Reply::SIZE..]);
    let address = address.map_err(|e| io::Error::new(ErrorKind::InvalidData, e))?;
    Ok(Some((reply, Some(address))))
}

/// The server is known: the endpoint leads there from now on, and what waited sets out.
fn on_accepted(worker: &Worker, token: u64, address: &WorkerAddress) {
    let found = wireup::peer_of(worker, address);
    let mut guard = worker.exchange.lock();
    let Some(x) = guard.as_deref_mut() else {
        return;
    };
    let Some(session) = x.session(token) else {
        return;
    };
    let (ep, number) = (session.ep, session.number);
    let peer = match found {
        // SAFETY: peers live as long as the worker.
        Ok(peer) => unsafe { &*peer },
        Err(status) => {
            let nobody = session
                .nobody
                .as_deref()
                .map_or(std::ptr::null(), |p| &raw const *p);
            drop(guard);
            return lose(nobody, status);
        }
    };
    let nobody = session.nobody.take();
    drop(guard);
    // None: a message was faster than the answer.
    if let Some(nobody) = nobody {
        settle(worker, token, ep, nobody, peer);
    }
    // SAFETY: the endpoint lives as long as the session names it.
    match unsafe { ep.as_mut() } {
        Some(ep) => {
            // The two ends may handle errors in different ways, as in UCX: each end hears of the other one's by
            // this connection.
            if !std::ptr::eq(ep.peer(), peer) {
                log::error!("another worker than the server used its endpoint's number");
                failure::end_endpoint(worker, ep.peer(), ep, UCS_ERR_CONNECTION_RESET);
            }
        }
        // It was closed meanwhile; what it had sent goes first.
        None => {
            say_closed(peer, number | SERVER, 0);
            end(worker, token, true);
        }
    }
}

/// A server's endpoint is about to send for the first time: the client may not have its worker's answer yet.
pub fn prove(worker: &Worker, ep: &Endpoint, peer: &Peer) {
    let mut guard = worker.exchange.lock();
    let session = guard.as_deref_mut().and_then(|x| x.session(ep.session));
    let Some(secret) = session.map(|session| session.secret) else {
        return;
    };
    drop(guard);
    tx::control(peer, Kind::Accepted, 0, secret, &[]);
}

/// A worker has accepted a client of this one, and its message is faster than its answer: the client's endpoint
/// leads there from now on. Its number alone would not do: who knows this worker can guess it.
pub fn on_proof(worker: &Worker, peer: &Peer, secret: u64) {
    let mut guard = worker.exchange.lock();
    let Some(x) = guard.as_deref_mut() else {
        return;
    };
    let asked = x
        .entries
        .iter_mut()
        .find_map(|(&token, entry)| match entry {
            Entry::Session(s) if s.state == State::Asked && s.secret == secret => Some((token, s)),
            _ => None,
        });
    let Some((token, ep, nobody)) = asked.and_then(|(t, s)| Some((t, s.ep, s.nobody.take()?)))
    else {
        return;
    };
    drop(guard);
    settle(worker, token, ep, nobody, peer);
}

/// A client's endpoint leads to its server from now on.
fn settle(worker: &Worker, token: u64, ep: *mut Endpoint, nobody: Arc<Peer>, peer: &Peer) {
    migrate(worker, ep, &nobody, peer);
    // SAFETY: the endpoint lives as long as its session names it.
    if let Some(ep) = unsafe { ep.as_mut() } {
        failure::begin(worker, ep, peer);
    }
    if let Some(x) = worker.exchange.lock().as_deref_mut() {
        x.retire(token, nobody);
    }
}

/// Moves an endpoint and its requests from the placeholder to the peer.
fn migrate(worker: &Worker, ep: *mut Endpoint, nobody: &Peer, peer: &Peer) {
    // SAFETY: the endpoint lives as long as its session names it, and is in the placeholder's list.
    if let Some(e) = unsafe { ep.as_ref() } {
        // SAFETY: as above.
        unsafe {
            wireup::unlist(nobody, ep);
            wireup::relist(peer, ep);
        }
        e.set_peer(peer);
    }
    let mut from = nobody.tx.lock();
    let mut to = peer.tx.lock();
    // Release: pairs with the Acquire load in `Peer::successor`.
    nobody
        .forward
        .store((&raw const *peer).cast_mut(), Ordering::Release);
    let waiting = std::mem::take(&mut from.pending);
    worker.backlog.fetch_sub(waiting.len(), Ordering::Relaxed);
    for req in waiting {
        // SAFETY: a queued request lives.
        unsafe { (*req).peer = peer };
        tx::enqueue(peer, &mut to, req);
    }
    drop((from, to));
    if peer.status() != UCS_OK {
        // It failed while the server was asked: what came after its end is ended here.
        for req in failure::take_requests(worker, peer, |_| true) {
            // SAFETY: taken out of every list.
            unsafe { crate::engine::request::complete(req, peer.status()) };
        }
        // SAFETY: as above.
        if let Some(e) = unsafe { ep.as_mut() } {
            failure::fail_endpoint(worker, e, peer.status());
        }
    }
}

fn say_closed(peer: &Peer, sn: u32, err_mode: u8) {
    if peer.status() == UCS_OK {
        tx::control(
            peer,
            Kind::EpClosed,
            0,
            EpImm { sn, err_mode }.to_u64(),
            &[],
        );
    }
}

// --- The server's side ---

/// An endpoint to a client that asked. [`admit`] tells the client.
///
/// # Errors
/// `UCS_ERR_CONNECTION_RESET` if it has gone, `UCS_ERR_UNREACHABLE` if nothing leads to it.
pub fn server_endpoint(
    worker: &Worker,
    request: &ConnRequest,
) -> Result<*mut Endpoint, ucs_status_t> {
    let mut probe = [std::mem::MaybeUninit::uninit(); 1];
    match request.socket.peek(&mut probe) {
        Err(e) if e.kind() == ErrorKind::WouldBlock => {}
        // It says farewell, or nothing any more.
        _ => {
            log::debug!("the client at {} has gone", request.remote);
            return Err(UCS_ERR_CONNECTION_RESET);
        }
    }
    let address = met_at(worker, request.address.clone(), request.remote);
    let peer = wireup::peer_of(worker, &address).inspect_err(|&status| {
        turn_away(&request.socket, status);
    })?;
    // SAFETY: peers live as long as the worker.
    let peer = unsafe { &*peer };
    let number = request.hello.number;
    Ok(wireup::numbered_endpoint(
        worker,
        peer,
        number | SERVER,
        number | CLIENT,
    ))
}

/// Tells a client that its endpoint has a counterpart.
///
/// # Errors
/// `UCS_ERR_CONNECTION_RESET` if it has gone; the endpoint is the caller's.
///
/// # Safety
/// The endpoint came from [`server_endpoint`], for this request.
pub unsafe fn admit(
    worker: &Worker,
    request: ConnRequest,
    ep: *mut Endpoint,
) -> Result<(), ucs_status_t> {
    let mut guard = exchange(worker)?;
    let x = guard.as_deref_mut().ok_or(UCS_ERR_IO_ERROR)?;
    let token = x.token();
    let address = told(worker, &request.socket);
    let reply = Reply {
        magic: MAGIC,
        address_len: address.len() as u16,
        status: 0,
        // SAFETY: the caller's endpoint.
        err_mode: unsafe { (*ep).err_mode },
    };
    let told = say(&request.socket, &[&reply.encode()[..], &address].concat())
        .and_then(|()| x.epoll.add(request.socket.as_raw_fd(), token, false));
    if let Err(e) = told {
        log::debug!("the client at {} has gone: {e}", request.remote);
        return Err(UCS_ERR_CONNECTION_RESET);
    }
    // SAFETY: as above. Its messages may be faster than the answer.
    unsafe {
        (*ep).session = token;
        (*ep).set(FRESH);
    }
    let session = Session {
        ep,
        state: State::Open,
        local: request.socket.local_addr().ok().and_then(|a| a.as_socket()),
        remote: request.remote,
        socket: Some(request.socket),
        freed: false,
        number: request.hello.number,
        secret: request.hello.secret,
        client_id: None,
        buffer: Vec::new(),
        nobody: None,
    };
    x.entries.insert(token, Entry::Session(Box::new(session)));
    Ok(())
}

/// Lets in who knocks at a listener, as far as there is room.
fn let_in(worker: &Worker, x: &mut Exchange, token: u64) {
    let tuning = tuning(worker);
    for _ in 0..ACCEPTS {
        let Some(Entry::Listener { socket, .. }) = x.entries.get(&token) else {
            return;
        };
        let (socket, from) = match socket::accept(socket, &tuning) {
            Ok(accepted) => accepted,
            Err(e) if e.kind() == ErrorKind::WouldBlock => return,
            // Descriptors may run out: what waits is still there later.
            Err(e) => return log::debug!("cannot accept a client: {e}"),
        };
        log::trace!("somebody at {from:?} has connected to a listener");
        while x.guests.len() >= socket::max_guests() {
            send_away(x, x.guests[0], "others wait");
        }
        let guest = x.token();
        if let Err(e) = x.epoll.add(socket.as_raw_fd(), guest, false) {
            log::debug!("cannot watch a client: {e}");
            continue;
        }
        x.guests.push_back(guest);
        let entry = Entry::Guest(Guest {
            socket,
            listener: token,
            until: clock::coarse_ms() + GUEST_MS,
            buffer: Vec::new(),
        });
        x.entries.insert(guest, entry);
    }
}

fn take_guest(x: &mut Exchange, token: u64) -> Option<Guest> {
    let Some(Entry::Guest(guest)) = x.entries.remove(&token) else {
        return None;
    };
    x.guests.retain(|&t| t != token);
    x.epoll.remove(guest.socket.as_raw_fd(), false);
    Some(guest)
}

/// A guest is not, or no longer, welcome.
fn send_away(x: &mut Exchange, token: u64, why: &str) {
    if let Some(guest) = take_guest(x, token) {
        let from = guest.socket.peer_addr().ok().and_then(|a| a.as_socket());
        let from = from.map_or_else(|| "?".to_owned(), |a| a.to_string());
        log::diag!("connection from {from} to a listener closed: {why}");
    }
}

/// A guest says who he is, or a part of it.
fn on_guest(worker: &Worker, x: &mut Exchange, token: u64) {
    let Some(Entry::Guest(guest)) = x.entries.get_mut(&token) else {
        return;
    };
    match read_hello(&guest.socket, &mut guest.buffer) {
        Ok(None) => {}
        Ok(Some((hello, address))) => {
            let Some(guest) = take_guest(x, token) else {
                return;
            };
            let Some(remote) = guest.socket.peer_addr().ok().and_then(|a| a.as_socket()) else {
                return log::diag!("connection to a listener closed: it has gone");
            };
            x.due.push_back(Due {
                listener: guest.listener,
                request: ConnRequest {
                    worker,
                    socket: guest.socket,
                    hello,
                    address,
                    remote,
                },
            });
        }
        Err(e) if e.kind() == ErrorKind::InvalidData => {
            send_away(x, token, "it speaks something else")
        }
        Err(_) => send_away(x, token, "it went before it said who it is"),
    }
}

fn read_hello(socket: &Socket, buffer: &mut Vec<u8>) -> io::Result<Option<(Hello, WorkerAddress)>> {
    let all = hear(socket, buffer, Hello::SIZE)?;
    if !wire::begins(buffer) {
        return Err(ErrorKind::InvalidData.into());
    }
    if !all {
        return Ok(None);
    }
    let hello = Hello::decode(buffer).ok_or(ErrorKind::InvalidData)?;
    if !hear(socket, buffer, Hello::SIZE + usize::from(hello.address_len))? {
        return Ok(None);
    }
    let address = WorkerAddress::decode(&buffer[Hello::SIZE..]);
    let address = address.map_err(|e| io::Error::new(ErrorKind::InvalidData, e))?;
    Ok(Some((hello, address)))
}

// --- Both sides ---

/// What an event leads to outside of the exchange's lock.
enum Outcome {
    Nothing,
    /// A client's attempt has failed.
    Lost(*const Peer, ucs_status_t),
    /// A client has an answer.
    Accepted(Box<WorkerAddress>),
    /// The other end's endpoint is closed; `true`: a message says so, too.
    Gone(*mut Endpoint, bool),
}

/// Looks at all connections. Returns the number of events.
pub fn progress(worker: &Worker) -> u32 {
    let events: Vec<Event> = match worker.exchange.lock().as_deref_mut() {
        Some(x) => {
            x.urgent = false;
            expire(x);
            x.epoll.poll().collect()
        }
        None => return 0,
    };
    for event in &events {
        on_event(worker, event.token);
    }
    events.len() as u32
}

/// Sends away who takes too long to say who he is.
fn expire(x: &mut Exchange) {
    while let Some(&token) = x.guests.front() {
        match x.entries.get(&token) {
            Some(Entry::Guest(guest)) if guest.until > clock::coarse_ms() => return,
            _ => send_away(x, token, "it did not say who it is"),
        }
    }
}

fn on_event(worker: &Worker, token: u64) {
    let mut guard = worker.exchange.lock();
    let Some(x) = guard.as_deref_mut() else {
        return;
    };
    let outcome = match x.entries.get(&token) {
        Some(Entry::Listener { .. }) => {
            let_in(worker, x, token);
            Outcome::Nothing
        }
        Some(Entry::Guest(_)) => {
            on_guest(worker, x, token);
            Outcome::Nothing
        }
        Some(Entry::Session(session)) => match session.state {
            State::Dialing => on_connected(worker, x, token),
            State::Asked => on_answer(worker, x, token),
            State::Open => on_farewell(x, token),
            State::Ended => Outcome::Nothing,
        },
        None => Outcome::Nothing,
    };
    drop(guard);
    match outcome {
        Outcome::Nothing => {}
        Outcome::Lost(nobody, status) => lose(nobody, status),
        Outcome::Accepted(address) => on_accepted(worker, token, &address),
        Outcome::Gone(ep, behind) => on_gone(worker, ep, behind),
    }
}

/// The other end says that its endpoint is closed, or is not there any more.
fn on_farewell(x: &mut Exchange, token: u64) -> Outcome {
    let Some(session) = x.session(token) else {
        return Outcome::Nothing;
    };
    let Some(socket) = session.socket.as_ref() else {
        return Outcome::Nothing;
    };
    let mut word = Vec::new();
    let behind = match hear(socket, &mut word, 1) {
        Ok(false) => return Outcome::Nothing,
        Ok(true) => word[0] == BYE_BEHIND,
        // Killed: if there is another connection to it, what came through that comes first.
        Err(_) => false,
    };
    session.state = State::Ended;
    let ep = session.ep;
    if let Some(socket) = session.socket.take() {
        x.epoll.remove(socket.as_raw_fd(), false);
    }
    Outcome::Gone(ep, behind)
}

fn on_gone(worker: &Worker, ep: *mut Endpoint, behind: bool) {
    // SAFETY: the endpoint lives as long as its session names it.
    let Some(ep) = (unsafe { ep.as_mut() }) else {
        return;
    };
    if !behind && ep.handles_errors() {
        let peer = ep.peer();
        failure::end_endpoint(worker, peer, ep, UCS_ERR_CONNECTION_RESET);
    }
}

/// The user closes an endpoint. `behind`: a message says so, too. Called after it was taken out of its peer's list.
///
/// # Safety
/// The endpoint lives.
pub unsafe fn close(worker: &Worker, ep: &Endpoint, behind: bool, force: bool) {
    if ep.session == 0 {
        return;
    }
    let mut guard = worker.exchange.lock();
    let Some(x) = guard.as_deref_mut() else {
        return;
    };
    let Some(session) = x.session(ep.session) else {
        return;
    };
    session.ep = std::ptr::null_mut();
    let waits = session
        .nobody
        .as_ref()
        .is_some_and(|nobody| nobody.status() == UCS_OK && !nobody.tx.lock().pending.is_empty());
    drop(guard);
    // What waits for the server to be known is sent all the same.
    if force || !waits {
        end(worker, ep.session, behind);
    }
}

/// Ends a session whose endpoint is closed.
fn end(worker: &Worker, token: u64, behind: bool) {
    let mut guard = worker.exchange.lock();
    let Some(x) = guard.as_deref_mut() else {
        return;
    };
    let Some(Entry::Session(session)) = x.entries.remove(&token) else {
        return;
    };
    if matches!(session.state, State::Dialing | State::Asked) {
        x.unsettled -= 1;
    }
    if let Some(socket) = session.socket {
        x.epoll
            .remove(socket.as_raw_fd(), session.state == State::Dialing);
        if session.state == State::Open {
            // Who has gone already does not hear it.
            let _ = say(&socket, &[if behind { BYE_BEHIND } else { BYE }]);
        }
    }
    if let Some(nobody) = session.nobody {
        x.retire(token, nobody);
    }
}

/// The memory of an endpoint is about to be another's: nobody reads where it leads.
pub fn endpoint_freed(worker: &Worker, token: u64) {
    if token == 0 {
        return;
    }
    let lost = worker.lost.lock().clone();
    if let Some(x) = worker.exchange.lock().as_deref_mut() {
        x.endpoint_freed(token, &lost);
    }
}

/// The two ends of an endpoint's connection.
pub fn addresses(worker: &Worker, ep: &Endpoint) -> Option<(Option<SocketAddr>, SocketAddr)> {
    let mut guard = worker.exchange.lock();
    let session = guard.as_deref_mut()?.session(ep.session)?;
    Some((session.local, session.remote))
}
