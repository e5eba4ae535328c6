//! Message headers: the kind of a message, and the fixed fields that precede its payload.
//!
//! A message is a kind, an auxiliary byte, an immediate word, the fixed header of its kind and a
//! payload. The transports carry kind, auxiliary byte and immediate in their own frame (a ring slot,
//! a TCP frame, an immediate of a queue pair); header and payload follow as bytes.
#![forbid(unsafe_code)]

use super::le_struct::packed;

/// Bytes of a [`super::ib_port::PortLocator`].
const PORT: usize = 25;

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $value:literal, $header:expr;)*) => {
        /// Kind of a message. Where `aux` is not mentioned it is 0.
        #[repr(u8)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Kind {
            $($(#[$doc])* $name = $value,)*
        }

        impl Kind {
            /// Every kind, in the order of the numbers.
            pub const ALL: &[Kind] = &[$(Kind::$name),*];

            /// The kind with this number, if there is one.
            #[inline]
            pub const fn from_u8(number: u8) -> Option<Kind> {
                match number {
                    $($value => Some(Kind::$name),)*
                    _ => None,
                }
            }

            /// How many bytes of fixed header precede the payload.
            #[inline]
            pub const fn header_size(self) -> usize {
                match self {
                    $(Kind::$name => $header,)*
                }
            }
        }
    };
}

kinds! {
    /// A whole tagged message. `imm`: the tag. Payload: the data.
    TagEager = 1, 0;
    /// A whole tagged message whose sender waits for the match. `imm`: the tag. [`SyncHdr`], data.
    TagSync = 2, SyncHdr::SIZE;
    /// RTS of a tagged message. `imm`: the tag. [`RtsHdr`]. The sender of one is notified of the match in any case, so
    /// that synchronous sends need no kind of their own. `aux`: so many keys follow, 4 bytes each for one of the
    /// sender's ports, by which a device may read the data; 0: none may. Over the Tofu interconnect as many words of
    /// [`super::rts_keys`].
    TagRts = 3, RtsHdr::SIZE;
    /// A `TagSync` was matched. `imm`: its request.
    SyncAck = 4, 0;
    /// ATS: a rendezvous is complete. `imm`: the sender's request, `aux`: status as i8.
    Ats = 5, 0;
    /// RTR: the sender of a rendezvous shall send `Data`. `imm`: its request. [`RtrHdr`].
    Rtr = 6, RtrHdr::SIZE;
    /// A part of the data of a rendezvous. `imm`: the receiver's request. [`DataHdr`], data.
    Data = 7, DataHdr::SIZE;
    /// A whole active message. `imm`: [`AmImm`]. Payload: the data, then the user's header.
    AmEager = 8, 0;
    /// RTS of an active message. `imm`: [`AmImm`]. `aux`, [`RtsHdr`] and keys as in `TagRts`, then the user's header.
    AmRts = 9, RtsHdr::SIZE;
    /// A put, or the next part of one. `imm`: the address. `aux`: [`PutRest`], of the last part of a piece of a list
    /// [`super::list_piece::ListPiece`]. Payload: the data, none if the rest of a put cannot be read. The parts of a
    /// put come in order, and no other access of the sender comes between them.
    PutReq = 10, 0;
    /// Reply to a put. `aux`: status as i8.
    PutAck = 11, 0;
    /// A get. `imm`: the address, `aux`: [`super::list_piece::ListPiece`]. [`GetHdr`].
    GetReq = 12, GetHdr::SIZE;
    /// Reply to a get, with a part of the data. `imm`: the reader's request, `aux`: status as i8. [`DataHdr`], data.
    GetRep = 13, DataHdr::SIZE;
    /// An atomic operation. `imm`: the address. [`AmoHdr`].
    AmoReq = 14, AmoHdr::SIZE;
    /// Reply to an atomic operation. `imm`: its request, `aux`: status as i8. [`ValueHdr`].
    AmoRep = 15, ValueHdr::SIZE;
    /// Connects the sender's endpoint. `imm`: [`EpImm`]. Payload: its worker address.
    EpInfo = 16, 0;
    /// The sender's endpoint is closed: its last message. `imm`: [`EpImm`], `aux`: the status with which its
    /// counterpart fails, as i8, 0 if it was closed in order.
    EpClosed = 17, 0;
    /// A piece of a stream. `imm`: [`EpImm`]. Payload: the data.
    StreamData = 18, 0;
    /// Cancel of a rendezvous. `aux` [`OFFERED`]: `imm` is the sender's request; [`ASKED`]: the receiver's.
    RndvCancel = 19, 0;
    /// The receiver of a rendezvous starts a split copy. `imm`: the sender's request. [`SplitCopyHdr`].
    SplitCopy = 20, SplitCopyHdr::SIZE;
    /// The sender's worker has accepted a client of the receiver: the first message of the endpoint that it has made.
    /// `imm`: the secret that the client sent to its server ([`super::cm_msg::Hello`]).
    Accepted = 21, 0;
    /// Messages behind this must not be visible to gets before it, replied to or not. Pieces of lists that the owner
    /// has collected are executed.
    Fence = 22, 0;
    /// RTR of a put_zcopy rendezvous: the sender's device shall write the data, and an ATP (`Atp`) follows. `imm`:
    /// the sender's request. [`RtrDeviceHdr`].
    RtrDevice = 23, RtrDeviceHdr::SIZE;
    /// ATP: all data of a rendezvous are written, without an immediate at the last bytes. `imm`: the receiver's
    /// request.
    Atp = 24, 0;
    /// The sender requests a rail. `imm`: [`RailImm`], `far`: a suitable port of the receiver. Address of the sender's
    /// port ([`super::ib_port::PortLocator`]).
    RailReq = 25, PORT;
    /// Reply to a rail request. `imm`: [`RailImm`] with `near` unchanged, but `far` is the port that was selected;
    /// queue pair 0: no rail is possible. Address of the receiver's port.
    RailRep = 26, PORT;
    /// The sender has dropped a rail, and its writes may still be in flight: the receiver shall drop its end. `imm`:
    /// [`RailImm`] of the reply.
    RailDown = 27, 0;
    /// Cancel of a rendezvous with keys: the receiver shall acknowledge (`Ats`) when its device does not read the data
    /// any more. `imm`: the sender's request, as in the RTS. [`SyncHdr`]
    RndvCancelReq = 28, SyncHdr::SIZE;
    /// The receiver has dropped its end of a rail: later writes by it have no effect. `imm`: as in [`Kind::RailDown`].
    RailDownAck = 29, 0;
    /// The signal of a put, behind its data. `imm`: the value. [`SignalHdr`]. Replied to like a put.
    Signal = 30, SignalHdr::SIZE;
    /// A completion queue entry behind data that an adapter has written, without a reply. `imm`: the value, `aux`: the
    /// queue. [`NoteHdr`].
    Note = 31, NoteHdr::SIZE;
    /// A fragment of an eager active message that no record takes whole. `imm`: [`AmImm`] of the message.
    /// [`FragmentHdr`], a part of the data; behind the last part the user's header. The fragments of a message come in
    /// order, and no other active message of the sender comes between them.
    AmFragment = 32, FragmentHdr::SIZE;
    /// A fragment of an eager tagged message that no record takes whole. `imm`: the tag. [`FragmentHdr`], a part of the
    /// data. The fragments of a message come in order, and no other tagged message of the sender comes between them.
    TagFragment = 33, FragmentHdr::SIZE;
}

