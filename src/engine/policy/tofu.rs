//! What the options say about the Tofu interconnect.

use crate::options::Options;
use crate::tl::tofu::{TofuTuning, sizing};
use crate::wire::tofu_msg::MOST_RAILS;

/// Frames are no shorter: all that is said before the first fits, bytes.
const LEAST_PACKET: usize = 256;
/// Nor longer: one buffer of each worker's is as long, bytes.
const MOST_PACKET: usize = 1 << 20;
/// Rings are no longer, bytes.
const MOST_RING: usize = 1 << 30;
/// If nothing is said: of a ring, and of all, bytes.
const RING: usize = 64 << 10;
const MEMORY: usize = 1 << 30;

/// What the options of a context say, made so that the longest record has room.
pub fn tuning(options: &Options) -> TofuTuning {
    let packet = options.tofu_seg_size.bytes().unwrap_or(4096);
    let packet = packet.clamp(LEAST_PACKET, MOST_PACKET) / LEAST_PACKET * LEAST_PACKET;
    let ring = options.tofu_ring_size.bytes().unwrap_or(RING);
    let ring = ring.clamp(sizing::LEAST as usize, MOST_RING);
    let memory = options.tofu_ring_memory.bytes().unwrap_or(MEMORY);
    TofuTuning {
        ring_size: ring as u32,
        ring_memory: memory as u64,
        packet: packet as u32,
        window: options.tofu_window.clamp(1, 1 << 15),
        notices: options.tofu_rx_queue_len,
        queues: options.tofu_vcqs_per_worker.clamp(1, MOST_RAILS as u32 + 1) as usize,
        first: place(|name| std::env::var(name).ok()),
        most_alone: options.tofu_max_vcqs.number().unwrap_or(usize::MAX),
        zcopy: options.tofu_zcopy_thresh.bytes().unwrap_or(usize::MAX),
        rma_rails: options.max_rma_rails.number().unwrap_or(usize::MAX),
        rndv_rails: options.max_rndv_rails.number().unwrap_or(usize::MAX),
    }
}

/// Number of the process among those of its node, as its launcher tells it; else one that others of the node have not.
fn place(told: impl Fn(&str) -> Option<String>) -> usize {
    /// Open MPI's and Fujitsu's, MPICH's, Slurm's.
    const TOLD: [&str; 3] = [
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "MPI_LOCALRANKID",
        "SLURM_LOCALID",
    ];
    let mut all = TOLD.iter().filter_map(|name| told(name)?.parse().ok());
    all.next().unwrap_or(std::process::id() as usize)
}

/// Queues of a process that are alone, at most, if no option says how many: one of so many processes of a node with so
/// many network interfaces. An interface of Tofu D has nine control queues for programs, one of which stays for those
/// that share. Where there are others, only parts are not alike.
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
        let told = |name: &str| (name == "MPI_LOCALRANKID").then(|| "3".to_string());
        assert_eq!(place(told), 3);
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
