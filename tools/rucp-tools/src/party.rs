//! A context and a worker, made as a program makes them, and endpoints to other workers.

use std::ffi::CStr;
use std::mem::{MaybeUninit, zeroed};
use std::ptr::{null, null_mut};
use ucp::abi::{address, context, endpoint, worker};
use ucp::ctypes::*;
use ucp::engine::endpoint::Endpoint;
use ucp::proto::lane_info;
use ucp::proto::proto_info::{self, ProtoTable};

/// The features of a context, from letters: a atomics, r remote memory, t tags, s streams, m active messages, w wakeup.
pub struct Features {
    bits: u64,
    /// Letter e: endpoints handle errors.
    handles_errors: bool,
}

impl Features {
    /// # Errors
    /// A letter that is no feature.
    pub fn parse(letters: &str) -> Result<Features, String> {
        let mut features = Features {
            bits: 0,
            handles_errors: false,
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
                    features.handles_errors = true;
                    0
                }
                other => return Err(format!("'{other}' is no feature; see --help")),
            };
        }
        Ok(features)
    }
}

/// A context and a worker, which the thread that made them uses.
pub struct Party {
    context: ucp_context_h,
    worker: ucp_worker_h,
    handles_errors: bool,
}

impl Party {
    /// Makes both. `name`: of the context, in log lines.
    ///
    /// # Errors
    /// What could not be made, with the library's status.
    pub fn new(features: &Features, name: &CStr) -> Result<Party, String> {
        // SAFETY: zeroed parameter structures with masks that name what is set.
        unsafe {
            let mut params: ucp_params_t = zeroed();
            params.field_mask = UCP_PARAM_FIELD_FEATURES as u64 | UCP_PARAM_FIELD_NAME as u64;
            params.features = features.bits;
            params.name = name.as_ptr();
            let mut context = null_mut();
            let made = context::ucp_init_version(1, 22, &params, null(), &mut context);
            check(made, "no context")?;
            let worker_params: ucp_worker_params_t = zeroed();
            let mut worker = null_mut();
            let made = worker::ucp_worker_create(context, &worker_params, &mut worker);
            check(made, "no worker").inspect_err(|_| context::ucp_cleanup(context))?;
            Ok(Party {
                context,
                worker,
                handles_errors: features.handles_errors,
            })
        }
    }

    /// The worker's address, as a copy. `flags`: of `ucp_worker_attr_t::address_flags`.
    ///
    /// # Errors
    /// The library's status.
    pub fn address(&self, flags: u32) -> Result<Vec<u8>, String> {
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

    /// The worker's address without transports within a host, as a copy.
    ///
    /// # Errors
    /// The library's status.
    pub fn network_address(&self) -> Result<Vec<u8>, String> {
        self.address(ucp_worker_address_flags_t::UCP_WORKER_ADDRESS_FLAG_NET_ONLY as u32)
    }

    /// An endpoint to the worker at an address.
    ///
    /// # Errors
    /// The library's status.
    pub fn connect(&self, address: &[u8]) -> Result<PartyEndpoint<'_>, String> {
        // SAFETY: zeroed parameters with a mask; the address lives during the call.
        unsafe {
            let mut params: ucp_ep_params_t = zeroed();
            params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS as u64;
            params.address = address.as_ptr().cast();
            if self.handles_errors {
                params.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE as u64;
                params.err_mode =
                    MaybeUninit::new(ucp_err_handling_mode_t::UCP_ERR_HANDLING_MODE_PEER);
            }
            let mut handle = null_mut();
            let made = endpoint::ucp_ep_create(self.worker, &params, &mut handle);
            check(made, "no endpoint")?;
            Ok(PartyEndpoint {
                party: self,
                handle,
            })
        }
    }

    /// The context, valid as long as `self`.
    pub fn context(&self) -> ucp_context_h {
        self.context
    }

    /// The worker, valid as long as `self`.
    pub fn worker(&self) -> ucp_worker_h {
        self.worker
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

/// An endpoint. It is closed with its worker.
pub struct PartyEndpoint<'a> {
    party: &'a Party,
    handle: ucp_ep_h,
}

impl PartyEndpoint<'_> {
    /// The endpoint, valid as long as its party.
    pub fn handle(&self) -> ucp_ep_h {
        self.handle
    }

    /// The worker that it belongs to.
    pub fn party(&self) -> &Party {
        self.party
    }

    fn endpoint(&self) -> &Endpoint {
        // SAFETY: handles of this library point to its own structures, and endpoints live as long as their worker.
        unsafe { &*self.handle.cast::<Endpoint>() }
    }

    /// Protocols by size of all operations.
    pub fn tables(&self) -> Vec<ProtoTable> {
        let endpoint = self.endpoint();
        proto_info::tables(endpoint.worker.get(), endpoint.peer())
    }

    /// The rows of [`tables`](Self::tables) that messages have used.
    pub fn used_tables(&self) -> Vec<ProtoTable> {
        let endpoint = self.endpoint();
        proto_info::used_tables(endpoint.worker.get(), endpoint.peer())
    }

    /// The lanes, as `tcp/eth0`; that for short messages is the first.
    pub fn lanes(&self) -> Vec<String> {
        let lanes = lane_info::of(self.endpoint().peer());
        lanes.map(|lane| lane.name.to_string()).collect()
    }
}

fn check(status: ucs_status_t, what: &str) -> Result<(), String> {
    match status {
        UCS_OK => Ok(()),
        status => Err(format!("{what}: {status:?}")),
    }
}

/// Bytes as hexadecimal digits.
pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of [`to_hex`]; `None` for other text.
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text.chars().map(|c| Some(c.to_digit(16)? as u8)).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    Some(digits.chunks_exact(2).map(|d| d[0] << 4 | d[1]).collect())
}
