//! What the options say about the Tofu interconnect.

use crate::options::Options;
use crate::tl::tofu::Tuning;
use crate::wire::packet::{HEAD, most_packets};

/// Frames are no shorter: all that is said before the first fits, bytes.
const LEAST_PACKET: usize = 256;
/// Nor longer: one buffer of each worker's is as long, bytes.
const MOST_PACKET: usize = 1 << 20;
/// Rings are no longer, bytes.
const MOST_RING: usize = 1 << 30;
/// Rings are whole pages of the machines that have the interconnect, bytes.
const PAGE: usize = 64 << 10;

/// What the options of a context say, made so that the longest record has room.
pub fn tuning(options: &Options) -> Tuning {
    let packet = options.tofu_seg_size.bytes().unwrap_or(4096);
    let packet = packet.clamp(LEAST_PACKET, MOST_PACKET) / LEAST_PACKET * LEAST_PACKET;
    let frames = most_packets(packet - HEAD);
    // A quarter may be read and not told of, the longest frame may have to be skipped, a page has a tail.
    let least = (4 * (frames + 1) * packet).div_ceil(3) + LEAST_PACKET;
    let ring = options.tofu_ring_size.bytes().unwrap_or(PAGE);
    let ring = ring.clamp(least, MOST_RING.max(least));
    Tuning {
        ring_size: ring.next_multiple_of(PAGE) as u32,
        packet: packet as u32,
        window: options.tofu_window.clamp(1, 1 << 15),
        notices: options.tofu_rx_queue_len,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tl::tofu::ring::Shape;

    #[test]
    fn senseless_settings_leave_room_for_a_record() {
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
            let frames = most_packets(t.packet as usize - HEAD) as u32;
            let shape = Shape {
                size: t.ring_size,
                packet: t.packet,
                window: t.window.max(4 * frames),
            };
            assert!(shape.is_sound(frames), "{shape:?}");
        }
        let t = tuning(&Options::default());
        assert_eq!((t.ring_size, t.packet, t.window), (64 << 10, 4096, 32));
    }
}
