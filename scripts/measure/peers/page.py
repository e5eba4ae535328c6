"""The page of all ways within a host: one self-contained HTML file with plots by size, and the tables."""

import os
import time
from html import escape

from .. import conditions, plots
from ..page import STYLE
from ..results import more_is_better
from ..table import number
from .tables import best_of, comparisons, label, ratio, rows, summary, unable
from .ways import HEAP

PLOTS = {
    "latency": "Ping-pong, half of it",
    "window": "Windows of messages",
    "put": "Put + flush",
    "get": "Get + flush",
}


def draw(matplotlib, collected, name):
    """The curves of an operation as SVG: the best rucp, the best UCX, every own way, the machine; None where nothing
    was measured."""
    figures = sorted((one for one in rows(collected) if one.name == name), key=lambda one: one.x)
    chosen = [
        ("rucp", "rucp, the best of its MPIs", collected.names(lambda way: way.library == "rucp")),
        (HEAP, "rucp with the shared heap", collected.names(lambda way: way.library == HEAP)),
        ("1.22", "UCX, the best of all", collected.names(lambda way: not way.is_rucp and way.library != "own")),
    ]
    chosen += [(way.name, way.full_title, [way.name]) for way in collected.ways if way.library == "own"]
    lines = []
    for colour, title, names in chosen:
        points = [(one.x, best_of(one, names)[0]) for one in figures if best_of(one, names)[1]]
        lines += [(colour, title, points)] if points else []
    if not lines:
        return None
    machine = [(one.x, collected.limit(one)) for one in figures if collected.limit(one)]
    limits = [("machine", "the machine", machine)] if machine else []
    unit = figures[0].unit
    described = escape(f"{PLOTS[name]}, {unit}")
    return plots.curves(matplotlib, f"peers-{name}", described, lines, limits, unit, True, True)


def table(heads, body):
    return (
        '<div class="box scroll"><table><thead><tr>'
        + "".join(f"<th>{escape(head)}</th>" for head in heads)
        + "</tr></thead><tbody>"
        + "".join("<tr>" + "".join(f"<td>{text}</td>" for text in cells) + "</tr>" for cells in body)
        + "</tbody></table></div>"
    )


def ahead_table(collected):
    heads = comparisons(collected)
    body = []
    for series in rows(collected):
        cells = [escape(label(series)), number(collected.limit(series))]
        for _, subjects, others in heads:
            value = collected.ahead(series, subjects, others)
            bad = value is not None and round(value, 2) < 1
            cells.append(f'<b class="bad">{ratio(value)}</b>' if bad else ratio(value))
        body.append(cells)
    return table(["operation", "machine", *(title for title, *_ in heads)], body)


def ways_table(collected):
    ways = [way for way in collected.ways if way.name in collected.proofs]
    body = []
    for series in rows(collected):
        best = best_of(series, [way.name for way in ways])[1]
        cells = [number(series.median(way.name)) for way in ways]
        better = "the larger the better" if more_is_better(series.unit) else "the smaller the better"
        cells = [f"<b>{text}</b>" if way.name == best else text for way, text in zip(ways, cells)]
        body.append([f'<span title="{better}">{escape(label(series))}</span>', *cells])
    return table(["operation", *(way.full_title for way in ways)], body)


def header(collected):
    machine = collected.machine
    proofs = "".join(
        f"<p><code>{escape(name)}</code>: {escape(mpi)}; {escape(libucp)}</p>"
        for name, (mpi, libucp) in collected.proofs.items()
    )
    disturbed = conditions.summary(collected.runs) if collected.runs else "nothing was run"
    return (
        f"<header><h1>All ways within a host</h1><p>{escape(machine['cpu'])}, {machine['cores']} cores, "
        f"Linux {escape(machine['kernel'])} · {time.strftime('%Y-%m-%d %H:%M')}</p><p>{escape(disturbed)}</p>{proofs}"
        f"<p><code>{escape(collected.command)}</code></p></header>"
    )


def write(collected, path):
    """Writes to a temporary file first: an interrupted run leaves the page unchanged."""
    matplotlib = plots.library()
    drawn = [draw(matplotlib, collected, name) for name in PLOTS] if matplotlib else []
    failed = "".join(f'<div class="box alarm"><b>Not measured:</b> {escape(line)}</div>' for line in unable(collected))
    with open(f"{path}.new", "w") as file:
        file.write(
            '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
            f'content="width=device-width"><title>All ways within a host</title><style>{STYLE}</style></head><body>'
            f"{header(collected)}<main>{failed}<section><h2>By size</h2><div class=\"plots\">"
            + "".join(f'<div class="plot">{svg}</div>' for svg in drawn if svg)
            + "</div></section><section><h2>Ahead</h2>"
            + "".join(f"<p>{escape(line)}</p>" for line in summary(collected))
            + f"{ahead_table(collected)}</section><section><h2>Every way</h2>{ways_table(collected)}</section></main>"
            "</body></html>\n"
        )
    os.replace(f"{path}.new", path)
