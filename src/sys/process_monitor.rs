//! Which of the watched processes have exited: one descriptor for each process, shared by all workers of this process,
//! in one epoll set. A single system call asks whether any of them has, and takes no event out of the set.
//!
//! The result is a hint: the caller checks the process itself before it treats it as dead. A program may have closed
//! all descriptors (`closefrom`), and files that it opened since may have the same numbers.

use super::descriptor::OwnedDescriptor;
use super::process::Process;
use super::{fork, host};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{self, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use std::collections::HashMap;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// Of the descriptors that a process may have open, one of so many is used for watched processes.
const SHARE_OF_LIMIT: usize = 4;

/// State of a watched process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitState {
    /// It ran when [`poll`] was called last.
    Running,
    /// It has probably exited.
    Exited,
    /// It is not watched any more: the descriptors are lost, or belong to the process that this one was forked from.
    Lost,
}

/// A watched process. The descriptor is closed with the last reference.
pub struct MonitoredProcess {
    process: Counted,
    exited: AtomicBool,
    set: Arc<Set>,
}

/// A descriptor that is counted in [`IN_USE`].
struct Counted(ManuallyDrop<Process>);

/// Descriptors in use.
static IN_USE: AtomicUsize = AtomicUsize::new(0);

/// An epoll set with descriptors of processes.
struct Set {
    epoll: ManuallyDrop<OwnedDescriptor<OwnedFd>>,
    /// Token of its entries, which differs from those of all other sets.
    name: u64,
    /// The process that made it.
    maker: u32,
    lost: AtomicBool,
}

/// The processes of a set, by number.
struct Monitor {
    set: Arc<Set>,
    watched: HashMap<u32, Weak<MonitoredProcess>>,
}

static MONITOR: fork::Mutex<Option<Monitor>> = fork::Mutex::new(None);

/// Lock of the monitor, which a fork acquires.
pub fn lock_to_watch() -> &'static fork::Lock {
    MONITOR.lock_to_watch()
}

/// Watches the process with this number in our PID namespace. `None`: it has exited, or no descriptor can be had or may
/// be used for it. If it exited before the call its number may be another's: the caller checks it once more afterwards.
pub fn watch(pid: u32) -> Option<Arc<MonitoredProcess>> {
    let mut monitor = MONITOR.lock();
    if monitor
        .as_ref()
        .is_some_and(|m| m.set.state() == ExitState::Lost)
    {
        *monitor = None;
    }
    if monitor.is_none() {
        let set = Arc::new(Set::new().ok()?);
        let watched = HashMap::new();
        *monitor = Some(Monitor { set, watched });
    }
    let monitor = monitor.as_mut()?;
    let known = monitor.watched.get(&pid).and_then(Weak::upgrade);
    known.or_else(|| monitor.add(pid))
}

/// Queries which of the watched processes have exited, unless another thread does so now.
pub fn poll() {
    let Some(mut monitor) = MONITOR.try_lock() else {
        return;
    };
    let Some(m) = monitor.as_mut() else {
        return;
    };
    if m.set.state() == ExitState::Running && m.set.is_ready() && !m.mark_exited() {
        // A descriptor in the set that is none of ours: one that a forked child has still open. It would stay ready.
        m.set.mark_lost();
    }
    if m.set.state() == ExitState::Lost {
        *monitor = None;
    }
}

impl Monitor {
    fn add(&mut self, pid: u32) -> Option<Arc<MonitoredProcess>> {
        let counted = Counted::open(pid)?;
        self.set.add(&counted.0).ok()?;
        let watched = Arc::new(MonitoredProcess {
            process: counted,
            exited: AtomicBool::new(false),
            set: self.set.clone(),
        });
        self.watched.insert(pid, Arc::downgrade(&watched));
        Some(watched)
    }

