//! The worker address with the sections of all transports: the blob of [`crate::wire::address`], decoded.
//!
//! A section's body is encoded and decoded by its transport.
#![forbid(unsafe_code)]

use super::network::Network;
use super::networks::networks;
use super::shm::InboxLocator;
use super::shm::address::ShmLocator;
use crate::wire::address::{AddressError, AddressSection, PackedAddress};
use std::borrow::Cow;

/// The kind of shared memory's section.
const SHM: u8 = 3;

macro_rules! worker_address {
    ($($(#[$cfg:meta])* $Kind:ident $net:ident $Context:ident;)* @) => {
        /// The decoded address of a worker.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct WorkerAddress {
            /// Unique id of the worker.
            pub uid: u64,
            /// The client id that the program gave to the worker.
            pub client_id: Option<u64>,
            /// The worker's name, if debugging information is enabled.
            pub name: Option<String>,
            /// Present if shared memory reaches the worker.
            pub shm: Option<ShmLocator>,
            $(
                $(#[$cfg])*
                /// Present if the worker has an interface of this network.
                pub $net: Option<<super::$net::context::$Context as Network>::Locator>,
            )*
        }

        impl WorkerAddress {
            /// The kinds and bodies of the networks' sections.
            fn networks(&self) -> impl Iterator<Item = (u8, Vec<u8>)> {
                let sections = [
                    $($(#[$cfg])* self.$net.as_ref().map(super::$net::context::$Context::encode),)*
                ];
                sections.into_iter().flatten().flatten()
            }

            /// Decodes the section of a network, unless its kind is unknown. `None`: it is malformed.
            fn take_network(&mut self, kind: u8, body: &[u8]) -> Option<()> {
                $(
                    $(#[$cfg])*
                    if super::$net::context::$Context::SECTIONS.contains(&kind) {
                        let further = super::$net::context::$Context::decode(kind, body)?;
                        match &mut self.$net {
                            Some(known) => super::$net::context::$Context::join(known, further)?,
                            none => *none = Some(further),
                        }
                    }
                )*
                Some(())
            }
        }
    };
}
networks!(worker_address);

impl WorkerAddress {
    /// Encodes the address. Equal addresses give equal blobs.
    pub fn encode(&self) -> Vec<u8> {
        let shm = self.shm.as_ref().map(|shm| (SHM, shm.encode().to_vec()));
        let section = |(kind, body)| AddressSection {
            kind,
            body: Cow::Owned(body),
        };
        let packed = PackedAddress {
            uid: self.uid,
            client_id: self.client_id,
            name: self.name.as_deref().map(Cow::Borrowed),
            sections: shm
                .into_iter()
                .chain(self.networks())
                .map(section)
                .collect(),
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
            ..WorkerAddress::default()
        };
        for section in &packed.sections {
            (address.take_in(section)).ok_or(AddressError::Malformed)?;
        }
        Ok(address)
    }

    /// Decodes a section, unless its kind is unknown. `None`: it is malformed.
    fn take_in(&mut self, section: &AddressSection<'_>) -> Option<()> {
        match section.kind {
            SHM => self.shm = Some(ShmLocator::decode(&section.body)?),
            kind => self.take_network(kind, &section.body)?,
        }
        Some(())
    }

    /// The worker's inbox, if shared memory reaches it.
    pub fn inbox(&self) -> Option<InboxLocator> {
        self.shm.as_ref().map(InboxLocator::of)
    }

    /// Removes the sections that only reach the worker's host.
    pub fn drop_local(&mut self) {
        self.shm = None;
    }
}

#[cfg(test)]
mod tests;
