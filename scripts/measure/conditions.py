"""The conditions of a run: the load by other processes meanwhile, and the latency between the cores."""

import os
import platform
import resource
import statistics
import subprocess
import time
from dataclasses import dataclass

from .libraries import TOP

DRIVER = f"{TOP}/build/bench/ucpbench"
HANDOFF_SPREAD = 1.25  # more between compared runs: the (virtual) cores were moved meanwhile
FOREIGN_SHARE = 0.10  # of one core, used by other processes during a run


def busy_seconds():
    """Processor time used by the whole machine."""
    with open("/proc/stat") as stat:
        fields = [int(field) for field in stat.readline().split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def own_seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def handoff():
    """Nanoseconds of handing a cache line from one core to another, now."""
    result = subprocess.run(
        [DRIVER, "--quick", "handoff"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
    )
    for line in result.stdout.splitlines():
        if line.startswith("handoff "):
            return float(line.split()[2])
    raise SystemExit(f"{DRIVER} handoff failed: {result.stderr}")


@dataclass
class Conditions:
    handoff_before: float
    handoff_after: float
    foreign: float  # share of one core used by other processes
    seconds: float

    def as_dict(self):
        return {
            "handoff_ns": [self.handoff_before, self.handoff_after],
            "foreign": round(self.foreign, 3),
            "seconds": round(self.seconds, 2),
        }


class Watch:
    """Records the conditions around a run: `with Watch() as watch: ...; watch.conditions`.

    Runs follow each other at once: the handoff after one is the handoff before the next."""

    last = None

    def __enter__(self):
        self.before = Watch.last or handoff()
        self.busy, self.own, self.began = busy_seconds(), own_seconds(), time.monotonic()
        return self

    def __exit__(self, *_):
        seconds = max(time.monotonic() - self.began, 1e-3)
        foreign = max(0.0, (busy_seconds() - self.busy - (own_seconds() - self.own)) / seconds)
        Watch.last = handoff()
        self.conditions = Conditions(self.before, Watch.last, foreign, seconds)


def unlikeness(conditions):
    """Difference of the conditions of several runs; 1 or less: similar enough for a comparison."""
    handoffs = [value for one in conditions for value in (one.handoff_before, one.handoff_after)]
    return max(
        max(handoffs) / max(min(handoffs), 1e-3) / HANDOFF_SPREAD,
        max(one.foreign for one in conditions) / FOREIGN_SHARE,
    )


def machine():
    """The machine of the figures."""
    model, memory = platform.machine(), 0
    with open("/proc/cpuinfo") as cpuinfo:
        model = next((line.split(":", 1)[1].strip() for line in cpuinfo if line.startswith("model name")), model)
    with open("/proc/meminfo") as meminfo:
        memory = int(meminfo.readline().split()[1]) / 1024**2
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory, 1),
        "kernel": platform.release(),
        "load_at_start": os.getloadavg()[0],
    }


def summary(runs):
    """Describes the conditions of all runs that count."""
    handoffs = [value for run in runs for value in run["handoff_ns"]]
    disturbed = sum(run["disturbed"] for run in runs)
    return (
        f"cache-line handoff {statistics.median(handoffs):.0f} ns one way "
        f"({min(handoffs):.0f} to {max(handoffs):.0f}); "
        f"{disturbed} of {len(runs)} runs disturbed by other load or moved cores"
    )
