//! Pieces of a list in memory of devices. They are copied together, not one by one: those between memory of this
//! process and a peer's that is open here by one call of the driver for each context; those between a device and host
//! memory that this process accesses both, the peer's mapped memory or its own, by way of pinned host memory. Of the
//! others adapters access what they can [in place](super::in_place), and by way of a buffer that is read or stored at
//! once what they access at the peer only. What is left goes by message, one each, several short ones by way of the
//! same buffer.

use super::SglOp;
use super::host_pieces::{HostCopy, HostPiece, HostPieces, copy_host, data_of};
use crate::ctypes::*;
use crate::engine::datatype::Data;
use crate::engine::request::{self, Extra, Request};
use crate::engine::request_alloc;
use crate::engine::staged_pieces::StagedPieces;
use crate::proto::flush;
use crate::proto::tx::device_copy;
use crate::sys::cma::CmaDirection;
use crate::sys::cuda::{CuContext, CuDevice, MemoryInfo, MemoryKind};
use crate::tl::cuda::{
    CopyDirection, CopyPieces, CudaContext, DeviceData, DevicePieces, Lookup, RemoteMemory,
};
use crate::tl::rma::RmaKey;
use crate::wire::device_handle::{DeviceHandle, ProcessIdentity};
use crate::wire::list_piece::{MAX_COLLECTED_LIST, MAX_COLLECTED_PIECE};
use crate::wire::stats::StatProtocol;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

/// A piece in memory of a device.
pub(super) struct DevicePiece {
    /// Address in this process.
    pub here: u64,
    /// Address in the owner's address space.
    pub there: u64,
    /// Bytes.
    pub len: usize,
    pub memory: MemoryInfo,
    /// By which an adapter accesses the remote memory, if one does.
    pub key: Option<RmaKey>,
    /// Only devices of the owner access the remote memory.
    pub is_of_device: bool,
}

/// A peer's allocation and memory of this process: one context copies between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct CopyKey {
    owner: ProcessIdentity,
    base: u64,
    buffer_id: u64,
    ctx: CuContext,
    device: CuDevice,
    /// Memory that belongs to no context is accessible to the devices that its program has named, an allocation each.
    start: u64,
}

/// How a peer's allocation is accessed.
#[derive(Clone, Copy)]
struct OpenedHere {
    /// The group of pieces that are copied in the same context.
    group: usize,
    /// First byte, in this process.
    addr: u64,
}

/// Pieces that one context copies.
struct CopyGroup {
    ctx: CuContext,
    copies: CopyPieces,
    /// The same pieces, for messages if they cannot be copied.
    pieces: Vec<DevicePiece>,
}

/// The pieces of a list in memory of devices that wait to be copied together.
#[derive(Default)]
pub(super) struct SglDevice {
    pub lookup: Lookup,
    opened: HashMap<CopyKey, Option<OpenedHere>>,
    groups: Vec<CopyGroup>,
    /// Local memory of devices, and remote memory that is mapped.
    mapped: Vec<HostPiece>,
    /// The peer's memory of devices that is open here, and local host memory.
    from_host: HostPieces,
    /// For messages.
    sent: Vec<DevicePiece>,
    /// The memory of one of them.
    sample: Option<MemoryInfo>,
}

/// Longest piece that goes by message by way of the buffer, and longest buffer, bytes. Adapters access longer pieces by
/// way of the buffer, too: messages would need an owner that progresses.
const MAX_STAGED_PIECE: usize = MAX_COLLECTED_PIECE;
const MAX_STAGED: usize = MAX_COLLECTED_LIST;

fn key(handle: &DeviceHandle, near: &MemoryInfo) -> CopyKey {
    CopyKey {
        owner: handle.owner,
        base: handle.base,
        buffer_id: handle.buffer_id,
        ctx: near.ctx,
        device: near.device,
        start: if near.ctx.is_none() { near.start } else { 0 },
    }
}

