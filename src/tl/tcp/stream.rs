//! System calls that read and write the stream of a connection, whose socket never blocks.

use rustix::io::Errno;
use std::io::{self, ErrorKind, IoSlice};

/// Pieces of one write: what has collected, the rest of a frame, and the three parts of a record.
const PIECES: usize = 5;

/// Why a read returned no bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// Nothing has arrived.
    WouldBlock,
    /// The peer has ended its stream.
    End,
    /// The connection has failed.
    Failed(Errno),
}

impl From<ReadError> for io::Error {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::WouldBlock => ErrorKind::WouldBlock.into(),
            ReadError::End => ErrorKind::UnexpectedEof.into(),
            ReadError::Failed(errno) => errno.into(),
        }
    }
}

/// Reads into one or several pieces with one call, and returns the number of bytes, at least one.
///
/// # Errors
/// [`ReadError`]. The length of a piece is not 0, or the result would look like the end of the stream.
///
/// # Safety
/// The pieces are writable.
pub unsafe fn read(fd: i32, pieces: &mut [libc::iovec]) -> Result<usize, ReadError> {
    loop {
        // SAFETY: the caller's pieces are writable.
        let n = unsafe {
            match pieces {
                // `recv` spares the kernel the copy of the list.
                [one] => libc::recv(fd, one.iov_base, one.iov_len, 0),
                _ => recvmsg(fd, pieces),
            }
        };
        match n {
            0 => return Err(ReadError::End),
            1.. => return Ok(n as usize),
            _ => match last_errno() {
                Errno::INTR => {}
                Errno::AGAIN => return Err(ReadError::WouldBlock),
                errno => return Err(ReadError::Failed(errno)),
            },
        }
    }
}

/// Not `readv`, which reads any descriptor that has replaced a socket that the program closed.
///
/// # Safety
/// The pieces are writable.
unsafe fn recvmsg(fd: i32, pieces: &mut [libc::iovec]) -> isize {
    // SAFETY: all zero is a valid msghdr. It points to the pieces, which are writable, during the call.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        (message.msg_iov, message.msg_iovlen) = (pieces.as_mut_ptr(), pieces.len());
        libc::recvmsg(fd, &mut message, 0)
    }
}

/// Writes pieces with one call, and returns how many bytes the socket has taken: 0 if it is full.
///
/// # Errors
/// The connection has failed.
#[inline]
pub fn write(fd: i32, first: &[u8], others: &[&[u8]; PIECES - 1]) -> Result<usize, Errno> {
    const FLAGS: i32 = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    loop {
        // Almost always only the first piece has bytes: `send` spares the kernel the copy of the list.
        let n = if others.iter().all(|piece| piece.is_empty()) {
            // SAFETY: the piece is readable. With MSG_NOSIGNAL a broken connection returns an error.
            unsafe { libc::send(fd, first.as_ptr().cast(), first.len(), FLAGS) }
        } else {
            sendmsg(fd, first, others, FLAGS)
        };
        if let Ok(n) = usize::try_from(n) {
            return Ok(n);
        }
        match last_errno() {
            Errno::INTR => {}
            Errno::AGAIN => return Ok(0),
            errno => return Err(errno),
        }
    }
}

/// [`write()`] of a list.
fn sendmsg(fd: i32, first: &[u8], others: &[&[u8]; PIECES - 1], flags: i32) -> isize {
    let mut list = [IoSlice::new(&[]); PIECES];
    list[0] = IoSlice::new(first);
    for (slot, piece) in list[1..].iter_mut().zip(others) {
        *slot = IoSlice::new(piece);
    }
    // SAFETY: all zero is a valid msghdr. It points to the pieces, which are readable, during the call. An `IoSlice`
    // has the layout of an `iovec`.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = list.as_mut_ptr().cast();
        message.msg_iovlen = PIECES;
        libc::sendmsg(fd, &message, flags)
    }
}

fn last_errno() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}
