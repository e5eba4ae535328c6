//! Handle of an allocation of a device, by which another process, or another part of the same one, copies from it and
//! to it: in an RTS in the place of keys, with the address of the message behind it, and in a remote key.
//!
//! `mark (3) | kind (1) | host (8) | process (8) | device (16) | base (8) | length (8) | buffer id (8) | export (80)`.
//! The mark is that of no other kind of keys in an RTS, which are shorter, too.
#![forbid(unsafe_code)]

const MARK: [u8; 3] = *b"dev";
/// Bytes of a handle of the driver: `CUipcMemHandle`, `CUmemFabricHandle`, `CUmemPoolPtrExportData`.
pub const DRIVER_HANDLE: usize = 64;
/// Bytes of the export's part.
const EXPORT: usize = 80;
/// Bytes of the UUID of a device.
pub const UUID: usize = 16;
/// Bytes of an encoded handle: whole words.
pub const LEN: usize = MARK.len() + 1 + 8 + 8 + UUID + 8 + 8 + 8 + EXPORT;

/// Bytes of a handle with an address behind it, in an RTS.
pub const IN_RTS: usize = LEN + size_of::<u64>();

const _: () =
    assert!(IN_RTS % size_of::<u32>() == 0 && IN_RTS / size_of::<u32>() <= u8::MAX as usize);

/// A process of a host, also if its number is used again: equal in all that one process exports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProcessIdentity {
    /// Hash of the kernel's boot id ([`HostId`](crate::sys::host::HostId)).
    pub host: u64,
    /// A random number of the process.
    pub number: u64,
}

/// An allocation of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceHandle {
    pub owner: ProcessIdentity,
    /// UUID of the device.
    pub device: [u8; UUID],
    /// First byte of the allocation, in the owner's address space.
    pub base: u64,
    /// Bytes of the allocation.
    pub len: u64,
    /// Distinguishes it from other allocations of the owner, also from later ones at the same address.
    pub buffer_id: u64,
    pub export: MemoryExport,
}

/// How the allocation is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryExport {
    /// By its address: in the process of the owner only.
    Address,
    /// By `cuIpcOpenMemHandle`.
    Legacy([u8; DRIVER_HANDLE]),
    /// Memory of `cuMemMap`: by a descriptor that a service of the owner sends.
    Mapped { service: u64 },
    /// Memory of a pool: the pool by a descriptor of the service, in it the allocation by `cuMemPoolImportPointer`.
    Pool {
        service: u64,
        /// Distinguishes the pool from all other ones of the owner, also from earlier and later ones.
        pool: u64,
        pointer: [u8; DRIVER_HANDLE],
    },
}

impl MemoryExport {
    /// Number of the way in which it is opened.
    pub fn kind(&self) -> u8 {
        match self {
            MemoryExport::Address => 0,
            MemoryExport::Legacy(_) => 1,
            MemoryExport::Mapped { .. } => 2,
            MemoryExport::Pool { .. } => 3,
        }
    }

    /// Decodes the way with this number, and returns it with the bytes behind it.
    fn decode(kind: u8, bytes: &[u8]) -> Option<(MemoryExport, &[u8])> {
        match kind {
            0 => Some((MemoryExport::Address, bytes)),
            1 => {
                let (&handle, unused) = bytes.split_first_chunk()?;
                Some((MemoryExport::Legacy(handle), unused))
            }
            2 => {
                let (service, unused) = word(bytes)?;
                Some((MemoryExport::Mapped { service }, unused))
            }
            3 => {
                let (service, rest) = word(bytes)?;
                let (pool, rest) = word(rest)?;
                let (&pointer, unused) = rest.split_first_chunk()?;
                let export = MemoryExport::Pool {
                    service,
                    pool,
                    pointer,
                };
                Some((export, unused))
            }
            _ => None,
        }
    }
}

impl DeviceHandle {
    /// The bytes of the handle.
    pub fn encode(&self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        let mut rest = &mut bytes[..];
        let mut put = |field: &[u8]| {
            let (place, behind) = std::mem::take(&mut rest).split_at_mut(field.len());
            place.copy_from_slice(field);
            rest = behind;
        };
        put(&MARK);
        put(&[self.export.kind()]);
        put(&self.owner.host.to_le_bytes());
        put(&self.owner.number.to_le_bytes());
        put(&self.device);
        put(&self.base.to_le_bytes());
        put(&self.len.to_le_bytes());
        put(&self.buffer_id.to_le_bytes());
        match &self.export {
            MemoryExport::Address => {}
            MemoryExport::Legacy(handle) => put(handle),
            MemoryExport::Mapped { service } => put(&service.to_le_bytes()),
            MemoryExport::Pool {
                service,
                pool,
                pointer,
            } => {
                put(&service.to_le_bytes());
                put(&pool.to_le_bytes());
                put(pointer);
            }
        }
        bytes
    }

