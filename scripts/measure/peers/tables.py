"""The table of all ways within a host: on the terminal, in docs/PERFORMANCE.md, as CSV and JSON."""

import csv
import json
import os
import statistics
import time

from .. import conditions, document
from ..plots import size_label
from ..results import more_is_better
from ..table import number
from .ways import HEAP

BEGIN, END = "<!-- written by scripts/bench --only peers --document -->", "<!-- end of the table of peers -->"


def label(series):
    """The operation in words, its size, and its unit."""
    words = {
        "latency": "ping-pong",
        "window": "window",
        "rate": "message rate",
        "put": "put + flush",
        "get": "get + flush",
        "fetch_add": "fetch-add + flush",
    }
    name, _, ranks = series.name.partition("_of_")
    text = words.get(name, name) + (f", {ranks} ranks" if ranks else "")
    return f"{text}, {size_label(series.x)}, {series.unit}"


def rows(collected):
    """The compared figures."""
    return [series for series in collected.series.values() if series.name != "memcpy"]


def best_of(series, names):
    """The best median among these ways, and whose it is."""
    values = {name: series.median(name) for name in names if name in series.samples}
    if not values:
        return None, None
    name = (max if more_is_better(series.unit) else min)(values, key=values.get)
    return values[name], name


def comparisons(collected):
    """Heading, the ways of rucp and those it is compared with: of all MPIs, and then of each alone. One without an own
    way is compared with the UCX that is faster there."""
    foreign = collected.names(lambda way: not way.is_rucp)
    chosen = [
        ("all", collected.names(lambda way: way.library == "rucp"), foreign),
        ("shared heap", collected.names(lambda way: way.library == HEAP), foreign),
    ]
    for mpi in dict.fromkeys(way.mpi for way in collected.ways if way.library == "rucp"):
        title = next(way.mpi_title for way in collected.ways if way.mpi == mpi)
        own = collected.names(lambda way, mpi=mpi: way.mpi == mpi and way.library == "own")
        others = own or collected.names(lambda way, mpi=mpi: way.mpi == mpi and not way.is_rucp)
        chosen.append((f"{title}, {'own' if own else 'UCX'}", [f"{mpi}/rucp"], others))
    return chosen


def ratio(value):
    return "-" if value is None else f"{value:.2f}"


def summary(collected):
    """For each comparison: how many rows, the median, and where rucp is behind."""
    lines = []
    for title, subjects, others in comparisons(collected):
        ratios = [(series, collected.ahead(series, subjects, others)) for series in rows(collected)]
        ratios = [(series, value) for series, value in ratios if value is not None]
        if not ratios:
            lines.append(f"{title}: nothing to compare")
            continue
        behind = sum(round(value, 2) < 1 for _, value in ratios)
        middle = statistics.median(value for _, value in ratios)
        whom = {
            "all": "the best rucp against the best of the others",
            "shared heap": "the best rucp with the shared heap against the best of the others",
        }.get(title, f"{title}: rucp against it")
        lines.append(f"{whom}: median {middle:.2f} of {len(ratios)} rows, behind in {behind}")
    return lines


def unable(collected):
    """A line for each way that could not run, with the reason."""
    titles = {way.name: way.full_title for way in collected.ways}
    lines = [f"{titles[name]}: {reason}" for name, reason in collected.absent.items()]
    if collected.interrupted:
        lines.append("interrupted: what had been measured by then")
    return lines + [
        f"{titles[name]}, {ranks} ranks: {reason}" for (name, ranks), reason in collected.unable.items()
    ]


def show(collected):
    machine = collected.machine
    print(f"\n# {machine['cpu']}, {machine['cores']} cores, Linux {machine['kernel']}, {collected.seconds:.0f} s")
    if collected.runs:
        print(f"# {conditions.summary(collected.runs)}")
    for name, (mpi, libucp) in collected.proofs.items():
        print(f"# {name}: {mpi}; {libucp}")
    ways = [way for way in collected.ways if way.name in collected.proofs]
    for text in (lambda way: way.mpi_title, lambda way: way.title):
        print(f"{'':<32}" + "".join(f"{text(way):>11}" for way in ways) + f"{'':>10}")
    heads = comparisons(collected)
    print(f"{'':<{32 + 11 * len(ways)}}{'machine':>10}" + "".join(f"{title:>17}" for title, *_ in heads))
    for series in rows(collected):
        _, best = best_of(series, [way.name for way in ways])
        cells = (number(series.median(way.name)) + ("*" if way.name == best else " ") for way in ways)
        line = f"{label(series):<32}" + "".join(f"{cell:>11}" for cell in cells)
        line += f"{number(collected.limit(series)):>10}"
        print(line + "".join(f"{ratio(collected.ahead(series, *names)):>17}" for _, *names in heads))
    for line in summary(collected):
        print(line)
    for line in unable(collected):
        print(f"UNABLE {line}")


