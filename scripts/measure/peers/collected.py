"""What was measured of all ways, and how they compare."""

import statistics
from dataclasses import dataclass, field

from .. import conditions, parse
from ..results import Series, more_is_better


@dataclass
class Collected:
    """Everything that was measured."""

    ways: list
    command: str
    quick: bool
    machine: dict = field(default_factory=conditions.machine)
    series: dict = field(default_factory=dict)  # (name, x) -> Series
    limits: dict = field(default_factory=dict)  # (name, x) -> [value] of `ucpbench limits`
    runs: list = field(default_factory=list)
    proofs: dict = field(default_factory=dict)  # way's name -> (MPI's version, libucp)
    unable: dict = field(default_factory=dict)  # (way's name, ranks) -> reason
    absent: dict = field(default_factory=dict)  # way's name -> why it cannot run here
    seconds: float = 0
    interrupted: bool = False

    def add(self, way, ranks, repetition, done, disturbed):
        self.proofs[way.name] = (done.mpi, done.libucp)
        run_of = {"way": way.name, "ranks": ranks, "repetition": repetition, "disturbed": disturbed}
        self.runs.append(run_of | done.conditions.as_dict())
        for name, x, value, unit in done.figures:
            series = self.series.setdefault((name, x), Series("peers", name, x, unit))
            series.samples.setdefault(way.name, {})[repetition] = value
            if disturbed:
                series.disturbed.add(repetition)

    def add_limits(self, output):
        for name, x, value, _ in parse.driver(output):
            self.limits.setdefault((name, x), []).append(value)

    def names(self, chosen):
        return [way.name for way in self.ways if chosen(way)]

    def ahead(self, series, subjects, others):
        """How many times better the best of the ways `subjects` is than the best of `others`, names both: the median
        over the repetitions that count; None without both."""
        best = max if more_is_better(series.unit) else min
        ratios = {}
        for repetition in {number for samples in series.samples.values() for number in samples}:
            one, other = (
                [series.samples[name][repetition] for name in names if repetition in series.samples.get(name, {})]
                for names in (subjects, others)
            )
            if one and other and min(one) > 0 and min(other) > 0:
                ratio = best(one) / best(other)
                ratios[repetition] = ratio if more_is_better(series.unit) else 1 / ratio
        counted = [ratio for number, ratio in ratios.items() if number not in series.disturbed] or list(ratios.values())
        return statistics.median(counted) if counted else None

    def limit(self, series):
        """What the machine does without a library: a message through shared memory, the faster copy from process to
        process, a copy inside a process."""
        found = []
        if series.name == "latency":
            found = self.limits.get(("bare_latency", series.x), [])
        elif series.name == "window":
            copies = ("bare_one_reads", "bare_both_copy")
            found = [max(values) for values in zip(*(self.limits.get((name, series.x), []) for name in copies))]
        elif series.name in ("put", "get") and ("memcpy", series.x) in self.series:
            copies = self.series[("memcpy", series.x)]
            found = [copies.median(name) for name in copies.samples]
        return statistics.median(found) if found else None
