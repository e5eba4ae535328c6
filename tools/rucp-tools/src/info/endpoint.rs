//! A context, a worker and an endpoint, created as a program does, to show their configuration.

use crate::{Part, PeerLocation};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::mem::{MaybeUninit, zeroed};
use std::process::{Child, Command, Stdio};
use std::ptr::{null, null_mut};
use ucp::abi::{address, context, endpoint, worker};
use ucp::ctypes::*;
use ucp::engine::endpoint::Endpoint;
use ucp::proto::proto_info::{self, ProtoTable};

/// The letters of `-u`.
struct Features {
    bits: u64,
    errors: bool,
}

fn parse(letters: &str) -> Result<Features, String> {
    let mut features = Features {
        bits: 0,
        errors: false,
    };
    for letter in letters.chars() {
        features.bits |= match letter {
            'a' => UCP_FEATURE_AMO32 as u64 | UCP_FEATURE_AMO64 as u64,
            'r' => UCP_FEATURE_RMA as u64,
            't' => UCP_FEATURE_TAG as u64,
            's' => UCP_FEATURE_STREAM as u64,
            'm' => UCP_FEATURE_AM as u64,
            'w' => UCP_FEATURE_WAKEUP as u64,
            'e' => {
                features.errors = true;
                0
            }
            other => return Err(format!("'{other}' is no feature; see --help")),
        };
    }
    Ok(features)
}

/// A context and a worker.
struct Party {
    context: ucp_context_h,
    worker: ucp_worker_h,
}

impl Party {
    fn new(features: &Features) -> Result<Party, String> {
        // SAFETY: zeroed parameter structures with masks that name what is set.
        unsafe {
            let mut params: ucp_params_t = zeroed();
            params.field_mask = UCP_PARAM_FIELD_FEATURES as u64 | UCP_PARAM_FIELD_NAME as u64;
            params.features = features.bits;
            params.name = c"rucp_info".as_ptr();
            let mut context = null_mut();
            let made = context::ucp_init_version(1, 22, &params, null(), &mut context);
            check(made, "no context")?;
            let worker_params: ucp_worker_params_t = zeroed();
            let mut worker = null_mut();
            let made = worker::ucp_worker_create(context, &worker_params, &mut worker);
            check(made, "no worker").inspect_err(|_| context::ucp_cleanup(context))?;
            Ok(Party { context, worker })
        }
    }

    /// The worker's address, as a copy.
    fn address(&self, flags: u32) -> Result<Vec<u8>, String> {
        // SAFETY: a zeroed structure with a mask; the address is copied by its length.
        unsafe {
            let mut attr: ucp_worker_attr_t = zeroed();
            attr.field_mask =
                UCP_WORKER_ATTR_FIELD_ADDRESS as u64 | UCP_WORKER_ATTR_FIELD_ADDRESS_FLAGS as u64;
            attr.address_flags = flags;
            check(
                worker::ucp_worker_query(self.worker, &mut attr),
                "no address",
            )?;
            let bytes = std::slice::from_raw_parts(attr.address.cast::<u8>(), attr.address_length);
            let copy = bytes.to_vec();
            address::ucp_worker_release_address(self.worker, attr.address);
            Ok(copy)
        }
    }
}

impl Drop for Party {
    fn drop(&mut self) {
        // SAFETY: made in `new`, destroyed once; endpoints go with their worker.
        unsafe {
            worker::ucp_worker_destroy(self.worker);
            context::ucp_cleanup(self.context);
        }
    }
}

fn check(status: ucs_status_t, what: &str) -> Result<(), String> {
    match status {
        UCS_OK => Ok(()),
        status => Err(format!("{what}: {status:?}")),
    }
}