/// In `aux` of a cancel: `imm` is the sender's request.
pub const OFFERED: u8 = 0;
/// In `aux` of a cancel: `imm` is the receiver's request.
pub const ASKED: u8 = 1;

/// How many bytes of a put follow a part of it, in `aux`: as many bits as their number has. 0: none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PutRest(u8);

impl PutRest {
    /// Nothing follows.
    pub const NONE: PutRest = PutRest(0);

    /// That of `bytes` which follow.
    #[inline(always)]
    pub const fn of(bytes: u64) -> PutRest {
        PutRest((u64::BITS - bytes.leading_zeros()) as u8)
    }

    #[inline(always)]
    pub const fn from_aux(aux: u8) -> PutRest {
        PutRest(aux)
    }

    #[inline(always)]
    pub const fn aux(self) -> u8 {
        self.0
    }

    /// So many bytes follow at most, and more than half of them; 0: none.
    pub const fn most(self) -> u64 {
        match u64::BITS.checked_sub(self.0 as u32) {
            Some(u64::BITS) => 0,
            Some(unused) => u64::MAX >> unused,
            None => u64::MAX,
        }
    }
}

/// One end of a rail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RailImm {
    /// 24 bits each; queue pair 0: there is none.
    pub qpn: u32,
    pub psn: u32,
    /// Index of the requesting worker's port among its own, and of the replying worker's port among its own.
    pub near: u8,
    pub far: u8,
}

