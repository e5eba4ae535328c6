//! Lists whose pieces are all accessed by one adapter: one request for all of them.
//!
//! A list that is not of this kind, or in which something is wrong, is left to the general way.

use super::arrays::SglArrays;
use super::check::{self, Bounds, ListKeys};
use super::{MAX_LEN, SglOp};
use crate::ctypes::*;
use crate::engine::datatype::Data;
use crate::engine::piece_list::{PieceList, PieceRegions};
use crate::engine::rkey::{Rkey, RkeyAccess};
use crate::proto::answers;
use crate::proto::select::rma as select;
use crate::proto::tx;
use crate::tl::rma::RmaDevice;
use crate::tl::rma_pieces::RmaRegion;
use std::slice;

/// The keys of memory that one adapter accesses.
struct AdapterKeys<'a> {
    op: &'a SglOp<'a>,
    /// The adapter. `None`: there was no key.
    device: Option<RmaDevice>,
    regions: PieceRegions,
}

impl ListKeys for AdapterKeys<'_> {
    fn begin_run(&mut self, first: usize) {
        self.regions.begin_run(first);
    }

    #[inline(always)]
    fn bounds(&mut self, rkey: &Rkey) -> Option<Bounds> {
        let (by, region) = self.op.region_of(rkey)?;
        self.regions.push(region);
        let is_same = *self.device.get_or_insert(by) == by;
        is_same.then_some(Bounds {
            base: region.base,
            len: region.len,
        })
    }

    fn add_numbers(&mut self, numbers: &[u8]) {
        self.regions.add_numbers(numbers);
    }
}

impl SglOp<'_> {
    /// The pieces of a list, if one adapter can access all of them.
    ///
    /// # Safety
    /// The arrays are valid.
    pub(super) unsafe fn pieces_for_adapter(&self, lists: &SglArrays) -> Option<PieceList> {
        let (worker, peer) = (self.worker, self.peer);
        let may_post = lists.counts.is_null()
            && !self.p.is_kind_open()
            && !self.p.has(UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL)
            && !peer.same_process;
        // After a fence no access by an adapter overtakes one by message.
        if !may_post || worker.is_fenced() && !answers::is_answered(peer) {
            return None;
        }
        let mut keys = AdapterKeys {
            op: self,
            device: None,
            regions: PieceRegions::default(),
        };
        // SAFETY: the caller's promise: each array has `count` entries.
        unsafe {
            let checked = check::check(lists, (worker, peer), true, &mut keys)?;
            let pieces = (
                slice::from_raw_parts(lists.buffers.cast(), lists.count),
                slice::from_raw_parts(lists.lengths, lists.count),
                slice::from_raw_parts(lists.addrs, lists.count),
            );
            Some(PieceList::new(pieces, keys.regions, checked.len))
        }
    }

    /// The adapter for the memory of a key that is not mapped here, and what it accesses by the key.
    fn region_of(&self, rkey: &Rkey) -> Option<(RmaDevice, RmaRegion)> {
        if rkey.access != RkeyAccess::Any || rkey.len != 0 {
            return None;
        }
        let key = &rkey.tl;
        let by = |device| {
            let region = key.rma_region(device)?;
            let is_some = region.len != 0 && region.len < MAX_LEN as u64;
            is_some.then_some((device, region))
        };
        let keyed = || key.ib.is_some() && select::ib_reaches(self.worker, self.peer, 1);
        let resolved = || [RmaDevice::Tofu, RmaDevice::Ofi].into_iter().find_map(by);
        match keyed() {
            true => by(RmaDevice::Ib),
            false => resolved(),
        }
    }

    /// Posts such a list.
    ///
    /// # Safety
    /// The pieces are those of [`pieces_for_adapter`](Self::pieces_for_adapter); the user's memory is valid.
    pub(super) unsafe fn post_pieces(&mut self, pieces: PieceList) {
        if pieces.count() == 0 {
            return;
        }
        // SAFETY: a new request.
        unsafe {
            let child = self.child(Data::EMPTY);
            tx::list::set_list(&mut *child, self.direction, pieces);
            self.post(child);
        }
    }
}
