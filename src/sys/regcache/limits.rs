//! Error texts for failed registrations: which limit is reached, and how to raise it.

use crate::sys::host;
use crate::sys::log;
use std::io;

/// The capability that the kernel's limit of locked memory does not hold for.
const CAP_IPC_LOCK: u32 = 14;

/// What becomes of data whose memory is not registered.
const CONSEQUENCE: &str = "messages copy the data instead, which is slower.";

/// What is registered through a cache, used or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PinnedUsage {
    pub regions: usize,
    pub bytes: usize,
}

/// Whether a registration that failed with this error may succeed after others are dropped.
pub fn is_shortage(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOMEM | libc::EAGAIN))
}

/// Logs that memory of the user could not be registered: one line in the process, whatever memory and device it is,
/// because what the user can do is the same. Messages carry the data.
#[cold]
pub fn report(text: impl Fn() -> String) {
    log::once!(Error, "{}", text());
}

/// [`report`] for `len` bytes of memory that are not in a cache.
pub fn refused(device: &str, what: &str, len: usize, error: &io::Error) {
    report(|| {
        format!(
            "{device}: registering {len} bytes for {what} failed: {error}: {CONSEQUENCE} {}",
            advice(len)
        )
    });
}

/// The message for a registration of `len` bytes that failed while these were registered.
pub fn message(error: &io::Error, len: usize, held: PinnedUsage) -> String {
    explain(error, len, held, locked_limit())
}

fn explain(error: &io::Error, len: usize, held: PinnedUsage, locked: Option<u64>) -> String {
    let PinnedUsage { regions, bytes } = held;
    let advice = advice_for(len.saturating_add(bytes), locked);
    format!(
        "registering {len} bytes of memory failed: {error}: {CONSEQUENCE} {regions} registrations with {bytes} bytes \
         are in use. {advice}"
    )
}

/// Which limit it may be that so many bytes in all are too many for, and how to raise it.
pub fn advice(bytes: usize) -> String {
    advice_for(bytes, locked_limit())
}

fn advice_for(bytes: usize, locked: Option<u64>) -> String {
    match locked {
        Some(limit) if bytes as u64 > limit => format!(
            "The limit of locked memory is {limit} bytes: raise it by `ulimit -l unlimited` (memlock in \
             /etc/security/limits.conf, LimitMEMLOCK of the service that starts the processes)."
        ),
        Some(limit) => format!(
            "The limit of locked memory, {limit} bytes, may be used up by others of this process (`ulimit -l`); \
             or the device takes no more registrations: see max_mr of `ibv_devinfo -v`, and let fewer be kept \
             (UCX_RCACHE_MAX_REGIONS, UCX_RCACHE_MAX_SIZE)."
        ),
        None => "Locked memory is not limited here: either memory is short, or the device takes no more registrations: \
                 see max_mr of `ibv_devinfo -v`, and let fewer be kept (UCX_RCACHE_MAX_REGIONS, UCX_RCACHE_MAX_SIZE)."
            .to_owned(),
    }
}

/// Bytes that this process may lock; `None` for any number.
fn locked_limit() -> Option<u64> {
    host::limit(libc::RLIMIT_MEMLOCK).filter(|_| !may_lock_any())
}

fn may_lock_any() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let set = line.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    set.is_some_and(|set| set >> CAP_IPC_LOCK & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_named() {
        let error = io::Error::from_raw_os_error(libc::ENOMEM);
        let held = PinnedUsage {
            regions: 3,
            bytes: 60_000,
        };
        let text = |len, locked| explain(&error, len, held, locked);
        let locked = text(8192, Some(65_536));
        assert!(locked.contains("is 65536 bytes") && locked.contains("ulimit -l unlimited"));
        assert!(locked.contains("8192 bytes") && locked.contains("3 registrations with 60000"));
        assert!(!locked.contains("max_mr"));
        assert!(text(4096, Some(65_536)).contains("max_mr"));
        let device = text(4096, None);
        assert!(device.contains("max_mr") && !device.contains("ulimit"));
    }

    #[test]
    fn only_a_shortage_is_worth_another_try() {
        let whether = |code| is_shortage(&io::Error::from_raw_os_error(code));
        assert!(whether(libc::ENOMEM) && whether(libc::EAGAIN));
        assert!(!whether(libc::EFAULT) && !whether(libc::EINVAL));
    }

    #[test]
    fn this_process_has_an_answer() {
        let is_root = host::user() == 0;
        assert!(is_root || !may_lock_any());
        let error = io::Error::from_raw_os_error(libc::ENOMEM);
        assert!(message(&error, 1, PinnedUsage::default()).contains("registering 1 bytes"));
    }
}
