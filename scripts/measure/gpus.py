"""Workloads with memory of GPUs, and their table: the driver's own copies beside the libraries."""

import json

from . import parse
from .conditions import DRIVER
from .table import number, size
from .workloads import Workload

ONE, TWO = "one_process", "two_processes"
HOW = {ONE: "in one process", TWO: "between two processes"}
OPERATIONS = ("tag", "put", "get")
KINDS = ("latency", "bandwidth")


def pair_name(pair):
    return f"gpu{pair[0]}_gpu{pair[1]}"


def workload(name, about, prefix, words, options):
    """`options.under`: the words of a command under which the driver program runs."""
    command = [*options.under, DRIVER] + (["--quick"] if options.quick else [])
    command += ["--smallest", str(options.smallest), "--largest", str(options.largest), "cuda", *words]
    return Workload(
        name,
        about,
        lambda library, scratch: command,
        lambda output, scratch: parse.driver(output, prefix),
        limit=280,
        environment={"UCX_TLS": options.tls},
    )


def workloads(pairs, options):
    """For each pair of devices: the driver's copies, and messages, puts and gets of each library."""
    chosen = []
    for pair in pairs:
        name, numbers = pair_name(pair), [str(device) for device in pair]
        between = f"from GPU {pair[0]} to GPU {pair[1]}"
        copies = workload(f"{name}/copies", f"the driver's copies {between}", f"{name}_", ["copies", *numbers], options)
        copies.machine = True
        chosen.append(copies)
        for how, word in ((ONE, "one"), (TWO, "two")):
            about = f"tag messages, put and get {between}, {HOW[how]}"
            chosen.append(workload(f"{name}/{how}", about, f"{name}_{how}_", [word, *numbers], options))
    return chosen


class Table:
    """A table of results.json: a line per size, the driver's copy and then each library."""

    def __init__(self, path):
        with open(path) as file:
            self.results = json.load(file)
        self.figures = {(one["name"], one["x"]): one for one in self.results["figures"]}
        self.libraries = list(self.results["libraries"])

    def lines(self, pairs):
        machine = self.results["machine"]
        yield f"# {machine['cpu']}, {machine['cores']} cores, Linux {machine['kernel']}"
        for line in machine["gpus"]:
            yield f"# {line}"
        for pair in pairs:
            for how in (ONE, TWO):
                for operation in OPERATIONS:
                    for kind in KINDS:
                        yield from self.block(pair, how, operation, kind)

    def block(self, pair, how, operation, kind):
        name = pair_name(pair)
        figures = {x: one for (found, x), one in self.figures.items() if found == f"{name}_{how}_{operation}_{kind}"}
        if not figures:
            return
        unit = next(iter(figures.values()))["unit"]
        heading = f"{operation} {kind}, {unit}, GPU {pair[0]} and GPU {pair[1]}, {HOW[how]}"
        titles = [self.results["libraries"][library]["title"] for library in self.libraries]
        yield f"\n{heading}\n{'bytes':>8}{'driver':>12}" + "".join(f"{title:>12}" for title in titles)
        for x, figure in sorted(figures.items()):
            copy = self.figures.get((f"{name}_copy_{kind}", x), {"median": {}})["median"].get("machine")
            values = [copy] + [figure["median"].get(library) for library in self.libraries]
            yield f"{size(x):>8}" + "".join(f"{number(value):>12}" for value in values)


def add_gpus(path, gpus):
    """Adds the names of the devices to results.json."""
    with open(path) as file:
        results = json.load(file)
    results["machine"]["gpus"] = gpus
    with open(path, "w") as file:
        json.dump(results, file, indent=1)
