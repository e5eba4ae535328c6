"""The plots: curves and bars as SVG, by matplotlib, which is downloaded into build/ at first use."""

import io
import os
import re
import subprocess
import sys

from .libraries import TOP

PACKAGE = "matplotlib==3.10.9"
DIRECTORY = f"{TOP}/build/plotting"
COLOURS = {"1.13": "#8a94a6", "1.22": "#2f6fdf", "rucp": "#e4572e", "machine": "#9aa5b1"}
SPARE_COLOURS = ("#2f9e5f", "#8e5bd0", "#c2901c", "#23a6b5")
MARKERS = ("s", "^", "o", "D", "v", "P")


def library():
    """matplotlib, or None where it can neither be found nor downloaded: then the page has tables only."""
    sys.path.insert(0, DIRECTORY)
    if not os.path.isdir(f"{DIRECTORY}/matplotlib"):
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--root-user-action=ignore",
            "--only-binary",
            ":all:",
            "--target",
            DIRECTORY,
            PACKAGE,
        ]
        if subprocess.run(command, stdin=subprocess.DEVNULL, timeout=600).returncode != 0:
            print(f"bench: no {PACKAGE}: the page has no plots", file=sys.stderr)
            return None
    os.environ.setdefault("MPLCONFIGDIR", f"{DIRECTORY}/config")
    try:
        import matplotlib
    except ImportError as error:
        print(f"bench: {error}: the page has no plots", file=sys.stderr)
        return None
    matplotlib.use("svg")
    matplotlib.rcParams.update(
        {
            "svg.fonttype": "none",
            "font.family": "sans-serif",
            "font.sans-serif": ["Inter", "Segoe UI", "Helvetica", "DejaVu Sans"],
            "font.size": 10,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.edgecolor": "#9aa5b1",
            "axes.labelcolor": "#4a5563",
            "xtick.color": "#4a5563",
            "ytick.color": "#4a5563",
            "axes.grid": True,
            "grid.color": "#e3e8ef",
            "grid.linewidth": 0.8,
            "axes.axisbelow": True,
            "svg.hashsalt": "rucp",
        }
    )
    return matplotlib


def colour(name, index):
    return COLOURS.get(name, SPARE_COLOURS[index % len(SPARE_COLOURS)])


def size_label(value, _=None):
    for shift, letter in ((20, " MiB"), (10, " KiB")):
        if value >= 1 << shift:
            return f"{value / (1 << shift):g}{letter}"
    return f"{value:g} B"


def plain_label(value, _=None):
    return f"{value:g}" if value < 10000 else f"{value / 1000:g}k"


