//! Registered buffers that the TNI reads and writes in place of user memory (bcopy).

use super::super::vcq::{Vcq, VcqRegion};
use crate::sys::log;
use crate::wire::packet_hdr::{HEAD, most_packets};
use std::io;
use std::sync::Arc;

/// Buffers of one region: enough to keep a TNI busy while it reads them, or those of the longest record if these are
/// more.
const BUFFERS: usize = 64;
/// Limit of the memory of all regions, bytes; regions are added when buffers run out.
const MAX_BYTES: usize = 8 << 20;

/// The buffers of one VCQ.
pub struct DmaBuffers {
    regions: Vec<VcqRegion>,
    /// Buffers per region, and the limit of all buffers.
    each: usize,
    most: usize,
    /// Bytes of a buffer.
    packet: usize,
    free: Vec<u16>,
    /// By buffer, the connection that it is, or was last, taken for.
    conns: Vec<u32>,
}

impl DmaBuffers {
    /// # Errors
    /// The system's or the library's error.
    pub fn new(vcq: &Arc<Vcq>, packet: usize) -> io::Result<DmaBuffers> {
        let each = BUFFERS.max(most_packets(packet - HEAD));
        let most = each.max(MAX_BYTES / packet).min(usize::from(u16::MAX));
        let mut buffers = DmaBuffers {
            regions: Vec::new(),
            each,
            most,
            packet,
            free: Vec::new(),
            conns: Vec::new(),
        };
        buffers.add(vcq)?;
        Ok(buffers)
    }

    fn add(&mut self, vcq: &Arc<Vcq>) -> io::Result<()> {
        self.regions
            .push(VcqRegion::new(vcq, self.each * self.packet)?);
        let first = self.conns.len();
        let end = first + self.each;
        self.conns.resize(end, 0);
        self.free.extend((first as u16..end as u16).rev());
        Ok(())
    }

    /// Adds a region, unless the limit is reached.
    pub fn grow(&mut self, vcq: &Arc<Vcq>) {
        if self.conns.len() + self.each > self.most {
            return;
        }
        if let Err(e) = self.add(vcq) {
            log::diag!("no more than {} buffers: {e}", self.conns.len());
            self.most = self.conns.len();
        }
    }

    /// Number of free buffers.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Whether any buffer is taken.
    pub fn any_taken(&self) -> bool {
        self.free.len() < self.conns.len()
    }

    /// Whether a buffer is taken for this connection.
    pub fn names(&self, conn: u32) -> bool {
        let mut taken = vec![true; self.conns.len()];
        for &index in &self.free {
            taken[usize::from(index)] = false;
        }
        let mut conns = self.conns.iter().zip(taken);
        conns.any(|(&of, is_taken)| is_taken && of == conn)
    }

    /// Bytes of a buffer.
    pub fn packet(&self) -> usize {
        self.packet
    }

    /// Takes a buffer for a connection.
    pub fn take(&mut self, conn: u32) -> Option<u16> {
        let index = self.free.pop()?;
        self.conns[usize::from(index)] = conn;
        Some(index)
    }

    fn place(&self, index: u16) -> (&VcqRegion, usize) {
        let index = usize::from(index);
        let region = &self.regions[index / self.each];
        (region, index % self.each * self.packet)
    }

    /// Address of a buffer.
    pub fn ptr(&self, index: u16) -> *mut u8 {
        let (region, offset) = self.place(index);
        debug_assert!(offset + self.packet <= region.len());
        // SAFETY: the offset and the buffer's length are within the region.
        unsafe { region.ptr().add(offset) }
    }

    /// Steering address of a buffer.
    pub fn stadd(&self, index: u16) -> u64 {
        let (region, offset) = self.place(index);
        region.stadd + offset as u64
    }

    /// Frees a buffer: returns the connection that it was taken for.
    pub fn give_back(&mut self, index: u16) -> u32 {
        self.free.push(index);
        self.conns[usize::from(index)]
    }
}
