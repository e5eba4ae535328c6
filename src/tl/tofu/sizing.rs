//! Lengths of rings: the first peers' are as long as configured, later ones' shorter, so that all together stay about
//! within the configured memory.
#![forbid(unsafe_code)]

/// Bytes of the shortest ring: two frames of a few words, and the tail.
pub const LEAST: u32 = 1 << 10;
/// Frames of maximum length that a ring holds, at least.
const FRAMES: u32 = 4;

/// Used memory, in 64ths of the configured memory, from which on rings have a quarter, a 16th, a 64th of the configured
/// length.
const STEPS: [u64; 3] = [1, 8, 48];

/// Bytes of the next ring, when the existing ones take `taken` bytes of `memory`; `wanted`: bytes of the first.
pub fn ring(wanted: u32, memory: u64, taken: u64) -> u32 {
    let steps = STEPS
        .iter()
        .take_while(|&&step| taken >= memory / 64 * step);
    let size = wanted >> (2 * steps.count());
    size.max(LEAST).min(wanted.max(LEAST)) / LEAST * LEAST
}

/// Bytes of the longest frame of a ring.
pub fn packet(wanted: u32, ring: u32) -> u32 {
    wanted.min(ring / FRAMES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tl::tofu::ring_layout::RingLayout;

    /// Bytes of this many rings together.
    fn total(rings: usize) -> u64 {
        (0..rings).fold(0, |taken, _| {
            taken + u64::from(ring(64 << 10, 1 << 30, taken))
        })
    }

    #[test]
    fn all_nodes_of_fugaku_fit() {
        assert_eq!(total(256), 16 << 20, "64 KiB each");
        assert_eq!(total(256 + 7168), 128 << 20, "16 KiB each");
        let all = total(158_796);
        assert!(all < 3 << 28, "4 KiB each of the others: {all}");
        assert_eq!(all - total(158_795), 4096);
        // More peers get rings, too.
        assert!(total(400_000) < 9 << 27);
    }

    #[test]
    fn every_ring_has_room_for_frames() {
        for wanted in [1 << 10, 5 << 10, 64 << 10, 1 << 30] {
            for taken in [0, 1 << 24, 1 << 27, 1 << 29, 1 << 30, u64::MAX] {
                for longest in [256, 4096, 1 << 20] {
                    let size = ring(wanted, 1 << 30, taken);
                    let shape = RingLayout {
                        size,
                        packet: packet(longest, size) / 32 * 32,
                        window: 2,
                    };
                    assert!(shape.is_sound(1), "{shape:?}");
                }
            }
        }
    }
}
