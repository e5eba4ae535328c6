"""Modules of scripts/bench and scripts/osu: running libraries in turn, and showing the results."""
