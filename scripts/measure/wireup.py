"""A model of how the ranks of a job come to their first barrier: events of one rank that stands for all of its kind.

In each pattern but the tree all ranks have the same part, only shifted: what a rank sends to the peer `offset` behind
it at some time, it receives from the peer `offset` before it at that time and the latency later. So one timeline is
simulated, exactly, whatever the number of ranks. In the tree all ranks of a level have the same part, and the last
child of each is the slowest: a timeline for each level.

A rank does one thing after the other on its processor; where a host has more ranks than cores each thing takes so much
longer (processor sharing among ranks that are all busy). Networks have a latency and no contention. Times are
microseconds.
"""

import heapq
from dataclasses import dataclass


@dataclass(frozen=True)
class Transport:
    """What rucp takes for a peer by one transport: measured constants."""

    name: str
    address: int  # bytes of a worker's address
    create: float  # processor time of an endpoint that is created
    unused: float  # bytes of a peer with an endpoint that is not used
    connect: float  # processor time of a connection, at each end
    used: float  # bytes more of a peer that is connected
    message: float  # processor time of a short message, at each end
    legs: int  # messages of the connection, each waiting for the one before
    latency: float  # of a message on the way, assumed
    pairs: bool = True  # two that connect to each other have one connection; false: one each
    queue_pairs: int = 0  # of a connection, at each end


@dataclass(frozen=True)
class Job:
    ranks: int
    per_host: int  # ranks of a host
    cores: int  # cores of a host

    @property
    def sharing(self):
        """How much longer a busy rank takes where there are more ranks than cores."""
        return max(1.0, min(self.per_host, self.ranks) / self.cores)


