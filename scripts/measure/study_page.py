"""The study's page: one self-contained HTML file with a plot and a table for each of its tables."""

import os
import time
from html import escape

from . import plots
from .page import STYLE
from .study_tables import heading, tables
from .table import number, size


def spread(table):
    values = [value for _, _, points in table.columns for value in points.values()]
    return max(values) / max(min(values), 1e-12)


def draw(matplotlib, table, index):
    """A line per library and setting: the library's colour, dashed where threads share workers."""
    from matplotlib import pyplot, ticker

    figure, axes = pyplot.subplots(figsize=(5.4, 3.5))
    for place, (library, setting, points) in enumerate(table.columns):
        xs = sorted(points)
        axes.plot(
            xs,
            [points[x] for x in xs],
            color=plots.colour(library.name, place),
            linestyle="-" if setting == "each" else "--" if setting == "one" else ":",
            marker=plots.MARKERS[place % len(plots.MARKERS)],
            markersize=4,
            linewidth=1.8,
            label=heading(library, setting),
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5) if spread(table) < 300 else (1,)))
    axes.yaxis.set_minor_locator(ticker.NullLocator())
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(plots.plain_label))
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(plots.size_label if table.x_is_size else plots.plain_label))
    axes.xaxis.set_major_locator(ticker.FixedLocator(table.xs()[:: 2 if len(table.xs()) > 6 else 1]))
    axes.xaxis.set_minor_locator(ticker.NullLocator())
    axes.set_xlabel("bytes of a message" if table.x_is_size else "threads of each rank")
    axes.set_ylabel(table.unit)
    axes.legend(frameon=False, fontsize=8)
    svg = plots.to_svg(figure, f"study-{index}", escape(f"{table.title}, {table.unit}"))
    pyplot.close(figure)
    return svg


def html_table(table):
    heads = "".join(f"<th>{escape(heading(library, setting))}</th>" for library, setting, _ in table.columns)
    rows = "".join(
        f"<tr><td>{size(x) if table.x_is_size else x}</td>"
        + "".join(f"<td>{number(value)}</td>" for value in values)
        + "</tr>"
        for x, values in table.rows()
    )
    x_head = "bytes" if table.x_is_size else "threads"
    return (
        f'<div class="box scroll"><table><thead><tr><th>{x_head}</th>{heads}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def header(results, title):
    machine = results.machine
    loaded = "".join(
        f"<p>{escape(one['title'])}: <code>{escape(one['path'])}</code>, version {escape(one['version'])}</p>"
        for one in results.loaded.values()
    )
    place = (
        f"{machine['cpu']}, {machine['cores']} cores, Linux {machine['kernel']}"
        if machine
        else "measured elsewhere"
    )
    return (
        f"<header><h1>{escape(title)}</h1><p>{escape(place)} · {time.strftime('%Y-%m-%d %H:%M')}</p>"
        f"<p>{escape(results.as_dict()['conditions'])}</p>{loaded}<p><code>{escape(results.words)}</code></p></header>"
    )


def write(results, path, title, *_):
    """Writes to a temporary file first: an interrupted run leaves the page unchanged."""
    matplotlib = plots.library()
    body = "".join(
        f"<section><h2>{escape(table.title)}</h2>"
        + (f'<div class="plots"><div class="plot">{draw(matplotlib, table, index)}</div></div>' if matplotlib else "")
        + html_table(table)
        + "</section>"
        for index, table in enumerate(tables(results))
    )
    failed = "".join(
        f'<div class="box alarm"><b>Failed:</b> <pre>{escape(failure)}</pre></div>' for failure in results.failures
    )
    with open(f"{path}.new", "w") as file:
        file.write(
            '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
            f'content="width=device-width"><title>{escape(title)}</title><style>{STYLE}</style></head><body>'
            f"{header(results, title)}<main>{failed}{body}</main></body></html>\n"
        )
    os.replace(f"{path}.new", path)
