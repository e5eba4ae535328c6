#!/usr/bin/env python3
"""Checks that the benchmark works: its files are well-formed and complete. Speed is not checked.

usage: check.py results DIRECTORY LIBRARIES WORKLOADS   the files of scripts/bench or scripts/osu
       check.py peers DIRECTORY WAYS                    the files of scripts/bench --only peers, for these ways
       check.py patches FILE...                         osu-patches: added lines only, without context
       check.py slower OLD.json NEW.json FIGURE         writes a copy in which FIGURE was twice as good for rucp
check.py same OLD.json NEW.json                  instructions of rucp: the same in both, except for timer work
"""

import csv
import html.parser
import json
import math
import os
import re
import sys

sys.path.insert(0, f"{os.path.dirname(os.path.abspath(__file__))}/../../scripts")
from measure.results import repeats  # noqa: E402


def fail(text):
    sys.exit(f"check: {text}")


class Page(html.parser.HTMLParser):
    """Checks the nesting of a page, and its references."""

    void = {"meta", "br", "img", "link", "hr", "input"}

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.links, self.drawings, self.headings = [], set(), [], 0, []

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        name = attributes.get("id")
        if name is not None and name in self.ids:
            fail(f"page: two elements are called {name}")
        self.ids.add(name)
        self.links += [attributes[name] for name in ("href", "xlink:href", "src") if name in attributes]
        self.drawings += tag == "svg"
        if tag not in self.void:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in self.void:
            self.open.pop()

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            fail(f"page: </{tag}> closes nothing")

    def handle_data(self, data):
        if self.open and self.open[-1] == "h2":
            self.headings.append(data)


def check_page(path):
    page = Page()
    with open(path) as file:
        page.feed(file.read())
    if page.open:
        fail(f"page: {page.open} are not closed")
    if page.drawings < 2:
        fail(f"page: {page.drawings} plots")
    for link in page.links:
        if not link.startswith("#"):
            fail(f"page: refers to {link}: it must be self-contained")
        if link[1:] not in page.ids:
            fail(f"page: {link} is not there")
    return page


# In the names of figures that UCX does not offer (ucp/api/ucpx.h; its addresses cannot be made up), or that would take
# it minutes.
OWN = (
    "scale_(?!real_)", "(tcp_)?lists_", "instructions: put 8 B with signal", "instructions: .* of 64 ",
    "instructions: .*, 64 peers", "instructions: (put|get) 1,000 pieces",
)


def check_csv(path, libraries):
    """Every figure has a number from every library that supports it, or is the machine's own."""
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    wanted = ["workload", "figure", "x", "unit", "better", "library", "median", "least", "most", "samples", "ahead"]
    if not rows or list(rows[0]) != wanted:
        fail(f"{path}: columns {list(rows[0]) if rows else 'none'}")
    of = {}
    for row in rows:
        values = [float(row[name]) for name in ("least", "median", "most")]
        if not all(map(math.isfinite, values)) or values != sorted(values) or int(row["samples"]) < 1:
            fail(f"{path}: {row}")
        if row["x"] and int(row["x"]) < 0 or row["better"] not in ("more", "less"):
            fail(f"{path}: {row}")
        of.setdefault((row["workload"], row["figure"], row["x"]), set()).add(row["library"])
    for (_, figure, x), found in of.items():
        able = {"rucp"} if any(re.match(own, figure) for own in OWN) else libraries
        lacking = able - found
        if found != {"machine"} and lacking:
            fail(f"{path}: {figure} {x} has no value from {lacking}")
    return {workload for workload, _, _ in of}


def check_json(path, libraries):
    with open(path) as file:
        results = json.load(file)
    if results["format"] != "rucp-bench 1" or results["failures"]:
        fail(f"{path}: format {results['format']}, failures {results['failures']}")
    if set(results["libraries"]) != libraries or len({one["path"] for one in results["libraries"].values()}) != len(
        libraries
    ):
        fail(f"{path}: not three libraries of their own: {results['libraries']}")
    for run in results["runs"]:
        if len(run["handoff_ns"]) != 2 or not all(value > 0 for value in run["handoff_ns"]) or run["foreign"] < 0:
            fail(f"{path}: conditions of {run}")


def check_results(directory, libraries, workloads):
    libraries = set(libraries.split(","))
    check_json(f"{directory}/results.json", libraries)
    seen = check_csv(f"{directory}/results.csv", libraries)
    missing = [word for word in workloads.split(",") if not any(name.startswith(word) for name in seen)]
    if missing:
        fail(f"{directory}: nothing of {missing}")
    page = check_page(f"{directory}/index.html")
    print(f"{directory}: {len(seen)} workloads, {page.drawings} plots, chapters: {', '.join(page.headings)}")


