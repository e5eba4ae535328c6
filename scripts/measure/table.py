"""The table on the terminal: a line per figure, a column per library."""


def number(value):
    return "-" if value is None else f"{value:.4g}"


def label(series):
    return series.name if series.x is None else f"{series.name} {size(series.x) if series.x >= 1024 else series.x}"


def size(value):
    """4096 as 4K: a number that is no power of two does not change (a number of endpoints, say)."""
    for shift, letter in ((20, "M"), (10, "K")):
        if value >= 1 << shift and value % (1 << shift) == 0:
            return f"{value >> shift}{letter}"
    return str(value)


def show(results, regressions=()):
    worse = {id(series): then for series, then in regressions}
    machine = results.machine
    print(f"\n# {machine['cpu']}, {machine['cores']} cores, Linux {machine['kernel']}")
    for library in results.loaded.values():
        print(f"# {library['title']}: {library['path']} (version {library['version']})")
    if results.runs:
        print(f"# {results.as_dict()['conditions']}")
    compared = bool(results.references)
    print(
        f"\n{'figure':<44}"
        + "".join(f"{library.title:>13}" for library in results.libraries)
        + f"{'unit':>15}"
        + (f"   {results.subject.title} ahead" if compared else "")
    )
    for series in results.series.values():
        if "machine" in series.samples:
            print(f"{label(series):<44}{number(series.median('machine')):>13} {series.unit}, the machine itself")
            continue
        columns = [series.median(library.name) for library in results.libraries]
        line = f"{label(series):<44}" + "".join(f"{number(value):>13}" for value in columns) + f"{series.unit:>15}"
        ahead = results.ahead(series)
        if ahead is not None:
            line += f"{ahead:>12.2f}x" + ("" if round(ahead, 2) >= 1 else "  behind")
        if id(series) in worse:
            line += f"  REGRESSION (was {number(worse[id(series)])})"
        print(line)
    for failure in results.failures:
        print(f"FAILED {failure}")
