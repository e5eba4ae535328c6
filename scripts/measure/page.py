"""The page: one self-contained HTML file with a summary, plots, and every figure in tables."""

import math
import os
import re
import time
from html import escape

from . import plots
from .table import number, size

# Heading, the text below it, its figures, whether x is a size in bytes.
SECTIONS = (
    (
        "Latency",
        "One way, half a ping-pong between two processes on two cores. Dotted: the same exchange by bare shared "
        "memory, "
        "copy in, flag, copy out.",
        r"(tag|am|stream)_latency",
        True,
    ),
    (
        "Bandwidth",
        "Windows of 64 messages (16 from 256 KiB on) and one answer each, and of the ping-pong. Dotted: a bare copy "
        "from "
        "process to process, by one side and by both. Eager active messages are looked at where they lie.",
        r"(tag|am|am_eager|stream)_bandwidth.*",
        True,
    ),
    ("Message rate", "Windows of 64 small messages, one pair of processes.", r"(tag|am|stream)_rate", True),
    (
        "First messages",
        "Of a new pair of workers, by the number of the message: the mean since the figure before.",
        r"first_.*",
        False,
    ),
    (
        "Remote memory",
        "Put with a flush, get until the data are there; windowed bandwidth. Memory that the library allocated can be "
        "shared between processes, other memory (malloc) cannot.",
        r"(put|get)_(flush|latency|bandwidth|rate).*",
        True,
    ),
    ("Atomics", "Of 8 bytes, one at a time.", r"(fetch_add|swap|compare_swap|add_flush).*", False),
    ("Threads", "Aggregate rate of messages of 8 bytes, by the number of threads on each side.", r"rate_.*", False),
    (
        "Senders",
        "Aggregate rate of messages of 8 bytes into one worker, by the number of sender processes on this host, over "
        "shared memory; each has at most 64 under way.",
        r"senders_.*",
        False,
    ),
    (
        "Senders by TCP",
        "Aggregate rate of messages of 8 bytes into one worker, by the number of sender processes on this host, by TCP "
        "over the loopback device; each has at most 64 under way.",
        r"tcp_senders_.*",
        False,
    ),
    (
        "Lists of pieces",
        "Put and get of scatter-gather lists by their number of pieces, 32 bytes each: nanoseconds of a piece; malloc: "
        "in memory that UCP did not allocate.",
        r"(tcp_)?lists_.*",
        False,
    ),
    ("Random access", "GUPS: two processes update random words of a table that lies half in each.", r"gups.*", False),
    (
        "More ranks than cores",
        "Ranks not bound to cores: steps of 8 bytes by the number of ranks. Yield: with mpi_yield_when_idle. Load: "
        "beside this many processes that compute all the time.",
        r"(openmpi|mpich)_(\d+_ranks|(yield_)?(load\d+_)?crowd)_.*",
        False,
    ),
    ("Through MPI", "Two ranks on two cores, everything through libucp.", r"(openmpi|mpich)_(?!init).*", True),
    (
        "Start of an MPI job",
        "The slowest rank, from before MPI_Init to after MPI_Finalize.",
        r"(openmpi|mpich)_init.*",
        False,
    ),
    (
        "Instructions",
        "Of one operation, counted by callgrind, both workers in one process: repeats exactly on any machine.",
        r"instructions: .*",
        False,
    ),
    (
        "Short-lived clients",
        "A client that connects, exchanges two messages and goes: all of its life, and its end alone.",
        r"(sm|tcp|listener)_client_.*",
        False,
    ),
    (
        "Many processes on one host",
        "Each phase until the last process is through with it: start of the workers, endpoints of all to all, "
        "the first exchange of 8 bytes of all with all, a later one; and the mean of a process's share of resident "
        "memory (PSS). Loaded: with two other processes that compute on each core.",
        r"(loaded_)?processes_.*",
        False,
    ),
    ("Registered memory", "By the number of regions that are registered.", r"regions_.*", False),
    (
        "Growth",
        "A worker after so many departed peers and closed endpoints, and with so many unexpected messages and posted "
        "receives: latency of 8 bytes, what one more takes, and what the process holds.",
        r"growth_.*",
        False,
    ),
    (
        "Very many peers",
        "A worker with endpoints to so many peers, of which it uses few: such that do not exist, on other hosts, and "
        "(real) workers of another process. Time and memory of one, idle progress, first use of one.",
        r"scale_.*",
        False,
    ),
    (
        "Memory of GPUs",
        "From device to device, by size; scripts/cuda.",
        r"gpu\d+_gpu\d+_.*",
        True,
    ),
    ("Start-up and memory", "What context, worker and address cost, and endpoints by their number.", r".*", False),
)
MOST_BARS = 12  # in one chart
LIMITS = {
    "Latency": (("bare_latency", "bare memory"),),
    "Bandwidth": (("bare_one_reads", "bare copy, one side"), ("bare_both_copy", "bare copy, both sides")),
}
TITLES = {
    "tag_rate": "Tag messages", "am_rate": "Active messages", "stream_rate": "Streams",
    "tag_latency": "Tag messages",
    "am_latency": "Active messages",
    "stream_latency": "Streams",
    "tag_bandwidth": "Tag messages, windowed",
    "am_bandwidth": "Active messages, windowed",
    "am_eager_bandwidth": "Active messages, always eager, windowed",
    "stream_bandwidth": "Streams, windowed",
    "tag_bandwidth_pingpong": "Tag messages, ping-pong",
    "am_bandwidth_pingpong": "Active messages, ping-pong",
    "stream_bandwidth_pingpong": "Streams, ping-pong",
    "put_flush": "Put + flush",
    "get_latency": "Get",
    "put_flush_malloc": "Put + flush, malloc",
    "get_latency_malloc": "Get, malloc",
    "put_bandwidth": "Put, windowed",
    "get_bandwidth": "Get, windowed",
    "put_bandwidth_malloc": "Put, malloc, windowed",
    "get_bandwidth_malloc": "Get, malloc, windowed",
    "rate_tag_shared": "Tag, one shared worker",
    "rate_tag_own": "Tag, a worker each",
    "rate_am_shared": "Active messages, one shared worker",
    "rate_am_own": "Active messages, a worker each",
    "rate_put_shared": "Put, one shared worker",
    "rate_put_own": "Put, a worker each",
    "senders_tag": "Tag, one receiving worker",
    "senders_am": "Active messages, one receiving worker",
    "tcp_senders_tag": "Tag, one receiving worker",
    "tcp_senders_am": "Active messages, one receiving worker",
    "address_space": "Peak address space of a process with a worker",
    "address_space_senders_tag": "The same, of a receiver, by senders, tag",
    "address_space_senders_am": "The same, of a receiver, by senders, active messages",
    "tcp_address_space_senders_tag": "The same, of a receiver, by senders by TCP, tag",
    "tcp_address_space_senders_am": "The same, of a receiver, by senders by TCP, active messages",
    "first_latency_8": "Latency, 8 B",
    "first_latency_192": "Latency, 192 B",
    "first_latency_512": "Latency, 512 B",
    "first_latency_2048": "Latency, 2 KiB",
    "first_rate_8": "Rate, 8 B",
    "first_rate_192": "Rate, 192 B",
    "first_rate_512": "Rate, 512 B",
    "first_rate_2048": "Rate, 2 KiB",
    "gups_atomic": "by atomics",
    "gups_get_put": "by get and put",
    "regions_map": "Register one more",
    "regions_unmap": "Unregister one",
    "regions_pack": "Pack a key",
    "regions_unpack": "Unpack a key",
    "regions_put_flush": "Put + flush, executed by the peer",
    "regions_put_refused": "The same, not registered any more",
    **{
        f"growth_{kind}_{figure}": f"{of}: {title}"
        for kind, of in (
            ("peers", "Departed peers"),
            ("endpoints", "Closed endpoints"),
            ("unexpected", "Unexpected messages"),
            ("posted", "Posted receives"),
        )
        for figure, title in (
            ("latency", "latency of another message"),
            ("cycle", "time of one"),
            ("memory", "memory (PSS)"),
            ("descriptors", "descriptors"),
            ("mappings", "mappings"),
        )
    },
    "endpoints_create": "Time to create endpoints",
    "endpoints_first_send": "First message on every endpoint",
    "endpoint_idle_resident": "Memory of an endpoint, never used",
    "endpoint_used_resident": "Memory of an endpoint, used",
    "endpoint_idle_heap": "malloc of an endpoint, never used",
    "endpoint_used_heap": "malloc of an endpoint, used",
}

