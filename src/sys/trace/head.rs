//! What a trace file says of its process, in front of all events and of a thread's first one.

use super::event::{EventArg, EventPhase, TraceEvent, write_value};
use crate::sys::log;
use rustix::time::{ClockId, clock_gettime};
use std::fmt::Write as _;

/// The begin of the array: names of the process, and its clock.
pub fn head() -> String {
    let pid = std::process::id();
    let program = std::env::current_exe().ok();
    let program = program.as_deref().and_then(|exe| exe.file_name());
    let program = program.map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let rank = rank();
    let name = match &rank {
        Some(rank) => format!("rank {rank}: {program}"),
        None => program,
    };
    let mut out = String::from("[\n");
    metadata((pid, pid), "process_name", ("name", name.into()), &mut out);
    out.push_str(",\n");
    let labels = ("labels", format!("{} pid {pid}", log::host()).into());
    metadata((pid, pid), "process_labels", labels, &mut out);
    if let Some(order) = rank.as_deref().and_then(|rank| rank.parse::<u32>().ok()) {
        out.push_str(",\n");
        let order = ("sort_index", order.into());
        metadata((pid, pid), "process_sort_index", order, &mut out);
    }
    // Both clocks, read one after the other: how far this host's events are from those of other hosts.
    let real = clock_gettime(ClockId::Realtime);
    let monotonic = super::now();
    let real = real.tv_sec as i128 * 1_000_000_000 + i128::from(real.tv_nsec);
    let args = [
        ("host", log::host().into()),
        ("clock", "CLOCK_MONOTONIC".into()),
        (
            "realtime_minus_monotonic_ns",
            (real - i128::from(monotonic)).to_string().into(),
        ),
        ("version", env!("CARGO_PKG_VERSION").into()),
    ];
    let (category, name) = ("trace", "trace begins");
    let mut begin = TraceEvent::new(EventPhase::Instant, category, name, monotonic, 0, 0, &args);
    // The first thread stands for the process.
    begin.thread = pid as i32;
    out.push_str(",\n");
    begin.write(pid, &mut out);
    out
}

/// Appends what is known of a process and a thread of it.
pub fn metadata((pid, thread): (u32, u32), kind: &str, (arg, value): EventArg, out: &mut String) {
    // Writing to a String does not fail.
    let _ = write!(
        out,
        r#"{{"ph":"M","pid":{pid},"tid":{thread},"name":"{kind}","args":{{"{arg}":"#
    );
    write_value(&value, out);
    out.push_str("}}");
}

/// The rank of this process in its MPI job, if a launcher has set it.
fn rank() -> Option<String> {
    let names = [
        "OMPI_COMM_WORLD_RANK",
        "PMIX_RANK",
        "PMI_RANK",
        "SLURM_PROCID",
    ];
    names.iter().find_map(|name| std::env::var(name).ok())
}
