"""NIXL's VRAM between two processes with memory of two GPUs: blocks written and read by the other, notifications.

Started by c_tests/clients/run on the software driver. Prints a line per step; fails at the first wrong byte.
"""
import multiprocessing

import numpy as np
from nixl_cu12._api import nixl_agent, nixl_agent_config
from nixl_dram import BLOCKS, pattern, ranges, until
from soft_gpu import Driver, GpuBuffer

SIZE = 8 << 20


class Side:
    """An agent with one registered buffer of a device."""

    def __init__(self, name, device, threaded):
        self.device = device
        self.buffer = GpuBuffer(Driver(device), SIZE)
        self.agent = nixl_agent(name, nixl_agent_config(enable_prog_thread=threaded, backends=["UCX"]))
        self.agent.register_memory([(self.buffer.address, SIZE, device, "")], "VRAM")

    def meet(self, link):
        link.send((self.agent.get_agent_metadata(), self.buffer.address, self.device))
        metadata, self.theirs, self.their_device = link.recv()
        name = self.agent.add_remote_agent(metadata)
        self.other = name.decode() if isinstance(name, bytes) else name

    def notified(self, message):
        until(f"notification {message}", lambda: self.agent.check_remote_xfer_done(self.other, message))

    def transfer(self, operation, sizes, message):
        def blocks(address, device):
            return self.agent.get_xfer_descs([(address + part.start, part.stop - part.start, device)
                                              for part in ranges(sizes)], "VRAM")  # fmt: skip

        handle = self.agent.initialize_xfer(operation, blocks(self.buffer.address, self.device),
                                            blocks(self.theirs, self.their_device), self.other, message)  # fmt: skip
        self.agent.transfer(handle)
        until(operation, lambda: self.agent.check_xfer_state(handle) != "PROC")
        state = self.agent.check_xfer_state(handle)
        self.agent.release_xfer_handle(handle)
        assert state == "DONE", f"{operation}: {state}"


def filled(number, sizes, rest):
    """The bytes of a transfer's blocks, and the others."""
    array = np.full(SIZE, rest, np.uint8)
    for seed, part in enumerate(ranges(sizes)):
        array[part] = pattern(number * 100 + seed, part.stop - part.start)
    return array


def target(link, threaded):
    side = Side("target", 1, threaded)
    side.buffer.write(np.zeros(SIZE, np.uint8))
    side.meet(link)
    for number, sizes in enumerate(BLOCKS):
        side.notified(b"written %d" % number)
        expected = filled(number, sizes, 0)
        assert np.array_equal(side.buffer.read(), expected), f"transfer {number}: wrong bytes"
        side.buffer.write(~expected)
        side.agent.send_notif(side.other, b"inverted %d" % number)
        side.notified(b"read %d" % number)
        side.buffer.write(np.zeros(SIZE, np.uint8))
        side.agent.send_notif(side.other, b"cleared %d" % number)
    link.recv()


def initiator(link, threaded):
    side = Side("initiator", 0, threaded)
    side.meet(link)
    for number, sizes in enumerate(BLOCKS):
        sent = filled(number, sizes, 0x55)
        side.buffer.write(sent)
        side.transfer("WRITE", sizes, b"written %d" % number)
        side.buffer.write(np.full(SIZE, 0x55, np.uint8))
        side.notified(b"inverted %d" % number)
        side.transfer("READ", sizes, b"read %d" % number)
        expected = np.full(SIZE, 0x55, np.uint8)
        for part in ranges(sizes):
            expected[part] = ~sent[part]
        assert np.array_equal(side.buffer.read(), expected), f"read {number}: wrong bytes"
        side.notified(b"cleared %d" % number)
        print(f"ok  VRAM, blocks of {sizes}, progress thread {threaded}", flush=True)
    link.send("done")


def main():
    processes = multiprocessing.get_context("spawn")
    for threaded in (False, True):
        here, there = processes.Pipe()
        other = processes.Process(target=target, args=(there, threaded))
        other.start()
        one = processes.Process(target=initiator, args=(here, threaded))
        one.start()
        one.join(120)
        assert one.exitcode == 0, f"the initiator ended with {one.exitcode}"
        other.join(30)
        assert other.exitcode == 0, f"the target ended with {other.exitcode}"


if __name__ == "__main__":
    main()