impl SglDevice {
    /// Where the allocation of a handle is accessed here, to be copied from or to `near`. `None`: it is not.
    fn open(
        &mut self,
        cuda: &Arc<CudaContext>,
        handle: &DeviceHandle,
        near: &MemoryInfo,
    ) -> Option<OpenedHere> {
        let SglDevice { opened, groups, .. } = self;
        let new = match opened.entry(key(handle, near)) {
            Entry::Occupied(known) => return *known.get(),
            Entry::Vacant(new) => new,
        };
        let remote = cuda.open_remote(handle, (handle.base, handle.len), near);
        let opened = remote.map(|remote| OpenedHere {
            addr: remote.addr,
            group: group_of(cuda, groups, remote),
        });
        *new.insert(opened)
    }
}

/// Number of the group of the context in which this memory is accessed, which keeps it open.
fn group_of(cuda: &Arc<CudaContext>, groups: &mut Vec<CopyGroup>, remote: RemoteMemory) -> usize {
    let known = groups.iter().position(|group| group.ctx == remote.ctx);
    let number = known.unwrap_or_else(|| {
        groups.push(CopyGroup {
            ctx: remote.ctx,
            copies: CopyPieces::new(cuda, remote.ctx),
            pieces: Vec::new(),
        });
        groups.len() - 1
    });
    if let Some(open) = remote.open {
        groups[number].copies.hold(open);
    }
    number
}

