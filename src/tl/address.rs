//! The worker address with the sections of all transports: the blob of [`crate::wire::address`], decoded.
//!
//! A section's body is encoded and decoded by `address.rs` of its transport.
#![forbid(unsafe_code)]

use super::ib::address::IbLocator;
use super::shm::InboxLocator;
use super::shm::address::ShmLocator;
use super::tcp::address::TcpLocator;
use super::tofu::address::TofuLocator;
use crate::wire::address::{AddressError, AddressSection, PackedAddress};
use std::borrow::Cow;

// Kinds of sections. 1 and 2 are those of `wire::address`; a number is never used again.
const SHM: u8 = 3;
const TCP: u8 = 4;
const IB: u8 = 5;
const WIREUP_TCP: u8 = 6;
const TOFU: u8 = 7;

/// The decoded address of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerAddress {
    /// Unique id of the worker.
    pub uid: u64,
    /// The client id that the program gave to the worker.
    pub client_id: Option<u64>,
    /// The worker's name, if debugging information is enabled.
    pub name: Option<String>,
    /// Present if shared memory reaches the worker.
    pub shm: Option<ShmLocator>,
    /// Present if InfiniBand or RoCE reaches it.
    pub ib: Option<IbLocator>,
    /// Present if the Tofu interconnect reaches it.
    pub tofu: Option<TofuLocator>,
    /// Present if TCP reaches it.
    pub tcp: Option<TcpLocator>,
    /// Listening socket for the wireup of queue pairs, present if TCP carries nothing else for the worker.
    pub wireup_tcp: Option<TcpLocator>,
}

impl WorkerAddress {
    /// Encodes the address. Equal addresses give equal blobs.
    pub fn encode(&self) -> Vec<u8> {
        let bodies = [
            (SHM, self.shm.as_ref().map(|shm| shm.encode().to_vec())),
            (IB, self.ib.as_ref().map(IbLocator::encode)),
            (TOFU, self.tofu.as_ref().map(TofuLocator::encode)),
            (TCP, self.tcp.as_ref().map(TcpLocator::encode)),
            (WIREUP_TCP, self.wireup_tcp.as_ref().map(TcpLocator::encode)),
        ];
        let section = |(kind, body): (u8, Option<Vec<u8>>)| {
            let body = Cow::Owned(body?);
            Some(AddressSection { kind, body })
        };
        let packed = PackedAddress {
            uid: self.uid,
            client_id: self.client_id,
            name: self.name.as_deref().map(Cow::Borrowed),
            sections: bodies.into_iter().filter_map(section).collect(),
        };
        packed.encode()
    }

    /// Decodes the address at the begin of `blob`; bytes behind it are ignored.
    pub fn decode(blob: &[u8]) -> Result<WorkerAddress, AddressError> {
        let packed = PackedAddress::decode(blob)?;
        let mut address = WorkerAddress {
            uid: packed.uid,
            client_id: packed.client_id,
            name: packed.name.map(Cow::into_owned),
            shm: None,
            ib: None,
            tofu: None,
            tcp: None,
            wireup_tcp: None,
        };
        for section in &packed.sections {
            (address.take_in(section)).ok_or(AddressError::Malformed)?;
        }
        Ok(address)
    }

    /// Decodes a section, unless its kind is unknown. `None`: it is malformed.
    fn take_in(&mut self, section: &AddressSection<'_>) -> Option<()> {
        let body = &*section.body;
        match section.kind {
            SHM => self.shm = Some(ShmLocator::decode(body)?),
            IB => self.ib = Some(IbLocator::decode(body)?),
            TOFU => self.tofu = Some(TofuLocator::decode(body)?),
            TCP => self.tcp = Some(TcpLocator::decode(body)?),
            WIREUP_TCP => self.wireup_tcp = Some(TcpLocator::decode(body)?),
            _ => {}
        }
        Some(())
    }

    /// The worker's inbox, if shared memory reaches it.
    pub fn inbox(&self) -> Option<InboxLocator> {
        self.shm.as_ref().map(InboxLocator::of)
    }

    /// Where the worker accepts out-of-band connections.
    pub fn oob_listener(&self) -> Option<&TcpLocator> {
        self.wireup_tcp.as_ref().or(self.tcp.as_ref())
    }

    /// Removes the sections that only reach the worker's host.
    pub fn drop_local(&mut self) {
        self.shm = None;
    }
}

#[cfg(test)]
mod tests;
