//! A context, a worker and an endpoint, created as a program does, to show their configuration.

use crate::{Part, PeerLocation};
use rucp_tools::party::{Features, Party, from_hex, to_hex};
use rucp_tools::peer::PeerProcess;
use serde_json::{Value, json};
use std::io::{BufRead, Read, Write};
use std::ptr::null_mut;
use ucp::abi::{context, endpoint, worker};
use ucp::proto::proto_info::ProtoTable;

/// The requested parts: context, worker, endpoint.
pub fn print(
    letters: &str,
    place: PeerLocation,
    wanted: [bool; 3],
) -> Result<Vec<(&'static str, Part)>, String> {
    let party = Party::new(&Features::parse(letters)?, c"rucp_info")?;
    let mut parts = Vec::new();
    let [context, worker, endpoint] = wanted;
    if context {
        // SAFETY: a live context, an open stream.
        let text =
            captured(|out| unsafe { context::ucp_context_print_info(party.context(), out) })?;
        let json = json!(lines_of(&text));
        parts.push(("context", Part { text, json }));
    }
    if worker {
        // SAFETY: a live worker, an open stream.
        let text = captured(|out| unsafe { worker::ucp_worker_print_info(party.worker(), out) })?;
        let json = json!({"address_bytes": party.address(0)?.len()});
        parts.push(("worker", Part { text, json }));
    }
    if endpoint {
        parts.push(("endpoint", endpoint_part(&party, letters, place)?));
    }
    Ok(parts)
}

fn endpoint_part(party: &Party, letters: &str, place: PeerLocation) -> Result<Part, String> {
    // The peer lives as long as `_peer`.
    let (_peer, address) = match place {
        PeerLocation::Same => (None, party.address(0)?),
        PeerLocation::Intra | PeerLocation::Inter => {
            let (peer, both) = start_peer(letters)?;
            (
                Some(peer),
                both[usize::from(place == PeerLocation::Inter)].clone(),
            )
        }
    };
    let ep = party.connect(&address)?;
    // SAFETY: a live endpoint, an open stream.
    let text = captured(|out| unsafe { endpoint::ucp_ep_print_info(ep.handle(), out) })?;
    Ok(Part {
        text,
        json: ep.tables().iter().map(table_json).collect(),
    })
}

fn table_json(table: &ProtoTable) -> Value {
    let ranges = table.ranges.iter().map(|range| {
        json!({
            "first": range.first,
            "last": (range.last != usize::MAX).then_some(range.last),
            "protocol": range.what,
            "lane": range.lane,
        })
    });
    json!({"operation": table.operation, "ranges": ranges.collect::<Value>()})
}

fn lines_of(text: &str) -> Vec<&str> {
    let lines = text.lines().map(|line| line.trim_start_matches('#').trim());
    lines.filter(|line| !line.is_empty()).collect()
}

/// The output of a function that prints to a C stream.
fn captured(print: impl FnOnce(*mut libc::FILE)) -> Result<String, String> {
    let (mut text, mut len): (*mut std::ffi::c_char, usize) = (null_mut(), 0);
    // SAFETY: the stream is opened, used and closed here; the text is as long as the stream says and is freed.
    unsafe {
        let stream = libc::open_memstream(&mut text, &mut len);
        if stream.is_null() {
            return Err(std::io::Error::last_os_error().to_string());
        }
        print(stream);
        libc::fclose(stream);
        let bytes = std::slice::from_raw_parts(text.cast::<u8>(), len).to_vec();
        libc::free(text.cast());
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// Starts this program in another process, with a worker: its addresses with everything, and for other hosts.
fn start_peer(letters: &str) -> Result<(PeerProcess, [Vec<u8>; 2]), String> {
    let mut peer = PeerProcess::start(&["--serve", "-u", letters])?;
    let output = peer.take_output().ok_or("no pipe from the peer")?;
    let mut lines = output.lines();
    // Messages of the log may come first.
    let mut next = || -> Option<Vec<u8>> {
        let line = lines.by_ref().map_while(Result::ok);
        let mut hex = line.filter_map(|l| l.strip_prefix("address ").map(str::to_owned));
        from_hex(&hex.next()?)
    };
    match (next(), next()) {
        (Some(all), Some(network)) => Ok((peer, [all, network])),
        _ => Err("the process for the other end did not start".into()),
    }
}

/// The other end: prints the addresses of a worker and waits for the end of its input.
pub fn serve(letters: &str) -> Result<(), String> {
    let party = Party::new(&Features::parse(letters)?, c"rucp_info")?;
    let mut out = std::io::stdout();
    for address in [party.address(0)?, party.network_address()?] {
        let line = format!("address {}\n", to_hex(&address));
        out.write_all(line.as_bytes()).map_err(|e| e.to_string())?;
    }
    out.flush().map_err(|e| e.to_string())?;
    let read = std::io::stdin().read_to_end(&mut Vec::new());
    read.map(drop).map_err(|e| e.to_string())
}
