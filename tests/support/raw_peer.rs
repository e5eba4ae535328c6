//! A process whose side of the protocol the test plays: it is alive and has memory, and messages to it are read here.

use ucp::sys::memfd::MemfdId;
use ucp::tl::Message;
use ucp::tl::address::WorkerAddress;
use ucp::tl::shm::address::ShmLocator;
use ucp::tl::shm::inbox::{Doorbell, Inbox};
use ucp::tl::shm::outbox::Outbox;
use ucp::tl::shm::ring::{Consumer, RingMem, RingParts, Start};
use ucp::tl::shm::{InboxLocator, RingOwner};

/// Bytes of its memory.
const MEMORY: usize = 64 << 10;

pub struct RawPeer {
    /// Receives the victim's messages.
    rings: Vec<(usize, Consumer)>,
    inbox: Inbox,
    doorbell: Doorbell,
    /// Shared with the child: source of the messages that the test announces.
    memory: Vec<u8>,
    /// A child that sleeps, a copy of this process: it has the same memory and the same descriptors.
    pid: libc::pid_t,
    is_alive: bool,
}

impl RawPeer {
    pub fn new() -> RawPeer {
        let inbox = Inbox::create(false).unwrap();
        let memory = vec![0x99; MEMORY];
        // Not libc's function: the library's handlers would take the descriptors and the memory away from the child.
        // Not SYS_fork, which arm64 and riscv64 do not have. The flags are the first argument there, too.
        let (flags, none) = (libc::SIGCHLD as libc::c_ulong, 0 as libc::c_ulong);
        // SAFETY: without CLONE_VM and a stack it is a fork; the child calls nothing but system calls.
        let pid = unsafe { libc::syscall(libc::SYS_clone, flags, none, none, none, none) };
        let pid = pid as libc::pid_t;
        if pid == 0 {
            // SAFETY: no memory involved. It ends with its parent.
            unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                loop {
                    libc::pause();
                }
            }
        }
        assert!(pid > 0);
        RawPeer {
            rings: Vec::new(),
            doorbell: inbox.doorbell(),
            inbox,
            memory,
            pid,
            is_alive: true,
        }
    }

    /// The address of its memory.
    pub fn memory(&self) -> u64 {
        self.memory.as_ptr() as u64
    }

    /// Ends the process.
    pub fn kill(&mut self) {
        if std::mem::take(&mut self.is_alive) {
            // SAFETY: the child of this structure, waited for once.
            unsafe {
                libc::kill(self.pid, libc::SIGKILL);
                libc::waitpid(self.pid, std::ptr::null_mut(), 0);
            }
        }
    }

    /// Writes a word into the first ring that it reads.
    pub fn poke(&self, at: u16, word: u64) {
        let Some((index, _)) = self.rings.first() else {
            return;
        };
        let RingParts { start, body } = self.inbox.ring(*index);
        let (in_start, in_body) = (size_of::<Start>() / 8, size_of::<RingMem>() / 8);
        let at = usize::from(at) % (in_start + in_body);
        // SAFETY: a word of the ring, which is shared memory to which there are only references to atomics.
        unsafe {
            let place = match at.checked_sub(in_start) {
                None => start.cast::<u64>().add(at),
                Some(at) => body.cast::<u64>().add(at),
            };
            place.write_volatile(word)
        };
    }

    /// The host that its address claims.
    pub fn locator(&self) -> InboxLocator {
        let here = self.inbox.locator();
        InboxLocator {
            id: MemfdId {
                pid: self.pid as u32,
                ..here.id
            },
            ..here
        }
    }

    /// The address of a worker in it.
    pub fn address(&self, uid: u64, host: u64) -> WorkerAddress {
        let l = self.locator();
        WorkerAddress {
            uid,
            shm: Some(ShmLocator {
                host,
                pid_ns: l.pid_ns,
                pid: l.id.pid,
                fd: l.id.fd,
                ino: l.id.ino,
                ipc_ns: l.ipc_ns,
                key: l.key,
                shm_place: l.shm_place,
                flags: 0,
            }),
            ..WorkerAddress::default()
        }
    }

    /// An outbox to a worker, with any uid.
    pub fn outbox(&self, victim: &WorkerAddress, uid: u64) -> Outbox {
        let shm = victim.shm.expect("a worker in shared memory");
        let at = InboxLocator {
            pid_ns: shm.pid_ns,
            ipc_ns: shm.ipc_ns,
            id: MemfdId {
                pid: shm.pid,
                fd: shm.fd,
                ino: shm.ino,
            },
            key: shm.key,
            shm_place: shm.shm_place,
        };
        let me = RingOwner {
            uid,
            inbox: self.locator(),
        };
        *Outbox::open(at, &me, &mut None).expect("a ring of the victim's")
    }

    /// Frees the rings without a sender.
    pub fn forget(&mut self) {
        for (index, _) in std::mem::take(&mut self.rings) {
            self.inbox.free(index);
        }
    }

    /// Receives the messages that have arrived; `look` gets the message and a copy of its record.
    pub fn receive(&mut self, mut look: impl FnMut(&Message, &[u8])) {
        if self.doorbell.has_new_ring() {
            for (index, _) in self.inbox.accept(&self.doorbell) {
                // SAFETY: the ring lives as long as the inbox, which is dropped after it; `accept` shows it once.
                let ring = unsafe { Consumer::new(self.inbox.ring(index)) };
                self.rings.push((index, ring));
            }
        }
        for (_, ring) in &mut self.rings {
            // Words that the test itself has poked are no messages any more.
            while let Ok(Some(message)) = ring.peek() {
                // SAFETY: the record is readable until `advance`.
                let record = unsafe { std::slice::from_raw_parts(message.record, message.len) };
                look(&message, record);
                ring.advance();
            }
            ring.release();
        }
    }
}

impl Drop for RawPeer {
    fn drop(&mut self) {
        self.kill();
    }
}
