"""Parsers of output: figures of ucpbench, tables in OSU's format, counts of callgrind."""

import glob
import re
from typing import NamedTuple


class Figure(NamedTuple):
    name: str
    x: int | None  # a size, a number of threads, endpoints or ranks
    value: float
    unit: str


def loaded_library(output):
    """The path and version of the mapped libucp, printed by the program or by mpirun-on."""
    found = re.search(r"^# libucp: (\S+) (?:\(version (\S+?)\)|in \d+ processes)", output, re.M)
    return (found[1], found[2] or "not told") if found else (None, None)


def unsupported(output):
    return re.findall(r"^# unsupported: (\S+)", output, re.M)


def driver(output, prefix=""):
    """Lines `NAME X VALUE UNIT` of ucpbench, whose errors begin with its name."""
    figures = []
    for line in output.splitlines():
        fields = line.split()
        if not line.startswith(("#", "ucpbench:")) and len(fields) in (3, 4):
            x = None if fields[1] == "-" else int(fields[1])
            figures.append(Figure(prefix + fields[0], x, float(fields[2]), fields[3] if len(fields) == 4 else ""))
    return figures


def unit_of(column):
    inside = re.search(r"\(([^)]+)\)", column)
    return inside[1] if inside else column.strip()


def slug(column):
    return re.sub(r"[^a-z0-9]+", "_", re.sub(r"\([^)]*\)", "", column.lower())).strip("_")


def is_number(word):
    return re.fullmatch(r"[-+]?\d+(\.\d*)?(e[-+]?\d+)?", word, re.I) is not None


def table(output, prefix):
    """Rows under a heading `# Size  Latency (us) ...` or `# Avg Latency(us)`; further columns get their own names."""
    figures, columns = [], []
    for line in output.splitlines():
        words = line.split()
        if line.startswith("#"):
            columns = re.split(r"\s{2,}", line[1:].strip())
        elif words and all(is_number(word) for word in words) and columns:
            has_x = len(words) > 1
            names = columns[1:] if has_x else columns
            values = words[1:] if has_x else words
            for index, (name, value) in enumerate(zip(names, values)):
                figure = (
                    prefix if len(names) == 1 or (index == 0 and unit_of(name) == name) else f"{prefix}_{slug(name)}"
                )
                figures.append(Figure(figure, int(words[0]) if has_x else None, float(value), unit_of(name)))
    return figures


def start(output, prefix, ranks):
    """osu_init's line, or the slowest rank of `init`."""
    line = re.search(r"max: ([\d.]+) ms", output)
    if line:
        return [Figure(f"{prefix}_init", ranks, float(line[1]), "ms")]
    rows = [
        [float(word) for word in row.split()]
        for row in output.splitlines()
        if len(row.split()) == 5 and all(is_number(word) for word in row.split())
    ]
    if len(rows) != ranks:
        return []
    return [
        Figure(f"{prefix}_init", ranks, max(row[1] for row in rows), "ms"),
        Figure(f"{prefix}_init_to_finalize", ranks, max(row[4] for row in rows), "ms"),
    ]


def inside(text, objects):
    """Instructions below the calls that lead from elsewhere into one of these objects, in a dump with whole names."""
    count, caller, callee = 0, "", None
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith("ob="):
            caller = line.removeprefix("ob=")
        elif line.startswith("cob="):
            callee = line.removeprefix("cob=")
        elif line.startswith("calls="):
            cost = int(next(lines).split()[1])
            if objects.search(callee or caller) and not objects.search(caller):
                count += cost
            callee = None
    return count


def own(text, objects):
    """Instructions of these objects' own code, in a dump with whole names."""
    count, here = 0, ""
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith("ob="):
            here = line.removeprefix("ob=")
        elif line.startswith("calls="):
            next(lines)
        elif objects.search(here) and re.fullmatch(r"[+*-]?\d* ?\d+", line):
            count += int(line.split()[-1])
    return count


def dumps(directory, without=None, caller=None):
    """Instructions of one operation in every dump of each name, without the work of the objects that match, and the
    caller's own."""
    counts = {}
    for file in sorted(glob.glob(f"{directory}/counts.*"), key=lambda name: int(name.rsplit(".", 1)[1])):
        with open(file) as dump:
            text = dump.read()
        counted = re.search(r"^desc: Trigger: Client Request: (\d+) x (.*)$", text, re.M)
        total = re.search(r"^summary: (\d+)", text, re.M)
        if counted and total:
            count = int(total[1]) - (inside(text, without) if without else 0) - (own(text, caller) if caller else 0)
            counts.setdefault(counted[2].strip(), []).append(count / int(counted[1]))
    return counts


def callgrind(directory):
    """Instructions of one operation each, without those of counting: the least of several dumps."""
    counts = {name: min(counts) for name, counts in dumps(directory).items()}
    baseline = counts.pop("baseline", None)
    if baseline is None:
        return []
    return [
        Figure(f"instructions: {name}", None, round(count - baseline, 1), "instructions")
        for name, count in counts.items()
    ]
