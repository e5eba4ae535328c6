"""The results: every sample with its conditions, medians, how far rucp is ahead, and what is written to files."""

import csv
import json
import math
import statistics
import sys
from dataclasses import dataclass, field

from . import conditions

MORE_IS_BETTER = ("M/s", "MB/s", "Messages/s")
EXACT = ("instructions", "B", "")  # units of exact or nearly exact figures: small changes count


def more_is_better(unit):
    return unit in MORE_IS_BETTER


def repeats(name, then, now):
    """Whether two counts of instructions of this figure are the same: once in hundreds of operations a timer makes a
    library do a little more (it reads the clock), and how often that happens during a count depends on the machine's
    speed. With 64 senders the operation with the fewest instructions, that of the sender whose ring is polled first,
    is counted once in a run: sometimes that count has the timer's work, 4 % more."""
    return math.isclose(then, now, rel_tol=0.06 if " of 64 " in name else 0.01, abs_tol=2)


@dataclass
class Series:
    """One figure at one x: the samples of each library, by repetition."""

    workload: str
    name: str
    x: int | None
    unit: str
    samples: dict = field(default_factory=dict)  # library name -> {repetition: value}
    disturbed: set = field(default_factory=set)  # repetitions in which the libraries' conditions differed

    def counted(self, library):
        """The compared repetitions: the undisturbed ones; all of them only where each was disturbed."""
        values = self.samples.get(library, {})
        return {number: value for number, value in values.items() if number not in self.disturbed} or values

    def median(self, library):
        values = self.counted(library)
        return statistics.median(values.values()) if values else None


class Results:
    def __init__(self, libraries, words):
        self.libraries = libraries
        self.words = words
        self.machine = conditions.machine()
        self.series = {}
        self.runs = []
        self.loaded = {}
        self.failures = []
        subjects = [library for library in libraries if library.is_subject]
        self.subject = subjects[0] if subjects else libraries[-1]
        self.references = [library for library in libraries if library is not self.subject]

    def add(self, workload, library, repetition, figures, run_conditions, loaded, disturbed):
        if loaded[0] and not workload.machine:
            self.loaded[library.name] = {"title": library.title, "path": loaded[0], "version": loaded[1]}
        self.runs.append(
            {
                "workload": workload.name,
                "library": "" if workload.machine else library.name,
                "repetition": repetition,
                "disturbed": disturbed,
            }
            | run_conditions.as_dict()
        )
        for name, x, value, unit in figures:
            series = self.series.setdefault((name, x), Series(workload.name, name, x, unit))
            series.samples.setdefault("machine" if workload.machine else library.name, {})[repetition] = value
            if disturbed:
                series.disturbed.add(repetition)

    # ---- comparing ----

    def ahead(self, series):
        """How many times better the subject is than the best other library: the median over the repetitions."""
        own = series.counted(self.subject.name)
        ratios = []
        for repetition, value in own.items():
            others = [
                series.samples[library.name][repetition]
                for library in self.references
                if repetition in series.samples.get(library.name, {})
            ]
            if others:
                ratios.append(
                    value / max(others)
                    if more_is_better(series.unit)
                    else min(others) / value if value > 0 else float("inf")
                )
        if not ratios:
            return None
        ratio = statistics.median(ratios)
        return ratio if ratio not in (float("inf"), 0) else None

    def regressions(self, baseline, threshold):
        """Figures that are worse for the subject than in older results, by itself and relative to the others: [(series,
        then)]."""
        old = {(one["name"], one["x"]): one for one in baseline["figures"]}
        worse = []
        for key, series in self.series.items():
            then, now = old.get(key, {}).get("median", {}).get(self.subject.name), series.median(self.subject.name)
            if not then or not now:
                continue
            factor = then / now if more_is_better(series.unit) else now / then
            ahead_then, ahead = old[key].get("ahead"), self.ahead(series)
            exact = series.unit in EXACT
            # A machine that is slower today slows the others down as well: then the ratio does not change.
            beside = 1 if exact or not ahead or not ahead_then else ahead_then / ahead
            limit = 1.005 if exact else 1 + threshold
            if series.unit == "instructions" and repeats(series.name, then, now):
                continue
            if factor > limit and (exact or beside > limit or not ahead):
                worse.append((series, then))
        return worse

    # ---- files ----

    def as_dict(self):
        return {
            "format": "rucp-bench 1",
            "command": self.words,
            "machine": self.machine,
            "python": sys.version.split()[0],
            "conditions": conditions.summary(self.runs) if self.runs else "nothing was run",
            "libraries": self.loaded,
            "failures": self.failures,
            "runs": self.runs,
            "figures": [
                {
                    "workload": one.workload,
                    "name": one.name,
                    "x": one.x,
                    "unit": one.unit,
                    "ahead": self.ahead(one),
                    "median": {library: one.median(library) for library in one.samples},
                    "samples": {library: list(values.values()) for library, values in one.samples.items()},
                }
                for one in self.series.values()
            ],
        }

    def write_json(self, path):
        with open(path, "w") as file:
            json.dump(self.as_dict(), file, indent=1)

    def write_csv(self, path):
        with open(path, "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(
                ["workload", "figure", "x", "unit", "better", "library", "median", "least", "most", "samples", "ahead"]
            )
            for one in self.series.values():
                ahead = self.ahead(one)
                for library in one.samples:
                    values = list(one.counted(library).values())
                    writer.writerow(
                        [
                            one.workload,
                            one.name,
                            "" if one.x is None else one.x,
                            one.unit,
                            "more" if more_is_better(one.unit) else "less",
                            library,
                            f"{one.median(library):.6g}",
                            f"{min(values):.6g}",
                            f"{max(values):.6g}",
                            len(values),
                            f"{ahead:.4f}" if ahead and library == self.subject.name else "",
                        ]
                    )


def read_baseline(path):
    try:
        with open(path) as file:
            baseline = json.load(file)
    except (OSError, ValueError) as error:
        raise SystemExit(f"baseline {path}: {error}") from None
    if baseline.get("format") != "rucp-bench 1":
        raise SystemExit(f"baseline {path} was not written by scripts/bench --json")
    return baseline