def cell(text, bold):
    return f"**{text}**" if bold else text


def markdown(collected):
    """Two tables: what every way takes, and how far rucp is ahead."""
    machine, titles = collected.machine, {way.name: way.full_title for way in collected.ways}
    ways = [way for way in collected.ways if way.name in collected.proofs]
    lines = [
        f"`{collected.command}` on {time.strftime('%Y-%m-%d')}, {machine['cpu']}, {machine['cores']} cores, "
        f"{collected.seconds:.0f} s; {conditions.summary(collected.runs)}.",
        "",
    ]
    versions = dict.fromkeys((way.mpi_title, collected.proofs[way.name][0]) for way in ways)
    lines += [f"- {title}: {version.split(', package')[0]}" for title, version in versions]
    lines += [f"- not measured: {line}" for line in unable(collected)]
    lines += ["", "Ahead, and the best of both sides:", ""]
    heads = comparisons(collected)
    lines.append(
        "| operation | machine | best rucp | best of the others | "
        + " | ".join("ahead" if title == "all" else title for title, *_ in heads)
        + " |"
    )
    lines.append("|---" * (4 + len(heads)) + "|")
    for series in rows(collected):
        cells = [label(series), number(collected.limit(series))]
        for names in heads[0][1:]:
            value, name = best_of(series, names)
            cells.append(f"{number(value)} ({titles[name].removesuffix(', rucp')})" if name else "-")
        for _, subjects, others in heads:
            value = collected.ahead(series, subjects, others)
            cells.append(cell(ratio(value), value is not None and round(value, 2) < 1))
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", *(f"- {line}" for line in summary(collected)), "", "Every way:", ""]
    lines.append("| operation | " + " | ".join(way.full_title for way in ways) + " |")
    lines.append("|---" * (1 + len(ways)) + "|")
    for series in rows(collected):
        _, best = best_of(series, [way.name for way in ways])
        cells = [cell(number(series.median(way.name)), way.name == best) for way in ways]
        lines.append(f"| {label(series)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def write_document(collected):
    """Writes the tables between their marks in docs/PERFORMANCE.md."""
    document.write_between(BEGIN, END, markdown(collected))


def as_dict(collected):
    heads = comparisons(collected)
    return {
        "format": "rucp-peers 1",
        "command": collected.command,
        "machine": collected.machine,
        "seconds": round(collected.seconds, 1),
        "ways": {
            way.name: {
                "title": way.full_title,
                "mpi": collected.proofs.get(way.name, (None, None))[0],
                "libucp": collected.proofs.get(way.name, (None, None))[1],
                "absent": collected.absent.get(way.name),
                "unable": {ranks: why for (name, ranks), why in collected.unable.items() if name == way.name},
            }
            for way in collected.ways
        },
        "runs": collected.runs,
        "limits": [{"name": name, "x": x, "values": values} for (name, x), values in collected.limits.items()],
        "figures": [
            {
                "name": series.name,
                "x": series.x,
                "unit": series.unit,
                "machine": collected.limit(series),
                "ahead": {title: collected.ahead(series, *names) for title, *names in heads},
                "median": {name: series.median(name) for name in series.samples},
                "samples": {name: list(values.values()) for name, values in series.samples.items()},
            }
            for series in rows(collected)
        ],
    }


def write_files(collected, out):
    """CSV and JSON."""
    os.makedirs(out, exist_ok=True)
    with open(f"{out}/results.json", "w") as file:
        json.dump(as_dict(collected), file, indent=1)
    with open(f"{out}/results.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["figure", "x", "unit", "better", "way", "median", "least", "most", "samples"])
        for series in rows(collected):
            better = "more" if more_is_better(series.unit) else "less"
            for name in series.samples:
                values = list(series.counted(name).values())
                few = [f"{value:.6g}" for value in (series.median(name), min(values), max(values))]
                writer.writerow([series.name, series.x, series.unit, better, name, *few, len(values)])