    /// Decodes a handle, which `bytes` contain and nothing else. `None`: they are none, or its range has no end.
    pub fn decode(bytes: &[u8]) -> Option<DeviceHandle> {
        let rest = bytes.get(..LEN)?.strip_prefix(&MARK)?;
        let (&[kind], rest) = rest.split_first_chunk()?;
        let (host, rest) = word(rest)?;
        let (number, rest) = word(rest)?;
        let (&device, rest) = rest.split_first_chunk()?;
        let (base, rest) = word(rest)?;
        let (len, rest) = word(rest)?;
        let (buffer_id, export) = word(rest)?;
        let (export, unused) = MemoryExport::decode(kind, export)?;
        // Equal handles have equal bytes.
        if unused.iter().any(|&byte| byte != 0) {
            return None;
        }
        base.checked_add(len)?;
        (bytes.len() == LEN && len > 0).then_some(DeviceHandle {
            owner: ProcessIdentity { host, number },
            device,
            base,
            len,
            buffer_id,
            export,
        })
    }

    /// Offset of `len` bytes at `addr` of the owner in the allocation. `None`: they are not inside of it.
    pub fn offset(&self, addr: u64, len: u64) -> Option<u64> {
        let offset = addr.checked_sub(self.base)?;
        (offset <= self.len && len <= self.len - offset).then_some(offset)
    }
}

fn word(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (word, rest) = bytes.split_first_chunk()?;
    Some((u64::from_le_bytes(*word), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle(export: MemoryExport) -> DeviceHandle {
        DeviceHandle {
            owner: ProcessIdentity { host: 1, number: 2 },
            device: std::array::from_fn(|i| i as u8),
            base: 0x7000_0000,
            len: 0x20_0000,
            buffer_id: 5,
            export,
        }
    }

    #[test]
    fn a_handle_is_what_was_encoded() {
        let legacy = std::array::from_fn(|i| 255 - i as u8);
        let (service, pool) = (7, 0x1234);
        let pooled = MemoryExport::Pool {
            service,
            pool,
            pointer: legacy,
        };
        for export in [
            MemoryExport::Address,
            MemoryExport::Legacy(legacy),
            MemoryExport::Mapped { service },
            pooled,
        ] {
            let handle = handle(export);
            let bytes = handle.encode();
            assert_eq!(DeviceHandle::decode(&bytes), Some(handle));
            assert_eq!(DeviceHandle::decode(&bytes[..LEN - 1]), None);
            let longer = [&bytes[..], &[0]].concat();
            assert_eq!(DeviceHandle::decode(&longer), None);
        }
    }

    #[test]
    fn damaged_handles_are_none() {
        let bytes = handle(MemoryExport::Address).encode();
        let changed = |at: usize, value: u8| {
            let mut bytes = bytes;
            bytes[at] = value;
            DeviceHandle::decode(&bytes)
        };
        for i in 0..MARK.len() {
            assert_eq!(changed(i, 0), None, "mark");
        }
        assert_eq!(changed(MARK.len(), 99), None, "kind");
        assert_eq!(changed(LEN - 1, 1), None, "behind the export");
        let empty = DeviceHandle {
            len: 0,
            ..handle(MemoryExport::Address)
        };
        assert_eq!(DeviceHandle::decode(&empty.encode()), None);
        let endless = DeviceHandle {
            len: u64::MAX,
            ..empty
        };
        assert_eq!(DeviceHandle::decode(&endless.encode()), None);
        assert_eq!(DeviceHandle::decode(&[0; LEN]), None);
    }

    #[test]
    fn ranges_are_inside_of_the_allocation() {
        let handle = handle(MemoryExport::Address);
        let (base, len) = (handle.base, handle.len);
        assert_eq!(handle.offset(base, len), Some(0));
        assert_eq!(handle.offset(base + 7, len - 7), Some(7));
        assert_eq!(handle.offset(base + len, 0), Some(len));
        for (addr, n) in [
            (base - 1, 1),
            (base, len + 1),
            (base + len, 1),
            (base + 1, u64::MAX),
            (u64::MAX, u64::MAX),
        ] {
            assert_eq!(handle.offset(addr, n), None, "{addr:#x} {n}");
        }
    }
}