def short(value):
    """Three or four digits, without an exponent."""
    for limit, divisor, letter in ((1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if value >= limit:
            return f"{value / divisor:.3g}{letter}"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def to_svg(figure, name, described):
    """Inline SVG: identifiers of its own (many are on one page), a description instead of fixed dimensions."""
    buffer = io.StringIO()
    figure.savefig(
        buffer, format="svg", bbox_inches="tight", transparent=True, metadata={"Date": None, "Creator": None}
    )
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    prefix = re.sub(r"[^a-z0-9]+", "-", name.lower())
    text = re.sub(r'\bid="', f'id="{prefix}-', text)
    text = text.replace("url(#", f"url(#{prefix}-").replace('xlink:href="#', f'xlink:href="#{prefix}-')
    text = re.sub(r'<svg ([^>]*?)height="[^"]*" ?', r'<svg \1', text, count=1)
    text = re.sub(r'<svg ([^>]*?)width="[^"]*" ?', r'<svg \1', text, count=1)
    return re.sub(r"<metadata>.*?</metadata>", f"<title>{described}</title>", text, flags=re.S)


def curves(matplotlib, name, described, lines, limits, unit, x_is_size, logarithmic):
    """lines: [(library name, title, [(x, y)])]; limits: the same for the machine itself, drawn dotted."""
    from matplotlib import pyplot, ticker

    figure, axes = pyplot.subplots(figsize=(5.4, 3.3))
    for _, title, points in limits:
        axes.plot(*zip(*points), linestyle=(0, (2, 2)), linewidth=1.2, color=COLOURS["machine"], label=title)
    for index, (library_name, title, points) in enumerate(lines):
        own = library_name.startswith("rucp")
        axes.plot(
            *zip(*points),
            color=colour(library_name, index),
            marker=MARKERS[index % len(MARKERS)],
            markersize=4 if own else 3.5,
            linewidth=2.2 if own else 1.5,
            label=title,
            zorder=4 if own else 3,
        )
    axes.set_xscale("log", base=2)
    if logarithmic:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(ticker.FuncFormatter(plain_label))
    else:
        axes.set_ylim(bottom=0)
    xs = sorted({x for _, _, points in lines for x, _ in points})
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(size_label if x_is_size else plain_label))
    axes.xaxis.set_major_locator(
        ticker.FixedLocator(xs if len(xs) <= 8 else [x for x in xs if (x.bit_length() - 1) % 4 == 0])
    )
    axes.xaxis.set_minor_locator(ticker.NullLocator())
    axes.set_ylabel(unit)
    axes.legend(frameon=False, fontsize=8.5)
    text = to_svg(figure, name, described)
    pyplot.close(figure)
    return text


def bars(matplotlib, name, described, libraries, rows, unit, logarithmic):
    """rows: [(label, {library name: value})]; libraries: [(name, title)]. Horizontal, each with its figure."""
    from matplotlib import pyplot, ticker

    height = 0.9 + len(rows) * (0.19 * len(libraries) + 0.16)
    figure, axes = pyplot.subplots(figsize=(5.4, height))
    thickness = 0.8 / len(libraries)
    for index, (library_name, title) in enumerate(libraries):
        places = [row + (index - (len(libraries) - 1) / 2) * thickness for row in range(len(rows))]
        values = [values.get(library_name) or 0 for _, values in rows]
        drawn = axes.barh(places, values, height=thickness * 0.9, color=colour(library_name, index), label=title)
        axes.bar_label(
            drawn, labels=[short(value) if value else "" for value in values], padding=3, fontsize=7.5, color="#4a5563"
        )
    axes.set_yticks(range(len(rows)), [label for label, _ in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    if logarithmic:
        axes.set_xscale("log")
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(plain_label))
    axes.margins(x=0.12)
    axes.set_xlabel(unit)
    axes.legend(
        frameon=False, fontsize=8.5, loc="upper center", bbox_to_anchor=(0.5, 1 + 0.35 / height), ncols=len(libraries)
    )
    text = to_svg(figure, name, described)
    pyplot.close(figure)
    return text


def panels(matplotlib, source):
    """The plot of README.md: latency and bandwidth side by side. `source`: a CSV file with comments, columns panel,
    size and one per library."""
    import csv

    from matplotlib import pyplot, ticker

    rows = list(csv.DictReader(line for line in source.splitlines() if not line.startswith("#")))
    libraries = [name for name in rows[0] if name not in ("panel", "size")]
    colours = {"UCX 1.13.1": COLOURS["1.13"], "UCX 1.22": COLOURS["1.22"], "rucp": COLOURS["rucp"]}
    titles = {"latency": "Tag latency, us (lower is better)", "bandwidth": "Tag bandwidth, GB/s (higher is better)"}
    figure, axes = pyplot.subplots(1, len(titles), figsize=(9.6, 3.6))
    for axis, (panel, title) in zip(axes, titles.items()):
        points = [row for row in rows if row["panel"] == panel]
        sizes = [int(row["size"]) for row in points]
        for index, name in enumerate(libraries):
            own = name == "rucp"
            axis.plot(
                sizes,
                [float(row[name]) for row in points],
                color=colours.get(name, SPARE_COLOURS[index % len(SPARE_COLOURS)]),
                marker=MARKERS[index],
                markersize=4.5,
                linewidth=2.4 if own else 1.6,
                label=name,
                zorder=4 if own else 3,
            )
        axis.set_xscale("log", base=2)
        axis.set_title(title, fontsize=11, loc="left", color="#1f2933")
        axis.set_xlabel("bytes of a message")
        axis.xaxis.set_major_formatter(ticker.FuncFormatter(size_label))
        axis.xaxis.set_major_locator(ticker.FixedLocator([8, 128, 2048, 32768, 524288, 4194304]))
        axis.xaxis.set_minor_locator(ticker.NullLocator())
        if panel == "latency":
            axis.set_yscale("log")
            axis.yaxis.set_major_formatter(ticker.FuncFormatter(plain_label))
        else:
            axis.set_ylim(bottom=0)
            axis.set_xlim(left=sizes[0] / 1.5)
    axes[0].legend(frameon=False, fontsize=9.5)
    figure.tight_layout()
    text = to_svg(figure, "figure", "Ping-pong within a host: UCX 1.13.1, UCX 1.22, rucp")
    pyplot.close(figure)
    # On its own a figure has a size and a background.
    width, height = (float(value) for value in re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', text).groups())
    text = text.replace("<svg ", f'<svg width="{width:.0f}" height="{height:.0f}" ', 1)
    return re.sub(r"(<svg [^>]*>)", r'\1<rect width="100%" height="100%" fill="white"/>', text, count=1) + "\n"
