//! Posted receives in chains, through links that lie in the receives themselves: posting and matching
//! allocate nothing and touch one cache line each.

use std::{mem, ptr};

/// The matcher's part of a receive. While it is posted only the matcher accesses it; it must neither move nor be freed.
#[derive(Debug)]
pub struct PostedRecv {
    pub(super) tag: u64,
    next: *mut PostedRecv,
    /// Unused in the head of a chain.
    prev: *mut PostedRecv,
    pub(super) mask: u64,
    /// Counts posts: the earlier one of two candidates wins.
    pub(super) sequence: u64,
}

/// `next` of a receive that is in no chain.
const LOOSE: *mut PostedRecv = ptr::without_provenance_mut(1);

impl PostedRecv {
    /// Value in a receive that is not posted.
    pub const LOOSE: PostedRecv = PostedRecv {
        tag: 0,
        next: LOOSE,
        prev: ptr::null_mut(),
        mask: 0,
        sequence: 0,
    };

    /// For a receive that is about to be posted: with null links. `mask`: the bits of `tag` that have to match.
    /// `sequence`: the number of posts before it.
    #[inline(always)]
    pub(super) fn new(tag: u64, mask: u64, sequence: u64) -> Self {
        PostedRecv {
            tag,
            next: ptr::null_mut(),
            prev: ptr::null_mut(),
            mask,
            sequence,
        }
    }

    /// Whether it is in a chain.
    pub(super) fn is_posted(&self) -> bool {
        self.next != LOOSE
    }
}

/// Receives in the order of posting. Every member lives, and is in no other chain: [`Matcher::post`]'s
/// caller promises that, for as long as it is a member.
///
/// [`Matcher::post`]: super::Matcher::post
#[derive(Clone, Copy)]
pub(super) struct PostedList {
    head: *mut PostedRecv,
    /// Unused while the chain is empty.
    tail: *mut PostedRecv,
}

impl PostedList {
    /// A chain without members.
    pub(super) const EMPTY: PostedList = PostedList {
        head: ptr::null_mut(),
        tail: ptr::null_mut(),
    };

    /// Whether no receive is posted in this chain.
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.head.is_null()
    }

    /// Adds a member, whose `next` is null.
    ///
    /// # Safety
    /// It is in no chain; from now on it is a member.
    #[inline(always)]
    pub(super) unsafe fn push_back(&mut self, member: *mut PostedRecv) {
        if self.head.is_null() {
            self.head = member;
        } else {
            // SAFETY: both are members.
            unsafe {
                (*self.tail).next = member;
                (*member).prev = self.tail;
            }
        }
        self.tail = member;
    }

    /// The first member for which `wanted` returns true, or null.
    #[inline(always)]
    pub(super) fn find(&self, wanted: impl Fn(&PostedRecv) -> bool) -> *mut PostedRecv {
        let mut at = self.head;
        // SAFETY: a member, or null.
        while let Some(posting) = unsafe { at.as_ref() } {
            if wanted(posting) {
                return at;
            }
            at = posting.next;
        }
        ptr::null_mut()
    }

    /// Calls `see` with the members and their tags, in order, while it returns true. Whether it always did.
    pub(super) fn walk(&self, mut see: impl FnMut(*mut PostedRecv, u64) -> bool) -> bool {
        let mut at = self.head;
        // SAFETY: a member, or null.
        while let Some(&PostedRecv { tag, next, .. }) = unsafe { at.as_ref() } {
            if !see(at, tag) {
                return false;
            }
            at = next;
        }
        true
    }

    /// Removes and returns the first member for which `wanted` returns true, or returns null.
    #[inline(always)]
    pub(super) fn take(&mut self, wanted: impl Fn(&PostedRecv) -> bool) -> *mut PostedRecv {
        let head = self.head;
        // SAFETY: a member, or null.
        let Some(first) = (unsafe { head.as_mut() }) else {
            return head;
        };
        // The usual case: no link from the members before it to those behind it has to change.
        if wanted(first) {
            self.head = mem::replace(&mut first.next, LOOSE);
            return head;
        }
        let found = self.find(wanted);
        if !found.is_null() {
            // SAFETY: found in this chain.
            unsafe { self.unlink(found) };
        }
        found
    }

    /// Removes a member.
    ///
    /// # Safety
    /// It is in this chain.
    #[inline(always)]
    pub(super) unsafe fn unlink(&mut self, member: *mut PostedRecv) {
        // SAFETY: the member and its neighbours are members.
        unsafe {
            let PostedRecv { next, prev, .. } = *member;
            (*member).next = LOOSE;
            if member == self.head {
                self.head = next;
                return;
            }
            (*prev).next = next;
            if next.is_null() {
                self.tail = prev;
            } else {
                (*next).prev = prev;
            }
        }
    }

    /// Removes and returns the first member.
    pub(super) fn pop_front(&mut self) -> Option<*mut PostedRecv> {
        let head = self.head;
        if head.is_null() {
            return None;
        }
        // SAFETY: it is in this chain.
        unsafe { self.unlink(head) };
        Some(head)
    }
}
