//! What a registration cache may keep, from the `UCX_*RCACHE_*` options.

use crate::options::{Count, Options, Size, Ternary};

/// Limits of a registration cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachePolicy {
    /// Whether regions are kept.
    pub keeps: bool,
    /// Whether creation fails where no region can be kept.
    pub insists: bool,
    /// Most regions, `usize::MAX` for no limit.
    pub max_regions: usize,
    /// Most bytes, `usize::MAX` for no limit.
    pub max_bytes: usize,
    /// Whether all regions are dropped when the process forks.
    pub purge_on_fork: bool,
    /// Bytes of the longest memory for which the caller has another way: a failure to register it is not worth an error
    /// in the log.
    pub spared: usize,
}

impl CachePolicy {
    /// The policy for a kind of devices: `prefix` is what precedes `RCACHE_` in its options (`IB_`), or empty.
    pub fn read(options: &Options, prefix: &str) -> Self {
        let name = |name: &str| format!("{prefix}RCACHE_{name}");
        let enable = options.value("RCACHE_ENABLE").unwrap_or(Ternary::Try);
        let max_regions: Option<Count> = options.value(&name("MAX_REGIONS"));
        let max_bytes: Option<Size> = options.value(&name("MAX_SIZE"));
        CachePolicy {
            keeps: enable != Ternary::No,
            insists: enable == Ternary::Yes,
            max_regions: max_regions.and_then(Count::number).unwrap_or(usize::MAX),
            max_bytes: max_bytes.and_then(Size::bytes).unwrap_or(usize::MAX),
            purge_on_fork: options.value(&name("PURGE_ON_FORK")).unwrap_or(true),
            spared: 0,
        }
    }
}

impl Default for CachePolicy {
    /// No limits.
    fn default() -> Self {
        CachePolicy {
            keeps: true,
            insists: false,
            max_regions: usize::MAX,
            max_bytes: usize::MAX,
            purge_on_fork: true,
            spared: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_limit_the_cache() {
        let mut options = Options::default();
        assert_eq!(CachePolicy::read(&options, "IB_"), CachePolicy::default());
        assert_eq!(CachePolicy::read(&options, ""), CachePolicy::default());
        for (name, value) in [
            ("RCACHE_MAX_REGIONS", "100"),
            ("IB_RCACHE_MAX_SIZE", "2M"),
            ("RCACHE_ENABLE", "yes"),
            ("RCACHE_PURGE_ON_FORK", "n"),
        ] {
            options.set(name, value).expect("an option");
        }
        let expected = CachePolicy {
            keeps: true,
            insists: true,
            max_regions: 100,
            max_bytes: 2 << 20,
            purge_on_fork: false,
            spared: 0,
        };
        assert_eq!(CachePolicy::read(&options, "IB_"), expected);
        options.set("RCACHE_ENABLE", "n").expect("an option");
        assert!(!CachePolicy::read(&options, "IB_").keeps);
    }
}
