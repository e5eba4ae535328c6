//! What /proc shows of a process: whether it runs, sleeps or is stopped, and whether it has descriptors left.

use std::fs;

/// State of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// Running, or ready to run.
    Running,
    /// Asleep in the kernel.
    Asleep,
    /// Stopped by a signal or a debugger.
    Stopped,
    /// It has ended.
    Gone,
}

/// A process at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcStat {
    pub state: RunState,
    /// Clock ticks that its threads have run.
    pub ticks: u64,
}

impl ProcStat {
    /// Looks at a process.
    pub fn look(pid: u32) -> ProcStat {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        ProcStat::of_stat(&stat)
    }

    /// Reads a line of `/proc/PID/stat`. The name, in parentheses, can contain anything.
    fn of_stat(stat: &str) -> ProcStat {
        let fields = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
        let mut fields = fields.split(' ');
        let state = match fields.next() {
            Some("R") => RunState::Running,
            Some("T" | "t") => RunState::Stopped,
            Some("S" | "D" | "I" | "K" | "P" | "W") => RunState::Asleep,
            _ => RunState::Gone,
        };
        // Fields 14 and 15 of the line, utime and stime; the state is field 3.
        let ticks = fields.skip(10).take(2).map(|n| n.parse().unwrap_or(0));
        ProcStat {
            state,
            ticks: ticks.fold(0, u64::saturating_add),
        }
    }
}

/// The function of the kernel in which a process sleeps, if that is visible.
pub fn sleeps_in(pid: u32) -> Option<String> {
    let name = fs::read_to_string(format!("/proc/{pid}/wchan")).ok()?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || "_.".contains(c);
    (name != "0" && !name.is_empty() && name.chars().all(is_name)).then_some(name)
}

/// Whether a process has no descriptor left that it may open.
pub fn lacks_descriptors(pid: u32) -> bool {
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap_or_default();
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"));
    let limit = line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok());
    let used = fs::read_dir(format!("/proc/{pid}/fd")).map(Iterator::count);
    matches!((limit, used), (Some(limit), Ok(used)) if used >= limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_be_taken_for_a_state() {
        let line = "7 (a) R (b) T 1 7 7 0 -1 4194560 100 0 0 0 12 30 0 0 20 0 1 0 100 0 0";
        let process = ProcStat::of_stat(line);
        assert_eq!((process.state, process.ticks), (RunState::Stopped, 42));
        assert_eq!(ProcStat::of_stat("").state, RunState::Gone);
        assert_eq!(ProcStat::of_stat("7 (x) Z 1 2").state, RunState::Gone);
    }

    #[test]
    fn this_process_runs_and_has_descriptors() {
        let me = std::process::id();
        assert!(matches!(
            ProcStat::look(me).state,
            RunState::Running | RunState::Asleep
        ));
        assert!(!lacks_descriptors(me));
        assert_eq!(ProcStat::look(u32::MAX).state, RunState::Gone);
    }
}