@dataclass(frozen=True)
class Exchange:
    """The exchange of all addresses by the hosts' daemons, in a tree (PMIx_Fence that collects data): assumed."""

    radix: int = 64
    hop: float = 50.0  # microseconds of a message between two daemons
    bytes_per_us: float = 1000.0

    def time(self, job, address):
        """Up the tree and down it; each daemon receives the addresses of the whole job."""
        hosts, depth = -(-job.ranks // job.per_host), 0
        while hosts > 1:
            hosts, depth = -(-hosts // self.radix), depth + 1
        data = job.ranks * address / self.bytes_per_us if depth else 0.0
        return 2 * depth * self.hop + data


# ---- patterns: the peers of a rank, as offsets, in the order of its messages; steps wait for each other ----


def all_to_all(ranks):
    return [list(range(1, ranks))]


def neighbours(ranks):
    """Six neighbours in a three-dimensional torus."""
    side = max(2, round(ranks ** (1 / 3)))
    offsets = [offset % ranks for step in (1, side, side * side) for offset in (step, -step)]
    return [list(dict.fromkeys(offset for offset in offsets if offset))]


def doubling(ranks):
    """Recursive doubling, in the form for any number of ranks (dissemination): itself a barrier."""
    return [[1 << i] for i in range((ranks - 1).bit_length())]


PATTERNS = {"all to all": all_to_all, "6 neighbours": neighbours, "recursive doubling": doubling}


@dataclass
class Outcome:
    """What a rank has come to."""

    time: float  # from the first call of the pattern to its end
    connections: int  # of the rank that has most
    messages: int  # sent, those of the wireup included
    initiated: int  # of the connections


class Rank:
    """The timeline of the rank that stands for all, as events in the order of their time."""

    def __init__(self, transport, job, steps):
        self.transport, self.job, self.steps = transport, job, steps
        self.events, self.count, self.free_at = [], 0, 0.0
        self.connected, self.waiting = {}, {}  # by offset: usable from when; messages that wait
        self.sent, self.step, self.missing, self.arrived = 0, -1, 0, {}
        self.initiated, self.end = 0, None

    def at(self, time, act):
        self.count += 1
        heapq.heappush(self.events, (time, self.count, act))

    def busy(self, now, cost):
        """Takes the processor for so long as soon as it is free; returns when that has ended."""
        self.free_at = max(now, self.free_at) + cost * self.job.sharing
        return self.free_at

    def run(self):
        self.at(0.0, self.begin)
        while self.events:
            now, _, act = heapq.heappop(self.events)
            act(now)
        return Outcome(self.end, len(self.connected), self.sent, self.initiated)

    def begin(self, now):
        """Begins the next step."""
        self.step += 1
        if self.step == len(self.steps):
            self.end = max(now, self.free_at)
            return
        self.missing = len(self.steps[self.step]) - self.arrived.pop(self.step, 0)
        self.post(now, self.step, 0)
        if self.missing == 0:
            self.at(now, self.begin)

    def post(self, now, step, index):
        """Sends to the peers of the step, one after the other; what arrives meanwhile is handled between."""
        offsets = self.steps[step]
        if index == len(offsets):
            return
        self.send(now, offsets[index], step)
        self.at(max(now, self.free_at), lambda now: self.post(now, step, index + 1))

    def send(self, now, offset, step):
        there = self.connected.get(offset)
        if there is not None:
            self.message(max(now, there), step)
            return
        if offset in self.waiting:
            self.waiting[offset].append(step)
            return
        self.waiting[offset] = [step]
        self.initiated += 1
        self.sent += 1
        asked = self.busy(now, self.transport.connect)
        # What this rank asks of the peer behind it, the peer before it asks of this one.
        ranks = self.job.ranks
        self.at(asked + self.transport.latency, lambda now: self.asked(now, (ranks - offset) % ranks, offset))

    def asked(self, now, by, mirrored):
        """The peer at `by` connects to this rank, which connects to that at `mirrored`, where the same happens at the
        same time. Of two that cross, each takes the other's request as well."""
        accepted = self.busy(now, self.transport.connect)
        self.sent += self.transport.legs - 1
        ready = accepted + self.transport.latency * (self.transport.legs - 1)
        if self.transport.pairs:
            self.at(ready, lambda now: self.up(now, by))
        self.at(ready, lambda now: self.up(now, mirrored))

    def up(self, now, offset):
        if offset in self.connected:
            return
        self.connected[offset] = now
        for step in self.waiting.pop(offset, []):
            self.message(now, step)

    def message(self, now, step):
        self.sent += 1
        gone = self.busy(now, self.transport.message)
        self.at(gone + self.transport.latency, lambda now: self.came(now, step))

    def came(self, now, step):
        done = self.busy(now, self.transport.message)
        if step != self.step:
            self.arrived[step] = self.arrived.get(step, 0) + 1
            return
        self.missing -= 1
        if self.missing == 0:
            self.at(done, self.begin)


def tree(transport, job, radix=2):
    """A reduction to the root of a complete tree and a broadcast from it: the time of the last leaf."""
    depth, size, level = 0, 1, 1
    while size < job.ranks:
        level *= radix
        size, depth = size + level, depth + 1
    share, now, first = job.sharing, 0.0, transport
    # Up: the children of a level connect at once, and their parent takes them one after the other.
    wire = first.latency * (first.legs + 1)
    for _ in range(depth):
        now += (first.connect + first.message) * share + wire + radix * (first.connect + first.message) * share
    # Down, on connections that exist: the last child is the slowest.
    for _ in range(depth):
        now += (radix + 1) * first.message * share + first.latency
    connections = (radix + 1) if depth > 1 else (radix if depth else 0)
    return Outcome(now, connections, connections * (first.legs + 1), 1)


def pattern(name, transport, job):
    """The outcome of a pattern by name."""
    if name == "tree":
        return tree(transport, job)
    return Rank(transport, job, PATTERNS[name](job.ranks)).run()


def memory(transport, job, outcome, endpoints):
    """Bytes of a rank for its peers: `endpoints` of them have one, and those are connected that the pattern uses."""
    return endpoints * transport.unused + outcome.connections * transport.used
