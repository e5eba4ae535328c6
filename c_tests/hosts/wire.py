#!/usr/bin/env python3
"""A wire between two tap devices that delays, drops, stalls and cuts: the features of tc netem, on any kernel.

usage: wire.py FD FD [--delay SECONDS] [--loss PROBABILITY] [--seed NUMBER]
Orders are lines on standard input; each is acknowledged by a line when it is in effect: carry, stall (packets wait),
cut [PACKETS] (packets are lost, as soon as so many more were carried), delay SECONDS, loss PROBABILITY. Ends with its
standard input. Which packets are lost is a function of the seed and of their number. Packets of one direction never
overtake each other.
"""
import argparse
import collections
import os
import random
import select
import sys
import time

FRAME = 65536
# More than a direction's congestion window; packets that do not fit are lost, as in a switch.
QUEUE = 4096


class Wire:
    def __init__(self, options):
        self.ends = options.ends
        self.delay, self.loss = options.delay, options.loss
        self.state = "stall"
        self.dice = [random.Random(options.seed + end) for end in (0, 1)]
        self.queues = [collections.deque(), collections.deque()]
        self.carried = self.lost = 0
        self.cut_at = None  # number of the packet before which the wire is cut

    def take(self, end):
        """Forwards the packets that one end sends."""
        while True:
            try:
                frame = os.read(self.ends[end], FRAME)
            except BlockingIOError:
                return
            except OSError:
                return  # the device is down
            lost = self.dice[end].random() < self.loss or len(self.queues[end]) >= QUEUE
            if lost or self.state == "cut":
                self.lost += 1
            else:
                self.queues[end].append((time.monotonic() + self.delay, frame))

    def give(self):
        """Sends the packets that are due."""
        now = time.monotonic()
        for end, queue in enumerate(self.queues):
            while self.state == "carry" and queue and queue[0][0] <= now:
                try:
                    os.write(self.ends[1 - end], queue.popleft()[1])
                    self.carried += 1
                except OSError:
                    self.lost += 1
                if self.carried == self.cut_at:
                    self.cut()

    def cut(self):
        self.state, self.cut_at = "cut", None
        for queue in self.queues:
            queue.clear()

    def timeout(self):
        due = [queue[0][0] for queue in self.queues if queue]
        return max(0.0, min(due) - time.monotonic()) if due and self.state == "carry" else None

    def obey(self, order):
        word, *value = order.split()
        if word in ("carry", "stall"):
            self.state = word
        elif word == "cut" and value:
            self.cut_at = self.carried + int(value[0])
        elif word == "cut":
            self.cut()
        elif word == "delay":
            self.delay = float(value[0])
        elif word == "loss":
            self.loss = float(value[0])
        print(f"{word}: {self.carried} carried, {self.lost} lost", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ends", type=int, nargs=2)
    parser.add_argument("--delay", type=float, default=0.0)
    parser.add_argument("--loss", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=1)
    wire = Wire(parser.parse_args())
    while True:
        ready, _, _ = select.select([*wire.ends, sys.stdin], [], [], wire.timeout())
        if sys.stdin in ready:
            order = sys.stdin.readline()
            if not order:
                return
            wire.obey(order)
        for end in (0, 1):
            if wire.ends[end] in ready:
                wire.take(end)
        wire.give()


main()
