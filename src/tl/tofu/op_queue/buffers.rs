//! Registered buffers: what the adapter reads from or writes to that is not the user's own memory.

use super::super::vcq::{Vcq, VcqRegion};
use crate::sys::log;
use crate::wire::ib_packet::{HEAD, most_packets};
use std::io;
use std::sync::Arc;

/// Buffers of one region: as many as keep an adapter busy while it reads them, or as the longest record takes if that
/// is more.
const BUFFERS: usize = 64;
/// More regions are made when there are too few buffers, up to so much memory in all, bytes.
const MOST_BYTES: usize = 8 << 20;

/// A queue's.
pub struct DmaBuffers {
    regions: Vec<VcqRegion>,
    /// Buffers of a region, and of all that there may be.
    each: usize,
    most: usize,
    /// Bytes of one.
    packet: usize,
    free: Vec<u16>,
    /// The connections that they are, or were, taken for.
    links: Vec<u32>,
}

impl DmaBuffers {
    /// # Errors
    /// What the library says.
    pub fn new(vcq: &Arc<Vcq>, packet: usize) -> io::Result<DmaBuffers> {
        let each = BUFFERS.max(most_packets(packet - HEAD));
        let most = each.max(MOST_BYTES / packet).min(usize::from(u16::MAX));
        let mut buffers = DmaBuffers {
            regions: Vec::new(),
            each,
            most,
            packet,
            free: Vec::new(),
            links: Vec::new(),
        };
        buffers.add(vcq)?;
        Ok(buffers)
    }

    fn add(&mut self, vcq: &Arc<Vcq>) -> io::Result<()> {
        self.regions
            .push(VcqRegion::new(vcq, self.each * self.packet)?);
        let first = self.links.len();
        let end = first + self.each;
        self.links.resize(end, 0);
        self.free.extend((first as u16..end as u16).rev());
        Ok(())
    }

    /// Makes more, if there may be more.
    pub fn grow(&mut self, vcq: &Arc<Vcq>) {
        if self.links.len() + self.each > self.most {
            return;
        }
        if let Err(e) = self.add(vcq) {
            log::diag!("there are no more buffers than {}: {e}", self.links.len());
            self.most = self.links.len();
        }
    }

    /// How many are free.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Whether some are taken.
    pub fn any_taken(&self) -> bool {
        self.free.len() < self.links.len()
    }

    /// Whether one of them is taken for this connection.
    pub fn names(&self, link: u32) -> bool {
        let mut taken = vec![true; self.links.len()];
        for &index in &self.free {
            taken[usize::from(index)] = false;
        }
        let mut links = self.links.iter().zip(taken);
        links.any(|(&of, is_taken)| is_taken && of == link)
    }

    /// Bytes of one.
    pub fn packet(&self) -> usize {
        self.packet
    }

    /// One for a connection.
    pub fn take(&mut self, link: u32) -> Option<u16> {
        let index = self.free.pop()?;
        self.links[usize::from(index)] = link;
        Some(index)
    }

    fn place(&self, index: u16) -> (&VcqRegion, usize) {
        let index = usize::from(index);
        let region = &self.regions[index / self.each];
        (region, index % self.each * self.packet)
    }

    /// Where it is.
    pub fn ptr(&self, index: u16) -> *mut u8 {
        let (region, offset) = self.place(index);
        debug_assert!(offset + self.packet <= region.len());
        // SAFETY: inside of the region.
        unsafe { region.ptr().add(offset) }
    }

    /// How the adapter names it.
    pub fn stadd(&self, index: u16) -> u64 {
        let (region, offset) = self.place(index);
        region.stadd + offset as u64
    }

    /// It is free again: the connection that it was taken for.
    pub fn give_back(&mut self, index: u16) -> u32 {
        self.free.push(index);
        self.links[usize::from(index)]
    }
}