impl SglOp<'_> {
    /// Accesses a piece in memory of a device, now or in [`copy_pieces`](Self::copy_pieces). `mapped`: where the remote
    /// memory is mapped, if it is; `handle`: that of the remote memory, if it was exported.
    ///
    /// # Safety
    /// The ranges are valid until the request completes.
    pub(super) unsafe fn device_piece(
        &mut self,
        piece: DevicePiece,
        mapped: Option<*mut u8>,
        handle: Option<&DeviceHandle>,
    ) {
        self.device.get_or_insert_default().sample = Some(piece.memory);
        if let Some(there) = mapped {
            let waiting = self.device.get_or_insert_default();
            waiting.mapped.push(HostPiece {
                device: ucp_dt_iov_t {
                    buffer: piece.here as *mut _,
                    length: piece.len,
                },
                host: there,
            });
            return;
        }
        let range = (piece.there, piece.len);
        let copied = handle.and_then(|handle| self.opened(handle, range, &piece.memory));
        let direction = copy_direction(self.direction);
        let waiting = self.device.get_or_insert_default();
        match copied {
            Some((group, there)) => {
                let group = &mut waiting.groups[group];
                group.copies.push(direction, piece.here, there, piece.len);
                group.pieces.push(piece);
            }
            None => waiting.sent.push(piece),
        }
    }

    /// Accesses a piece between local host memory and a peer's memory of a device in
    /// [`copy_pieces`](Self::copy_pieces). False: this process cannot copy it.
    pub(super) fn host_piece(
        &mut self,
        host: *mut u8,
        (there, len): (u64, usize),
        handle: &DeviceHandle,
    ) -> bool {
        let Some((group, device)) = self.opened(handle, (there, len), &MemoryInfo::HOST) else {
            return false;
        };
        let waiting = self.device.get_or_insert_default();
        let memory = MemoryInfo {
            kind: MemoryKind::Device,
            ctx: waiting.groups[group].ctx,
            start: device - (there - handle.base),
            len: handle.len,
            buffer_id: handle.buffer_id,
            ..MemoryInfo::HOST
        };
        let pieces = &mut waiting.from_host;
        pieces.lookup.know(memory);
        pieces.sample = Some(memory);
        pieces.push(device, host, len);
        true
    }

    /// The group of a piece that this process can copy, and its remote address here. `near`: the local memory.
    fn opened(
        &mut self,
        handle: &DeviceHandle,
        (there, len): (u64, usize),
        near: &MemoryInfo,
    ) -> Option<(usize, u64)> {
        let cuda = self.worker.ctx.cuda.as_ref()?;
        let offset = handle.offset(there, len as u64)?;
        let reads = self.direction == CmaDirection::Read;
        // After a fence nothing overtakes accesses by message, which the owner executes in order.
        let is_settled = || !self.worker.is_fenced() || flush::is_settled(self.peer);
        if reads && !cuda.may_read(handle) || self.peer.status() != UCS_OK || !is_settled() {
            return None;
        }
        cuda.note_owner(self.peer.uid, handle);
        let waiting = self.device.get_or_insert_default();
        let opened = waiting.open(cuda, handle, near)?;
        Some((opened.group, opened.addr + offset))
    }

    /// Accesses a piece by message.
    ///
    /// # Safety
    /// Its memory is valid until the request completes.
    unsafe fn send_piece(&mut self, cuda: &Arc<CudaContext>, piece: DevicePiece) {
        let whole = (DevicePieces::Contig { addr: piece.here }, piece.len);
        let known = Lookup::knowing(piece.memory);
        let data = Data::of_device(DeviceData::new(cuda, whole, known, piece.memory));
        // SAFETY: the caller's promise.
        unsafe { self.queue(data, piece.there, None) }
    }

    /// Copies the pieces that wait.
    ///
    /// # Errors
    /// `UCS_ERR_IO_ERROR`: a device fails.
    ///
    /// # Safety
    /// Their memory is valid until the request completes.
    pub(super) unsafe fn copy_pieces(&mut self) -> Result<(), ucs_status_t> {
        let Some(waiting) = self.device.take() else {
            return Ok(());
        };
        let SglDevice {
            lookup,
            groups,
            mapped,
            from_host,
            mut sent,
            sample,
            ..
        } = *waiting;
        let Some(cuda) = &self.worker.ctx.cuda else {
            return Ok(());
        };
        if let Some(memory) = from_host.sample {
            let copies = match self.direction {
                CmaDirection::Write => HostCopy::ToDevice,
                CmaDirection::Read => HostCopy::ToHost,
            };
            // SAFETY: the caller's promise; the groups keep the peer's memory open.
            let bytes =
                unsafe { copy_host(cuda, &from_host.pieces, from_host.lookup, memory, copies) }?;
            self.peer.stats().of(StatProtocol::RmaCopy).add(bytes);
        }
        let Some(sample) = sample else {
            return Ok(());
        };
        // SAFETY: the caller's promise.
        unsafe {
            for group in groups.into_iter().filter(|group| !group.pieces.is_empty()) {
                sent.extend(self.begin_group(group));
            }
            self.send_pieces(cuda, sent, sample)?;
            if mapped.is_empty() {
                return Ok(());
            }
            let copies = match self.direction {
                CmaDirection::Write => HostCopy::ToHost,
                CmaDirection::Read => HostCopy::ToDevice,
            };
            copy_host(cuda, &mapped, lookup, sample, copies).map(|_| ())
        }
    }

    /// Accesses pieces that this process does not copy from or to the peer's memory: in place by an adapter, or else
    /// by way of one buffer as far as it holds them: those that an adapter accesses at the peer, and short ones.
    ///
    /// # Errors
    /// `UCS_ERR_IO_ERROR`: a device fails.
    ///
    /// # Safety
    /// Their memory is valid until the request completes.
    unsafe fn send_pieces(
        &mut self,
        cuda: &Arc<CudaContext>,
        pieces: Vec<DevicePiece>,
        sample: MemoryInfo,
    ) -> Result<(), ucs_status_t> {
        let mut room = MAX_STAGED;
        let fits = |piece: &DevicePiece, max: usize, room: &mut usize| {
            let fits = piece.len <= max.min(*room);
            *room -= if fits { piece.len } else { 0 };
            fits
        };
        let is_one = pieces.len() == 1;
        let is_copied = |piece: &DevicePiece| {
            let is = piece.key.is_some() && self.is_better_copied(cuda, piece, is_one);
            is && fits(piece, MAX_STAGED, &mut room)
        };
        let (mut staged, mut alone): (Vec<_>, Vec<_>) = pieces.into_iter().partition(is_copied);
        if self.is_in_place() {
            // SAFETY: the caller's promise.
            let post = |piece| unsafe { self.post_in_place(cuda, piece) };
            alone = alone.into_iter().filter_map(post).collect();
        }
        let is_staged = |piece: &DevicePiece| {
            let max = match piece.key {
                Some(_) => MAX_STAGED,
                None => MAX_STAGED_PIECE,
            };
            fits(piece, max, &mut room)
        };
        let (others, alone): (Vec<_>, Vec<_>) = alone.into_iter().partition(is_staged);
        staged.extend(others);
        // SAFETY: the caller's promise.
        unsafe {
            match staged.len() {
                0 => {}
                1 if staged[0].key.is_none() => {
                    (staged.into_iter()).for_each(|piece| self.send_piece(cuda, piece));
                }
                _ => self.send_staged(cuda, &staged, sample)?,
            }
            (alone.into_iter()).for_each(|piece| self.send_piece(cuda, piece));
        }
        Ok(())
    }

    /// Accesses pieces by an adapter or by message, by way of one buffer.
    ///
    /// # Errors
    /// `UCS_ERR_IO_ERROR`: a device fails.
    ///
    /// # Safety
    /// Their memory is valid until the request completes.
    unsafe fn send_staged(
        &mut self,
        cuda: &Arc<CudaContext>,
        pieces: &[DevicePiece],
        sample: MemoryInfo,
    ) -> Result<(), ucs_status_t> {
        let list = pieces.iter().map(|piece| ucp_dt_iov_t {
            buffer: piece.here as *mut _,
            length: piece.len,
        });
        let data = |list: &[ucp_dt_iov_t]| data_of(cuda, list, Lookup::default(), sample);
        // SAFETY: the caller's promise.
        let mut staged = unsafe { StagedPieces::new(self.direction, list.collect(), data) }?;
        let mut ptr = staged.buffer();
        let parent = self.parent();
        // SAFETY: the request is this call's; it keeps the buffer until the last piece has ended.
        unsafe {
            (*parent).extra = Some(Box::new(Extra::Staged(staged)));
            for piece in pieces {
                let len = piece.len;
                match piece.key {
                    None if piece.is_of_device => self.queue_for_device((ptr, len), piece.there),
                    key => self.queue(Data::Contig { ptr, len }, piece.there, key),
                }
                ptr = ptr.wrapping_add(len);
            }
        }
        Ok(())
    }

    /// Begins to copy the pieces of a group. Returns them if that is not possible.
    ///
    /// # Safety
    /// Their memory is valid until the request completes.
    unsafe fn begin_group(&mut self, group: CopyGroup) -> Vec<DevicePiece> {
        let bytes = group.pieces.iter().map(|piece| piece.len).sum();
        // SAFETY: a new request; the caller's promise.
        unsafe {
            let child = self.child(Data::EMPTY);
            if device_copy::begin_pieces(self.worker, child, group.copies) {
                self.peer.stats().of(StatProtocol::RmaCopy).add(bytes);
                return Vec::new();
            }
            request_alloc::recycle(child);
            // Not the last one: this call is counted, too.
            let _ = request::count_child(self.parent, UCS_OK);
        }
        group.pieces
    }
}

/// All pieces of a list have ended with `status`: stores what was read by way of a buffer. Returns the status of the
/// list.
///
/// # Safety
/// The request is that of a list, and this thread's; the user's memory is still valid.
pub(super) unsafe fn finish_staged(parent: *mut Request, status: ucs_status_t) -> ucs_status_t {
    // SAFETY: the caller's promise.
    let extra = unsafe { (*parent).extra.take() };
    match extra.map(|extra| *extra) {
        // SAFETY: the caller's promise.
        Some(Extra::Staged(staged)) => unsafe { staged.finish(status) },
        _ => status,
    }
}

fn copy_direction(direction: CmaDirection) -> CopyDirection {
    match direction {
        CmaDirection::Read => CopyDirection::FromRemote,
        CmaDirection::Write => CopyDirection::ToRemote,
    }
}