# Of two ranks, in the quick form, and the number of sizes.
OPERATIONS = {"latency": 4, "window": 3, "rate": 1, "put": 4, "get": 4, "fetch_add": 1}


def check_way(path, name, way, libraries):
    """It ran, and proved what carries its messages."""
    own = name.endswith("/own")
    if way["absent"] or way["unable"] or not way["mpi"]:
        fail(f"{path}: {name}: {way}")
    if not re.match(r"no libucp: " if own else r"libucp: /\S+ \(version [\d.]+\)$", way["libucp"]):
        fail(f"{path}: {name} proves nothing: {way['libucp']}")
    if not own:
        # The shared heap is another library, beside the same libucp.
        libraries.setdefault(way["libucp"], set()).add(name.split("/")[1].removesuffix("-heap"))


def check_peers(directory, ways):
    path, ways, libraries = f"{directory}/results.json", ways.split(","), {}
    with open(path) as file:
        results = json.load(file)
    if results["format"] != "rucp-peers 1" or set(results["ways"]) != set(ways):
        fail(f"{path}: format {results['format']}, ways {list(results['ways'])}")
    for name, way in results["ways"].items():
        check_way(path, name, way, libraries)
    if any(len(names) != 1 for names in libraries.values()):
        fail(f"{path}: one file for several libraries: {libraries}")
    sizes = {}
    for figure in results["figures"]:
        sizes[figure["name"]] = sizes.get(figure["name"], 0) + 1
        values = [value for samples in figure["samples"].values() for value in samples]
        if set(figure["samples"]) != set(ways) or not all(math.isfinite(value) and value > 0 for value in values):
            fail(f"{path}: {figure}")
        if not figure["ahead"]["all"] > 0:
            fail(f"{path}: nothing is compared: {figure}")
    wanted = OPERATIONS | {f"{name}_of_{ranks}": 1 for name in ("allreduce", "alltoall") for ranks in (2, 4)}
    if sizes != wanted:
        fail(f"{path}: {sizes}, not {wanted}")
    if not all(one["machine"] for one in results["figures"] if (one["name"], one["x"]) == ("latency", 8)):
        fail(f"{path}: no limit of the machine")
    page = check_page(f"{directory}/index.html")
    print(f"{directory}: {len(ways)} ways, {len(results['figures'])} figures, {page.drawings} plots")


def check_patch(path):
    """A patch as `diff -U0` writes it, of nothing but added lines, with right counts."""
    with open(path) as file:
        lines = file.read().splitlines()
    left, files = 0, 0
    for number, line in enumerate(lines, 1):
        hunk = re.fullmatch(r"@@ -(\d+),0 \+(\d+)(?:,(\d+))? @@.*", line)
        if left > 0:
            if not line.startswith("+"):
                fail(f"{path}:{number}: not an added line")
            left -= 1
        elif hunk:
            left = int(hunk[3] or 1)
        elif line.startswith("--- a/") and lines[number].startswith("+++ b/"):
            files += 1
        elif not line.startswith("+++ b/"):
            fail(f"{path}:{number}: neither a heading, nor a hunk without context, nor an added line: {line}")
    if left or not files:
        fail(f"{path}: {files} files, {left} lines missing at the end")
    print(f"{path}: {files} files, added lines only")


def instructions(path):
    with open(path) as file:
        return {
            one["name"]: one["median"]["rucp"] for one in json.load(file)["figures"] if one["unit"] == "instructions"
        }


def check_same(old, new):
    before, after = instructions(old), instructions(new)
    differing = {name: (was, after.get(name)) for name, was in before.items()
                 if not repeats(name, was, after.get(name, 0))}
    if differing or not before:
        fail(f"instructions do not repeat: {differing}")
    print(f"{len(before)} counts repeat")


def write_slower(old, new, name):
    with open(old) as file:
        results = json.load(file)
    changed = [one for one in results["figures"] if one["name"] == name]
    if not changed:
        fail(f"{old}: no {name}")
    for one in changed:
        one["median"]["rucp"] /= 2
    with open(new, "w") as file:
        json.dump(results, file)


def main():
    what, words = sys.argv[1], sys.argv[2:]
    if what == "patches":
        for path in words:
            check_patch(path)
    else:
        {"results": check_results, "peers": check_peers, "slower": write_slower, "same": check_same}[what](*words)


main()
