//! Requests to the kernel about links, addresses and routes (rtnetlink); none of them needs a privilege.

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use std::io;

/// Bytes of the receive buffer: the kernel makes dumps of datagrams of at most 32 KiB.
const BUFFER: usize = 64 << 10;

/// Requests all objects of a kind.
///
/// # Errors
/// Errors of the kernel or of a sandbox.
pub fn dump(question: RouteNetlinkMessage) -> io::Result<Vec<RouteNetlinkMessage>> {
    ask(question, NLM_F_REQUEST | NLM_F_DUMP)
}

/// Requests one object.
///
/// # Errors
/// Errors of the kernel or of a sandbox; `ENETUNREACH` and the like are results of a route lookup.
pub fn get(question: RouteNetlinkMessage) -> io::Result<RouteNetlinkMessage> {
    ask(question, NLM_F_REQUEST)?
        .pop()
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn ask(question: RouteNetlinkMessage, flags: u16) -> io::Result<Vec<RouteNetlinkMessage>> {
    let socket = Socket::new(NETLINK_ROUTE)?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let mut request = NetlinkMessage::new(NetlinkHeader::default(), question.into());
    request.header.flags = flags;
    request.header.sequence_number = 1;
    request.finalize();
    let mut bytes = vec![0; request.buffer_len()];
    request.serialize(&mut bytes);
    socket.send(&bytes, 0)?;

    // Not zeroed: most replies are short, and the pages behind them stay untouched.
    let mut piece = Vec::with_capacity(BUFFER);
    let mut answers = Vec::new();
    loop {
        piece.clear();
        socket.recv(&mut piece, 0)?;
        if read_piece(&piece, flags, &mut answers)? {
            return Ok(answers);
        }
    }
}

/// Takes the messages of one datagram; true if the reply ends with it.
fn read_piece(
    mut piece: &[u8],
    flags: u16,
    answers: &mut Vec<RouteNetlinkMessage>,
) -> io::Result<bool> {
    const HEADER: usize = 16;
    while let Some(len) = piece
        .first_chunk()
        .map(|bytes| u32::from_ne_bytes(*bytes) as usize)
    {
        if len < HEADER || len > piece.len() {
            break;
        }
        // A message that this crate cannot decode, of a later kernel, is skipped and does not fail the request.
        match NetlinkMessage::deserialize(&piece[..len]).map(|message| message.payload) {
            Ok(NetlinkPayload::Done(_)) => return Ok(true),
            Ok(NetlinkPayload::Error(error)) if error.code.is_some() => return Err(error.to_io()),
            Ok(NetlinkPayload::Error(_)) => return Ok(true),
            Ok(NetlinkPayload::InnerMessage(answer)) => answers.push(answer),
            _ => (),
        }
        // Messages are aligned to four bytes.
        piece = piece.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(flags & NLM_F_DUMP != NLM_F_DUMP)
}
