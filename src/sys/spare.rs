//! Memory that lists needed when they were much longer.

/// Whether a list with this capacity has far more room than its `len` entries need.
pub fn is_spare(capacity: usize, len: usize) -> bool {
    capacity > 64 && capacity / 8 > len
}

/// Frees the room of a list that is [spare](is_spare).
pub fn trim<T>(list: &mut Vec<T>) {
    if is_spare(list.capacity(), list.len()) {
        list.shrink_to_fit();
    }
}
