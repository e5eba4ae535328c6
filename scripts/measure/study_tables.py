"""The study's tables: by threads for a size, and by size for a number of threads; a column per library and setting."""

from dataclasses import dataclass

from .study import BENCHMARKS
from .table import number, size

TITLES = {
    "pingpong_put_latency": "Ping-pong by put, one way",
    "pingpong_put_bandwidth": "Ping-pong by put, aggregated bandwidth",
    "pingpong_tag_latency": "Ping-pong by tags, one way",
    "pingpong_tag_bandwidth": "Ping-pong by tags, aggregated bandwidth",
    "put_rate": "Put, message rate",
    "put_bandwidth": "Put, aggregated bandwidth",
    "get_rate": "Get, message rate",
    "get_bandwidth": "Get, aggregated bandwidth",
    "gups_atomic": "Random access by atomics",
    "gups_put_get": "Random access by get and put",
}


@dataclass
class Table:
    title: str
    x_is_size: bool
    unit: str
    columns: list  # [(library, setting, {x: median})]

    def xs(self):
        return sorted({x for _, _, points in self.columns for x in points})

    def rows(self):
        """[(x, [value or None for each column])]"""
        return [(x, [points.get(x) for _, _, points in self.columns]) for x in self.xs()]


def heading(library, setting):
    workers = {"one": "one worker", "each": "a worker each"}.get(setting, f"{setting} workers")
    return f"{library.title}, {workers}"


def _split(series):
    """Figure, setting, size or None."""
    name, setting, *rest = series.name.split("/")
    return name, setting, int(rest[0]) if rest else None


def _columns(results, chosen, x_of):
    """One for each library and setting; `chosen` are series of one figure."""
    settings = list(dict.fromkeys(_split(one)[1] for one in chosen))
    return [
        (
            library,
            setting,
            {
                x_of(one): one.median(library.name)
                for one in chosen
                if _split(one)[1] == setting and one.median(library.name) is not None
            },
        )
        for library in results.libraries
        for setting in settings
    ]


def _tables_of(results, figure, title):
    mine = [one for one in results.series.values() if _split(one)[0] == figure]
    if not mine:
        return []
    sizes = sorted({_split(one)[2] for one in mine if _split(one)[2]})
    most = max(one.x for one in mine)
    small = [one for one in mine if _split(one)[2] == (sizes[0] if sizes else None)]
    what = f", {size(sizes[0])} bytes" if sizes else ""
    tables = []
    # The bandwidth of the smallest messages is their rate in other units.
    if not figure.endswith("bandwidth"):
        tables.append(
            Table(f"{title}{what}, by threads", False, mine[0].unit, _columns(results, small, lambda one: one.x))
        )
    if len(sizes) > 1:
        crowd = [one for one in mine if one.x == most]
        plural = "" if most == 1 else "s"
        tables.append(
            Table(
                f"{title}, {most} thread{plural}, by size",
                True,
                mine[0].unit,
                _columns(results, crowd, lambda one: _split(one)[2]),
            )
        )
    return tables


def tables(results):
    return [table for figure, title in TITLES.items() for table in _tables_of(results, figure, title)]


def text(results):
    """All tables for a terminal."""
    parts = []
    for table in tables(results):
        heads = [heading(library, setting) for library, setting, _ in table.columns]
        widths = [max(len(head), 8) + 2 for head in heads]
        lines = [f"{table.title} ({table.unit})", f"{'size' if table.x_is_size else 'threads':>8}" + row(heads, widths)]
        for x, values in table.rows():
            label = size(x) if table.x_is_size else str(x)
            lines.append(f"{label:>8}" + row([number(value) for value in values], widths))
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def row(words, widths):
    return "".join(f"{word:>{width}}" for word, width in zip(words, widths))


assert all(any(figure.startswith(benchmark) for benchmark in BENCHMARKS) for figure in TITLES)
