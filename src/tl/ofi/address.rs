//! The transport's sections of a worker address: one for each interface.
#![forbid(unsafe_code)]

use super::endpoint::MAX_NAME;
use crate::wire::le_struct::packed;

packed! {
    /// The begin of a section.
    OfiSection, 38 {
        /// Hash of provider, protocol and format of addresses, and of what is equal where these are valid.
        fabric: u64,
        /// Secret that a hello has to carry, which is not 0.
        secret: u64,
        /// Hash of the boot id, equal for one boot of one kernel.
        host: u64,
        /// Id of /dev/shm, where the interface holds a lock as long as it works.
        locks: u32,
        /// Key of the lock; 0: there is none.
        lock: u64,
        /// Number of the interface in remote keys of its context; 0: no memory is accessed by its endpoint.
        number: u16,
    } valid when |section| section.secret != 0
}

/// Most interfaces of a worker: for memory, for the network, and for a rail.
pub const MAX_INTERFACES: usize = 3;
/// Most of them to one fabric: for lanes, and for a rail.
const MAX_OF_FABRIC: usize = 2;

/// Where an interface of a worker is: the section and, behind it, the address of its endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfiLocator {
    /// Hash of provider, protocol and format of addresses, and of what is equal where these are valid.
    pub fabric: u64,
    /// Secret that a hello has to carry, which is not 0.
    pub secret: u64,
    /// The lock that the interface holds as long as it works.
    pub liveness: Liveness,
    /// Number of the interface in remote keys of its context; 0: no memory is accessed by its endpoint.
    pub number: u16,
    /// Address of the endpoint, at most [`MAX_NAME`] bytes.
    pub name: Vec<u8>,
}

/// A lock that an interface holds as long as it works.
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

    /// Whether the interface with the section `own` may insert the address of this one: the provider reads a string, or
    /// as many bytes as its own address has.
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
}

/// Where the interfaces of a worker are, preferred first: at least one, and at most [`MAX_INTERFACES`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfiLocators(Vec<OfiLocator>);

impl OfiLocators {
    /// Where the interfaces of these sections are, of which there are at most [`MAX_INTERFACES`]. `None`: there are
    /// none, or more.
    pub fn new(all: Vec<OfiLocator>) -> Option<OfiLocators> {
        (1..=MAX_INTERFACES)
            .contains(&all.len())
            .then_some(OfiLocators(all))
    }

    /// Where the interfaces of a worker are, of which there are at least one, and at most [`MAX_INTERFACES`].
    pub(super) fn of(all: impl Iterator<Item = OfiLocator>) -> OfiLocators {
        let all: Vec<_> = all.collect();
        debug_assert!((1..=MAX_INTERFACES).contains(&all.len()));
        OfiLocators(all)
    }

    /// The sections, preferred first.
    pub fn all(&self) -> &[OfiLocator] {
        &self.0
    }

    /// Adds the section of a further interface. `None`: there are too many, or too many of one fabric.
    pub fn join(&mut self, further: OfiLocators) -> Option<()> {
        for locator in further.0 {
            let is_same = |known: &&OfiLocator| known.fabric == locator.fabric;
            let same = self.0.iter().filter(is_same).count();
            (self.0.len() < MAX_INTERFACES && same < MAX_OF_FABRIC).then_some(())?;
            self.0.push(locator);
        }
        Some(())
    }
}

/// How an interface of this worker reaches a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfiPath {
    /// Index among the interfaces of this worker, as its address has them.
    pub iface: usize,
    /// The interface of the peer.
    pub to: OfiLocator,
}

/// The ways to a peer, preferred first: one for each fabric that both workers have, and at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfiTarget {
    pub first: OfiPath,
    /// Those that are used if the first cannot connect.
    pub others: Vec<OfiPath>,
    /// The way of the rail, by the fabric of the first.
    pub rail: Option<OfiPath>,
}

impl OfiTarget {
    /// The ways of a worker at `own` to that at `to`, in the order of its own interfaces. `None`: no fabric leads from
    /// the one to the other, or one of the two does not use the transport.
    pub fn between(own: Option<&OfiLocators>, to: Option<&OfiLocators>) -> Option<OfiTarget> {
        let (own, to) = (own?, to?);
        // The first of a fabric is for lanes, the second for a rail.
        let place = |all: &[OfiLocator], iface: usize| {
            let before = all[..iface].iter();
            before
                .filter(|other| other.fabric == all[iface].fabric)
                .count()
        };
        let path = |(iface, locator): (usize, &OfiLocator)| {
            let place = place(&own.0, iface);
            let mut fitting = to.0.iter().filter(|to| to.fits(locator));
            let to = fitting.nth(place)?.clone();
            Some((place, OfiPath { iface, to }))
        };
        let all: Vec<_> = own.0.iter().enumerate().filter_map(path).collect();
        let of = |wanted| {
            let all = all.iter().filter(move |(place, _)| *place == wanted);
            all.map(|(_, path)| path.clone())
        };
        let mut lanes = of(0);
        let first = lanes.next()?;
        Some(OfiTarget {
            rail: of(1).find(|rail| rail.to.fabric == first.to.fabric),
            others: lanes.collect(),
            first,
        })
    }

    /// The only way to a peer that is known by what it has sent to the interface with this index.
    pub fn only(iface: usize, to: OfiLocator) -> OfiTarget {
        OfiTarget {
            first: OfiPath { iface, to },
            others: Vec::new(),
            rail: None,
        }
    }

    /// All ways of lanes, preferred first.
    pub fn paths(&self) -> impl Iterator<Item = &OfiPath> {
        [&self.first].into_iter().chain(&self.others)
    }

    /// All ways, by which a connection may go on: those of lanes, and behind them that of the rail.
    pub fn all_paths(&self) -> impl Iterator<Item = &OfiPath> {
        self.paths().chain(&self.rail)
    }

    /// The ways by which a lane may be connected, preferred first. `fails_over`: the lane goes on by another interface
    /// if one fails, that of a rail counts.
    pub fn lane_paths(&self, fails_over: bool) -> impl Iterator<Item = &OfiPath> {
        let rail = self.rail.iter().filter(move |_| fails_over);
        self.paths().chain(rail)
    }

    /// Those of them that are less preferred than that by the interface with this index.
    pub fn lane_paths_behind(
        &self,
        iface: usize,
        fails_over: bool,
    ) -> impl Iterator<Item = &OfiPath> {
        let before = move |path: &&OfiPath| path.iface != iface;
        self.lane_paths(fails_over).skip_while(before).skip(1)
    }
}
