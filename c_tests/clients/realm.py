"""Realm, the runtime below Legion and Legate, between processes: each gets what the others computed.

Started by c_tests/clients/run in each rank. The tasks of a round run in all ranks; a rank that reads the whole array
gets the parts of the others by Realm's network module. Prints a line; fails at the first wrong number.
"""
import os
import sys

import numpy as np
from legate.core import align, get_legate_runtime, types
from legate.core.task import InputStore, OutputStore, task

ROUNDS = 20
LENGTHS = (7, 1000, 100_000, 3_000_000)  # of 8 bytes: short messages, copied ones, and rendezvous


@task(constraints=(align("old", "new"),))
def add_one(old: InputStore, new: OutputStore) -> None:
    np.asarray(new.get_inline_allocation())[...] = np.asarray(old.get_inline_allocation()) + 1


def main():
    runtime, ranks = get_legate_runtime(), int(sys.argv[1])
    assert runtime.node_count == ranks, runtime.node_count
    for length in LENGTHS:
        start = np.arange(length, dtype=np.int64)
        store = runtime.create_store_from_buffer(types.int64, (length,), start, False)
        for _ in range(ROUNDS):
            new = runtime.create_store(types.int64, (length,))
            add_one(store, new)
            store = new
        got = np.asarray(store.get_physical_store().get_inline_allocation())
        assert np.array_equal(got, start + ROUNDS), f"{length} numbers: wrong at {np.argmax(got != start + ROUNDS)}"
    # One write: lines of several ranks do not mix.
    os.write(1, f"rank {runtime.node_id} of {ranks}: {len(LENGTHS)} arrays are right\n".encode())


main()
