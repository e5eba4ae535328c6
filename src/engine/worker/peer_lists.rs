//! The worker's lists of peers, and what it keeps by peer.
//!
//! Lists and maps contain pointers that keep no count ([`PeerRef`](crate::engine::pointers::PeerRef)): `proto::release`
//! frees a peer, and the CM a stub peer, only when no list or map contains it. Lists and maps are only made here, and
//! [`PeerLists`] names all of them to the code that frees peers.

mod list;
mod map;
mod unflushed;

use crate::engine::am::PartialAm;
use crate::engine::partial_put::PartialPut;
use crate::engine::peer::PeerSet;
use crate::engine::peer_pieces::PeerPieces;
use crate::engine::unexpected::PartialTag;
use crate::sys::lock::MtLock;
use crate::tl::IfaceKind;
use crate::tl::rail_event::RailEvent;

pub use list::PeerList;
pub use map::PeerMap;
pub use unflushed::{FlushNeed, UnflushedPeers};

/// The lists and maps of a worker.
pub struct PeerLists {
    /// Peers with pending requests; read only if `progress_flags` count any.
    pub pending: MtLock<PeerList>,
    /// Failed peers that are not handled yet.
    pub failed: MtLock<PeerList>,
    /// Failed peers whose lanes are still to be dropped, and those that are to be freed after that. The progress
    /// thread's.
    pub departing: MtLock<PeerList>,
    pub departed: MtLock<PeerList>,
    /// Peers whose last endpoint is gone, or whose ring in our inbox is.
    pub idle: MtLock<PeerList>,
    /// Peers on this host, which shared memory reaches: those that liveness checks look at. A worker on a large machine
    /// has few of them among its peers.
    pub on_host: MtLock<PeerList>,
    /// Peers that a flush or a fence of all peers looks at.
    pub unflushed: MtLock<UnflushedPeers>,
    /// Peers to which an interface is to connect: [`connects`](Self::connects).
    connects: [MtLock<PeerList>; IfaceKind::COUNT],
    /// Work for rails to peers.
    pub rails: MtLock<PeerList<RailEvent>>,
    /// Eager active messages of which some fragments have arrived. The progress thread's.
    pub partial_ams: MtLock<PeerMap<PartialAm>>,
    /// Eager tagged messages of which some fragments have arrived. The progress thread's.
    pub partial_tags: MtLock<PeerMap<PartialTag>>,
    /// Puts into memory of devices of which some parts have arrived. The progress thread's.
    pub partial_puts: MtLock<PeerMap<PartialPut>>,
    /// Pieces of peers' lists in memory of devices that wait for the last one of their list. The progress thread's.
    pub list_pieces: MtLock<PeerMap<PeerPieces>>,
}

impl PeerLists {
    /// Empty lists and maps. `mt`: threads may use them concurrently.
    pub fn new(mt: bool) -> PeerLists {
        let list = || MtLock::new(mt, PeerList::new());
        PeerLists {
            pending: list(),
            failed: list(),
            departing: list(),
            departed: list(),
            idle: list(),
            on_host: list(),
            unflushed: MtLock::new(mt, UnflushedPeers::default()),
            connects: std::array::from_fn(|_| list()),
            rails: MtLock::new(mt, PeerList::new()),
            partial_ams: MtLock::new(mt, PeerMap::new()),
            partial_tags: MtLock::new(mt, PeerMap::new()),
            partial_puts: MtLock::new(mt, PeerMap::new()),
            list_pieces: MtLock::new(mt, PeerMap::new()),
        }
    }

    /// Peers to which an interface is to connect; read only if `progress_flags` say that there are any.
    pub fn connects(&self, kind: IfaceKind) -> &MtLock<PeerList> {
        &self.connects[kind as usize]
    }

    /// The peers of all lists and maps but `on_host`, which names every peer of the host as long as it can be found.
    pub fn all(&self) -> PeerSet {
        let mut all = self.with_work();
        all.extend(self.idle.lock().iter());
        all.extend(self.departed.lock().iter());
        all.extend(self.unflushed.lock().iter());
        all
    }

    /// The peers that progress has to do something for, or from which it expects fragments: those of all lists and maps
    /// but `idle`, `departed`, `on_host` and `unflushed`.
    pub fn with_work(&self) -> PeerSet {
        // Each field is named: one that is added has to be read here or in `all`.
        let PeerLists {
            pending,
            failed,
            departing,
            departed: _,
            idle: _,
            on_host: _,
            unflushed: _,
            connects,
            rails,
            partial_ams,
            partial_tags,
            partial_puts,
            list_pieces,
        } = self;
        let mut peers = PeerSet::default();
        for list in [pending, failed, departing] {
            peers.extend(list.lock().iter());
        }
        for list in connects {
            peers.extend(list.lock().iter());
        }
        peers.extend(rails.lock().iter());
        peers.extend(partial_ams.lock().peers());
        peers.extend(partial_tags.lock().peers());
        peers.extend(partial_puts.lock().peers());
        peers.extend(list_pieces.lock().peers());
        peers
    }
}