impl RailImm {
    pub fn to_u64(self) -> u64 {
        let bits = u64::from(self.qpn & 0xFF_FFFF) | u64::from(self.psn & 0xFF_FFFF) << 24;
        bits | u64::from(self.near) << 48 | u64::from(self.far) << 56
    }

    pub fn from_u64(imm: u64) -> Self {
        RailImm {
            qpn: imm as u32 & 0xFF_FFFF,
            psn: (imm >> 24) as u32 & 0xFF_FFFF,
            near: (imm >> 48) as u8,
            far: (imm >> 56) as u8,
        }
    }
}

/// Value of the request field in a header before the request has an id.
pub const UNNAMED: u64 = 0;

/// Writes the id into a header that begins with the sender's request.
pub fn set_request(head: &mut [u8; 32], id: u64) {
    head[..size_of::<u64>()].copy_from_slice(&id.to_le_bytes());
}

packed! {
    /// Header of a synchronous send, and of a cancel with keys.
    SyncHdr, 8 {
        /// The sender's request, for the acknowledgement.
        req: u64,
    }
}

/// In place of a number of pieces: memory that processors cannot access. The address is given where keys follow.
pub const DEVICE_MEMORY: u32 = u32::MAX;

packed! {
    /// Header of an RTS: sufficient for the receiver to read the data itself where it can.
    RtsHdr, 32 {
        /// The sender's request.
        req: u64,
        /// Bytes of the whole message.
        len: u64,
        /// Address of the data in the sender's address space, or of the list of its pieces.
        addr: u64,
        /// Entries of that list, each an address and a length of 8 bytes; 0: there is no list. [`DEVICE_MEMORY`]: the
        /// data are a device's memory, which adapters of the sender can access.
        pieces: u32,
        /// Requests of the sender's worker that waited for a peer when this one began, this one among them.
        waiting: u32,
    }
}

packed! {
    /// Header of an RTR.
    RtrHdr, 13 {
        /// The receiver's request, for each `Data` message.
        recv: u64,
        /// Generation of a chunk board: the sender shall send only if it can claim the only chunk, else the receiver
        /// copies; 0: it shall send in any case.
        generation: u32,
        /// Index of the chunk board in the ring that this message arrived by.
        number: u8,
    }
}

packed! {
    /// Header of an RTR of a put_zcopy rendezvous.
    RtrDeviceHdr, 32 {
        /// The receiver's request, for the ATP.
        recv: u64,
        /// Address of the receive buffer in the receiver's address space.
        addr: u64,
        /// The key for each of the receiver's ports, 32 bits each from the lowest on, 0 where there is no port; or the
        /// words of the key of a registration with libfabric.
        keys: u128,
    }
}

packed! {
    /// Header of a split copy.
    SplitCopyHdr, 17 {
        /// Address of the receive buffer in the receiver's address space.
        addr: u64,
        /// Bytes of a chunk.
        chunk: u32,
        /// Generation of the chunk board, which messages use one after the other.
        generation: u32,
        /// Index of the chunk board in the ring that this message arrived by.
        number: u8,
    }
}

packed! {
    /// Header of a part of a longer transfer.
    DataHdr, 8 {
        /// Offset of the part in the transfer. Not checked here: only its receiver has the length.
        offset: u64,
    }
}

packed! {
    /// Header of a fragment of an eager message.
    FragmentHdr, 16 {
        /// Where in the message the fragment's data begins, bytes. 0 begins a message.
        offset: u64,
        /// Bytes of the whole message's data.
        total: u64,
    }
}

packed! {
    /// Header of a get.
    GetHdr, 24 {
        /// The reader's request.
        req: u64,
        /// Bytes to read.
        len: u64,
        /// Offset of the first part of the reply.
        offset: u64,
    }
}

packed! {
    /// Header of an atomic operation.
    AmoHdr, 27 {
        /// The request that waits for the reply.
        req: u64,
        /// The operand; of a compare-and-swap the new value.
        value: u64,
        /// What a compare-and-swap compares with.
        compare: u64,
        /// A number of `ucp_atomic_op_t`, 0 (add) to 5 (xor).
        op: u8,
        /// Bytes of the operand, 4 or 8.
        size: u8,
        /// 1 if the old value is needed, else 0.
        fetch: u8,
    } valid when |amo| amo.op <= AmoHdr::LAST_OP && matches!(amo.size, 4 | 8) && amo.fetch <= 1
}

impl AmoHdr {
    /// The largest number of an operation: xor.
    pub const LAST_OP: u8 = 5;
}