with open(os.path.join(os.path.dirname(__file__), "page.css")) as _css:
    STYLE = _css.read()


def pretty(name):
    return TITLES.get(name) or name.removeprefix("instructions: ").replace("_", " ").replace(
        "openmpi ", "Open MPI, "
    ).replace("mpich ", "MPICH, ")


def section_of(name):
    return next(section for section in SECTIONS if re.fullmatch(section[2], name))


def x_label(value, is_size):
    return "" if value is None else (size(value) if is_size else str(value))


class Page:
    def __init__(self, results, title, regressions=(), baseline=None):
        self.results, self.title, self.regressions, self.baseline = results, title, regressions, baseline
        self.matplotlib = plots.library()
        self.groups = {}  # section heading -> {figure name: [series by x]}
        for series in results.series.values():
            if "machine" not in series.samples:
                self.groups.setdefault(section_of(series.name)[0], {}).setdefault(series.name, []).append(series)
        for figures in self.groups.values():
            for series in figures.values():
                series.sort(key=lambda one: -1 if one.x is None else one.x)

    # ---- plots ----

    def points(self, name, library):
        return [
            (one.x, one.median(library))
            for one in self.results.series.values()
            if one.name == name and one.x and one.median(library)
        ]

    def mean_ahead(self, series):
        ratios = [ratio for ratio in map(self.results.ahead, series) if ratio]
        return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else None

    def ahead_mark(self, series):
        mean = self.mean_ahead(series)
        return "" if mean is None else f'<small class="{"good" if mean >= 0.995 else "bad"}">{mean:.2f}×</small>'

    def curve(self, heading, name, series, is_size):
        lines = [(library.name, library.title, self.points(name, library.name)) for library in self.results.libraries]
        limits = [("machine", title, self.points(limit, "machine")) for limit, title in LIMITS.get(heading, ())]
        logarithmic = (is_size and "rate" not in name) or "endpoint" in name
        svg = plots.curves(
            self.matplotlib,
            name,
            f"{pretty(name)}, {series[0].unit}",
            [line for line in lines if line[2]],
            [limit for limit in limits if limit[2]],
            series[0].unit,
            is_size,
            logarithmic,
        )
        return f'<div class="plot"><h3>{escape(pretty(name))} {self.ahead_mark(series)}</h3>{svg}</div>'

    def bar_chart(self, heading, rows, unit, part):
        """rows: series that have no curve, all of one unit."""
        counted = {
            "Message rate": "B",
            "Start of an MPI job": "ranks",
            "Start-up and memory": "endpoints",
            "Threads": "threads",
        }
        values = [
            (
                pretty(one.name) + (f", {one.x} {counted[heading]}" if one.x and heading in counted else ""),
                {library.name: one.median(library.name) for library in self.results.libraries},
            )
            for one in rows
        ]
        numbers = [value for _, row in values for value in row.values() if value]
        spread = max(numbers) / max(min(numbers), 1e-12) if numbers else 1
        svg = plots.bars(
            self.matplotlib,
            f"{heading}-{unit}-{part}",
            f"{heading}, {unit}",
            [(library.name, library.title) for library in self.results.libraries],
            values,
            unit,
            spread > 200,
        )
        what = heading if unit in ("", "instructions") else f"{heading}, {unit}"
        return f'<div class="plot"><h3>{escape(what)} {self.ahead_mark(rows)}</h3>{svg}</div>'

    def plots_of(self, heading, figures, is_size):
        drawn, rest = [], {}
        for name, series in figures.items():
            of_size = is_size and not re.search(r"mt_mr|match_depth", name)
            if sum(1 for one in series if one.x) >= 3 or (len(series) == 2 and heading == "Threads"):
                drawn.append(self.curve(heading, name, series, of_size))
            else:
                for one in series:
                    rest.setdefault(one.unit, []).append(one)
        for unit, rows in rest.items():
            parts = -(-len(rows) // MOST_BARS)
            length = -(-len(rows) // parts)
            drawn += [
                self.bar_chart(heading, rows[begin : begin + length], unit, begin // length)
                for begin in range(0, len(rows), length)
            ]
        return drawn

    # ---- tables ----

    def full_table(self, figures, is_size):
        libraries = self.results.libraries
        head = "".join(f"<th>{escape(library.title)}</th>" for library in libraries)
        rows = []
        for name, series in figures.items():
            for one in series:
                ahead = self.results.ahead(one)
                mark = "" if ahead is None else f'<td class="{"good" if ahead >= 0.995 else "bad"}">{ahead:.2f}×</td>'
                cells = "".join(f"<td>{number(one.median(library.name))}</td>" for library in libraries)
                rows.append(
                    f"<tr><td>{escape(pretty(name))}</td><td>{x_label(one.x, is_size)}</td>{cells}"
                    f"<td>{escape(one.unit)}</td>{mark}</tr>"
                )
        return (
            '<details><summary>All figures</summary><div class="box scroll"><table><thead><tr><th>figure</th><th>'
            f'</th>{head}'
            f'<th>unit</th><th>{escape(self.results.subject.title)} ahead</th></tr></thead><tbody>{"".join(rows)}'
            '</tbody></table></div></details>'
        )

    def heat_cell(self, series):
        ahead = self.results.ahead(series) if series else None
        if ahead is None:
            return "<td></td>"
        depth = max(-1, min(1, math.log2(ahead))) * 0.75
        colour = f"rgba(31,138,84,{depth:.2f})" if depth >= 0 else f"rgba(194,54,43,{-depth:.2f})"
        best = {library.title: number(series.median(library.name)) for library in self.results.libraries}
        detail = escape(", ".join(f"{title} {value}" for title, value in best.items()) + f" {series.unit}")
        return f'<td style="background:{colour}" title="{detail}">{ahead:.{1 if ahead >= 10 else 2}f}</td>'

    def heat_map(self):
        """Figures with a size as x, figure by figure and size by size."""
        figures = {
            name: series
            for heading, _, _, is_size in SECTIONS
            if is_size
            for name, series in self.groups.get(heading, {}).items()
            if sum(1 for one in series if one.x) >= 3
            and self.mean_ahead(series)
            and not re.search(r"mt_mr|match_depth", name)
        }
        if not figures:
            return ""
        xs = sorted({one.x for series in figures.values() for one in series})
        rows = []
        for name, series in figures.items():
            by_x = {one.x: one for one in series}
            heading = section_of(name)[0]
            title = (
                f"{heading}: {pretty(name)}" if heading in ("Latency", "Bandwidth", "Message rate") else pretty(name)
            )
            rows.append(f"<tr><td>{escape(title)}</td>{''.join(self.heat_cell(by_x.get(x)) for x in xs)}</tr>")
        head = "".join(f"<th>{size(x)}</th>" for x in xs)
        return (
            f'<section><h2>Size by size</h2><p>How many times better {escape(self.results.subject.title)} is than '
            'the best other library: '
            'green is ahead, red behind. Point at a cell for the figures.</p><div class="box scroll"><table '
            'class="heat">'
            f'<thead><tr><th></th>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div></section>'
        )

    # ---- the parts of the page ----

    def cards(self):
        cards = []
        for heading, _, _, _ in SECTIONS:
            ratios = [
                ratio
                for series in self.groups.get(heading, {}).values()
                for ratio in map(self.results.ahead, series)
                if ratio
            ]
            if ratios:
                mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
                ahead = sum(ratio >= 0.995 for ratio in ratios)
                cards.append(
                    f'<a class="card" href="#{anchor(heading)}"><span>{escape(heading)}</span>'
                    f'<b class="{"good" if mean >= 0.995 else "bad"}">{mean:.2f}×</b><span>ahead in '
                    f'{ahead} of {len(ratios)}</span></a>'
                )
        return f'<div class="cards">{"".join(cards)}</div>' if cards else ""

    def notes(self):
        notes = []
        runs = [run for run in self.results.runs if run["disturbed"]]
        if len(runs) * 5 > len(self.results.runs):
            notes.append(
                f'<div class="box note"><b>Disturbed.</b> In {len(runs)} of {len(self.results.runs)} runs others '
                'used the '
                "processors, or the machine moved the cores meanwhile. Read times with care; instructions and "
                "memory are exact.</div>"
            )
        if self.baseline is not None:
            rows = "".join(
                f"<tr><td>{escape(pretty(one.name))}</td><td>{'' if one.x is None else size(one.x)}</td>"
                f"<td>{number(then)}</td>"
                f"<td class=bad>{number(one.median(self.results.subject.name))}</td><td>{escape(one.unit)}</td></tr>"
                for one, then in self.regressions
            )
            notes.append(
                f'<div class="box alarm"><b>{len(self.regressions)} regressions</b> against '
                f'{escape(self.baseline)}.<table><thead><tr>'
                f"<th>figure</th><th></th><th>then</th><th>now</th><th>unit</th></tr></thead><tbody>{rows}</tbody>"
                "</table></div>"
                if self.regressions
                else f'<div class="box">No regression against {escape(self.baseline)}.</div>'
            )
        notes += [
            f'<div class="box alarm"><b>Failed:</b> <pre>{escape(failure)}</pre></div>'
            for failure in self.results.failures
        ]
        return "".join(notes)

    def header(self):
        machine = self.results.machine
        libraries = "".join(
            f"<p>{escape(one['title'])}: <code>{escape(one['path'])}</code>, version {escape(one['version'])}</p>"
            for one in self.results.loaded.values()
        )
        return (
            f"<header><h1>{escape(self.title)}</h1><p>{escape(machine['cpu'])}, {machine['cores']} cores, "
            f"{machine['memory_gib']} GiB, "
            f"Linux {escape(machine['kernel'])} · {time.strftime('%Y-%m-%d %H:%M')}</p>"
            f"<p>{escape(self.results.as_dict()['conditions'])}</p>{libraries}<p><code>{escape(self.results.words)}"
            "</code></p></header>"
        )

    def section(self, heading, about, is_size):
        figures = self.groups[heading]
        drawn = self.plots_of(heading, figures, is_size) if self.matplotlib else []
        return (
            f'<section id="{anchor(heading)}"><h2>{escape(heading)}</h2><p>{escape(about)}</p>'
            f'<div class="plots">{"".join(drawn)}</div>{self.full_table(figures, is_size)}</section>'
        )

    def text(self):
        explained = ""
        if self.results.references:
            explained = (
                '<section><h2>In short</h2><p>How many times better '
                + escape(self.results.subject.title)
                + " is than "
                + (
                    "the better of the others"
                    if len(self.results.references) > 1
                    else escape(self.results.references[0].title)
                )
                + ", measured in turn on the same machine: the geometric mean over a chapter's figures. More than 1 "
                "is ahead.</p>"
                + self.cards()
                + "</section>"
            )
        body = "".join(
            self.section(heading, about, is_size) for heading, about, _, is_size in SECTIONS if heading in self.groups
        )
        return (
            '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
            'content="width=device-width">'
            f"<title>{escape(self.title)}</title><style>{STYLE}</style></head><body>{self.header()}<main>{explained}"
            f"{self.notes()}{self.heat_map()}{body}</main></body></html>\n"
        )


def anchor(heading):
    return re.sub(r"[^a-z0-9]+", "-", heading.lower())


def write(results, path, title, regressions=(), baseline=None):
    """Writes to a temporary file first: an interrupted run leaves the page unchanged."""
    text = Page(results, title, regressions, baseline).text()
    with open(f"{path}.new", "w") as file:
        file.write(text)
    os.replace(f"{path}.new", path)