    /// Marks the processes that have exited, and removes their descriptors from the set. Whether there were any.
    fn mark_exited(&mut self) -> bool {
        let mut any = false;
        self.watched.retain(|_, watched| {
            let Some(watched) = watched.upgrade() else {
                return false;
            };
            let exited = watched.ask();
            any |= exited;
            !exited
        });
        any
    }
}

impl MonitoredProcess {
    /// The state when [`poll`] was called last.
    pub fn state(&self) -> ExitState {
        // Relaxed: a hint; the caller asks the kernel before it acts.
        if self.exited.load(Ordering::Relaxed) {
            ExitState::Exited
        } else {
            self.set.state()
        }
    }

    /// The process is marked as exited but runs: the descriptors are not ours any more.
    pub fn refute(&self) {
        self.set.mark_lost();
    }

    /// Whether the process has exited, queried by its descriptor. That stays open: sleeping workers may still have to
    /// see it.
    fn ask(&self) -> bool {
        let exited = self.process.0.exited();
        if exited {
            self.exited.store(true, Ordering::Relaxed);
            self.set.remove(&self.process.0);
        }
        exited
    }
}

impl AsFd for MonitoredProcess {
    /// Readable once the process has exited.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.process.0.as_fd()
    }
}

impl Counted {
    fn open(pid: u32) -> Option<Self> {
        // Relaxed: an independent count.
        if IN_USE.fetch_add(1, Ordering::Relaxed) < most_in_use()
            && let Ok(process) = Process::open(pid)
        {
            return Some(Self(ManuallyDrop::new(process)));
        }
        IN_USE.fetch_sub(1, Ordering::Relaxed);
        None
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        IN_USE.fetch_sub(1, Ordering::Relaxed);
        if fdinfo_contains(self.0.as_raw_fd(), "Pid:") {
            // SAFETY: dropped once, here, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.0) };
        }
    }
}

impl Drop for Set {
    fn drop(&mut self) {
        if self.is_ours() {
            // SAFETY: dropped once, here, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.epoll) };
        }
    }
}

/// Whether the kernel's description of a descriptor contains this: distinguishes our set from those, and from timers
/// and events, of the program.
fn fdinfo_contains(fd: RawFd, what: &str) -> bool {
    std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).is_ok_and(|info| info.contains(what))
}

/// Most descriptors that are used for watched processes.
fn most_in_use() -> usize {
    host::soft_limit(libc::RLIMIT_NOFILE).map_or(0, |limit| {
        usize::try_from(limit).unwrap_or(usize::MAX) / SHARE_OF_LIMIT
    })
}

impl Set {
    fn new() -> io::Result<Self> {
        let epoll = OwnedDescriptor::new(epoll::create(CreateFlags::CLOEXEC)?);
        Ok(Self {
            epoll: ManuallyDrop::new(epoll),
            // With the highest bit set: the token always has the same number of digits.
            name: host::random_u64() | 1 << 63,
            maker: std::process::id(),
            lost: AtomicBool::new(false),
        })
    }

    /// `Running` or `Lost`.
    fn state(&self) -> ExitState {
        // Relaxed: `lost` is never cleared, and a later call may see it.
        if self.lost.load(Ordering::Relaxed) || self.maker != std::process::id() {
            ExitState::Lost
        } else {
            ExitState::Running
        }
    }

    fn mark_lost(&self) {
        self.lost.store(true, Ordering::Relaxed);
    }

    fn add(&self, process: &Process) -> io::Result<()> {
        let name = EventData::new_u64(self.name);
        let added = if self.epoll.is_intact() {
            epoll::add(&*self.epoll, process, name, EventFlags::IN)
        } else {
            Err(Errno::BADF)
        };
        if added.is_err() {
            self.mark_lost();
        }
        Ok(added?)
    }

    /// Whether the descriptor still names this set, which is not empty.
    fn is_ours(&self) -> bool {
        fdinfo_contains(self.epoll.as_raw_fd(), &format!("{:x}", self.name))
    }

