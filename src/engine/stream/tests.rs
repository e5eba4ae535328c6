use super::*;

fn push(stream: &mut RxStream, bytes: &[u8]) {
    // SAFETY: a slice.
    unsafe { stream.push(bytes.as_ptr(), bytes.len()) };
}

#[test]
fn bytes_come_out_in_order_whatever_the_pieces() {
    let mut stream = RxStream::default();
    let all: Vec<u8> = (0..200_000u32)
        .map(|i| (i.wrapping_mul(7) >> 3) as u8)
        .collect();
    let (mut sent, mut got, mut step) = (0, Vec::new(), 1);
    while got.len() < all.len() {
        step = step * 5 % 30_011 + 1;
        let n = step.min(all.len() - sent);
        push(&mut stream, &all[sent..sent + n]);
        sent += n;
        let out = stream.take_out(stream.bytes() / 2 + usize::from(sent == all.len()));
        got.extend(out);
        assert_eq!(got.len() + stream.bytes(), sent);
    }
    assert_eq!(got, all);
}

#[test]
fn bytes_of_several_chunks_are_taken_at_once() {
    let mut stream = RxStream::default();
    for round in 0..3 {
        let all: Vec<u8> = (0..5000u32).map(|i| (i * 7 + round) as u8).collect();
        all.chunks(100).for_each(|part| push(&mut stream, part));
        assert!(stream.chunks.len() > 1);
        let mut out = vec![0; all.len()];
        // SAFETY: as many bytes as wait.
        unsafe { stream.copy_to(out.as_mut_ptr(), all.len()) };
        assert_eq!((out, stream.bytes()), (all, 0));
    }
}

#[test]
fn a_receive_ends_with_the_message_that_has_its_first_element() {
    let mut stream = RxStream::default();
    assert_eq!(stream.at_once(100, 1, false), None);
    let long = vec![0; FIRST_CHUNK];
    for message in [&b"12345"[..], b"678", b"9", &long] {
        push(&mut stream, message);
    }
    assert!(stream.chunks.len() > 1);
    let all = 9 + FIRST_CHUNK;
    assert_eq!(stream.at_once(100, 1, false), Some(5), "one message");
    assert_eq!(stream.at_once(3, 1, false), Some(3), "no more room");
    assert_eq!(stream.at_once(40, 8, false), Some(8), "an element in two");
    assert_eq!(stream.at_once(40, 2, false), Some(4), "whole elements");
    assert_eq!(stream.at_once(90, 9, false), Some(9));
    assert_eq!(stream.at_once(40, 10, false), Some(40), "over two chunks");
    assert_eq!(stream.at_once(all, 1, true), Some(all));
    assert_eq!(stream.at_once(all + 1, 1, true), None);
    assert_eq!(stream.take_out(2), b"12");
    assert_eq!(stream.at_once(100, 1, false), Some(3), "the rest of it");
    assert_eq!(stream.at_once(100, 4, false), Some(4), "and of the next");
}

#[test]
fn data_given_to_the_user_are_of_one_message() {
    let mut stream = RxStream::default();
    for message in [&b"one"[..], b"two", b"three"] {
        push(&mut stream, message);
    }
    assert_eq!(stream.take_out(1), b"o");
    let first = stream.chunks.front_mut().expect("one chunk for all");
    assert_eq!(first.split_first().rest(), b"ne");
    assert_eq!(first.split_first().rest(), b"two");
    assert_eq!(first.ends.len(), 1);
    assert_eq!(first.rest(), b"three");
}

#[test]
fn spare_memory_is_bounded() {
    let mut stream = RxStream::default();
    (0..100_000).for_each(|_| push(&mut stream, b"1"));
    assert_eq!(stream.take_out(100_000).len(), 100_000);
    push(&mut stream, b"2");
    assert_eq!(stream.take_out(1), b"2");
    let kept: Vec<_> = stream.chunks.iter().chain(&stream.spare).collect();
    let bytes = kept.iter().map(|c| c.bytes.capacity());
    assert!(bytes.max() <= Some(MAX_SPARE) && kept.len() <= 2);
    assert!(kept.iter().all(|c| c.ends.capacity() <= MAX_SPARE_ENDS));
}

#[test]
fn small_messages_share_chunks() {
    let mut stream = RxStream::default();
    for _ in 0..10_000 {
        push(&mut stream, b"12345678");
    }
    assert!(stream.chunks.len() < 16, "{} chunks", stream.chunks.len());
    let held: usize = stream.chunks.iter().map(|c| c.bytes.capacity()).sum();
    assert!(held < 2 * 80_000 + CHUNK);
}
