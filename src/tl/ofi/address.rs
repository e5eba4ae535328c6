//! The transport's section of a worker address.
#![forbid(unsafe_code)]

use super::endpoint::MAX_NAME;
use crate::wire::le_struct::packed;

packed! {
    /// The begin of the section.
    OfiSection, 38 {
        /// Hash of provider, protocol and format of addresses, and of what is equal where these are valid.
        fabric: u64,
        /// Secret that a hello has to carry, which is not 0.
        secret: u64,
        /// Hash of the boot id, equal for one boot of one kernel.
        host: u64,
        /// Id of /dev/shm, where the worker holds a lock as long as it lives.
        locks: u32,
        /// Key of the lock; 0: there is none.
        lock: u64,
        /// Number of the worker in remote keys of its context; 0: no memory is accessed by its endpoint.
        number: u16,
    } valid when |section| section.secret != 0
}

/// Where a worker is: the section and, behind it, the address of its endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfiLocator {
    /// Hash of provider, protocol and format of addresses, and of what is equal where these are valid.
    pub fabric: u64,
    /// Secret that a hello has to carry, which is not 0.
    pub secret: u64,
    /// The lock that the worker holds as long as it lives.
    pub liveness: Liveness,
    /// Number of the worker in remote keys of its context; 0: no memory is accessed by its endpoint.
    pub number: u16,
    /// Address of the endpoint, at most [`MAX_NAME`] bytes.
    pub name: Vec<u8>,
}

/// A lock that a worker holds as long as it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Liveness {
    /// Hash of the boot id, equal for one boot of one kernel.
    pub host: u64,
    /// Id of /dev/shm, where the lock is.
    pub locks: u32,
    /// Key of the lock; 0: there is none.
    pub lock: u64,
}

impl Liveness {
    /// The key, for a process that sees the same lock. `None`: there is none, or it is another host's.
    pub fn key_here(&self, own: &Liveness) -> Option<u64> {
        let same = (self.host, self.locks) == (own.host, own.locks);
        (same && self.lock != 0).then_some(self.lock)
    }
}

impl OfiLocator {
    /// The body of the section.
    pub fn encode(&self) -> Vec<u8> {
        let section = OfiSection {
            fabric: self.fabric,
            secret: self.secret,
            host: self.liveness.host,
            locks: self.liveness.locks,
            lock: self.liveness.lock,
            number: self.number,
        };
        [&section.encode()[..], &self.name].concat()
    }

    /// Decodes the body of the section. `None`: it is malformed.
    pub fn decode(body: &[u8]) -> Option<OfiLocator> {
        let section = OfiSection::decode(body)?;
        let name = &body[OfiSection::SIZE..];
        (1..=MAX_NAME).contains(&name.len()).then(|| OfiLocator {
            fabric: section.fabric,
            secret: section.secret,
            liveness: Liveness {
                host: section.host,
                locks: section.locks,
                lock: section.lock,
            },
            number: section.number,
            name: name.to_vec(),
        })
    }

    /// Whether the worker with the section `own` may insert the address of this one: the provider reads a string, or as
    /// many bytes as its own address has.
    pub fn fits(&self, own: &OfiLocator) -> bool {
        let same_form = if own.is_string() {
            self.is_string()
        } else {
            self.name.len() == own.name.len()
        };
        self.fabric == own.fabric && same_form
    }

    /// Whether the address is a string (`FI_ADDR_STR`: `fi_shm://…`), with one zero, at its end.
    fn is_string(&self) -> bool {
        let zero = self.name.iter().position(|&byte| byte == 0);
        self.name.starts_with(b"fi_") && zero == Some(self.name.len() - 1)
    }

    /// Where a worker with the section `own` reaches that with the section `to`. `None`: no fabric leads from the one
    /// to the other, or one of the two does not use the transport.
    pub fn between(own: Option<&OfiLocator>, to: Option<&OfiLocator>) -> Option<OfiLocator> {
        let (own, to) = (own?, to?);
        to.fits(own).then(|| to.clone())
    }
}