packed! {
    /// Header of a signal.
    SignalHdr, 26 {
        /// Address and length of the data in front of it; where these are not registered the put was refused, and so is
        /// the signal.
        addr: u64,
        len: u64,
        /// Address of the flag; 0: there is none.
        flag: u64,
        /// 0: an entry of the completion queue `cq`, 1: the flag is set, 2: the value is added to it.
        op: u8,
        cq: u8,
    } valid when |signal| signal.op <= SignalHdr::ADD
}

impl SignalHdr {
    pub const NOTIFY: u8 = 0;
    pub const SET: u8 = 1;
    pub const ADD: u8 = 2;
}

packed! {
    /// Header of a note. With the frame head it fits into a descriptor of the Tofu interconnect.
    NoteHdr, 16 {
        /// Address and length of the data in front of it.
        addr: u64,
        len: u64,
    }
}

packed! {
    /// Header of the reply to an atomic operation.
    ValueHdr, 8 {
        /// The value before the operation.
        value: u64,
    }
}

/// A signal in the 32-bit immediate of a device's write. The highest bit is set, which it is in no id of a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignalWord {
    pub cq: u8,
    pub value: u32,
}

impl SignalWord {
    const VALUE_BITS: u32 = 28;
    const MARK: u32 = 1 << 31;

    /// The immediate for an entry of this queue; `None`: it needs more bits.
    pub fn encode(cq: u8, value: u64) -> Option<u32> {
        let fits = cq < 8 && value >> Self::VALUE_BITS == 0;
        fits.then_some(Self::MARK | u32::from(cq) << Self::VALUE_BITS | value as u32)
    }

    /// `None`: the immediate is the id of a receive.
    pub fn decode(word: u32) -> Option<Self> {
        (word & Self::MARK != 0).then_some(SignalWord {
            cq: (word >> Self::VALUE_BITS) as u8 & 7,
            value: word & ((1 << Self::VALUE_BITS) - 1),
        })
    }
}

/// Bits of an endpoint's serial number; higher ones are not sent.
pub const SN_BITS: u32 = 24;

const SN_MASK: u64 = (1 << SN_BITS) - 1;

/// The immediate of an active message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AmImm {
    /// Id of the handler.
    pub id: u16,
    /// Bytes of the user's header.
    pub header_len: u16,
    /// Flags of the message.
    pub flags: u8,
    /// The sender's endpoint ([`SN_BITS`] bits).
    pub sn: u32,
}

impl AmImm {
    /// The immediate of a message without a header and without a reply endpoint.
    #[inline(always)]
    pub const fn plain(id: u32, sn: u32) -> u64 {
        AmImm {
            id: id as u16,
            header_len: 0,
            flags: 0,
            sn,
        }
        .to_u64()
    }

    /// `id` in bits 0 to 15, `header_len` 16 to 31, `flags` 32 to 39, `sn` 40 to 63.
    #[inline]
    pub const fn to_u64(self) -> u64 {
        self.id as u64
            | (self.header_len as u64) << 16
            | (self.flags as u64) << 32
            | (self.sn as u64 & SN_MASK) << 40
    }

    /// The inverse of [`AmImm::to_u64`]. Every number is one.
    #[inline]
    pub const fn from_u64(imm: u64) -> AmImm {
        AmImm {
            id: imm as u16,
            header_len: (imm >> 16) as u16,
            flags: (imm >> 32) as u8,
            sn: (imm >> 40) as u32,
        }
    }

    /// Splits the payload of an `AmEager` into the data and the user's header behind it; `None` if the header would be
    /// longer than the payload.
    #[inline]
    pub const fn split(self, payload: &[u8]) -> Option<(&[u8], &[u8])> {
        match payload.len().checked_sub(self.header_len as usize) {
            Some(data) => payload.split_at_checked(data),
            None => None,
        }
    }
}

/// The immediate of messages about an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpImm {
    /// The sender's endpoint ([`SN_BITS`] bits).
    pub sn: u32,
    /// Its error handling mode.
    pub err_mode: u8,
}

impl EpImm {
    /// `sn` in bits 0 to 23, `err_mode` in bits 24 to 31; the others are 0 and reserved.
    #[inline]
    pub const fn to_u64(self) -> u64 {
        self.sn as u64 & SN_MASK | (self.err_mode as u64) << SN_BITS
    }

    /// The inverse of [`EpImm::to_u64`]; the upper half is ignored.
    #[inline]
    pub const fn from_u64(imm: u64) -> EpImm {
        EpImm {
            sn: (imm & SN_MASK) as u32,
            err_mode: (imm >> SN_BITS) as u8,
        }
    }
}

#[cfg(test)]
mod tests;
