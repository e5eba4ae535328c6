//! Settings of the Tofu interconnect, from the options.

use super::{TofuTuning, sizing};
use crate::options::Options;
use crate::wire::tofu_msg::MAX_RAILS;

/// Minimum bytes of a frame: the longest wireup message fits into a buffer.
const MIN_PACKET: usize = 256;
/// Maximum bytes of a frame, which is also the length of a worker's buffers.
const MAX_PACKET: usize = 1 << 20;
/// Maximum bytes of a ring.
const MAX_RING: usize = 1 << 30;
/// Defaults: bytes of a ring, and of all rings.
const RING: usize = 64 << 10;
const MEMORY: usize = 1 << 30;

/// The settings of a context, corrected such that the longest record fits.
pub fn tuning(options: &Options) -> TofuTuning {
    let packet = options.tofu.seg_size.bytes().unwrap_or(4096);
    let packet = packet.clamp(MIN_PACKET, MAX_PACKET) / MIN_PACKET * MIN_PACKET;
    let ring = options.tofu.ring_size.bytes().unwrap_or(RING);
    let ring = ring.clamp(sizing::LEAST as usize, MAX_RING);
    let memory = options.tofu.ring_memory.bytes().unwrap_or(MEMORY);
    TofuTuning {
        ring_size: ring as u32,
        ring_memory: memory as u64,
        packet: packet as u32,
        window: options.tofu.window.clamp(1, 1 << 15),
        notices: options.tofu.rx_queue_len,
        queues: options.tofu.vcqs_per_worker.clamp(1, MAX_RAILS as u32 + 1) as usize,
        first: place(|name| std::env::var(name).ok()),
        most_alone: options.tofu.max_vcqs.number().unwrap_or(usize::MAX),
        zcopy: options.tofu.zcopy_thresh.bytes().unwrap_or(usize::MAX),
        rma_rails: options.max_rma_rails.number().unwrap_or(usize::MAX),
        rndv_rails: options.max_rndv_rails.number().unwrap_or(usize::MAX),
    }
}

/// Rank of the process on its node, from the launcher's environment variables; else the process id, which no other
/// process of the node has.
fn place(env: impl Fn(&str) -> Option<String>) -> usize {
    /// Of Open MPI and Fujitsu MPI, of MPICH, of Slurm.
    const RANK_VARIABLES: [&str; 3] = [
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "MPI_LOCALRANKID",
        "SLURM_LOCALID",
    ];
    let mut all = RANK_VARIABLES
        .iter()
        .filter_map(|name| env(name)?.parse().ok());
    all.next().unwrap_or(std::process::id() as usize)
}

/// Maximum number of exclusive VCQs of a process, if no option sets it: an equal share for each of `processes`
/// processes on a node with `tnis` TNIs. A TNI of Tofu D has nine control queues for programs; one of them is left for
/// shared VCQs. On hardware with another number, the shares are merely unequal.
pub fn fair_part(tnis: usize, processes: usize) -> usize {
    const ALONE: usize = 8;
    (ALONE * tnis).div_ceil(processes.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tl::tofu::ring_layout::RingLayout;

    #[test]
    fn processes_of_a_node_have_parts() {
        assert_eq!(fair_part(6, 1), 48);
        assert_eq!(fair_part(6, 4), 12);
        assert_eq!(fair_part(6, 5), 10);
        assert_eq!(fair_part(6, 48), 1);
        assert_eq!(fair_part(1, 48), 1);
        assert_eq!(fair_part(6, 0), 48);
    }

    #[test]
    fn processes_of_a_node_begin_with_different_interfaces() {
        let env = |name: &str| (name == "MPI_LOCALRANKID").then(|| "3".to_string());
        assert_eq!(place(env), 3);
        assert_eq!(place(|_| Some("x".into())), std::process::id() as usize);
    }

    #[test]
    fn senseless_settings_leave_room_for_frames() {
        for (seg, ring, window) in [
            ("4k", "64k", "32"),
            ("0", "0", "0"),
            ("inf", "inf", "9"),
            ("1m", "0", "1000000"),
        ] {
            let mut options = Options::default();
            for (name, value) in [
                ("TOFU_SEG_SIZE", seg),
                ("TOFU_RING_SIZE", ring),
                ("TOFU_WINDOW", window),
            ] {
                options.set(name, value).expect("a valid setting");
            }
            let t = tuning(&options);
            let size = sizing::ring(t.ring_size, t.ring_memory, 0);
            let shape = RingLayout {
                size,
                packet: sizing::packet(t.packet, size),
                window: t.window.max(2),
            };
            assert!(shape.is_sound(1), "{shape:?}");
        }
        let t = tuning(&Options::default());
        assert_eq!((t.queues, t.most_alone), (1, usize::MAX));
        assert_eq!((t.ring_size, t.packet, t.window), (64 << 10, 4096, 32));
    }
}