/// The requested parts: context, worker, endpoint.
pub fn print(
    letters: &str,
    place: PeerLocation,
    wanted: [bool; 3],
) -> Result<Vec<(&'static str, Part)>, String> {
    let features = parse(letters)?;
    let party = Party::new(&features)?;
    let mut parts = Vec::new();
    let [context, worker, endpoint] = wanted;
    if context {
        // SAFETY: a live context, an open stream.
        let text = captured(|out| unsafe { context::ucp_context_print_info(party.context, out) })?;
        let json = json!(lines_of(&text));
        parts.push(("context", Part { text, json }));
    }
    if worker {
        // SAFETY: a live worker, an open stream.
        let text = captured(|out| unsafe { worker::ucp_worker_print_info(party.worker, out) })?;
        let json = json!({"address_bytes": party.address(0)?.len()});
        parts.push(("worker", Part { text, json }));
    }
    if endpoint {
        parts.push((
            "endpoint",
            endpoint_part(&party, &features, letters, place)?,
        ));
    }
    Ok(parts)
}

fn endpoint_part(
    party: &Party,
    features: &Features,
    letters: &str,
    place: PeerLocation,
) -> Result<Part, String> {
    // The peer lives as long as `_peer`.
    let (_peer, address) = match place {
        PeerLocation::Same => (None, party.address(0)?),
        PeerLocation::Intra | PeerLocation::Inter => {
            let (peer, both) = Peer::start(letters)?;
            (
                Some(peer),
                both[usize::from(place == PeerLocation::Inter)].clone(),
            )
        }
    };
    // SAFETY: zeroed parameters with a mask; the address lives during the call.
    let ep = unsafe {
        let mut params: ucp_ep_params_t = zeroed();
        params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS as u64;
        params.address = address.as_ptr().cast();
        if features.errors {
            params.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE as u64;
            params.err_mode = MaybeUninit::new(ucp_err_handling_mode_t::UCP_ERR_HANDLING_MODE_PEER);
        }
        let mut ep = null_mut();
        check(
            endpoint::ucp_ep_create(party.worker, &params, &mut ep),
            "no endpoint",
        )?;
        ep
    };
    // SAFETY: a live endpoint, an open stream.
    let text = captured(|out| unsafe { endpoint::ucp_ep_print_info(ep, out) })?;
    // SAFETY: handles of this library point to its own structures.
    let tables = unsafe {
        let e = &*ep.cast::<Endpoint>();
        proto_info::tables(e.worker.get(), e.peer())
    };
    Ok(Part {
        text,
        json: tables.iter().map(table_json).collect(),
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

/// This program in another process, with a worker; killed when this is dropped.
struct Peer(Child);

impl Peer {
    /// Starts it: the addresses with everything, and for other hosts.
    fn start(letters: &str) -> Result<(Peer, [Vec<u8>; 2]), String> {
        let me = std::env::current_exe().map_err(|e| e.to_string())?;
        let child = Command::new(me)
            .args(["--serve", "-u", letters])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut peer = Peer(child.map_err(|e| e.to_string())?);
        let output = peer.0.stdout.take().ok_or("no pipe from the peer")?;
        let mut lines = BufReader::new(output).lines();
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
}

impl Drop for Peer {
    fn drop(&mut self) {
        // The end of its input ends it.
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// The other end: prints the addresses of a worker and waits for the end of its input.
pub fn serve(letters: &str) -> Result<(), String> {
    let party = Party::new(&parse(letters)?)?;
    let network = ucp_worker_address_flags_t::UCP_WORKER_ADDRESS_FLAG_NET_ONLY as u32;
    let mut out = std::io::stdout();
    for flags in [0, network] {
        let line = format!("address {}\n", to_hex(&party.address(flags)?));
        out.write_all(line.as_bytes()).map_err(|e| e.to_string())?;
    }
    out.flush().map_err(|e| e.to_string())?;
    let read = std::io::stdin().read_to_end(&mut Vec::new());
    read.map(drop).map_err(|e| e.to_string())
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text.chars().map(|c| Some(c.to_digit(16)? as u8)).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    Some(digits.chunks_exact(2).map(|d| d[0] << 4 | d[1]).collect())
}
