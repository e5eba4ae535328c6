"""Rust source text, as scripts/check-layers and scripts/check-circles read it."""

import re

# Text that may contain a path without using it: raw strings, strings, comments. (A character may be a quote.)
NOISE = re.compile(r"""r(\#*)".*?"\1|'(?:\\.|[^'\\\n])'|"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/""", re.S)


def code(file):
    """The text of a file without strings and comments; line numbers do not change."""
    return NOISE.sub(lambda noise: "\n" * noise.group().count("\n"), file.read_text())
