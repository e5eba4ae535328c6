//! Questions to the kernel about links, addresses and routes (rtnetlink); none of them needs a privilege.

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use std::io;

/// No answer is longer: the kernel makes dumps in pieces of at most 32 KiB.
const BUFFER: usize = 64 << 10;

/// Every object of a kind.
///
/// # Errors
/// What the kernel or a sandbox says.
pub fn dump(question: RouteNetlinkMessage) -> io::Result<Vec<RouteNetlinkMessage>> {
    ask(question, NLM_F_REQUEST | NLM_F_DUMP)
}

/// The one answer to a question.
///
/// # Errors
/// What the kernel or a sandbox says; `ENETUNREACH` and the like are answers.
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

    // Not zeroed: most answers are short, and touch no more of it than they need.
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

/// Takes the messages of one datagram; true after the last one.
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
        // What a later kernel writes and this crate cannot read is passed over, not an error of the whole.
        match NetlinkMessage::deserialize(&piece[..len]).map(|message| message.payload) {
            Ok(NetlinkPayload::Done(_)) => return Ok(true),
            Ok(NetlinkPayload::Error(error)) if error.code.is_some() => return Err(error.to_io()),
            Ok(NetlinkPayload::Error(_)) => return Ok(true),
            Ok(NetlinkPayload::InnerMessage(answer)) => answers.push(answer),
            _ => (),
        }
        // Messages begin at multiples of four.
        piece = piece.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(flags & NLM_F_DUMP != NLM_F_DUMP)
}