    fn remove(&self, process: &Process) {
        if self.is_ours() {
            let _ = epoll::delete(&*self.epoll, process);
        }
    }

    /// Whether one of its processes may have exited. A set whose descriptor is not ours any more is marked as lost.
    fn is_ready(&self) -> bool {
        let mut fds = [PollFd::new(&*self.epoll, PollFlags::IN)];
        // Polling the set itself takes no event out of it, should it be the program's.
        let ready = event::poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0);
        if fds[0].revents().contains(PollFlags::NVAL) || !self.epoll.is_intact() {
            self.mark_lost();
            return false;
        }
        ready
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use std::process::{Child, Command};
    use std::time::{Duration, Instant};

    /// Serialises the tests, which share the set of this process.
    static ALONE: Mutex<()> = Mutex::new(());

    fn sleeper() -> Child {
        Command::new("sleep").arg("60").spawn().unwrap()
    }

    fn end(child: &mut Child) {
        child.kill().unwrap();
        child.wait().unwrap();
    }

    fn until(watched: &MonitoredProcess, state: ExitState) {
        let began = Instant::now();
        while watched.state() != state {
            poll();
            assert!(began.elapsed() < Duration::from_secs(10));
        }
    }

    fn number_of(watched: &MonitoredProcess) -> i32 {
        watched.as_fd().as_raw_fd()
    }

    #[test]
    fn one_descriptor_for_each_process() {
        let _alone = ALONE.lock();
        let (mut a, mut b) = (sleeper(), sleeper());
        let before = IN_USE.load(Ordering::Relaxed);
        let [first, again] = [0; 2].map(|_| watch(a.id()).unwrap());
        let other = watch(b.id()).unwrap();
        assert!(Arc::ptr_eq(&first, &again));
        assert_eq!(IN_USE.load(Ordering::Relaxed), before + 2);
        poll();
        assert_eq!(first.state(), ExitState::Running);
        end(&mut a);
        until(&again, ExitState::Exited);
        assert_eq!(other.state(), ExitState::Running);
        drop((first, again));
        assert_eq!(IN_USE.load(Ordering::Relaxed), before + 1);
        assert!(watch(a.id()).is_none(), "there is no such process");
        end(&mut b);
        drop(other);
        assert_eq!(IN_USE.load(Ordering::Relaxed), before);
    }

    #[test]
    fn lost_with_the_set_and_had_again() {
        let _alone = ALONE.lock();
        let mut child = sleeper();
        let watched = watch(child.id()).unwrap();
        let set = watched.set.epoll.as_raw_fd();
        let null = std::fs::File::open("/dev/null").unwrap();
        // SAFETY: no memory involved; the descriptor is the set's.
        unsafe { libc::dup2(null.as_raw_fd(), set) };
        until(&watched, ExitState::Lost);
        let again = watch(child.id()).unwrap();
        assert_eq!(again.state(), ExitState::Running);
        drop(watched);
        poll();
        assert_eq!(again.state(), ExitState::Running);
        end(&mut child);
        until(&again, ExitState::Exited);
        // SAFETY: no memory involved; the file that has replaced the set stayed open, and has no other owner.
        assert_eq!(unsafe { libc::close(set) }, 0);
    }

    #[test]
    fn a_reused_descriptor_number_is_not_closed() {
        let _alone = ALONE.lock();
        let mut child = sleeper();
        let watched = watch(child.id()).unwrap();
        let fd = number_of(&watched);
        let (read, write) = std::io::pipe().unwrap();
        // SAFETY: no memory involved; the descriptor is the watched process's.
        unsafe { libc::dup2(write.as_raw_fd(), fd) };
        poll();
        drop(watched);
        // SAFETY: no memory involved; a descriptor that stayed open can be asked for its flags.
        assert!(unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0);
        // SAFETY: opened by this test, which is its only owner.
        unsafe { libc::close(fd) };
        drop(read);
        end(&mut child);
    }
}
