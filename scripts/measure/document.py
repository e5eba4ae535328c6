"""Tables in docs/PERFORMANCE.md that the tools write which measured them."""

import sys

from .libraries import TOP

DOCUMENT = f"{TOP}/docs/PERFORMANCE.md"


def write_between(begin, end, text):
    """Replaces what is between the two marks."""
    with open(DOCUMENT) as file:
        front, _, rest = file.read().partition(begin)
    _, found, back = rest.partition(end)
    if not found:
        sys.exit(f"{DOCUMENT} has no place for the table: {begin} and {end}")
    with open(DOCUMENT, "w") as file:
        file.write(f"{front}{begin}\n{text}\n{end}{back}")
