//! A pool of nodes that are chained into doubly linked lists by index: stable indices, O(1) unlinking, and no
//! allocation once it has grown to the working set.

/// The index of no node. No pool grows this far, so that the bounds check of a lookup is also the test for the end of a
/// list.
pub(super) const NIL: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct ListLink {
    prev: u32,
    next: u32,
}

const UNLINKED: ListLink = ListLink {
    prev: NIL,
    next: NIL,
};

/// The two ends of a list whose nodes live in a [`NodePool`].
#[derive(Clone, Copy)]
pub(super) struct ListEnds {
    head: u32,
    tail: u32,
}

impl ListEnds {
    /// The ends of a list without nodes, which needs no pool.
    pub(super) const EMPTY: ListEnds = ListEnds {
        head: NIL,
        tail: NIL,
    };

    /// Whether no node is in the list. Reads only the ends, not the pool.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.head == NIL
    }

    /// Index of the first node, [`NIL`] if there is none.
    #[inline]
    pub(super) fn head(&self) -> u32 {
        self.head
    }
}

/// An item (`None` while the node is in the free list) and its links in up to `LISTS` lists.
struct Node<T, const LISTS: usize> {
    item: Option<T>,
    list_links: [ListLink; LISTS],
}

/// Nodes and the chain of the free ones, which runs through the first link.
pub(super) struct NodePool<T, const LISTS: usize> {
    nodes: Vec<Node<T, LISTS>>,
    free: u32,
}

impl<T, const LISTS: usize> NodePool<T, LISTS> {
    /// A pool without nodes. Allocates nothing before the first [`insert`](Self::insert).
    pub(super) const fn new() -> Self {
        NodePool {
            nodes: Vec::new(),
            free: NIL,
        }
    }

    /// Stores `item` in a node that is in no list yet.
    #[inline]
    pub(super) fn insert(&mut self, item: T) -> u32 {
        let i = self.free;
        match self.nodes.get_mut(i as usize) {
            Some(node) => {
                self.free = node.list_links[0].next;
                // SAFETY: our own node. It is free, so that there is nothing to drop.
                unsafe { (&raw mut node.item).write(Some(item)) };
                i
            }
            None => self.insert_grown(item),
        }
    }

    #[cold]
    fn insert_grown(&mut self, item: T) -> u32 {
        let i = self.nodes.len();
        // More than 160 GB of nodes: an allocation has failed long before, which aborts too.
        assert!(i < NIL as usize, "matcher: out of node indices");
        self.nodes.push(Node {
            item: Some(item),
            list_links: [UNLINKED; LISTS],
        });
        i as u32
    }

    /// Removes the item of a node that has been unlinked from all its lists.
    #[inline]
    pub(super) fn remove(&mut self, i: u32) -> Option<T> {
        let node = self.nodes.get_mut(i as usize)?;
        let item = node.item.take()?;
        node.list_links[0].next = self.free;
        self.free = i;
        Some(item)
    }

    /// [`remove`](Self::remove) for an item that owns nothing any more: it is neither moved nor dropped.
    #[inline]
    pub(super) fn forget(&mut self, i: u32) {
        if let Some(node) = self.nodes.get_mut(i as usize) {
            std::mem::forget(node.item.take());
            node.list_links[0].next = self.free;
            self.free = i;
        }
    }

    /// The item of a node, to be changed in place. `None`: the node is free, or `i` is [`NIL`].
    #[inline]
    pub(super) fn get_mut(&mut self, i: u32) -> Option<&mut T> {
        self.nodes.get_mut(i as usize)?.item.as_mut()
    }

    /// The item of a node. `None`: the node is free, or `i` is [`NIL`].
    #[inline]
    pub(super) fn get(&self, i: u32) -> Option<&T> {
        self.nodes.get(i as usize)?.item.as_ref()
    }

    /// The node after `i` in its list `L`.
    #[inline]
    pub(super) fn next<const L: usize>(&self, i: u32) -> u32 {
        self.nodes
            .get(i as usize)
            .map_or(NIL, |node| node.list_links[L].next)
    }

    /// The first node of a list (of the kind `L`) for whose item `wanted` returns true, or [`NIL`].
    #[inline]
    pub(super) fn find<const L: usize>(&self, list: ListEnds, wanted: impl Fn(&T) -> bool) -> u32 {
        let mut i = list.head;
        while let Some(node) = self.nodes.get(i as usize) {
            if node.item.as_ref().is_some_and(&wanted) {
                return i;
            }
            i = node.list_links[L].next;
        }
        NIL
    }

    /// Links a node, which must be in no list of the kind `L`, behind the last one of `list`. Does nothing for [`NIL`].
    #[inline]
    pub(super) fn push_back<const L: usize>(&mut self, list: &mut ListEnds, i: u32) {
        let Some(node) = self.nodes.get_mut(i as usize) else {
            return;
        };
        node.list_links[L] = ListLink {
            prev: list.tail,
            next: NIL,
        };
        match self.nodes.get_mut(list.tail as usize) {
            Some(tail) => tail.list_links[L].next = i,
            None => list.head = i,
        }
        list.tail = i;
    }

    /// Takes a node out of `list`, which must contain it by its links of the kind `L`. The item stays in the node, and
    /// the node's own links keep their old values.
    #[inline]
    pub(super) fn unlink<const L: usize>(&mut self, list: &mut ListEnds, i: u32) {
        let Some(node) = self.nodes.get(i as usize) else {
            return;
        };
        let ListLink { prev, next } = node.list_links[L];
        match self.nodes.get_mut(prev as usize) {
            Some(before) => before.list_links[L].next = next,
            None => list.head = next,
        }
        match self.nodes.get_mut(next as usize) {
            Some(after) => after.list_links[L].prev = prev,
            None => list.tail = prev,
        }
    }
}
